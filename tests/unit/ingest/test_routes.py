"""Routes in a running service: one topic to many tables, which appear with their values."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.errors import UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.report import ShareReport
from frazil.routes.share import Division, Owners, parse_template
from frazil.spec import PipelineSpec, load_spec
from frazil.types import NewValues
from frazil_testing.memory_catalog import MemoryCatalog
from tests.unit.ingest.service_scene import Scene, turn_until
from tests.unit.ingest.test_shared_reads import NotedJobs

EU = "{topics: /^eu\\.(.*)$/, to: n.$1}"
ROUTE = '{topic: t, by: type, to: "n.${type}", rest: n.rest}'


class Routed(Scene):
    """A pipeline file with one route."""

    def __init__(self, root: Path, route: str = ROUTE, *topics: str, tables: str = "") -> None:
        super().__init__(root, *(topics or ("t",)))
        self.route = route
        self.tables = f"tables: {tables}\n" if tables else ""

    def spec(self, *topics: str) -> PipelineSpec:  # noqa: ARG002
        path = self.root / "frazil.yaml"
        path.write_text(
            f'pipeline: p\nkafka: {{bootstrap.servers: "b:9092"}}\nroutes:\n  - {self.route}\n{self.tables}'
        )
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
    assert rest.progress.rest.records == {"no value": 2}
    assert {one.name: one.start for one in rest.progress.rest.derived} == {
        "n.a": {"t": {0: 0}},
        "n.b": {"t": {0: 0}},
        "n.c": {"t": {0: 4}},
    }


def test_a_table_that_appears_while_the_process_runs_is_read_with_the_others(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1})
    service = scene.start()
    assert turn_until(service, lambda: scene.numbers("n.a") == [1])
    scene.feed("t", {"type": "b", "n": 2}, {"type": "a", "n": 3})
    assert turn_until(service, lambda: (scene.numbers("n.a"), scene.numbers("n.b")) == ([1, 3], [2]))
    assert {table.name: table.position()["t"][0] for table in service.tables} == {"n.a": 3, "n.b": 3, "n.rest": 3}


def test_a_header_names_the_table(tmp_path: Path) -> None:
    scene = Routed(tmp_path, '{topic: t, by: header.kind, to: "n.${header.kind}", rest: n.rest}')
    scene.source.produce("t", 0, b'{"n": 1}', 5, headers=[("kind", b"x"), ("kind", b"a")])
    scene.source.produce("t", 0, b'{"n": 2}', 5, headers=[("kind", b"\xff")])
    scene.feed("t", {"n": 3})
    scene.catch_up()
    assert [scene.numbers(table) for table in ("n.a", "n.rest")] == [[1], [2, 3]]


def test_changes_go_to_the_table_of_their_source_and_deletes_too(tmp_path: Path) -> None:
    route = (
        '{topic: t, by: source.table, to: "n.${source.db}_${source.table}", rest: n.rest, envelope: debezium,'
        " mode: upsert, key_columns: [id]}"
    )
    scene = Routed(tmp_path, route)

    def change(op: str, table: str, key: int, word: str | None) -> dict[str, object]:
        row = {"id": key, "word": word}
        images = {"before": None if op == "c" else row, "after": None if op == "d" else row}
        return {"op": op, "source": {"db": "shop", "table": table}, **images}

    scene.feed("t", change("c", "orders", 1, "a"), change("c", "users", 1, "u"), change("c", "orders", 2, "b"))
    scene.feed(
        "t", change("u", "orders", 1, "c"), change("d", "orders", 2, None), None, change("c", "no table", 7, "x")
    )
    scene.catch_up()
    assert [(row["id"], row["word"]) for row in scene.rows("n.shop_orders")] == [(1, "c")]
    assert [(row["id"], row["word"]) for row in scene.rows("n.shop_users")] == [(1, "u")]
    assert [(row["id"], row["_op"]) for row in scene.rows("n.rest")] == [(7, "c")]
    assert scene.progress("n.rest").rest.records == {"no table name": 1, "no value": 1}


def test_topics_go_to_the_table_that_their_pattern_names_and_several_to_one(tmp_path: Path) -> None:
    scene = Routed(tmp_path, "{topics: /^(eu|us)\\.(.*)$/, to: n.$2}", "eu.orders", "us.orders", "eu.users", "other")
    scene.feed("eu.orders", {"n": 1})
    scene.feed("us.orders", {"n": 2})
    scene.feed("eu.users", {"n": 3})
    scene.feed("other", {"n": 4})
    assert [table.name for table in scene.catch_up()] == ["n.orders", "n.users"]
    assert [scene.numbers(table) for table in ("n.orders", "n.users")] == [[1, 2], [3]]
    scene.source.create("us.users")
    scene.feed("us.users", {"n": 5})
    scene.catch_up()
    assert scene.numbers("n.users") == [3, 5]


def test_a_table_under_tables_has_the_place_of_that_of_a_route_where_it_takes_the_topic(tmp_path: Path) -> None:
    tables = "{n.users: {topic: eu.users, metadata: [offset]}, n.totals: {topic: other}}"
    scene = Routed(tmp_path, EU, "eu.orders", "eu.users", "other", tables=tables)
    for topic, number in (("eu.orders", 1), ("eu.users", 2), ("other", 5)):
        scene.feed(topic, {"n": number})
    assert {table.name: scene.numbers(table.name) for table in scene.catch_up()} == {
        "n.orders": [1],
        "n.totals": [5],
        "n.users": [2],
    }
    assert scene.rows("n.users") == [{"n": 2, "_offset": 0}]


def test_a_table_under_tables_stops_where_a_route_would_feed_it_another_topic_until_it_takes_that(
    tmp_path: Path,
) -> None:
    scene = Routed(tmp_path, EU, "eu.orders", "other", tables="{n.users: {topic: other}}")
    scene.feed("other", {"n": 1})
    scene.catch_up()
    scene.source.create("eu.users")
    scene.feed("eu.users", {"n": 2})
    service = scene.start()
    stopped = next(table for table in service.tables if table.name == "n.users")
    assert turn_until(service, lambda: stopped.status.run_state is RunState.STOPPED)
    assert "makes it of the topic `eu.users`" in stopped.status.reason
    scene.tables = "tables: {n.users: {topics: [other, eu.users]}}\n"
    scene.catch_up()
    assert scene.numbers("n.users") == [1, 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        ({"deep": 1}, "no table name"),
        ("", "no table name"),
        ("a b", "no table name"),
        ("../x", "no table name"),
        ("x..y", "no table name"),
        ("x\x00", "no table name"),
        ("x" * 201, "no table name"),
        ("x__dead_letters", "no table name"),
        ("c#", "no table name"),
        ("x?y", "no table name"),
        ("A", "name of another table"),
        ("REST", "name of another table"),
    ],
)
def test_a_value_that_makes_no_table_of_its_own_goes_to_the_rest_and_is_counted(
    tmp_path: Path, value: object, reason: str
) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1}, {"type": "a", "n": 2})
    scene.catch_up()
    scene.feed("t", {"type": value, "n": 3})
    assert [table.name for table in scene.catch_up()] == ["n.a", "n.rest"]
    assert scene.numbers("n.rest") == [3]
    assert scene.progress("n.rest").rest.records == {reason: 1}


@pytest.mark.parametrize("place", [0, 1, 3])
def test_an_odd_record_does_not_take_the_table_of_the_others(tmp_path: Path, place: int) -> None:
    """`A` comes before `a` as text, and one record with it sent all others to the rest, for good."""
    scene = Routed(tmp_path)
    records = [{"type": "a", "n": number} for number in (1, 2, 3)]
    records.insert(place, {"type": "A", "n": 9})
    scene.feed("t", *records)
    assert [table.name for table in scene.catch_up()] == ["n.a", "n.rest"]
    scene.feed("t", {"type": "A", "n": 8}, {"type": "A", "n": 7})
    scene.catch_up()
    assert (sorted(scene.numbers("n.a")), sorted(scene.numbers("n.rest"))) == ([1, 2, 3], [7, 8, 9])
    assert scene.progress("n.rest").rest.records == {"name of another table": 3}


def test_ten_thousand_values_make_as_many_tables_as_the_limit_allows(tmp_path: Path) -> None:
    scene = Routed(tmp_path, '{topic: t, by: type, to: "n.v${type}", rest: n.rest, limit: 3}')
    scene.feed("t", *({"type": n, "n": n} for n in range(10_000)))
    with capture_logs() as logs:
        assert len(scene.catch_up()) == 4
    assert len(scene.numbers("n.rest")) == 9_997
    (reached,) = [one for one in logs if one["event"] == "route_limit_reached"]
    assert (reached["limit"], reached["table"]) == (3, "n.rest")


@pytest.mark.parametrize("types", ["zya", "azy", "yaz"])
def test_values_that_come_first_get_the_tables_below_the_limit(tmp_path: Path, types: str) -> None:
    """The order of their texts would give a name that an odd record makes up the table of those that came before it."""
    scene = Routed(tmp_path, '{topic: t, by: type, to: "n.${type}", rest: n.rest, limit: 2}')
    scene.feed("t", *({"type": kind, "n": n} for n, kind in enumerate(types * 2)))
    assert {table.name for table in scene.catch_up()} == {*(f"n.{kind}" for kind in types[:2]), "n.rest"}
    assert scene.numbers("n.rest") == [2, 5]


def new(values: str, partition: int, offset: int, count: int = 1) -> NewValues:
    return NewValues((values,), "t", partition, offset, count)


def test_the_first_values_are_the_same_however_tasks_divide_the_partitions() -> None:
    division = Division("n.rest", parse_template("n.${type}"), limit=2)
    reports = [
        ShareReport((new("z", 0, 100), new("m", 0, 103, 2))),
        ShareReport((new("a", 1, 7), new("z", 1, 9))),
        ShareReport((new("b", 1, 11), new("z", 0, 140))),
    ]
    start = {"t": {0: 100, 1: 5}}
    for parts in permutations(reports):
        merged = ShareReport.merge(parts)
        assert sum(one.count for one in merged.new_values) == 7
        assert [table.name for table in Owners(division, ()).derive(merged.new_values, start)] == ["n.z", "n.a"]


def test_values_beyond_the_limit_get_tables_once_it_is_raised(tmp_path: Path) -> None:
    scene = Routed(tmp_path, '{topic: t, by: type, to: "n.${type}", rest: n.rest, limit: 1}')
    scene.feed("t", {"type": "a", "n": 1}, {"type": "b", "n": 2})
    scene.catch_up()
    scene.route = scene.route.replace("limit: 1", "limit: 2")
    scene.feed("t", {"type": "b", "n": 3})
    scene.catch_up()
    assert [scene.numbers(table) for table in ("n.a", "n.b", "n.rest")] == [[1], [3], [2]]


def test_a_record_that_cannot_be_read_is_a_dead_letter_of_the_rest(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1}, {"n": 2}, b'{"type": "a", ')
    scene.catch_up()
    assert (scene.numbers("n.a"), scene.numbers("n.rest")) == ([1], [2])
    assert scene.dead_letters("n.rest") == [("t", 0, 2)]


def test_a_table_that_is_dropped_is_loaded_again_from_where_its_first_record_was(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1}, {"type": "b", "n": 2}, {"type": "a", "n": 3})
    scene.catch_up()
    scene.catalog.drop("n.a")
    scene.catch_up()
    assert [scene.numbers(table) for table in ("n.a", "n.b")] == [[1, 3], [2]]


def test_a_table_of_the_rest_goes_on_as_a_table_of_its_own(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", {"type": "a", "n": 1}, {"n": 2})
    scene.catch_up()
    scene.feed("t", {"type": "a", "n": 3}, {"n": 4})
    scene.route = '{topic: u, by: type, to: "m.${type}", rest: m.rest}'
    scene.tables = "tables: {n.rest: {topic: t, metadata: [topic, partition, offset]}}\n"
    assert [table.name for table in scene.catch_up()] == ["m.rest", "n.rest"]
    assert (scene.numbers("n.a"), scene.numbers("n.rest")) == ([1], [2, 3, 4])


def test_tables_of_a_route_are_read_once_however_many_they_are(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.feed("t", *({"type": f"v{n % 30}", "n": n} for n in range(90)))
    scene.catch_up()
    jobs = scene.jobs = NotedJobs(scene.source, scene.clock)
    scene.feed("t", *({"type": f"v{n % 30}", "n": n} for n in range(90, 180)))
    service = scene.start()
    assert turn_until(service, lambda: all(table.position()["t"][0] == 180 for table in service.tables))
    assert [len(one) for one in jobs.noted] == [31]


@pytest.mark.parametrize(
    ("columns", "jobs_of_tables"), [(", columns: {n: long, type: string}", [1, 31]), ("", [1, 1, 30, 31])]
)
def test_new_tables_of_a_route_are_read_together_from_the_first(
    tmp_path: Path, columns: str, jobs_of_tables: list[int]
) -> None:
    scene = Routed(tmp_path, f"{ROUTE[:-1]}{columns}}}")
    jobs = scene.jobs = NotedJobs(scene.source, scene.clock)
    scene.feed("t", *({"type": f"v{n % 30}", "n": n} for n in range(90)))
    scene.catch_up()
    assert [len(one) for one in jobs.noted] == jobs_of_tables, "one finds the values, and each further one serves all"


class PartlyDown(MemoryCatalog):
    """A catalog that does not answer for one table."""

    def load(self, table: str) -> TableState | None:
        if table == "n.down":
            raise UnavailableError("the catalog does not answer", where=table)
        return super().load(table)


def test_new_tables_of_a_route_do_not_wait_for_one_that_the_catalog_does_not_load(tmp_path: Path) -> None:
    scene = Routed(tmp_path)
    scene.catalog = PartlyDown(tmp_path, "p")
    scene.feed("t", {"type": "a", "n": 1}, {"type": "down", "n": 2}, {"n": 3})
    service = scene.start()
    assert turn_until(service, lambda: [scene.numbers(table) for table in ("n.a", "n.rest")] == [[1], [3]])
    states = {table.name: table.status.run_state for table in service.tables}
    assert states == {"n.a": RunState.WAITING, "n.down": RunState.BACKING_OFF, "n.rest": RunState.WAITING}
