"""The messages of every relational source in Avro, and unwrapped by Debezium, in JSON with and without schemas
too: from the record to the rows of an upsert table. And what lies in each of these forms.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest

from frazil.spec.settings import ValueSpec
from tests.unit.cdc.debezium_reference import Row as TypedRow
from tests.unit.cdc.test_source_messages import SOURCES, Column, Source
from tests.unit.upsert.upsert_source import Row, SourceRecord, UpsertSource

_AVRO = ValueSpec(format="avro")
_ASKED = {name: f"_{name}" for name in ("source_order", "source_ts", "transaction_id", "total_order")}
_BESIDE = {"__op": "string", "__deleted": "string"}
_OTHER_KINDS = {"ts_ms": "long", "ts_us": "long", "ts_ns": "long", "server_id": "long", "pos": "long", "row": "int",
                "thread": "long", "event_serial_no": "long", "redo_thread": "int", "ssn": "int", "total_order": "long",
                "data_collection_order": "long"}  # fmt: skip


def _of(column: Column) -> TypedRow:
    """The column as Connect's converters know it."""
    return TypedRow("", column.kind, column.written, column.name, dict(column.parameters), column.members)


def _record(name: str, kinds: dict[str, Any]) -> Row:
    """A record of fields that may be null."""
    fields = [{"name": field, "type": ["null", kind], "default": None} for field, kind in kinds.items()]
    return {"type": "record", "name": name, "fields": fields}


class AvroSource(UpsertSource):
    """An upsert table of a source's changes in Avro. is_flat: without their envelope."""

    def __init__(self, root: Path, source: Source, *, is_flat: bool, **settings: Any) -> None:
        super().__init__(root, value=_AVRO, key=_AVRO, **settings)
        self.before_key = source
        columns = {source.key: "int", **{name: _of(column).avro() for name, column in source.columns.items()}}
        row = _record("Value", {**columns, **(_BESIDE if is_flat else {})})
        told = source.messages()[2][1]
        assert told is not None
        blocks = {
            "source": _record("Source", _kinds(told["source"])),
            "transaction": _record("block", _kinds(told["transaction"])),
        }
        times = dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), "long")
        whole = _record("Envelope", {"before": row, "after": "Value", **blocks, "op": "string", **times})
        self.schemas_of = {"key": _record("Key", {source.key: "int"}), "value": row if is_flat else whole}
        self.ids = {part: self.registry.register("avro", json.dumps(text)) for part, text in self.schemas_of.items()}

    def tell_all(self, *told: SourceRecord) -> None:
        """Records as JSON without schemas has them."""
        for key, value in told:
            self.source.produce("a", 0, self._framed("value", value), key=self._framed("key", key))
        self.catch_up()

    def _framed(self, part: str, record: Row | None) -> bytes | None:
        if record is None:
            return None
        body, schema = io.BytesIO(), fastavro.parse_schema(json.loads(json.dumps(self.schemas_of[part])))
        fastavro.schemaless_writer(body, schema, self._typed(record))
        return struct.pack(">xi", self.ids[part]) + body.getvalue()

    def _typed(self, record: Row) -> Row:
        images = {name: self._typed(record[name]) for name in ("before", "after") if record.get(name)}
        columns = {
            name: replace(_of(column), value=record[name]).avro_value()
            for name, column in self.before_key.columns.items()
            if record.get(name) is not None
        }
        return {**record, **images, **columns}


def _kinds(block: Row) -> dict[str, str]:
    return {name: _OTHER_KINDS.get(name, "string") for name in block}


class JsonSource(UpsertSource):
    """The same in JSON. has_schema: beside each message."""

    def __init__(self, root: Path, source: Source, *, is_flat: bool, has_schema: bool, **settings: Any) -> None:
        super().__init__(root, **settings)
        self.before_key, self.is_flat, self.has_schema = source, is_flat, has_schema

    def tell_all(self, *told: SourceRecord) -> None:
        """See AvroSource."""
        self.say(*(map(self._wrapped, told) if self.has_schema else told))

    def _wrapped(self, told: SourceRecord) -> SourceRecord:
        if not self.is_flat:
            return self.before_key.with_schema(told)
        own = {"type": "int32", "optional": False, "field": self.before_key.key}
        columns = [own, *(column.schema(name) for name, column in self.before_key.columns.items())]
        beside = [{"type": kind, "optional": True, "field": name} for name, kind in _BESIDE.items()]
        key, value = told
        wrapped = {"schema": {"type": "struct", "fields": [own]}, "payload": key}
        if value is None:
            return wrapped, None
        return wrapped, {"schema": {"type": "struct", "fields": [*columns, *beside]}, "payload": value}


def _flat(told: SourceRecord) -> SourceRecord:
    """A message as the transform leaves it, with `delete.tombstone.handling.mode=rewrite-with-tombstone`."""
    key, value = told
    if value is None:
        return told
    is_gone = value["op"] == "d"
    row = value["before"] if is_gone else value["after"]
    return key, {**row, "__op": value["op"], "__deleted": "true" if is_gone else "false"}


def _scenario(
    root: Path, source: Source, form: str, *, is_flat: bool = False, **settings: Any
) -> AvroSource | JsonSource:
    if form == "avro":
        return AvroSource(root, source, is_flat=is_flat, **settings)
    return JsonSource(root, source, is_flat=is_flat, has_schema=form == "schema", **settings)


def _shown(source: Source, form: str) -> Row:
    return {name: column.shown(form != "plain") for name, column in source.columns.items()}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.connector)
def test_whole_messages_in_avro_become_the_rows_of_their_source(tmp_path: Path, source: Source) -> None:
    scenario = _scenario(tmp_path, source, "avro", metadata=_ASKED, order_by="_source_order")
    told = source.messages()
    scenario.tell_all(*told, (told[-1][0], None))
    facts = {
        "_source_order": source.order,
        "_source_ts": datetime.fromtimestamp(1_767_323_045.680, UTC),
        "_transaction_id": "transaction 2",
        "_total_order": 2,
    }
    assert (scenario.upsert_table(), scenario.dead_letters()) == (
        [{source.key: 1, **_shown(source, "avro"), **facts}],
        [],
    )


@pytest.mark.parametrize("form", ["plain", "schema", "avro"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.connector)
def test_unwrapped_messages_become_the_rows_of_their_source(tmp_path: Path, source: Source, form: str) -> None:
    scenario = _scenario(tmp_path, source, form, is_flat=True)
    told = [_flat(one) for one in source.messages()]
    scenario.tell_all(*told[:3])
    assert len(scenario.upsert_table()) == 2
    scenario.tell_all(told[3], (told[3][0], None))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{source.key: 1, **_shown(source, form)}], [])


@pytest.mark.parametrize("form", ["plain", "schema", "avro"])
def test_what_lies_is_a_dead_letter_in_every_form_and_its_neighbours_are_rows(tmp_path: Path, form: str) -> None:
    source = next(one for one in SOURCES if one.connector == "sqlserver")
    read, made, changed, gone = source.messages()
    lies = [
        _with(made, op="x"),
        _with(changed, after=None),
        _with(gone, before=None),
        _with(changed, after={**(changed[1] or {})["after"], "Id": None}),
    ]
    scenario = _scenario(tmp_path, source, form)
    scenario.tell_all(read, lies[0], made, *lies[1:], changed)
    assert [row["Id"] for row in scenario.upsert_table("Id")] == [1, 2]
    kinds = [kind for kind, _ in scenario.dead_letters()]
    assert kinds == ["missing_image", "missing_image", "missing_key", "unknown_operation"]


def _with(told: SourceRecord, **members: Any) -> SourceRecord:
    key, value = told
    assert value is not None
    return key, {**value, **members}
