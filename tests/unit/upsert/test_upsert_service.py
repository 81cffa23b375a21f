"""A whole service on the ports in memory: tables whose records replace the row of their key, over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.schema import Schema
from pyroaring import BitMap64
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.ingest import plan
from frazil.ingest.plan import buffered_row_bytes
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ColumnSpec, DeadLettersSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.upsert.lookup.delete_files import read_deletes
from frazil_testing.twins import MemoryJobs, live_rows
from tests.fixtures.slices import sliced
from tests.needs import cases
from tests.unit.rows.test_shaped_service import Scenario

Value = dict[str, Any] | None
JSON_KEYS = ValueSpec(format="json")


class UpsertScenario(Scenario):
    """One topic that a table upsert tables. tasks: how many a batch is read by. partitions: of the topic."""

    def __init__(self, root: Path, tasks: int = 1, partitions: int = 2, **settings: Any) -> None:
        given = {"mode": "upsert", "format_version": 3, "on_bad_record": "dead_letter", **settings}
        super().__init__(root, **given)
        self.source.create("a", partitions)
        self.jobs = MemoryJobs(self.source, batch_size=1000 if tasks == 1 else 7, tasks=tasks)

    def put(self, key: str | None, value: Value, partition: int = 0) -> None:
        text = None if value is None else json.dumps(value).encode()
        self.source.produce("a", partition, text, key=None if key is None else key.encode())

    def tell(self, *changes: tuple[str | None, Value]) -> Table:
        for key, value in changes:
            self.put(key, value)
        return self.catch_up()

    def upsert_table(self, *names: str) -> list[dict[str, Any]]:
        rows = live_rows(self.catalog, "n.t")
        chosen = [{name: row[name] for name in names} if names else row for row in rows]
        return sorted(chosen, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.mark.parametrize("version", [2, 3])
def test_the_last_change_of_a_key_is_its_row(tmp_path: Path, version: int) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, format_version=version)
    scenario.tell(("1", {"id": 1, "v": "a"}), ("2", {"id": 2, "v": "a"}), ("1", {"id": 1, "v": "b"}))
    assert scenario.upsert_table() == [{"id": 1, "v": "b"}, {"id": 2, "v": "a"}]
    scenario.tell(("1", None), ("3", {"id": 3, "v": "c"}), ("9", None))
    assert scenario.upsert_table() == [{"id": 2, "v": "a"}, {"id": 3, "v": "c"}]
    table = scenario.tell(("2", {"id": 2, "v": "d"}), ("1", {"id": 1, "v": "e"}))
    assert scenario.upsert_table() == [{"id": 1, "v": "e"}, {"id": 2, "v": "d"}, {"id": 3, "v": "c"}]
    assert table.status.run_state is RunState.WAITING
    kinds = {(one.kind, one.is_of_one_file) for one in scenario.catalog.ancestors("n.t")[0].deletes}
    assert kinds == {("vector" if version == 3 else "positions", True)}


@pytest.mark.parametrize("text", [b"null", b" null", b"null\n", b"\r\n\t null \n"])
@pytest.mark.parametrize("kind", cases(["json", "json_schema"]))
def test_the_json_text_null_is_no_value(tmp_path: Path, kind: str, text: bytes) -> None:
    """Also behind the wire format of a registry's schema, as Connect's converter for JSON Schema writes it."""
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, value=ValueSpec.model_validate({"format": kind}))
    fields = {"id": {"type": "integer"}, "v": {"type": "string"}}
    schema = {"type": ["null", "object"], "properties": fields}
    number = scenario.registry.register("json_schema", json.dumps(schema))
    head = b"\0" + number.to_bytes(4, "big") if kind == "json_schema" else b""
    for n, raw in ((1, b'{"id": 1, "v": "a"}'), (2, b'{"id": 2, "v": "nul"}'), (1, text)):
        scenario.source.produce("a", 0, head + raw, key=json.dumps({"id": n}).encode())
        scenario.catch_up()
    assert scenario.upsert_table() == [{"id": 2, "v": "nul"}]
    assert scenario.catalog.load("n.t__dead_letters") is None


@pytest.mark.parametrize("kind", [None, "debezium"])
def test_a_row_whose_first_field_is_a_null_payload_is_written_and_deletes_nothing(
    tmp_path: Path, kind: str | None
) -> None:
    settings: dict[str, Any] = {"envelope": EnvelopeSpec.model_validate({"kind": kind})} if kind else {}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, **settings)
    own = {"__op": "u"} if kind else {}
    scenario.tell(*((f'{{"id": {n}}}', {"payload": "x", "id": n, **own}) for n in (1, 2)))
    scenario.tell(('{"id": 1}', {"payload": None, "id": 1, **own}))
    assert scenario.upsert_table("id", "payload") == [{"id": 1, "payload": None}, {"id": 2, "payload": "x"}]


def test_a_table_that_another_run_has_made_gets_the_columns_that_this_ones_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were started before there was one, and the file was changed between."""
    marks = {"deleted": "_deleted", "deleted_at": "_deleted_at"}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), deletes="soft", metadata=marks)
    create = scenario.catalog.create

    def create_second(name: str, schema: Schema, **settings: Any) -> TableState:
        create(name, Schema(*(field for field in schema.fields if field.name not in marks.values())), **settings)
        return create(name, schema, **settings)

    monkeypatch.setattr(scenario.catalog, "create", create_second)
    scenario.tell(("1", {"id": 1, "v": "a"}), ("2", {"id": 2, "v": "b"}), ("2", None))
    assert [(row["id"], row["_deleted"]) for row in scenario.upsert_table()] == [(1, False), (2, True)]


def test_rows_are_kept_and_marked_when_a_tombstone_deletes_them(tmp_path: Path) -> None:
    marks = {"deleted": "_deleted", "deleted_at": "_deleted_at"}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), deletes="soft", metadata=marks)
    scenario.tell(("1", {"id": 1, "v": "a"}), ("2", {"id": 2, "v": "b"}))
    scenario.tell(("1", None), ("3", {"id": 3, "v": "c"}), ("3", None))
    told = sorted((row["id"], row["v"], row["_deleted"], row["_deleted_at"] is None) for row in scenario.upsert_table())
    assert told == [(1, "a", True, False), (2, "b", False, True), (3, "c", True, False)]
    scenario.tell(("1", {"id": 1, "v": "d"}))
    assert [row for row in scenario.upsert_table() if row["id"] == 1] == [
        {"id": 1, "v": "d", "_deleted": False, "_deleted_at": None}
    ]


def test_what_is_beside_a_key_in_a_struct_stays_when_a_tombstone_marks_its_row(tmp_path: Path) -> None:
    marks = {"deleted": "_deleted", "deleted_at": "_deleted_at"}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("o.id",), deletes="soft", metadata=marks)
    key = '{"o": {"id": 1}}'
    scenario.tell((key, {"o": {"id": 1, "x": 2}, "v": "a"}))
    scenario.tell((key, None))
    assert scenario.upsert_table("o", "v", "_deleted") == [{"o": {"id": 1, "x": 2}, "v": "a", "_deleted": True}]


def test_tombstones_that_are_marked_have_their_place_in_the_order_of_kafkas_time(tmp_path: Path) -> None:
    marks = {"deleted": "_deleted", "deleted_at": "_deleted_at", "timestamp": "_at"}
    settings: dict[str, Any] = {"deletes": "soft", "metadata": marks, "order_by": "_at"}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), **settings)
    scenario.tell(("1", {"id": 1, "v": "a"}), ("2", {"id": 2, "v": "b"}))
    for at_ms, key, value in ((9000, b"1", None), (8000, b"1", b'{"id": 1, "v": "late"}')):
        scenario.source.produce("a", 0, value, at_ms, key=key)
        scenario.catch_up()
    assert sorted((row["id"], row["v"], row["_deleted"]) for row in scenario.upsert_table()) == [
        (1, "a", True),
        (2, "b", False),
    ]
    assert scenario.catalog.load("n.t__dead_letters") is None


@pytest.mark.parametrize(("key", "shown"), [("text", "k"), ("raw", b"k")])
def test_a_key_that_is_no_record_is_one_column(tmp_path: Path, key: str, shown: object) -> None:
    scenario = UpsertScenario(tmp_path, key=ValueSpec.model_validate({"format": key}), metadata={"key": "_key"})
    scenario.tell(("k", {"v": 1}), ("k", {"v": 2}), ("gone", {"v": 3}))
    scenario.tell(("gone", None))
    assert scenario.upsert_table() == [{"_key": shown, "v": 2}]


def test_the_fields_of_the_key_are_the_key_columns(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS)
    scenario.tell(('{"a":1,"b":"x"}', {"v": 1}), ('{"a":1,"b":"y"}', {"v": 2}), ('{"a":1,"b":"x"}', {"a": 1, "v": 3}))
    assert scenario.upsert_table() == [{"a": 1, "b": "x", "v": 3}, {"a": 1, "b": "y", "v": 2}]
    scenario.tell(('{"a":1,"b":"y"}', None), ('{"b":"x","a":1}', {"v": 4}))
    assert scenario.upsert_table() == [{"a": 1, "b": "x", "v": 4}]


def test_a_value_that_contradicts_its_key_is_a_bad_record(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, dead_letters={"stop_above": 1.0})
    scenario.tell(('{"id":1}', {"id": 1, "v": 1}), ('{"id":1}', {"id": 2, "v": 2}), ("[7]", {"id": 7, "v": 0}))
    assert scenario.upsert_table() == [{"id": 1, "v": 1}]
    assert scenario.dead_letters() == [
        ("key_mismatch", "the field id of the value is not that of the key"),
        ("type_mismatch", "array [7] does not fit long"),
    ]


def test_a_key_column_that_is_a_struct_stops_the_table(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("o",), key=JSON_KEYS)
    scenario.put("1", {"o": {"id": 1}})
    columns = (ColumnSpec(name="o", type=parse_type("struct<id: long>")),)
    table = scenario.spec.tables[0].model_copy(update={"columns": columns})
    scenario.spec = scenario.spec.model_copy(update={"tables": (table,)})
    stopped = scenario.catch_up()
    assert stopped.status.run_state is RunState.STOPPED
    assert "`key_columns` takes columns with plain values only" in stopped.status.reason


@pytest.mark.parametrize(
    ("settings", "key", "reported"),
    [
        ({"key_columns": ("o",)}, "1", "the column o has the type list<long>, and `key_columns`"),
        ({"key_columns": ("o.element",)}, "1", "the column o has the type list<long>, and `key_columns`"),
        ({"key_columns": ("p",)}, "1", "the column p has the type struct<q: long>, and `key_columns`"),
        ({}, '{"o":[1]}', "the column o has the type list<long>, and `key_columns`"),
        ({"key_columns": ("id",), "order_by": "o"}, "1", "the column o has the type list<long>, and `order_by`"),
    ],
)
def test_a_key_or_an_order_that_turns_out_to_be_no_plain_value_stops_the_table(
    tmp_path: Path, settings: dict[str, Any], key: str, reported: str
) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, **settings)
    stopped = scenario.tell((key, {"id": 1, "o": [1], "p": {"q": 1}}))
    assert stopped.status.run_state is RunState.STOPPED
    assert stopped.status.reason.startswith(reported)
    assert scenario.catalog.load("n.t") is None


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_first_key_reports_which_fields_are_the_key(tmp_path: Path, tasks: int) -> None:
    scenario = UpsertScenario(tmp_path, tasks, key=JSON_KEYS)
    scenario.tell(
        ('{"id":1}', {"id": 1, "v": 1}), ('{"id":2,"x":1}', {"id": 2, "v": 2}), ('{"id":3}', {"id": 3, "v": 3})
    )
    scenario.tell(('{"id":3,"x":1}', None), ('{"id":1}', None))
    assert scenario.upsert_table() == [{"id": 3, "v": 3}]
    reason = "the record's key has the field x, which is none of the table's key columns: name its `key_columns`"
    assert scenario.dead_letters() == [("key_mismatch", reason)] * 2


def test_nested_and_composite_keys(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("o.id", "region"), key=JSON_KEYS)
    north, south = '{"o":{"id":1},"region":"n"}', '{"o":{"id":1},"region":"s"}'
    scenario.tell(
        (north, {"o": {"id": 1, "x": 1}, "region": "n"}),
        (south, {"o": {"id": 1, "x": 2}, "region": "s"}),
        (north, {"o": {"id": 1, "x": 3}, "region": "n"}),
    )
    scenario.tell((south, None))
    assert scenario.upsert_table() == [{"o": {"id": 1, "x": 3}, "region": "n"}]


def test_what_is_beside_a_key_in_a_struct_is_the_values(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS)
    first, second = '{"o":{"id":1}}', '{"o":{"id":2}}'
    scenario.tell((first, {"o": {"id": 1, "x": 3}, "v": 1}), (second, {"o": {"x": 4}, "v": 2}), (second, {"v": 3}))
    rows = sorted(scenario.upsert_table(), key=lambda row: int(row["v"]))
    assert rows == [{"o": {"id": 1, "x": 3}, "v": 1}, {"o": {"id": 2, "x": None}, "v": 3}]
    scenario.tell((second, {"o": {"x": 5}, "v": 4}), (first, None))
    assert scenario.upsert_table() == [{"o": {"id": 2, "x": 5}, "v": 4}]


@pytest.mark.parametrize("batch_size", [1, 1000])
@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("named", [("id",), ()])
def test_each_key_is_read_as_what_it_is(tmp_path: Path, first: int, batch_size: int, named: tuple[str, ...]) -> None:
    keys = ["7", '{"id":1}', ' {"id":2}', "", "{"]
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=named, dead_letters={"stop_above": 1.0})
    scenario.jobs = MemoryJobs(scenario.source, batch_size)
    scenario.tell(*((f'{{"id":{n}}}', {"id": n}) for n in (1, 2, 3, 7)))
    table = scenario.tell(*((key, None) for key in keys[first:] + keys[:first]))
    assert (table.status.run_state, scenario.upsert_table()) == (RunState.WAITING, [{"id": 3}])
    assert [kind for kind, _ in scenario.dead_letters()] == ["malformed", "malformed"]


@pytest.mark.parametrize("keys", [("7", '{"id":1}'), ('{"id":1}', "7")], ids="|".join)
def test_keys_that_are_no_records_do_not_hide_the_fields_of_those_that_are(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS)
    scenario.tell(*((key, {"v": 1}) for key in keys))
    assert scenario.upsert_table() == [{"id": 1, "v": 1}, {"id": 7, "v": 1}]


@pytest.mark.parametrize("key", ["abc", 'a"b', "ä\\", ""])
def test_a_bare_key_of_text_may_have_its_schema_beside_it(tmp_path: Path, key: str) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",))
    wrapped = json.dumps({"schema": {"type": "string"}, "payload": key})
    scenario.tell((json.dumps(key), {"id": key}), (wrapped, {"id": "other"}))
    scenario.tell((wrapped, None))
    assert scenario.upsert_table() == [{"id": "other"}]


@pytest.mark.parametrize("settings", [{}, {"key_columns": ("schema", "payload")}])
@pytest.mark.parametrize("schema", ["public", 7])
def test_a_key_whose_fields_are_called_schema_and_payload_is_no_message_of_a_converter(
    tmp_path: Path, settings: dict[str, Any], schema: Any
) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, envelope=EnvelopeSpec(kind="debezium"), **settings)
    keys = [{"schema": schema, "payload": n} for n in (1, 2)]
    scenario.tell(*((json.dumps(key), {"op": "c", "after": {**key, "v": "a"}}) for key in keys))
    table = scenario.tell((json.dumps(keys[0]), None))
    assert (table.status.run_state, scenario.catalog.load("n.t__dead_letters")) == (RunState.WAITING, None)
    assert scenario.upsert_table() == [{**keys[1], "v": "a"}]


def test_a_record_without_a_key_is_a_dead_letter(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, dead_letters={"stop_above": 1.0})
    scenario.tell(("1", {"id": 1, "v": 1}), (None, None), ("2", {"v": 2}), ("3", {"id": None, "v": 3}))
    assert scenario.upsert_table() == [{"id": 1, "v": 1}]
    assert scenario.dead_letters() == [
        ("no_key", "the key column id has no value"),
        ("no_key", "the key column id has no value"),
        ("no_key", "the record has no key, which identifies its row"),
    ]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"on_bad_record": "stop"}, "name the `key_columns`"),
        ({"dead_letters": DeadLettersSpec(stop_above=0.0)}, "name the `key_columns`"),
        ({"on_bad_record": "stop", "key_columns": ("id",)}, "fix the producer"),
    ],
)
def test_a_table_that_stops_at_records_without_keys_reports_how_it_could_have_them(
    tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, **settings)
    table = scenario.tell(*((None, {"v": number}) for number in range(100)))
    assert table.status.run_state is RunState.STOPPED
    assert table.status.remedy.startswith(named), table.status.remedy


def test_a_late_change_does_not_replace_a_newer_row(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, order_by="at")
    scenario.tell(("1", {"id": 1, "at": 5, "v": "five"}), ("2", {"id": 2, "at": 1, "v": "one"}))
    scenario.tell(("1", {"id": 1, "at": 4, "v": "late"}), ("2", {"id": 2, "at": 2, "v": "two"}))
    assert scenario.upsert_table() == [{"id": 2, "at": 2, "v": "two"}, {"id": 1, "at": 5, "v": "five"}]
    scenario.tell(("1", {"id": 1, "at": 9, "v": "nine"}), ("1", {"id": 1, "at": 7, "v": "late"}))
    scenario.tell(("1", {"id": 1, "at": 9, "v": "nine again"}), ("2", None))
    assert scenario.upsert_table() == [{"id": 1, "at": 9, "v": "nine again"}]


def test_a_change_without_an_ordering_value_is_a_dead_letter(tmp_path: Path) -> None:
    scenario = UpsertScenario(
        tmp_path, key_columns=("id",), key=JSON_KEYS, order_by="at", dead_letters={"stop_above": 1.0}
    )
    scenario.tell(("1", {"id": 1, "at": 5}), ("1", {"id": 1}))
    assert scenario.upsert_table() == [{"id": 1, "at": 5}]
    assert scenario.dead_letters() == [("no_order_value", "the column at, which orders the changes, has no value")]


def test_a_value_that_was_stored_is_reported_not_to_fit(tmp_path: Path) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type("long")) for name in ("id", "at"))
    dead_letters = {"stop_above": 1.0}
    scenario = UpsertScenario(
        tmp_path, key_columns=("id",), order_by="at", columns=columns, rescue=True, dead_letters=dead_letters
    )
    scenario.tell(
        ("1", {"id": 1, "at": 1}), ("2", {"id": "two", "at": 1}), ("3", {"id": 3, "at": "now"}), ("4", {"id": 4})
    )
    assert [row["id"] for row in scenario.upsert_table()] == [1]
    assert scenario.dead_letters() == [
        ("no_key", "the key column id has a value that does not fit its type"),
        ("no_order_value", "the column at, which orders the changes, has a value that does not fit its type"),
        ("no_order_value", "the column at, which orders the changes, has no value"),
    ]


@pytest.mark.parametrize(
    ("kind", "older", "newer", "last"),
    [
        ("string", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z", "a"),
        ("timestamptz", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z", "b"),
        ("string", "9", "10", "a"),
        ("decimal(10,2)", "9", "10", "b"),
    ],
)
def test_texts_order_changes_by_their_bytes_and_the_log_reports_it(
    tmp_path: Path, kind: str, older: str, newer: str, last: str
) -> None:
    columns = (ColumnSpec(name="id", type=parse_type("long")), ColumnSpec(name="at", type=parse_type(kind)))
    with capture_logs() as logs:
        scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, order_by="at", columns=columns)
        scenario.tell(("1", {"id": 1, "v": "a", "at": older}))
        scenario.tell(("1", {"id": 1, "v": "b", "at": newer}))
    assert scenario.upsert_table("v") == [{"v": last}]
    told = [one["order_by"] for one in logs if one["event"] == "ordered_by_text"]
    assert told == (["at", "at"] if kind == "string" else [])  # Once by each of the two runs.


def test_new_fields_and_deletes_before_any_row(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, metadata={"offset": "_offset"})
    scenario.tell(("1", None))
    scenario.tell(("1", {"id": 1}))
    scenario.tell(("1", {"id": 1, "extra": True}), ("2", {"id": 2}))
    assert scenario.upsert_table() == [{"id": 1, "extra": True, "_offset": 2}, {"id": 2, "extra": None, "_offset": 3}]


def test_a_key_column_that_nothing_brings_makes_dead_letters(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("idd",), key=JSON_KEYS, dead_letters={"stop_above": 1.0})
    table = scenario.tell(("1", {"id": 1}), ("2", {"id": 2}), ("1", None))
    assert (table.status.run_state, scenario.upsert_table()) == (RunState.WAITING, [])
    assert (
        scenario.dead_letters() == [("no_key", "the table has no key column idd, and the record does not have it")] * 3
    )
    scenario.tell(("2", {"id": 2, "idd": 2}))
    assert scenario.upsert_table() == [{"id": 2, "idd": 2}]


@pytest.mark.parametrize("settings", [{}, {"metadata": {"offset": "_offset"}}])
def test_a_delete_before_any_row_deletes_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, **settings)
    assert scenario.tell(("1", None)).status.run_state is not RunState.STOPPED
    scenario.tell(("1", {"id": 1}), ("2", {"id": 2}), ("2", None))
    assert scenario.upsert_table("id") == [{"id": 1}]


def test_rows_that_cannot_be_looked_up_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS)
    scenario.tell(*((str(n), {"id": n, "v": "a"}) for n in range(4)))
    scenario.tell(("1", None))
    asked = []

    def away(*given: Any) -> BitMap64:
        asked.append(set(tmp_path.rglob("*.parquet")))
        if len(asked) <= 3:
            raise OSError("the store is away")
        return read_deletes(*given)

    monkeypatch.setattr("frazil.upsert.lookup.search.read_deletes", away)
    scenario.tell(("2", {"id": 2, "v": "b"}))
    assert len(scenario.upsert_table()) == 3
    assert len({len(files) for files in asked}) == 1
    files = {file.path for file in scenario.catalog.data_files("n.t")}
    assert {str(path) for path in tmp_path.rglob("*.parquet")} == files


def test_all_rows_of_a_key_that_is_there_twice_are_replaced_by_one(tmp_path: Path) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type("long")) for name in ("id", "v"))
    scenario = UpsertScenario(tmp_path, key_columns=("id",), key=JSON_KEYS, columns=columns)
    appending = Scenario(tmp_path / "other", columns=columns)
    appending.run({"id": 1, "v": 1}, {"id": 1, "v": 2}, {"id": 2, "v": 3})
    scenario.catalog = appending.catalog.for_pipeline("upsert_table")
    scenario.spec = scenario.spec.model_copy(update={"pipeline": "upsert_table"})
    scenario.tell(("1", {"id": 1, "v": 9}))
    assert scenario.upsert_table() == [{"id": 1, "v": 9}, {"id": 2, "v": 3}]


@pytest.mark.parametrize("seed", sliced(range(24), 4))
def test_a_table_is_what_a_dictionary_reports(tmp_path: Path, seed: int) -> None:
    """Random changes of few keys over two partitions, in batches of any size, read by one task or by several, with and
    without an ordering column, in both formats.
    """
    rng = np.random.default_rng(seed)
    is_ordered, tasks, version = bool(seed % 2), 1 + seed % 3 * 2, 2 + seed // 2 % 2
    order: dict[str, Any] = {"order_by": "at"} if is_ordered else {}
    scenario = UpsertScenario(tmp_path, tasks, key_columns=("id",), key=JSON_KEYS, format_version=version, **order)
    scenario.put("999", {"id": 999, "at": 0, "v": 0})
    expected: dict[int, dict[str, Any]] = {999: {"id": 999, "at": 0, "v": 0}}
    scenario.catch_up()
    number = 0
    for _ in range(8):
        told: list[tuple[int, int, Value]] = []
        for _ in range(int(rng.integers(1, 60))):
            number += 1
            key = int(rng.integers(0, 12))
            partition = key % 2 if is_ordered else int(rng.integers(0, 2))
            value = {"id": key, "at": int(rng.integers(0, 50)), "v": number} if rng.random() < 0.75 else None
            scenario.put(str(key), value, partition)
            told.append((partition, key, value))
        _apply(expected, sorted(told, key=lambda one: one[0]), is_ordered)
        scenario.catch_up()
        assert scenario.upsert_table() == sorted(expected.values(), key=lambda row: json.dumps(row, sort_keys=True))


def _apply(rows: dict[int, dict[str, Any]], told: list[tuple[int, int, Value]], is_ordered: bool) -> None:
    """One batch, told in the order of partitions and offsets: that of arrival. A delete has no ordering value here."""
    for _, key, value in told:
        if value is None:
            rows.pop(key, None)
        elif not is_ordered or key not in rows or value["at"] >= rows[key]["at"]:
            rows[key] = value


def test_an_upsert_table_reads_no_more_at_once_than_there_is_to_be_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", 10)
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",))
    table = scenario.tell(*((str(n), {"id": n, "v": "a"}) for n in range(40)))
    assert table.clock(0, 1).buffered_bytes == buffered_row_bytes(columns=2)
    committed = [sum(file.record_count for file in one.files) for one in scenario.catalog.ancestors("n.t")]
    assert [count for count in committed if count] == [10] * 4
    assert len(scenario.upsert_table()) == 40
