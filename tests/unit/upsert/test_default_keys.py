"""Upsert tables whose key columns nobody names, of sources whose records' keys are not simply the columns of the row's
key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.spec.settings import ColumnSpec, DeadLettersSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.cdc.mongodb_source import connect_fields, wrapped
from tests.unit.upsert.test_upsert_keys import AvroScenario
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import UpsertSource

Row = dict[str, Any]


class MaxwellScenario(UpsertScenario):
    """An upsert table of topic `a`, to which Maxwell writes. form: `kafka_key_format`."""

    def __init__(self, root: Path, form: str, primary: tuple[str, ...]) -> None:
        super().__init__(root, envelope=EnvelopeSpec(kind="maxwell"), dead_letters={"stop_above": 1.0})
        self.form, self.primary = form, primary

    def tell(self, *told: tuple[str, Row, Row | None]) -> None:  # type: ignore[override]
        for kind, row, old in told:
            value = {"database": "shop", "table": "e", "type": kind, "ts": 1_477_053_217, "xid": 23_396, "data": row}
            self.put(self.key(row), value if old is None else {**value, "old": old})
        self.catch_up()

    def key(self, row: Row) -> str:
        """The key of a row's record."""
        columns = {name: row[name] for name in self.primary}
        if self.form == "array":
            return json.dumps(["shop", "e", [{name: value} for name, value in columns.items()]])
        named = {f"pk.{name}": value for name, value in columns.items()} or {"_uuid": "bf0b2d5e"}
        return json.dumps({"database": "shop", "table": "e", **named})


@pytest.mark.parametrize("form", ["hash", "array"])
@pytest.mark.parametrize("primary", [("id",), ("id", "part")])
@needs("cdc")
def test_an_upsert_table_of_what_maxwell_writes(tmp_path: Path, form: str, primary: tuple[str, ...]) -> None:
    scenario = MaxwellScenario(tmp_path, form, primary)
    scenario.put(None, {"database": "shop", "table": "e", "type": "bootstrap-start", "ts": 1, "data": {}})
    rows = [{"id": n, "part": "x", "m": 4.5, "c": "2026-11-22 05:33:37.523000"} for n in range(5)]
    scenario.tell(*(("bootstrap-insert", row, None) for row in rows[:3]), *(("insert", row, None) for row in rows[3:]))
    new = {**rows[1], "m": 5.5}
    moved = {**rows[2], "id": 9}
    scenario.tell(("update", new, {"m": 4.5}), ("delete", rows[0], None), ("update", moved, {"id": 2}))
    assert sorted(scenario.upsert_table(), key=lambda row: int(row["id"])) == [new, rows[3], rows[4], moved]
    assert scenario.catalog.load("n.t__dead_letters") is None


@pytest.mark.parametrize("case", ["keep", "snake", "camel"])
def test_fields_of_keys_are_named_as_the_table_names_fields_at_every_depth(tmp_path: Path, case: str) -> None:
    """Also of a key whose fields no value has: its columns identify rows, and tombstones find them."""
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, column_case=case)
    keys = [json.dumps({"theKey": {"orderId": n, "in_it": {"aB": 1}}, "Plain_Id": 1}) for n in (1, 2)]
    scenario.tell((keys[0], {"v": 1}), (keys[1], {"v": 2}))
    scenario.tell((keys[0], {"v": 3}), (keys[1], None))
    [row] = scenario.upsert_table()
    names = {
        "keep": ("theKey", "orderId", "in_it", "aB", "Plain_Id"),
        "snake": ("the_key", "order_id", "in_it", "a_b", "plain_id"),
        "camel": ("theKey", "orderId", "inIt", "aB", "plainId"),
    }[case]
    assert row == {"v": 3, names[0]: {names[1]: 1, names[2]: {names[3]: 1}}, names[4]: 1}
    assert scenario.catalog.load("n.t__dead_letters") is None


def test_a_key_column_named_as_the_table_names_a_member_of_a_key_finds_its_tombstones(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"key": JSON_KEYS, "key_columns": ("the_key.order_id",), "column_case": "snake"}
    scenario = UpsertScenario(tmp_path, **settings)
    keys = [{"theKey": {"orderId": n}} for n in (1, 2)]
    scenario.tell(*((json.dumps(key), {**key, "v": 1}) for key in keys))
    scenario.tell((json.dumps(keys[0]), None))
    assert scenario.upsert_table() == [{"the_key": {"order_id": 2}, "v": 1}]


@pytest.mark.parametrize("name", ["a.b", "", "_file", "_POS"])
def test_a_key_whose_field_no_key_column_can_have_is_refused_until_the_field_has_a_column(
    tmp_path: Path, name: str
) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, dead_letters=DeadLettersSpec(stop_above=1.0))
    change = (json.dumps({name: 1}), {name: 1, "v": 1})
    scenario.tell((change[0], {"v": 1}))
    [(kind, reason)] = scenario.dead_letters()
    written = name if name.startswith("_") else f"'[\"{name}\"]'"
    assert (kind, f"field: {written}}}}}`" in reason) == ("no_key", True)
    # The first record decides nothing for those after it.
    scenario.tell((json.dumps({"id": 1}), {"id": 1}))
    assert scenario.upsert_table("id") == [{"id": 1}]
    column = ColumnSpec(name="a_b", type=parse_type("long"), field=(name,))
    (tmp_path / "other").mkdir()
    other = UpsertScenario(tmp_path / "other", key=JSON_KEYS, columns=(column,), key_columns=("a_b",))
    other.tell(change, (json.dumps({name: 2}), {name: 2, "v": 2}))
    other.tell((json.dumps({name: 1}), None))
    assert other.upsert_table() == [{"a_b": 2, "v": 2}]


def test_an_ordering_column_that_is_named_as_in_the_records_is_refused_with_its_name_in_the_table(
    tmp_path: Path,
) -> None:
    lenient = DeadLettersSpec(stop_above=1.0)
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, column_case="snake", order_by="updatedAt", dead_letters=lenient)
    scenario.tell((json.dumps({"id": 1}), {"updatedAt": 1}))
    reason = "the table has no column updatedAt: write `updated_at` under `order_by`, the column of that field"
    assert scenario.dead_letters() == [("no_order_value", reason)]


@needs("cdc")
def test_a_table_without_a_primary_key_has_no_upsert_table(tmp_path: Path) -> None:
    scenario = MaxwellScenario(tmp_path, "hash", ())
    scenario.tell(("insert", {"id": 1}, None), ("update", {"id": 2}, {"id": 1}))
    reason = "the record's key has no field, and the table has no key columns yet"
    assert scenario.dead_letters() == [("no_key", reason)] * 2


@needs("cdc")
def test_a_key_that_is_none_of_maxwells_is_a_dead_letter(tmp_path: Path) -> None:
    scenario = MaxwellScenario(tmp_path, "hash", ("id",))
    value = {"database": "shop", "table": "e", "type": "insert", "ts": 1, "data": {"id": 1}}
    for key in ('["shop","e"]', '["shop","e",[7]]', "["):
        scenario.put(key, value)
    scenario.catch_up()
    assert [kind for kind, _ in scenario.dead_letters()] == ["malformed", "no_key", "type_mismatch"]
    scenario.tell(("insert", {"id": 1}, None))
    assert scenario.upsert_table() == [{"id": 1}]


_SCALED = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": connect_fields({"scale": "int32", "value": "bytes"}),
    "field": "ID",
}
_ROW = [_SCALED, *connect_fields({"V": "string"})]
_ENVELOPE = [{"type": "struct", "fields": _ROW, "optional": True, "field": name} for name in ("before", "after")]


def _number(number: int) -> Row:
    """A number as Oracle's connector writes those without a precision, in JSON."""
    return {"scale": 0, "value": {1: "AQ==", 2: "Ag==", 3: "Aw=="}[number]}


class OracleScenario(UpsertSource):
    """A table whose key is a NUMBER without a precision."""

    def change(self, op: str, number: int, v: str | None) -> None:
        row = {"ID": _number(number), "V": v}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        self._send(number, wrapped({"op": op, **images}, [*_ENVELOPE, *connect_fields({"op": "string"})]))

    def forget(self, number: int) -> None:
        self._send(number, None)

    def _send(self, number: int, value: bytes | None) -> None:
        self.source.produce("a", 0, value, key=wrapped({"ID": _number(number)}, [_SCALED]))

    def put_number(self, number: Row, v: str) -> None:
        """A change of the row with a number of any scale."""
        row = {"ID": _in_json(number), "V": v}
        value = wrapped({"op": "c", "before": None, "after": row}, [*_ENVELOPE, *connect_fields({"op": "string"})])
        self.source.produce("a", 0, value, key=wrapped({"ID": row["ID"]}, [_SCALED]))

    def forget_number(self, number: Row) -> None:
        """A tombstone of such a row."""
        self.source.produce("a", 0, None, key=wrapped({"ID": _in_json(number)}, [_SCALED]))


_NUMBER = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
_FIELDS = [{"name": "ID", "type": _NUMBER}, {"name": "V", "type": ["null", "string"]}]
_BEFORE = {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": _FIELDS}]}
_IMAGES = [_BEFORE, {"name": "after", "type": ["null", "Row"]}]


class AvroNumbers(AvroScenario):
    """The same in Avro."""

    SCHEMAS: Mapping[str, dict[str, Any]] = {
        "key": {"type": "record", "name": "Key", "fields": [{"name": "ID", "type": _NUMBER}]},
        "value": {"type": "record", "name": "Envelope", "fields": [*_IMAGES, {"name": "op", "type": "string"}]},
    }

    def change(self, op: str, number: int, v: str | None) -> None:
        row = {"ID": {"scale": 0, "value": bytes([number])}, "V": v}
        self._send(
            {"ID": row["ID"]}, {"before": row if op == "d" else None, "after": row if op != "d" else None, "op": op}
        )

    def forget(self, number: int) -> None:
        self._send({"ID": {"scale": 0, "value": bytes([number])}}, None)

    def put_number(self, number: Row, v: str) -> None:
        """A change of the row with a number of any scale."""
        self._send({"ID": number}, {"before": None, "after": {"ID": number, "V": v}, "op": "c"})

    def forget_number(self, number: Row) -> None:
        """A tombstone of such a row."""
        self._send({"ID": number}, None)


_NUMBERS_OF_500 = (
    {"scale": 0, "value": b"\x01\xf4"},
    {"scale": -2, "value": b"\5"},
    {"scale": 1, "value": b"\x13\x88"},
)


def _in_json(number: Row) -> Row:
    return {"scale": number["scale"], "value": base64.b64encode(number["value"]).decode()}


@pytest.mark.parametrize("kind", ["string", "decimal(10,2)"])
@pytest.mark.parametrize("form", ["schema", "avro"])
def test_keys_with_a_scale_of_their_own_are_equal_by_their_values(tmp_path: Path, form: str, kind: str) -> None:
    columns = () if kind == "string" else (ColumnSpec(name="ID", type=parse_type(kind)),)
    scenario = _oracle(tmp_path, form, columns=columns)
    for number, v in zip(_NUMBERS_OF_500, "abc", strict=True):
        scenario.put_number(number, v)
        scenario.catch_up()
    assert [(str(row["ID"]), row["V"]) for row in scenario.upsert_table()] == [
        ("500" if kind == "string" else "500.00", "c")
    ]
    scenario.forget_number(_NUMBERS_OF_500[1])
    scenario.catch_up()
    assert scenario.upsert_table() == []
    for number, v in zip(_NUMBERS_OF_500, "abc", strict=True):  # All of them in one batch.
        scenario.put_number(number, v)
    scenario.forget_number({"scale": 3, "value": b"\1"})
    scenario.catch_up()
    assert [row["V"] for row in scenario.upsert_table()] == ["c"]
    assert scenario.dead_letters() == []


class PlainNumbers(AvroNumbers):
    """Rows without an envelope."""

    SCHEMAS: Mapping[str, dict[str, Any]] = {
        "key": AvroNumbers.SCHEMAS["key"],
        "value": {"type": "record", "name": "Row", "fields": _FIELDS},
    }

    def put_number(self, number: Row, v: str) -> None:
        self._send({"ID": number}, {"ID": number, "V": v})


@pytest.mark.parametrize("columns", [(), (ColumnSpec(name="NUMBER", type=parse_type("string"), field=("ID",)),)])
def test_keys_with_a_scale_of_their_own_are_equal_without_an_envelope(
    tmp_path: Path, columns: tuple[ColumnSpec, ...]
) -> None:
    names = tuple(column.name for column in columns) or ("ID",)
    scenario = PlainNumbers(tmp_path, "confluent", envelope=None, key_columns=names, columns=columns)
    for number, v in zip(_NUMBERS_OF_500, "abc", strict=True):
        scenario.put_number(number, v)
        scenario.catch_up()
    assert scenario.upsert_table() == [{names[0]: "500", "V": "c"}]


@pytest.mark.parametrize("form", ["schema", "avro"])
def test_a_key_that_its_column_cannot_hold_is_a_dead_letter(tmp_path: Path, form: str) -> None:
    scenario = _oracle(tmp_path, form)
    scenario.put_number(_NUMBERS_OF_500[0], "a")
    scenario.catch_up()
    scenario.put_number({"scale": -(2**31), "value": b"\1"}, "b")
    scenario.forget_number({"scale": 2**31 - 1, "value": b"\1"})  # There can be no such row.
    scenario.catch_up()
    assert [row["V"] for row in scenario.upsert_table()] == ["a"]
    assert [kind for kind, _ in scenario.dead_letters()] == ["out_of_range"]


def _oracle(root: Path, form: str, **settings: Any) -> OracleScenario | AvroNumbers:
    if form == "schema":
        return OracleScenario(root, key=ValueSpec(format="raw"), **settings)
    return AvroNumbers(root, "confluent", **settings)


@pytest.mark.parametrize("kind", ["string", "decimal(10,0)"])
@pytest.mark.parametrize("form", ["schema", "avro"])
def test_numbers_with_a_scale_of_their_own_are_keys(tmp_path: Path, form: str, kind: str) -> None:
    columns = () if kind == "string" else (ColumnSpec(name="ID", type=parse_type(kind)),)
    scenario = _oracle(tmp_path, form, columns=columns)
    for number in (1, 2, 3):
        scenario.change("c", number, "a")
    scenario.catch_up()
    scenario.change("u", 1, "b")
    scenario.change("d", 2, None)
    scenario.forget(2)
    if kind == "string":
        scenario.forget(3)
    else:  # Of a decimal a tombstone alone is skipped.
        scenario.change("d", 3, None)
    scenario.catch_up()
    assert [(str(row["ID"]), row["V"]) for row in scenario.upsert_table()] == [("1", "b")]
    assert scenario.dead_letters() == []
