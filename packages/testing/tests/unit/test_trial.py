"""What `frazil try` shows of records in memory: rows, changes, drops, errors, and nothing that is protected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.types import LongType

from frazil.decode.settings import WriterSchema
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.schemas import Schemas
from frazil.schema.evolve import new_schema
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.trial import Trial, TriedTable
from frazil_testing.tried_record import TriedRecord
from tests.unit.ingest.test_route_formats import FORMATS
from tests.unit.ops.conftest import Scenario
from tests.unit.rows.test_writer_schemas import framed

Try = Callable[..., TriedTable]


@pytest.fixture
def run(scenario: Scenario, queries: SparkQueries) -> Try:
    def tried(
        text: str, name: str = "s.a", count: int = 20, *, is_oldest: bool = False, schemas: Schemas | None = None
    ) -> TriedTable:
        trial = Trial(scenario.spec(text), scenario.source, scenario.catalog, scenario.read, schemas, queries)
        return trial.run(name, count, is_oldest=is_oldest)

    return tried


def produce(scenario: Scenario, *values: dict[str, Any] | bytes | None, topic: str = "a", keys: Any = ()) -> None:
    if topic not in scenario.source.by_name:
        scenario.source.create(topic, 1)
    for number, value in enumerate(values):
        raw = json.dumps(value).encode() if isinstance(value, dict) else value
        key = json.dumps(keys[number]).encode() if keys else None
        scenario.source.produce(topic, 0, raw, 1000 + number, key=key)


def shown(record: TriedRecord) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    return record.outcome, [(change.change, change.row) for change in record.output]


ORDERS: tuple[dict[str, Any], ...] = (
    {"id": 1, "email": "A@X", "amount": "1.5", "kind": "order"},
    {"id": 2, "email": "B@X", "amount": "one", "kind": "order"},
    {"id": 3, "email": "C@X", "amount": "3", "kind": "visit"},
)
_QUERY = "select id, lower(email) as email, cast(amount as decimal(5,2)) as amount from records where kind = 'order'"
SELECT = f'select: "{_QUERY}"'


def test_each_record_is_shown_with_its_row_what_drops_it_or_its_error(scenario: Scenario, run: Try) -> None:
    produce(scenario, *ORDERS, b"{")
    found = run(f"tables: {{s.a: {{topic: a, {SELECT}}}}}\n")
    assert found.columns == (("id", "long"), ("email", "string"), ("amount", "decimal(5, 2)"))
    row, failed, dropped, broken = found.records
    assert shown(row) == ("written", [("append", {"id": 1, "email": "a@x", "amount": "1.50"})])
    assert row.input == (ORDERS[0],)
    assert (failed.outcome, failed.input) == ("failed", (ORDERS[1],))
    assert failed.error is not None
    assert (failed.error.error_class, failed.error.path) == ("failed_expression", "amount")
    assert "CAST_INVALID_INPUT" in failed.error.message
    assert (dropped.outcome, dropped.dropped, dropped.input) == ("dropped", ("where",), (ORDERS[2],))
    assert (broken.outcome, broken.input, broken.value) == ("failed", (), b"{")
    assert found.counts["failed"] == 2
    assert scenario.catalog.load("s.a") is None


def test_what_spark_computes_of_a_query_is_shown(scenario: Scenario, run: Try) -> None:
    produce(scenario, {"id": 1, "line": "a/7"}, {"id": 2, "line": "a/x"}, {"id": 3, "line": None, "note": "n"})
    query = "select *, cast(regexp_extract(line, '/(.*)', 1) as int) as number from records where not line rlike '^b'"
    found = run(f'tables: {{s.a: {{topic: a, select: "{query} or line is null"}}}}\n')
    first, failed, last = found.records
    assert shown(first) == ("written", [("append", {"id": 1, "line": "a/7", "note": None, "number": 7})])
    assert failed.error is not None
    assert (failed.error.error_class, failed.error.path) == ("failed_expression", "number")
    assert shown(last) == ("written", [("append", {"id": 3, "line": None, "note": "n", "number": None})])


def test_a_uuid_is_shown_as_it_is_written_at_any_depth(scenario: Scenario, run: Try) -> None:
    one = "00000000-0000-0000-0000-0000000000ff"
    value = {"uid": one, "of": {"uid": one, "all": [one, None]}, "by": {"k": one}}
    produce(scenario, value)
    columns = "{uid: uuid, of: 'struct<uid: uuid, all: list<uuid>>', by: 'map<string, uuid>'}"
    [found] = run(f"tables: {{s.a: {{topic: a, columns: {columns}, where: 'true'}}}}\n").records
    expected = value | {"by": [["k", one]]}
    assert (found.input, shown(found)[1]) == ((expected,), [("append", expected)])


def test_records_without_fields_are_rows_of_a_table_with_metadata_alone(scenario: Scenario, run: Try) -> None:
    produce(scenario, {}, {"a": None})
    found = run("tables: {s.a: {topic: a, metadata: [offset]}}\n")
    assert [shown(one) for one in found.records] == [("written", [("append", {"_offset": n})]) for n in range(2)]
    with pytest.raises(UnavailableError, match="no record has a field yet, so the table has no column") as caught:
        run("tables: {s.a: {topic: a}}\n")
    assert caught.value.remedy == "produce records with fields, or declare `columns`"
    assert shown(run("tables: {s.a: {topic: a, columns: {a: int}}}\n").records[1])[0] == "written"


def test_the_newest_records_are_tried_or_the_oldest_and_types_are_those_of_more(scenario: Scenario, run: Try) -> None:
    produce(scenario, *({"id": n} for n in range(30)), {"id": 1.5}, {"id": 30})
    text = "tables: {s.a: {topic: a, metadata: [offset]}}\n"
    assert [one.record.offset for one in run(text, count=3).records] == [29, 30, 31]
    assert run(text, count=3).columns[0] == ("id", "double")
    assert [shown(one)[1] for one in run(text, count=1, is_oldest=True).records] == [
        [("append", {"id": 0.0, "_offset": 0})]
    ]


def test_changes_of_an_upsert_table_are_shown_as_upserts_and_deletes(scenario: Scenario, run: Try) -> None:
    def change(op: str, before: Any, after: Any) -> dict[str, Any]:
        return {"before": before, "after": after, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}

    on, off = {"id": 1, "name": "ann", "state": "on"}, {"id": 1, "name": "ann", "state": "off"}
    values = (change("c", None, on), change("u", None, off), change("d", on, None))
    produce(scenario, *values, keys=[{"id": 1}] * 3)
    select = "select: \"select id as person, upper(name) as name from records where state = 'on'\""
    settings = f"topic: a, envelope: debezium, mode: upsert, key_columns: [person], {select}"
    found = run(f"tables: {{s.a: {{{settings}}}}}\n").records
    assert [shown(one) for one in found] == [
        ("written", [("upsert", {"person": 1, "name": "ANN"})]),
        ("written", [("delete", {"person": 1})]),
        ("written", [("delete", {"person": 1})]),
    ]
    assert [one.dropped for one in found] == [(), ("where",), ()]
    assert found[1].input == (off,)


def test_key_columns_that_the_records_name_are_learned_from_them(scenario: Scenario, run: Try) -> None:
    produce(scenario, {"id": 1, "n": 5}, None, keys=[{"id": 1}, {"id": 1}])
    found = run("tables: {s.a: {topic: a, mode: upsert, key: {format: json}}}\n").records
    assert [shown(one) for one in found] == [
        ("written", [("upsert", {"id": 1, "n": 5})]),
        ("written", [("delete", {"id": 1})]),
    ]


def test_the_table_of_the_rest_shows_where_each_record_goes(scenario: Scenario, run: Try) -> None:
    produce(scenario, {"type": "x", "a": 1}, {"type": "y", "b": 2}, {"a": 3})
    text = 'routes: [{topic: a, by: type, to: "s.${type}", rest: s.rest, filter: "length(type) > 0"}]\n'
    found = run(text, "s.rest").records
    assert [(one.table, shown(one)[0]) for one in found] == [
        ("s.x", "written"),
        ("s.y", "written"),
        ("s.rest", "written"),
    ]
    assert [one.record.offset for one in run(text, "s.y").records] == [1]


@pytest.mark.parametrize(
    "settings",
    [
        "",
        ', select: "select id, email, card from records"',
        ', rescue: true, select: "select id, email, card from records"',
        ", metadata: [key, headers], mode: upsert, key_columns: [id]",
    ],
)
def test_nothing_protected_is_shown(scenario: Scenario, run: Try, settings: str) -> None:
    scenario.root.joinpath("key").write_text("k" * 64)
    produce(
        scenario,
        {"id": 1, "email": "ann@example.org", "card": "4111-2222", "ssn": "123-45"},
        {"id": "two", "email": 3, "card": {"ssn": "123-45"}},
        b"ann@example.org",
        keys=["ann@example.org", 2, 3],
    )
    protect = "protect: {email: hash, card: mask, ssn: drop}, protect_key: '${file:key}'"
    text = f"tables: {{s.a: {{topic: a, columns: {{id: long}}, {protect}{settings}}}}}\n"
    found = run(text)
    assert [one.outcome for one in found.records][::2] == ["written", "failed"]
    assert "ssn" not in found.records[0].input[0]
    shown_text = repr([(one.input, one.output, one.error, one.value) for one in found.records])
    assert [secret for secret in ("ann@", "4111", "123-45") if secret in shown_text] == []


def test_a_table_that_exists_keeps_its_types_and_gets_no_column(scenario: Scenario, run: Try) -> None:
    scenario.catalog.create("s.a", new_schema([("id", LongType())]), {}, 2)
    produce(scenario, {"id": 1, "new": "x"}, {"id": "text"})
    found = run("tables: {s.a: {topic: a}}\n")
    assert [shown(one) for one in found.records] == [
        ("written", [("append", {"id": 1, "new": "x"})]),
        ("failed", []),
    ]
    state = scenario.catalog.load("s.a")
    assert state is not None
    assert [one.name for one in state.schema.fields] == ["id"]


def test_rows_of_exploded_lists_are_shown_beside_their_record(scenario: Scenario, run: Try) -> None:
    produce(scenario, {"id": 1, "many": [1, 2]}, {"id": 2, "many": []})
    found = run('tables: {s.a: {topic: a, select: "select id, explode(many) as one from records"}}\n').records
    assert shown(found[0]) == ("written", [("append", {"id": 1, "one": 1}), ("append", {"id": 1, "one": 2})])
    assert (found[1].outcome, found[1].dropped) == ("dropped", ("explode",))


def test_records_are_read_with_the_schemas_of_the_registry_that_they_name(scenario: Scenario, run: Try) -> None:
    registry, field = MemoryRegistry(), {"name": "n", "type": "int"}
    schema = json.dumps({"type": "record", "name": "R", "fields": [field]})
    (value,) = framed(registry.register("avro", schema), WriterSchema("avro", schema), {"n": 5})
    produce(scenario, value, b"\x00\x00\x00\x00\x63")
    settings = 'topic: a, value: {format: avro}, select: "select n + 1 as m from records"'
    text = f"registry: {{url: http://r}}\ntables: {{s.a: {{{settings}}}}}\n"
    row, unknown = run(text, schemas=Schemas(registry)).records
    assert (row.input, shown(row)) == (({"n": 5},), ("written", [("append", {"m": 6})]))
    assert unknown.error is not None
    assert unknown.error.error_class == "unknown_schema_id"


@pytest.mark.parametrize("name", FORMATS)
def test_records_of_every_format_and_envelope_are_tried(scenario: Scenario, run: Try, name: str) -> None:
    registry = MemoryRegistry()
    encode, _, settings = FORMATS[name]
    produce(scenario, encode(registry, 5, "a"), encode(registry, 6, "a"), b"{")
    table = f'{{topic: a, {settings}, select: "select n + 1 as m from records where n < 6"}}'
    text = f"registry: {{url: http://r}}\ntables: {{s.a: {table}}}\n"
    row, dropped, broken = run(text, schemas=Schemas(registry)).records
    [(change, values)] = shown(row)[1]
    assert (row.outcome, change, values["m"]) == ("written", "append", 6)
    assert (dropped.outcome, dropped.dropped) == ("dropped", ("where",))
    assert (broken.outcome, broken.value) == ("failed", b"{")


def test_a_topic_without_records_shows_none(scenario: Scenario, run: Try) -> None:
    scenario.source.create("a", 1)
    assert run('tables: {s.a: {topic: a, select: "select id from records"}}\n').records == ()


@pytest.mark.parametrize(
    ("text", "name", "error", "words"),
    [
        ("tables: {s.orders: {topic: a}}\n", "s.order", SpecError, "did you mean `s.orders`"),
        ("tables: {s.a: {topic: gone}}\n", "s.a", UnavailableError, "gone does not exist"),
        ('tables: {s.a: {topic: a, select: "select emial from records"}}\n', "s.a", UnavailableError, "`email`"),
        ('tables: {s.a: {topic: a, select: "drop table x"}}\n', "s.a", SpecError, "DropTable"),
    ],
)
def test_what_cannot_be_tried_is_an_error_with_its_remedy(
    scenario: Scenario, run: Try, text: str, name: str, error: type[SpecError], words: str
) -> None:
    produce(scenario, *ORDERS)
    with pytest.raises(error) as raised:
        run(text, name)
    assert words in str(raised.value)
    assert raised.value.remedy


def test_a_record_of_a_group_is_shown_as_the_values_that_it_adds(scenario: Scenario, run: Try) -> None:
    query = "select user, window.start as minute, count(*) as n, sum(v) as total from records where v > 0"
    settings = f"select: \"{query} group by user, window(ts, '2 minutes', '1 minute')\", late: 10m"
    produce(scenario, {"user": "a", "ts": "2026-01-01T00:00:30Z", "v": 5}, {"user": "a", "ts": None, "v": 1}, {"v": 0})
    added, timeless, dropped = run(f"tables: {{s.a: {{topic: a, {settings}}}}}\n").records
    starts = ("2025-12-31T23:59:00+00:00", "2026-01-01T00:00:00+00:00")
    rows = [("upsert", {"user": "a", "minute": start, "n": 1, "total": 5}) for start in starts]
    assert shown(added) == ("written", rows)
    assert timeless.error is not None
    assert timeless.error.error_class == "no_event_time"
    assert dropped.outcome == "dropped"


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ("mode: history, order_by: at, columns: {at: timestamptz}", {"at": "2026-01-01T00:00:00+00:00"}),
        ('mode: upsert, merge: {n: sum}, columns: {n: "decimal(5,1)"}', {"n": "1.5"}),
    ],
)
def test_columns_that_order_versions_or_are_merged_have_their_declared_types(
    scenario: Scenario, run: Try, settings: str, row: dict[str, Any]
) -> None:
    produce(scenario, {"id": 1, "at": "2026-01-01T00:00:00Z", "n": "1.5"})
    (record,) = run(f"tables: {{s.a: {{topic: a, key_columns: [id], {settings}}}}}\n").records
    ((change, values),) = shown(record)[1]
    assert change == "upsert"
    assert {name: values[name] for name in row} == row
