"""Local times of Kafka Connect and Debezium in columns with a zone: every type, format, envelope and depth alike."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import fastavro
import pytest
from _pytest.mark import ParameterSet
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from frazil.spec.settings import ColumnSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import OF_FORMATS, cases, has_package, needs
from tests.unit.upsert.test_upsert_service import UpsertScenario

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

Row = dict[str, Any]
_NOON_MS = 1_751_371_200_000
_CONNECT, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"
LOCAL: dict[str, Any] = {
    f"{_CONNECT}.Timestamp": _NOON_MS,
    f"{_TIME}.Timestamp": _NOON_MS,
    f"{_TIME}.MicroTimestamp": _NOON_MS * 1000,
    f"{_TIME}.NanoTimestamp": _NOON_MS * 1_000_000,
    f"{_TIME}.IsoTimestamp": "2025-07-01T12:00:00Z",
}
"""The types of local times, with noon of 1 July 2025 as they write it."""
_ZONED = (f"{_TIME}.ZonedTimestamp", "2025-07-01T12:00:00Z")
_WALL, _LOCAL_NOON, _UTC_NOON = (
    datetime(2025, 7, 1, 12),  # noqa: DTZ001  (a time without a zone)
    datetime(2025, 7, 1, 16, tzinfo=UTC),
    datetime(2025, 7, 1, 12, tzinfo=UTC),
)
FORMATS = ("json", "avro", "json_schema", "protobuf")
SHAPES = ("append", "struct", "upsert", "flat", "wrapped", "changelog")
_ENVELOPES = ("flat", "wrapped", "changelog")


def _case(name: str, form: str, shape: str) -> ParameterSet:
    return pytest.param(name, form, shape, marks=needs(OF_FORMATS[form]) if form in OF_FORMATS else ())


def _turned(shapes: Sequence[str], names: Sequence[str] = (*LOCAL,)) -> list[ParameterSet]:
    """Returns each name with each format, in one of the shapes after the other."""
    return [
        _case(name, form, shapes[(row + column) % len(shapes)])
        for row, name in enumerate(names)
        for column, form in enumerate(FORMATS)
    ]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class TimesScenario(UpsertScenario):
    """Records with an `id` and a time `ts` of one named type, in one format and shape."""

    def __init__(
        self, root: Path, form: str, shape: str, name: str, value: Any, column: ColumnSpec, **more: Any
    ) -> None:
        self.form, self.shape, self.type_name, self.value = form, shape, name, value
        self.number = 0
        settings: dict[str, Any] = {"columns": (column,), "dead_letters": {"stop_above": 1.0}}
        if form != "json":
            settings |= {"value": ValueSpec.model_validate({"format": form}), "key": ValueSpec(format="json")}
        else:
            settings |= {"key": ValueSpec(format="json")}
        settings |= {"mode": "append"} if shape in ("append", "struct", "changelog") else {"key_columns": ("id",)}
        if shape in _ENVELOPES:
            settings |= {"envelope": EnvelopeSpec(kind="debezium")}
        if shape == "changelog":
            settings |= {"changelog": True}
        super().__init__(root, **{**settings, **more})

    def send(self, number: int = 1) -> None:
        make: dict[str, Callable[[Row], bytes]] = {
            "json": self._connect_json,
            "avro": self._avro,
            "json_schema": self._json_schema,
            "protobuf": self._protobuf,
        }
        row: Row = (
            {"id": number, "s": {"ts": self.value}} if self.shape == "struct" else {"id": number, "ts": self.value}
        )
        if self.shape == "flat":
            row |= {"__op": "c"}
        record = {"after": row, "op": "c"} if self.shape in ("wrapped", "changelog") else row
        self.source.produce("a", 0, make[self.form](record), key=json.dumps({"id": number}).encode())
        self.catch_up()

    def _registered(self, kind: Literal["avro", "json_schema", "protobuf"], text: str) -> bytes:
        return b"\0" + self.registry.register(kind, text, subject="a-value").to_bytes(4, "big")

    def _connect_json(self, record: Row) -> bytes:
        def kind(value: Any, field: str) -> Row:
            if isinstance(value, dict):
                inner = [{"field": name, "optional": True, **kind(of, name)} for name, of in value.items()]
                return {"type": "struct", "fields": inner}
            if field == "ts":
                return {"type": "string" if _is_text(value) else "int64", "name": self.type_name}
            return {"type": "string" if _is_text(value) else "int64"}

        return json.dumps({"schema": kind(record, ""), "payload": record}).encode()

    def _avro(self, record: Row) -> bytes:
        def kind(value: Any, field: str) -> Any:
            if isinstance(value, dict):
                fields = [{"name": name, "type": kind(of, name)} for name, of in value.items()]
                return {"type": "record", "name": f"R{field}", "fields": fields}
            plain = "string" if _is_text(value) else "long"
            if field != "ts":
                return plain
            is_connect = self.type_name.startswith(_CONNECT)
            logical = {"logicalType": "timestamp-millis"} if is_connect else {}
            return {"type": plain, "connect.version": 1, "connect.name": self.type_name, **logical}

        schema, body = kind(record, ""), io.BytesIO()
        head = self._registered("avro", json.dumps(schema))
        plain = json.loads(json.dumps(schema).replace(', "logicalType": "timestamp-millis"', ""))
        fastavro.schemaless_writer(body, fastavro.parse_schema(plain), record)
        return head + body.getvalue()

    def _json_schema(self, record: Row) -> bytes:
        def kind(value: Any, field: str) -> Row:
            if isinstance(value, dict):
                return {"type": "object", "properties": {name: kind(of, name) for name, of in value.items()}}
            plain = {"type": "string"} if _is_text(value) else {"type": "integer", "connect.type": "int64"}
            named = {**plain, "title": self.type_name} if field == "ts" else plain
            return {"oneOf": [{"type": "null"}, named]}

        return self._registered("json_schema", json.dumps(kind(record, ""))) + json.dumps(record).encode()

    def _protobuf(self, record: Row) -> bytes:
        is_message = self.type_name == f"{_CONNECT}.Timestamp" and self.shape in _ENVELOPES
        named = f'[(confluent.field_meta) = {{ params: [{{ key: "connect.name", value: "{self.type_name}" }}] }}]'
        plain = "string" if _is_text(self.value) else "int64"
        time = "google.protobuf.Timestamp ts = 2" if is_message else f"{plain} ts = 2 {named}"
        inside = f"message In {{ {time}; }}" if self.shape == "struct" else ""
        row = f"int64 id = 1; {'In s' if self.shape == 'struct' else ''}"
        row = f"int64 id = 1; In s = 2; {inside}" if self.shape == "struct" else f"int64 id = 1; {time};"
        row += " string __op = 3;" if self.shape == "flat" else ""
        body = f"message Row {{ {row} }}"
        if "after" in record:
            body = f"message Envelope {{ Row before = 1; Row after = 2; string op = 3; {body} }}"
        imports = "".join(f'import "{one}.proto"; ' for one in ("confluent/meta", "google/protobuf/timestamp"))
        text = f'syntax = "proto3"; {imports} {body}'
        if is_message:
            record = json.loads(json.dumps(record).replace(str(_NOON_MS), '"2025-07-01T12:00:00Z"'))
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compile_proto(text)).file:
            pool.Add(file)
        message = message_factory.GetMessageClass(
            pool.FindMessageTypeByName("Envelope" if "after" in record else "Row")
        )
        made = json_format.ParseDict(record, message()).SerializeToString()
        return self._registered("protobuf", text) + b"\0" + made

    def times(self) -> list[Any]:
        return [row["ts"] for row in self.upsert_table()] if self.catalog.load("n.t") is not None else []

    def reasons(self) -> list[Any]:
        return self.dead_letters() if self.catalog.load("n.t__dead_letters") is not None else []


def column(kind: str, shape: str = "append", **more: Any) -> ColumnSpec:
    """The column of the time."""
    return ColumnSpec(name="ts", type=parse_type(kind), field=("s", "ts") if shape == "struct" else None, **more)


@pytest.mark.parametrize(
    ("name", "form", "shape"),
    # In Protobuf envelopes Connect's type is a message.
    [
        *_turned(SHAPES, [*LOCAL][1:]),
        *(_case(f"{_CONNECT}.Timestamp", form, shape) for form in FORMATS for shape in SHAPES),
    ],
)
def test_a_local_time_is_of_the_zone_that_its_column_declares(tmp_path: Path, name: str, form: str, shape: str) -> None:
    zoned = column("timestamptz", shape, zone="America/New_York")
    scenario = TimesScenario(tmp_path, form, shape, name, LOCAL[name], zoned)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_LOCAL_NOON], [])


@pytest.mark.parametrize(
    ("name", "form", "shape"), _turned(("append", "wrapped"), [name for name in LOCAL if "Iso" not in name])
)
def test_a_unit_says_how_a_local_time_counts_and_not_that_it_is_an_instant(
    tmp_path: Path, name: str, form: str, shape: str
) -> None:
    unit = {"MicroTimestamp": "us", "NanoTimestamp": "ns"}.get(name.rpartition(".")[2], "ms")
    zoned = column("timestamptz", shape, zone="America/New_York", unit=unit)
    scenario = TimesScenario(tmp_path, form, shape, name, LOCAL[name], zoned)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_LOCAL_NOON], [])


@pytest.mark.parametrize(("name", "form", "shape"), _turned(("append", "upsert", "wrapped")))
def test_a_local_time_stays_as_it_is_in_a_column_without_a_zone_of_its_own(
    tmp_path: Path, name: str, form: str, shape: str
) -> None:
    zoned = column("timestamp", shape, zone="America/New_York")
    scenario = TimesScenario(tmp_path, form, shape, name, LOCAL[name], zoned)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_WALL], [])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", cases(FORMATS))
def test_a_moment_with_its_zone_is_the_same_moment_whatever_the_column_declares(
    tmp_path: Path, form: str, shape: str
) -> None:
    zoned = column("timestamptz", shape, zone="America/New_York")
    scenario = TimesScenario(tmp_path, form, shape, *_ZONED, zoned)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_UTC_NOON], [])


@pytest.mark.parametrize("form", cases(("json", "avro", "json_schema")))
def test_connects_timestamp_is_an_instant_where_no_zone_is_declared(tmp_path: Path, form: str) -> None:
    name = f"{_CONNECT}.Timestamp"
    scenario = TimesScenario(tmp_path, form, "append", name, LOCAL[name], column("timestamptz"))
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_UTC_NOON], [])


@pytest.mark.parametrize("shape", ["append", "wrapped", "flat"])
@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_declared_unit_takes_precedence_over_the_type_with_and_without_an_envelope(
    tmp_path: Path, form: str, shape: str
) -> None:
    counted = column("timestamp", shape, unit="s")
    scenario = TimesScenario(tmp_path, form, shape, f"{_TIME}.MicroTimestamp", _NOON_MS // 1000, counted)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_WALL], [])


@pytest.mark.parametrize("form", cases(FORMATS))
def test_a_local_time_that_clocks_skip_is_a_bad_record(tmp_path: Path, form: str) -> None:
    skipped_ms = 1_741_487_400_000  # 2025-03-09T02:30
    zoned = column("timestamptz", zone="America/New_York")
    scenario = TimesScenario(tmp_path, form, "append", f"{_CONNECT}.Timestamp", skipped_ms, zoned)
    scenario.send()
    [(kind, reason)] = scenario.reasons()
    assert kind == "out_of_range"
    assert reason.endswith("does not exist in America/New_York, where clocks were set forward past it")


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("envelope", ["debezium", None])
@pytest.mark.parametrize("name", LOCAL)
def test_a_tombstone_finds_the_row_whose_key_has_a_local_time(
    tmp_path: Path, name: str, envelope: str | None, form: str
) -> None:
    shape = "append" if envelope is None else "wrapped"
    zoned, more = column("timestamptz", shape, zone="America/New_York"), {"mode": "upsert", "key_columns": ("id", "ts")}
    scenario = TimesScenario(tmp_path, form, shape, name, LOCAL[name], zoned, **more)
    scenario.send(1)
    scenario.send(2)
    kind = {"type": "string" if _is_text(LOCAL[name]) else "int64", "name": name}
    fields = [{"field": "id", "type": "int64"}, {"field": "ts", **kind}]
    key = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "ts": LOCAL[name]}}
    scenario.source.produce("a", 0, None, key=json.dumps(key).encode())
    scenario.catch_up()
    assert ([row["id"] for row in scenario.upsert_table()], scenario.reasons()) == ([2], [])


@pytest.mark.parametrize("envelope", ["debezium", None])
def test_a_number_in_a_key_counts_the_unit_that_its_column_declares(tmp_path: Path, envelope: str | None) -> None:
    shape = "append" if envelope is None else "wrapped"
    more: Row = {"mode": "upsert", "key_columns": ("id", "ts")}
    counted = column("timestamptz", shape, unit="us")
    scenario = TimesScenario(tmp_path, "json", shape, "", _NOON_MS * 1000, counted, **more)
    scenario.send(1)
    scenario.send(2)
    scenario.source.produce("a", 0, None, key=json.dumps({"id": 1, "ts": _NOON_MS * 1000}).encode())
    scenario.catch_up()
    assert ([row["id"] for row in scenario.upsert_table()], scenario.reasons()) == ([2], [])


@pytest.mark.parametrize("date", [_NOON_MS, "2025-07-01T12:00:00Z", {"$numberLong": str(_NOON_MS)}])
@pytest.mark.parametrize(("kind", "stored"), [("timestamptz", _UTC_NOON), ("timestamp", datetime(2025, 7, 1, 8))])  # noqa: DTZ001
def test_a_date_of_mongodb_is_an_instant(tmp_path: Path, kind: str, stored: datetime, date: Any) -> None:
    zoned = ColumnSpec(name="ts", type=parse_type(kind), zone="America/New_York")
    settings: Row = {"columns": (zoned,), "key": ValueSpec(format="json"), "envelope": EnvelopeSpec(kind="debezium")}
    scenario = UpsertScenario(tmp_path, **settings)
    document = json.dumps({"_id": 1, "ts": {"$date": date}})
    scenario.put('{"id": "1"}', {"op": "c", "after": document, "source": {"connector": "mongodb"}})
    scenario.catch_up()
    assert [row["ts"] for row in scenario.upsert_table()] == [stored]
