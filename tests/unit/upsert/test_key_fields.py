"""A source's table that gets another primary key: its changes are not taken for those of the old key."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.decode.settings import Envelope, Reading
from frazil.spec.settings import EnvelopeSpec, ValueSpec
from frazil.upsert.records.key_fields import find_key_fields
from frazil.write.target import ChangeReading, TableTarget
from tests.needs import needs
from tests.unit.cdc.mongodb_source import connect_fields, wrapped
from tests.unit.upsert.test_default_keys import MaxwellScenario
from tests.unit.upsert.test_upsert_keys import AvroScenario
from tests.unit.upsert.test_upsert_service import UpsertScenario
from tests.unit.upsert.upsert_source import HEARTBEAT, Row, SourceRecord, UpsertSource, tombstone

_FOUND_BY = "the table's rows are identified by id: name the table's `key_columns`"
_WIDER = f"the fields of the record's key are id, region, and {_FOUND_BY}"
_NO_KEY = "the record has no key, as of a source's table without a primary key: name the table's `key_columns`"


def _row(number: int, region: str, v: str) -> Row:
    return {"id": number, "region": region, "v": v}


def _wrapped(op: str, key: tuple[str, ...], row: Row) -> SourceRecord:
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {name: row[name] for name in key}, {"op": op, **images, "source": {"connector": "postgresql"}}


def _flat(op: str, key: tuple[str, ...], row: Row) -> SourceRecord:
    return {name: row[name] for name in key}, {**row, "__op": op}


def _with_schemas(op: str, key: tuple[str, ...], row: Row) -> SourceRecord:
    kinds = {"id": "int64", "region": "string", "v": "string"}
    own, value = _wrapped(op, key, row)
    images: list[Row] = [
        {"type": "struct", "fields": connect_fields(kinds), "optional": True, "field": n} for n in ("before", "after")
    ]
    source = {"type": "struct", "fields": connect_fields({"connector": "string"}), "optional": True, "field": "source"}
    described = [*images, source, *connect_fields({"op": "string"})]
    keys = connect_fields({name: kinds[name] for name in key})
    return json.loads(wrapped(own, keys)), json.loads(wrapped(value, described))


@pytest.mark.parametrize("told", [_wrapped, _flat, _with_schemas], ids=["plain", "unwrapped", "with schemas"])
@pytest.mark.parametrize("at_once", [1, 100])
def test_a_wider_primary_key_makes_dead_letters_and_loses_no_row(
    tmp_path: Path, told: Callable[[str, tuple[str, ...], Row], SourceRecord], at_once: int
) -> None:
    scenario = UpsertSource(tmp_path)
    wide = ("id", "region")
    reported = [
        told("c", ("id",), _row(1, "a", "x")),
        told("c", ("id",), _row(2, "a", "x")),
        told("c", wide, _row(1, "b", "y")),
        told("d", wide, _row(1, "c", "z")),
        told("u", ("id",), _row(2, "a", "z")),
    ]
    for start in range(0, len(reported), at_once):
        scenario.say(*reported[start : start + at_once])
    assert scenario.by_id() == [_row(1, "a", "x"), _row(2, "a", "z")]
    assert scenario.dead_letters() == [("key_mismatch", _WIDER)] * 2


def test_another_column_as_the_primary_key_and_none_at_all(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    rows = [_row(1, "a", "x"), _row(2, "b", "x")]
    scenario.say(*(_wrapped("c", ("id",), row) for row in rows))
    scenario.say(_wrapped("u", ("region",), _row(7, "a", "y")), _wrapped("u", (), _row(2, "b", "y")))
    scenario.say((None, _wrapped("u", (), _row(2, "b", "z"))[1]))
    assert scenario.by_id() == rows
    assert scenario.dead_letters() == [
        ("key_mismatch", f"the fields of the record's key are none, and {_FOUND_BY}"),
        ("key_mismatch", f"the fields of the record's key are region, and {_FOUND_BY}"),
        ("no_key", _NO_KEY),
    ]


def test_tombstones_of_another_key_are_dead_letters_too(tmp_path: Path) -> None:
    """But for those right behind a delete that is one: they say nothing more. Tables are emptied whatever the key is."""
    scenario = UpsertSource(tmp_path, partitions=1)
    wide = ("id", "region")
    scenario.say(_wrapped("c", ("id",), _row(1, "a", "x")), tombstone(9))
    gone = _wrapped("d", wide, _row(1, "a", "x"))
    told = scenario.say(gone, (gone[0], None), ({"id": 5, "region": "q"}, None), HEARTBEAT)
    assert (len(scenario.upsert_table()), len(scenario.dead_letters())) == (1, 2)
    assert told.bad_records.ignored_records == {"heartbeat": 1, "tombstone": 1}
    scenario.say((None, {"op": "t", "before": None, "after": None, "source": {"connector": "postgresql"}}))
    assert (scenario.upsert_table(), len(scenario.dead_letters())) == ([], 2)


def test_key_columns_that_the_file_names_are_found_whatever_the_keys_are(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id", "region"))
    scenario.say(_wrapped("c", ("id",), _row(1, "a", "x")), _wrapped("c", ("id", "region"), _row(1, "b", "y")))
    scenario.say((None, _wrapped("c", (), _row(2, "b", "y"))[1]))
    assert (len(scenario.upsert_table()), scenario.dead_letters()) == (3, [])


@pytest.mark.parametrize("form", ["hash", "array"])
@needs("cdc")
def test_another_primary_key_of_what_maxwell_writes(tmp_path: Path, form: str) -> None:
    scenario = MaxwellScenario(tmp_path, form, ("id",))
    scenario.tell(("insert", _row(1, "a", "x"), None))
    scenario.primary = ("id", "region")
    scenario.tell(("insert", _row(1, "b", "y"), None), ("delete", _row(1, "b", "y"), None))
    scenario.primary = ("id",)
    scenario.tell(("update", _row(1, "a", "z"), {"v": "x"}))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "a", "z")], [("key_mismatch", _WIDER)] * 2)


_KEY = [{"name": "id", "type": "long"}]
_ROW = [
    *_KEY,
    {"name": "region", "type": ["null", "string"], "default": None},
    {"name": "v", "type": ["null", "string"]},
]
_BEFORE = {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": _ROW}]}


class _AvroScenario(AvroScenario):
    SCHEMAS: Mapping[str, dict[str, Any]] = {
        "key": {"type": "record", "name": "Key", "fields": _KEY},
        "value": {
            "type": "record",
            "name": "Envelope",
            "fields": [_BEFORE, {"name": "after", "type": ["null", "Row"]}, {"name": "op", "type": "string"}],
        },
    }

    def change(self, op: str, row: Row) -> None:
        names = [field["name"] for field in self.SCHEMAS["key"]["fields"]]
        images = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
        self._send({name: row[name] for name in names}, images)

    def widen(self) -> None:
        """The source's table gets another primary key."""
        wide = {"type": "record", "name": "Key", "fields": [*_KEY, {"name": "region", "type": "string"}]}
        self.SCHEMAS = {**self.SCHEMAS, "key": wide}
        self.ids["key"] = self.registry.register("avro", json.dumps(wide), subject="a-key")


@pytest.mark.parametrize("how", ["confluent", "apicurio", "header"])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_wider_key_in_avro_is_known_by_its_schema(tmp_path: Path, how: str, at_once: bool) -> None:
    scenario = _AvroScenario(tmp_path, how)
    scenario.change("c", _row(1, "a", "x"))
    if not at_once:
        scenario.catch_up()
    scenario.widen()
    scenario.change("c", _row(1, "b", "y"))
    scenario.change("d", _row(1, "b", "y"))
    scenario.catch_up()
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "a", "x")], [("key_mismatch", _WIDER)] * 2)


_PROTO = 'syntax = "proto3"; message Pad {{}} message Key {{ int64 id = 1; {} }}'


@pytest.mark.parametrize("operations", [False, True], ids=["rows", "operations"])
@pytest.mark.parametrize("at_once", [False, True])
@needs("protobuf")
def test_a_wider_key_in_protobuf_is_known_by_its_message(tmp_path: Path, at_once: bool, operations: bool) -> None:
    envelope = EnvelopeSpec(kind="operation", operation="op", insert=("c",)) if operations else None
    key = ValueSpec(format="protobuf")
    scenario = UpsertScenario(tmp_path, key=key, envelope=envelope, dead_letters={"stop_above": 1.0})
    for number, more in enumerate(("", "int32 shard = 2;")):
        schema_id = scenario.registry.register("protobuf", _PROTO.format(more), subject="a-key")
        frame = struct.pack(">xi", schema_id) + b"\x02\x02"  # The second message of the file.
        for at in (1, 2):
            row = {"id": at, "v": number} | ({"op": "c"} if operations else {})
            body = bytes([8, at]) + (b"\x10\x05" if number else b"")
            scenario.source.produce("a", 0, json.dumps(row).encode(), key=frame + body)
        if not at_once:
            scenario.catch_up()
    scenario.catch_up()
    assert sorted(scenario.upsert_table(), key=str) == [{"id": 1, "v": 0}, {"id": 2, "v": 0}]
    assert [kind for kind, _ in scenario.dead_letters()] == ["key_mismatch"] * 2


def test_the_order_of_a_keys_fields_and_how_they_are_spelt_say_nothing(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    value = _wrapped("u", ("id",), _row(1, "a", "x"))[1]
    for key in ('{"id":1,"region":"a"}', '{"region": "a", "id": 1}', '{"\\u0069d":1,"reg\\u0069on":"a"}', "7", "{"):
        scenario.put(key, value)
        scenario.catch_up()
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "a", "x")], [])


def _target(kind: str) -> TableTarget:
    changes = ChangeReading(Reading(format="json"), ("id",), is_key_of_record=True)
    return TableTarget("n.t", changes=changes, envelope=Envelope(kind))


def test_the_fields_of_keys_are_told_once_for_each_set_of_them() -> None:
    many = {f"f{n}": n for n in range(70)}
    keys = [
        '{"id":1}',
        None,
        '{"id":2}',
        "[1]",
        "{",
        '{"schema":{"type":"struct"},"payload":{"id":3}}',
        '{"schema":{"type":"int32"},"payload":7}',
        "{}",
        '{"schema":{},"payload":{"id":3}}',
        '{"schema":"s","payload":7}',
    ]
    found = find_key_fields(_target("debezium"), {"key": pa.array([*_bytes(keys), json.dumps(many).encode()])})
    assert [() if code < 0 else found.names[code] for code in found.codes.tolist()] == [
        ("id",), (), ("id",), (), (), ("id",), (), (), ("schema", "payload"), ("schema", "payload"), tuple(many),
    ]  # fmt: skip
    assert np.flatnonzero(found.codes < 0).tolist() == [1, 3, 4, 6]


@needs("cdc")
def test_maxwells_own_fields_of_keys_are_none_of_the_table() -> None:
    keys = ['{"database":"s","table":"e","pk.id":1}', '["s","e",[{"id":1},{"part":2}]]', '["s","e",[]]', '["s"]', "7"]
    found = find_key_fields(_target("maxwell"), {"key": pa.array(_bytes([*keys, '{"database":"s","_uuid":"u"}']))})
    names = [None if code < 0 else found.names[code] for code in found.codes.tolist()]
    assert names == [("id",), ("id", "part"), (), (), None, ()]


def _bytes(texts: list[str | None]) -> list[bytes | None]:
    return [None if text is None else text.encode() for text in texts]
