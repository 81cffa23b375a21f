"""MySQL's BIGINT UNSIGNED as Debezium's mode `long` writes it: a long that wraps, with the source's type beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import WriterSchema
from frazil.spec.settings import ColumnSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import cases, needs
from tests.unit.rows.test_encodings import message
from tests.unit.rows.test_encodings import proto as proto_schema
from tests.unit.rows.test_writer_schemas import framed
from tests.unit.upsert.test_upsert_service import UpsertScenario

Row = dict[str, Any]
_LARGEST = Decimal(2**64 - 1)
_TYPE = "__debezium.source.column.type"
_KINDS = ("BIGINT UNSIGNED", "BIGINT UNSIGNED ZEROFILL", "INT8 UNSIGNED", "bigint unsigned")
_SHAPES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda value: value,
    "struct": lambda value: {"u": value},
    "list": lambda value: [value, 7],
    "map": lambda value: {"k": value},
}


def _of(number: Decimal, shape: str) -> Any:
    """The stored value."""
    values = {"plain": number, "struct": {"u": number}, "list": [number, Decimal(7)], "map": [("k", number)]}
    return values[shape]


class UnsignedScenario(UpsertScenario):
    """Records with an unsigned `id` and `u`, in one format; with an envelope their changes."""

    def __init__(self, root: Path, form: str, kind: str = _KINDS[0], shape: str = "plain", **settings: Any) -> None:
        self.form, self.kind, self.shape = form, kind, shape
        given: Row = {
            "key": ValueSpec(format="avro" if form == "avro" else "json"),
            "dead_letters": {"stop_above": 1.0},
        }
        if form != "json":
            given["value"] = ValueSpec.model_validate({"format": form})
        super().__init__(root, **{**given, **settings})

    def send(self, number: int, v: Any, op: str = "", has_value: bool = True) -> None:
        row = {"id": number, "u": _SHAPES[self.shape](number), "v": v}
        value: Row = row
        if op:
            value = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
        make = {"json": self._json, "avro": self._avro, "json_schema": self._json_schema, "protobuf": self._protobuf}
        raw, key = (
            make[self.form](value),
            self._avro({"id": number}, True) if self.form == "avro" else self._json({"id": number}),
        )
        self.source.produce("a", 0, raw if has_value else None, key=key)

    def _json(self, value: Row) -> bytes:
        return json.dumps({"schema": self._connect(value), "payload": value}).encode()

    def _connect(self, value: Any, name: str = "") -> Row:
        long = {"type": "int64", "parameters": {_TYPE: self.kind}}
        if name in ("before", "after"):
            value = {"id": 1, "u": _SHAPES[self.shape](1), "v": "a"}
        if name == "u" and self.shape == "map":
            return {"type": "map", "keys": {"type": "string"}, "values": long}
        if isinstance(value, dict):
            inner = [{"field": one, "optional": True, **self._connect(of, one)} for one, of in value.items()]
            return {"type": "struct", "fields": inner}
        if isinstance(value, list):
            return {"type": "array", "items": long}
        return long if name in ("id", "u") else {"type": "string"}

    def _avro(self, value: Row, is_key: bool = False) -> bytes:
        long = {"type": "long", "connect.parameters": {_TYPE: self.kind}}
        inner: Row = {
            "plain": long,
            "struct": {"type": "record", "name": "S", "fields": [{"name": "u", "type": ["null", long]}]},
            "list": {"type": "array", "items": ["null", long]},
            "map": {"type": "map", "values": long},
        }
        fields = [{"name": "id", "type": long}]
        if not is_key:
            fields += [{"name": "u", "type": ["null", inner[self.shape]]}, {"name": "v", "type": ["null", "string"]}]
        schema: Row = {"type": "record", "name": "Row", "fields": fields}
        if "op" in value:
            images: list[Row] = [
                {"name": "before", "type": ["null", schema]},
                {"name": "after", "type": ["null", "Row"]},
            ]
            schema = {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}
        text = json.dumps(schema)
        number = self.registry.register("avro", text, subject="a-key" if is_key else "a-value")
        (raw,) = framed(number, WriterSchema("avro", text), value)
        return raw

    def _json_schema(self, value: Row) -> bytes:
        long = {"type": "integer", "connect.type": "int64", "connect.parameters": {_TYPE: self.kind}}
        inner = {
            "plain": long,
            "struct": {"type": "object", "properties": {"u": long}},
            "list": {"type": "array", "items": long},
            "map": {"type": "object", "additionalProperties": long},
        }
        fields = {"id": long, "u": inner[self.shape], "v": {"type": "string"}}
        row: Row = {"oneOf": [{"type": "null"}, {"type": "object", "properties": fields}]}
        if "op" in value:
            row = {"type": "object", "properties": {"before": row, "after": row, "op": {"type": "string"}}}
        number = self.registry.register("json_schema", json.dumps(row), subject="a-value")
        return b"\0" + number.to_bytes(4, "big") + json.dumps(value).encode()

    def _protobuf(self, value: Row) -> bytes:
        long = f'[(confluent.field_meta) = {{ params: [{{ key: "{_TYPE}", value: "{self.kind}" }}] }}]'
        text = (
            f'syntax = "proto3"; import "confluent/meta.proto"; message R {{ sint64 id = 1 {long}; int64 u = 2 {long};'
        )
        text += " string v = 3; }"
        number = self.registry.register("protobuf", text, subject="a-value")
        return message(proto_schema(text), number, value)

    def reasons(self) -> list[tuple[str, str]]:
        return self.dead_letters() if self.catalog.load("n.t__dead_letters") is not None else []

    def types(self) -> dict[str, str]:
        state = self.catalog.load("n.t")
        assert state is not None
        return {field.name: str(field.field_type) for field in state.schema.fields}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("form", cases(["json", "avro", "json_schema", "protobuf"]))
def test_a_new_column_is_a_decimal_that_holds_every_number(tmp_path: Path, form: str, kind: str) -> None:
    scenario = UnsignedScenario(tmp_path, form, kind, mode="append")
    scenario.send(7, "a")
    scenario.send(-1, "b")
    scenario.send(-(2**63), "c")
    scenario.catch_up()
    assert scenario.types() == {"id": "decimal(20, 0)", "u": "decimal(20, 0)", "v": "string"}
    assert {row["v"]: row["u"] for row in scenario.upsert_table()} == {
        "a": Decimal(7), "b": _LARGEST, "c": Decimal(2**63),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["BIGINT", "INT UNSIGNED", "BIGINT UNSIGNEDLY", ""])
def test_other_types_stay_long(tmp_path: Path, kind: str) -> None:
    scenario = UnsignedScenario(tmp_path, "json", kind, mode="append")
    scenario.send(-1, "b")
    scenario.catch_up()
    assert [row["u"] for row in scenario.upsert_table()] == [-1]


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("form", cases(["json", "avro", "json_schema"]))
@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_the_number_is_the_same_at_every_depth(tmp_path: Path, form: str, shape: str, envelope: str | None) -> None:
    settings: Row = {"envelope": EnvelopeSpec(kind="debezium"), "changelog": True} if envelope else {}
    scenario = UnsignedScenario(tmp_path, form, shape=shape, mode="append", **settings)
    scenario.send(-1, "a", "c" if envelope else "")
    if envelope:
        scenario.send(-1, "a", "d")
    scenario.catch_up()
    rows = scenario.upsert_table()
    assert [(row["id"], row["u"]) for row in rows] == [(_LARGEST, _of(_LARGEST, shape))] * (2 if envelope else 1)


@pytest.mark.parametrize("form", cases(["json", "avro", "json_schema"]))
@pytest.mark.parametrize("envelope", [None, "debezium"])
@pytest.mark.parametrize("is_declared", [False, True])
def test_a_key_identifies_its_row_in_changes_deletes_and_tombstones(
    tmp_path: Path, form: str, envelope: str | None, is_declared: bool
) -> None:
    settings: Row = {"envelope": EnvelopeSpec(kind="debezium")} if envelope else {}
    if is_declared:
        settings["columns"] = (ColumnSpec(name="id", type=parse_type("decimal(20,0)")),)
    scenario = UnsignedScenario(tmp_path, form, **settings)
    op = "c" if envelope else ""
    for number in (-1, -2, -3, 1):
        scenario.send(number, "a", op)
    scenario.catch_up()
    scenario.send(-1, "b", op)
    scenario.send(-2, None, op, has_value=False)
    scenario.send(-3, "a", "d" if envelope else "", has_value=bool(envelope))
    scenario.catch_up()
    found = {row["id"]: row["v"] for row in scenario.upsert_table()}
    assert (found, scenario.reasons()) == ({_LARGEST: "b", Decimal(1): "a"}, [])


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_a_column_of_64_bits_refuses_what_it_cannot_hold_and_the_remedy_takes_it(
    tmp_path: Path, form: str, envelope: str | None
) -> None:
    settings: Row = {"envelope": EnvelopeSpec(kind="debezium")} if envelope else {}
    long = ColumnSpec(name="u", type=parse_type("long"))
    scenario = UnsignedScenario(tmp_path, form, mode="append", columns=(long,), **settings)
    op = "c" if envelope else ""
    scenario.send(7, "a", op)
    scenario.send(-1, "b", op)
    scenario.catch_up()
    assert [row["u"] for row in scenario.upsert_table()] == [7]
    remedy = '`columns: {NAME: {type: "decimal(20,0)", field: u}}` takes it'
    assert scenario.reasons() == [
        ("out_of_range", f"{_LARGEST} (BIGINT UNSIGNED) is out of the range of long: a column {remedy}")
    ]
    wide = ColumnSpec(name="wide", type=parse_type("decimal(20,0)"), field=("u",))
    table = scenario.spec.tables[0].model_copy(update={"columns": (long, wide)})
    scenario.spec = scenario.spec.model_copy(update={"tables": (table,)})
    scenario.send(-1, "c", op)
    scenario.catch_up()
    assert [row["wide"] for row in scenario.upsert_table() if row["v"] == "c"] == [_LARGEST]


@pytest.mark.parametrize("envelope", [None, "debezium"])
@needs("jsonschema")
def test_a_column_of_64_bits_refuses_a_number_of_json_schema_as_well(tmp_path: Path, envelope: str | None) -> None:
    settings: Row = {"envelope": EnvelopeSpec(kind="debezium")} if envelope else {}
    long = ColumnSpec(name="u", type=parse_type("long"))
    scenario = UnsignedScenario(tmp_path, "json_schema", mode="append", columns=(long,), **settings)
    scenario.send(7, "a", "c" if envelope else "")
    scenario.send(-1, "b", "c" if envelope else "")
    scenario.catch_up()
    assert [row["u"] for row in scenario.upsert_table()] == [7]
    [(kind, reason)] = scenario.reasons()
    assert kind == "out_of_range"
    assert reason.endswith(
        'is out of the range of long: a column `columns: {NAME: {type: "decimal(20,0)", field: u}}` takes it'
    )


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        (ColumnSpec(name="u", type=parse_type("string"), coerce=True), "18446744073709551615"),
        (ColumnSpec(name="u", type=parse_type("decimal(38,2)")), Decimal("18446744073709551615.00")),
    ],
)
def test_columns_of_other_types_have_the_number_too(tmp_path: Path, column: ColumnSpec, stored: Any) -> None:
    scenario = UnsignedScenario(tmp_path, "json", mode="append", columns=(column,))
    scenario.send(-1, "a")
    scenario.catch_up()
    assert [row["u"] for row in scenario.upsert_table()] == [stored]


def test_a_column_of_32_bits_is_widened_as_far_as_longs_reach(tmp_path: Path) -> None:
    scenario = UnsignedScenario(
        tmp_path, "json", mode="append", columns=(ColumnSpec(name="u", type=parse_type("int")),)
    )
    scenario.send(2**40, "a")
    scenario.catch_up()
    assert (scenario.types()["u"], [row["u"] for row in scenario.upsert_table()]) == ("long", [2**40])
