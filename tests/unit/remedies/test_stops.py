"""What stops a table for the state of the world around it, and that it continues once the remedy is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import SpecError
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from tests.unit.remedies.followed import is_told
from tests.unit.remedies.operator import Operator


def assert_stopped(table: Table, remedy: str) -> None:
    """It stands still and reports what to do."""
    assert table.status.run_state in (RunState.STOPPED, RunState.BACKING_OFF, RunState.WAITING), table.status.run_state
    assert is_told(remedy, table.status.remedy), (table.status.reason, table.status.remedy)


def test_another_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    monkeypatch.setattr(operator.source, "cluster_id", lambda: "other")
    operator.feed("a", {"x": 2})
    remedy = "point `bootstrap.servers` at that cluster, or use another `pipeline` name for this one"
    assert_stopped(operator.run(), remedy)
    text = "tables: {n.a: {topic: a}}\n"
    assert operator.run_file(text, "q")["n.a"].status.run_state is RunState.WAITING
    assert [row["x"] for row in operator.values()] == [1, 1, 2]
    monkeypatch.undo()
    assert operator.run().status.run_state is RunState.WAITING


def test_a_topic_that_was_made_again(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    operator.source.create("a")
    operator.feed("a", {"x": 2}, {"x": 3})
    assert_stopped(operator.run(), "to load the new topic, use another table, or another `pipeline` name for this one")
    assert operator.run(table="n.b").status.run_state is RunState.WAITING
    assert operator.run_file("tables: {n.a: {topic: a}}\n", "q")["n.a"].status.run_state is RunState.WAITING
    assert (len(operator.values("n.b")), len(operator.values())) == (2, 3)


def test_records_that_are_gone(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    operator.feed("a", {"x": 2}, {"x": 3})
    operator.source.trim("a", 0, 2)
    assert_stopped(
        operator.run(), "set `on_data_loss: skip` on the table to continue from the first record that still exists"
    )
    assert operator.run("on_data_loss: skip").status.run_state is RunState.WAITING
    assert [row["x"] for row in operator.values()] == [1, 3]


def test_a_topic_that_ends_early(tmp_path: Path) -> None:
    operator = Operator(tmp_path, *({"x": n} for n in range(3)))
    operator.run()
    operator.source.by_name["a"].partitions[0][:] = operator.source.by_name["a"].partitions[0][:2]
    remedy = (
        "the topic lost records (an unclean leader election, or it was recreated): check that the table and the topic"
        " belong together, then set `start` for a new table"
    )
    assert_stopped(operator.run(), remedy)
    assert operator.run("start: {0: 1}", "n.b").status.run_state is RunState.WAITING
    assert [row["x"] for row in operator.values("n.b")] == [1]


def test_progress_that_was_expired(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    ours = operator.catalog.ancestors("n.a")[0].id
    operator.catalog.append_foreign("n.a")
    operator.catalog.expire("n.a", ours)
    remedy = "restore a snapshot with the summary key frazil.….offsets, or drop the table to load it again"
    assert_stopped(operator.run(), remedy)
    operator.catalog.drop("n.a")
    assert operator.run().status.run_state is RunState.WAITING
    assert [row["x"] for row in operator.values()] == [1]


def test_a_table_of_format_version_1(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.catalog.create("n.a", new_schema([("x", parse_type("long"))]), {}, 1)
    settings = "mode: upsert, key_columns: [x]"
    remedy = "upgrade the table, in Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2')"
    assert_stopped(operator.run(settings), remedy)
    operator.catalog.upgrade("n.a", 2)
    assert operator.run(settings).status.run_state is RunState.WAITING
    assert operator.values() == [{"x": 1}]


def test_topics_whose_tables_are_taken(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1}, topics=("a", "a__dead_letters", "..."))
    tables = operator.run_file("namespace: n\ntopics: /./\n")
    assert_stopped(
        tables["n.a__dead_letters"],
        "leave its topic out of `topics`, or give one of the two a table of its own under `tables`",
    )
    assert_stopped(tables["n...."], "leave its topic out of `topics`, and give it a table under `tables`")
    own = "tables: {n.dead_letters: {topic: a__dead_letters}, n.dots: {topic: '...'}}\n"
    operator.feed("a__dead_letters", {"x": 2})
    operator.feed("...", {"x": 3})
    tables = operator.run_file(f"namespace: n\ntopics: /^a$/\n{own}")
    assert {name: operator.values(name) for name in tables} == {
        "n.a": [{"x": 1}],
        "n.dead_letters": [{"x": 2}],
        "n.dots": [{"x": 3}],
    }


def test_topics_whose_names_hive_would_change(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1}, topics=("a", "A", "a-1"))
    hive = "catalog: {type: hive, uri: 'thrift://h', warehouse: w}\n"
    tables = operator.run_file(f"{hive}namespace: n\ntopics: /./\n")
    for name in ("n.A", "n.a-1"):
        assert_stopped(tables[name], "leave its topic out of `topics`, and give it a table under `tables`")
    assert operator.values("n.a") == [{"x": 1}]
    operator.feed("A", {"x": 2})
    tables = operator.run_file(f"{hive}namespace: n\ntopics: /^a$/\ntables: {{n.a_2: {{topic: A}}}}\n")
    assert {name: operator.values(name) for name in tables} == {"n.a": [{"x": 1}], "n.a_2": [{"x": 2}]}


class _LowerCase(dict[str, Any]):
    """Names of tables as many catalogs keep them."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name.lower())

    def __setitem__(self, name: str, table: Any) -> None:
        super().__setitem__(name.lower(), table)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class _WithoutAccents(_LowerCase):
    """Names of tables as MySQL compares them."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).replace("é", "e"))

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name.replace("é", "e"))

    def __setitem__(self, name: str, table: Any) -> None:
        super().__setitem__(name.replace("é", "e"), table)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.replace("é", "e"), default)


def test_values_of_a_route_whose_tables_the_catalog_takes_for_one(tmp_path: Path) -> None:
    """Each would skip what the other has read."""
    operator = Operator(tmp_path)
    operator.catalog._tables = _WithoutAccents()
    route = 'routes: [{topic: a, by: type, to: "n.${type}", rest: n.rest}]\n'
    operator.feed("a", {"type": "cafe", "x": 1})
    assert operator.run_file(route)["n.cafe"].status.run_state is RunState.WAITING
    operator.feed("a", {"type": "café", "x": 2}, {"type": "cafe", "x": 3})
    operator.run_file(route)
    for name in ("n.cafe", "n.café"):
        table = operator.run_file(route)[name]
        assert "it ignores case or accents" in table.status.reason, table.status
    operator.catalog._tables = dict(operator.catalog._tables)
    operator.run_file(route)
    assert {name: [row["x"] for row in operator.values(name)] for name in ("n.cafe", "n.café")} == {
        "n.cafe": [1, 3],
        "n.café": [2],
    }


@pytest.mark.parametrize("first", ["a", "A"])
def test_topics_whose_tables_the_catalog_takes_for_one(tmp_path: Path, first: str) -> None:
    operator = Operator(tmp_path, topics=("a", "A"))
    operator.catalog._tables = _LowerCase()
    operator.feed(first, {"x": 1})
    operator.run_file("namespace: n\ntopics: /./\n")
    operator.feed("a", {"x": 2})
    operator.feed("A", {"x": 3})
    for table in operator.run_file("namespace: n\ntopics: /./\n").values():
        assert_stopped(
            table, "leave its topic out of `topics`, or give one of the two a table of its own under `tables`"
        )
    assert operator.values() == [{"x": 1}], "no record of the other topic"
    own = "tables: {n.small: {topic: a}, n.big: {topic: A}}\n"
    tables = operator.run_file(own)
    assert {table.status.run_state for table in tables.values()} == {RunState.WAITING}
    assert len(operator.values("n.small") + operator.values("n.big")) == 3


@pytest.mark.parametrize(
    ("topics", "pattern", "remedy"),
    [
        (("orders",), "ordesr", "correct the expression; the nearest topic is `…`"),
        (("zz",), "orders", "correct the expression; topics are …"),
        ((), "orders", "correct the expression; there are no topics"),
    ],
)
def test_a_pattern_that_matches_nothing(tmp_path: Path, topics: tuple[str, ...], pattern: str, remedy: str) -> None:
    operator = Operator(tmp_path, topics=topics)
    with pytest.raises(SpecError) as refused:
        operator.run_file(f"namespace: n\ntopics: /^{pattern}$/\n")
    assert is_told(remedy, refused.value.remedy), refused.value.remedy
    name = topics[0] if topics else "orders"
    if not topics:
        operator.source.create(name)
    operator.feed(name, {"x": 1})
    assert list(operator.run_file(f"namespace: n\ntopics: /^{name}$/\n")) == [f"n.{name}"]
    assert operator.values(f"n.{name}") == [{"x": 1}]


def test_a_topic_that_does_not_exist(tmp_path: Path) -> None:
    operator = Operator(tmp_path, topics=())
    assert_stopped(operator.run(), "create the topic, or correct its name")
    operator.source.create("a")
    operator.feed("a", {"x": 1})
    assert operator.run().status.run_state is RunState.WAITING
    assert operator.values() == [{"x": 1}]


def test_a_declared_column_of_another_type(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    operator.feed("a", {"x": 2})
    remedy = (
        "take `…` out of `columns`, or write its type as the table has it; or declare the field under another name,"
        " `columns: {NAME: {type: …, field: …}}`"
    )
    stopped = operator.run("columns: {x: {type: string, coerce: true}}")
    assert_stopped(stopped, remedy)
    assert "{type: string, coerce: true, field: x}" in stopped.status.remedy
    assert operator.run("columns: {x2: {type: string, coerce: true, field: x}}").status.run_state is RunState.WAITING
    operator.feed("a", {"x": 3})
    assert operator.run("columns: {x: long}").status.run_state is RunState.WAITING
    operator.feed("a", {"x": 4})
    assert operator.run().status.run_state is RunState.WAITING
    assert [(row["x"], row["x2"]) for row in operator.values()] == [(1, None), (None, "2"), (3, None), (4, None)]


def test_a_declared_column_that_differs_in_capitals(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1})
    operator.run()
    operator.feed("a", {"x": 2})
    assert_stopped(operator.run("columns: {X: long}"), "write `…` under `columns`, as the table has it")
    assert operator.run("columns: {x: long}").status.run_state is RunState.WAITING
    assert operator.values() == [{"x": 1}, {"x": 2}]


def test_a_dead_letter_table_that_is_something_else(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"x": 1}, {"x": "bad"})
    operator.catalog.create("n.a__dead_letters", new_schema([("x", parse_type("long"))]), {}, 2)
    settings = "columns: {x: long}"
    assert_stopped(operator.run(settings), "name another one: `dead_letters: {table: …}`")
    assert operator.run(f"{settings}, dead_letters: {{table: n.bad}}").status.run_state is RunState.WAITING
    assert (operator.values(), len(operator.catalog.data_files("n.bad"))) == ([{"x": 1}], 1)


def test_a_key_that_is_a_struct(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"k": {"id": 1}, "x": 1})
    assert_stopped(operator.run("mode: upsert, key_columns: [k]"), "name the columns inside it, or another one")
    assert operator.run("mode: upsert, key_columns: [k.id]").status.run_state is RunState.WAITING
    assert operator.values() == [{"k": {"id": 1}, "x": 1}]


_LIST_AS_KEY = (
    "name other columns under `key_columns`, or read the topic into a table with `mode: append`: a list or map cannot"
    " identify rows; if only some records have one there, declare the column, `columns: {NAME: TYPE}`: they become"
    " dead letters"
)


@pytest.mark.parametrize(
    "settings",
    [
        "key: {format: json}",
        "key_columns: [k]",
        "key_columns: [k.element], columns: {k: list<long>, id: long, x: long}",
    ],
)
def test_a_key_that_is_a_list(tmp_path: Path, settings: str) -> None:
    operator = Operator(tmp_path)
    for x in (1, 2):
        value = json.dumps({"k": [1], "id": 7, "x": x}).encode()
        operator.source.produce("a", 0, value, operator.clock.now_ms(), key=b'{"k":[1],"id":7}')
    assert_stopped(operator.run(f"mode: upsert, {settings}"), _LIST_AS_KEY)
    assert operator.catalog.load("n.a") is None
    assert operator.run("mode: upsert, key_columns: [id]").status.run_state is RunState.WAITING
    assert operator.run("mode: append", "n.b").status.run_state is RunState.WAITING
    assert (operator.values(), len(operator.values("n.b"))) == ([{"k": [1], "id": 7, "x": 2}], 2)


def test_a_first_record_alone_with_a_list_as_key_stops_nothing(tmp_path: Path) -> None:
    operator = Operator(tmp_path, {"k": [1], "x": 1}, {"k": 2, "x": 2})
    upsert = "mode: upsert, key_columns: [k], dead_letters: {stop_above: 100%}"
    assert operator.run(upsert).status.run_state is RunState.WAITING
    assert (operator.values(), operator.dead_letters("n.a")) == ([{"k": 2, "x": 2}], [("a", 0, 0)])


@pytest.mark.parametrize("name", ["s", "k"])
def test_an_order_that_is_no_plain_value(tmp_path: Path, name: str) -> None:
    records = [{"id": 7, "s": {"at": at}, "k": [at], "x": x} for at, x in ((2, 1), (1, 2))]
    operator = Operator(tmp_path, *records)
    remedy = (
        "name another column under `order_by`, such as one that `columns` makes of a field inside it, or remove it to"
        " apply changes in the order of their offsets"
    )
    upsert = "mode: upsert, key_columns: [id]"
    assert_stopped(operator.run(f"{upsert}, order_by: {name}"), remedy)
    own = "order_by: at, columns: {at: {type: long, field: s.at}}"
    assert operator.run(f"{upsert}, {own}").status.run_state is RunState.WAITING
    assert operator.run(upsert, "n.b").status.run_state is RunState.WAITING
    assert [row["x"] for table in ("n.a", "n.b") for row in operator.values(table)] == [1, 2]


def test_a_partition_field_of_the_same_name(tmp_path: Path) -> None:
    settings = "columns: {at: timestamptz}, partition_by: [day(at)]"
    operator = Operator(tmp_path, {"at": "2026-01-01T00:00:00Z"})
    operator.run(settings)
    operator.feed("a", {"at": "2026-01-01T00:00:00Z", "at_day": 1})
    remedy = "leave it out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: …}}`"
    assert_stopped(operator.run(f"{settings}, on_bad_record: stop"), remedy)
    own = settings.replace("{at:", "{d: {type: long, field: at_day}, at:")
    assert operator.run(own).status.run_state is RunState.WAITING
    operator.feed("a", {"at": "2026-01-01T00:00:00Z", "at_day": 1})
    assert operator.run(f"{settings}, exclude: [at_day]").status.run_state is RunState.WAITING
    assert [row.get("d") for row in operator.values()] == [None, 1, None]
