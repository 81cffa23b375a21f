"""Routes in a running service: one topic to many tables, which appear with their values."""

from __future__ import annotations

from pathlib import Path

from frazil.spec import PipelineSpec, load_spec
from tests.unit.ingest.service_scene import Scene

ROUTE = '{topic: t, by: type, to: "n.${type}", rest: n.rest}'


class Routed(Scene):
    """A pipeline file with one route."""

    def __init__(self, root: Path, route: str = ROUTE, *topics: str) -> None:
        super().__init__(root, *(topics or ("t",)))
        self.route = route

    def spec(self, *topics: str) -> PipelineSpec:  # noqa: ARG002
        path = self.root / "frazil.yaml"
        path.write_text(f'pipeline: p\nkafka: {{bootstrap.servers: "b:9092"}}\nroutes:\n  - {self.route}\n')
        return load_spec(path)

    def numbers(self, table: str) -> list[int]:
        """The numbers of the rows of a table; none where it does not exist."""
        return sorted(row["n"] for row in self.rows(table)) if self.catalog.load(table) is not None else []


def test_records_go_to_the_table_of_their_value_and_tables_appear_with_values(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1}, {"type": "b", "n": 2, "word": "x"}, {"n": 3}, {"type": "a", "n": 4})
    scene.catch_up()
    assert [scene.numbers(table) for table in ("n.a", "n.b", "n.rest")] == [[1, 4], [2], [3]]
    scene.feed("t", {"type": "c", "n": 5}, {"type": "b", "n": 6}, {"type": None, "n": 7})
    tables = scene.catch_up()
    assert [scene.numbers(table) for table in ("n.a", "n.b", "n.c", "n.rest")] == [[1, 4], [2, 6], [5], [3, 7]]
    assert [table.name for table in tables] == ["n.a", "n.b", "n.c", "n.rest"]
    rest = scene.catalog.load("n.rest")
    assert rest is not None
    assert rest.progress.rest_records == {"no value": 2}
    assert {one.name: one.start for one in rest.progress.routed} == {
        "n.a": {"t": {0: 0}},
        "n.b": {"t": {0: 0}},
        "n.c": {"t": {0: 4}},
    }
