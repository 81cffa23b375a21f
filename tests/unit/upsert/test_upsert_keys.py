"""Keys of upsert tables whose columns are called otherwise than the keys' fields, and keys whose format nobody names."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, EnvelopeSpec, FlattenSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario, Value
from tests.unit.upsert.upsert_source import UpsertSource

FIELDS: dict[str, Any] = {"columns": (ColumnSpec(name="id", type=parse_type("long"), field=("o", "number")),)}


def key_of(order: int, user: int) -> str:
    return json.dumps({"orderId": order, "user": {"userId": user}})


def value_of(order: int, user: int, text: str) -> Value:
    return {"orderId": order, "user": {"userId": user, "Name": "n"}, "someText": text}


@pytest.mark.parametrize(
    ("settings", "order", "user", "text"),
    [
        ({"flatten": FlattenSpec(), "column_case": "snake"}, "order_id", "user_user_id", "some_text"),
        ({"flatten": FlattenSpec(separator="__")}, "orderId", "user__userId", "someText"),
        ({"flatten": FlattenSpec(), "column_case": "lower"}, "orderid", "user_userid", "sometext"),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_key_of_a_record_is_found_in_the_columns_that_its_fields_have(
    tmp_path: Path, settings: dict[str, Any], order: str, user: str, text: str, is_named: bool
) -> None:
    named: dict[str, Any] = {"key_columns": (order, user)} if is_named else {}
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, **settings, **named)
    scenario.tell((key_of(1, 1), value_of(1, 1, "a")), (key_of(1, 2), value_of(1, 2, "a")))
    scenario.tell((key_of(1, 1), value_of(1, 1, "b")), (key_of(2, 2), value_of(2, 2, "a")))
    rows = sorted((row[order], row[user], row[text]) for row in scenario.upsert_table())
    assert rows == [(1, 1, "b"), (1, 2, "a"), (2, 2, "a")]
    table = scenario.tell((key_of(1, 1), None), (key_of(2, 2), None), (key_of(9, 9), None))
    assert scenario.upsert_table(order, user) == [{order: 1, user: 2}]
    assert (table.status.run_state, scenario.catalog.load("n.t__dead_letters")) == (RunState.WAITING, None)


def test_a_key_that_the_value_lacks_gets_the_column_of_its_field(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, column_case="snake")
    scenario.tell(('{"orderId":1}', {"v": 1}), ('{"orderId":2}', {"v": 2}), ('{"orderId":1}', {"v": 3}))
    assert scenario.upsert_table() == [{"order_id": 1, "v": 3}, {"order_id": 2, "v": 2}]
    assert scenario.columns() == {"v": "field: v", "order_id": "field: orderId"}


def test_a_struct_that_is_declared_stays_one_also_in_the_key(tmp_path: Path) -> None:
    columns = (ColumnSpec(name="user", type=parse_type("struct<userId: long, Name: string>")),)
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, flatten=FlattenSpec(), columns=columns)
    scenario.tell((key_of(1, 1), value_of(1, 1, "a")), (key_of(1, 2), value_of(1, 2, "a")))
    scenario.tell((key_of(1, 1), None), (key_of(1, 2), value_of(1, 2, "b")))
    assert scenario.upsert_table() == [{"user": {"userId": 2, "Name": "n"}, "orderId": 1, "someText": "b"}]


@pytest.mark.parametrize("key", ['{"o":{"number":7}}', '{"id":7}', "7"])
def test_a_key_may_name_the_field_or_the_column_that_it_feeds(tmp_path: Path, key: str) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), **FIELDS)
    scenario.tell((key, {"o": {"number": 7}, "v": 1}), ("8", {"o": {"number": 8}, "v": 2}))
    scenario.tell((key, None))
    assert scenario.upsert_table("id") == [{"id": 8}]


def test_keys_whose_names_are_exchanged_are_those_of_the_fields(tmp_path: Path) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type("long"), field=(field,)) for name, field in ("ab", "ba"))
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("a", "b"), columns=columns)
    scenario.tell(('{"a":1,"b":2}', {"a": 1, "b": 2}), ('{"a":2,"b":1}', {"a": 2, "b": 1}))
    scenario.tell(('{"a":1,"b":2}', None))
    assert scenario.upsert_table() == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("settings", [{"column_case": "snake"}, {"flatten": FlattenSpec(), "column_case": "snake"}])
def test_an_upsert_table_finds_its_keys_in_columns_of_another_case(tmp_path: Path, settings: dict[str, Any]) -> None:
    scenario = UpsertSource(tmp_path, **settings)
    row: dict[str, Any] = {"orderId": 1, "theText": "a"}
    scenario.say(({"orderId": 1}, {"op": "c", "before": None, "after": row}))
    scenario.say(({"orderId": 1}, {"op": "u", "before": None, "after": {**row, "theText": "b"}}))
    scenario.say(({"orderId": 2}, {"op": "c", "before": None, "after": {**row, "orderId": 2}}))
    assert scenario.upsert_table() == [{"order_id": 1, "the_text": "b"}, {"order_id": 2, "the_text": "a"}]
    scenario.say(({"orderId": 2}, {"op": "d", "before": {"orderId": 2}, "after": None}), ({"orderId": 2}, None))
    scenario.say(({"orderId": 1}, None))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([], [])


@pytest.mark.parametrize(("keys", "rest"), [(("1", '{"id":2}'), 3), ((' {"id":1}', "2"), 3)])
def test_keys_of_no_declared_format_are_numbers_or_records(tmp_path: Path, keys: tuple[str, str], rest: int) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",))
    scenario.tell(*((f"{n}", {"id": n, "v": "a"}) for n in (1, 2, 3)))
    scenario.tell(*((key, None) for key in keys))
    assert scenario.upsert_table("id") == [{"id": rest}]


@pytest.mark.parametrize(("key", "value"), [("k1", "k1"), ('{"id":"k1"}', "k1"), ('"k1"', '"k1"'), ("1", "1")])
def test_a_key_of_no_declared_format_is_text_where_the_column_is_unless_it_is_a_record(
    tmp_path: Path, key: str, value: str
) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",))
    scenario.tell((key, {"id": value}), ("k2", {"id": "k2"}))
    scenario.tell((key, None))
    assert scenario.upsert_table() == [{"id": "k2"}]


def test_several_key_columns_are_found_in_keys_of_no_declared_format(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("o.id", "region"), dead_letters={"stop_above": 1.0})
    one, other = '{"region":"n","o":{"id":1}}', '{"o":{"id":1},"region":"s"}'
    scenario.tell((one, {"o": {"id": 1}, "region": "n"}), (other, {"o": {"id": 1}, "region": "s"}))
    scenario.tell((one, None), ("n|1", None))
    assert scenario.upsert_table() == [{"o": {"id": 1}, "region": "s"}]
    assert scenario.dead_letters() == [("malformed", "the key is not well-formed JSON")]


def test_a_number_that_is_none_is_a_dead_letter(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key_columns=("id",), dead_letters={"stop_above": 1.0})
    scenario.tell(("1", {"id": 1}))
    scenario.tell(("one", None))
    assert (scenario.upsert_table(), [kind for kind, _ in scenario.dead_letters()]) == ([{"id": 1}], ["malformed"])


def test_a_field_of_the_column_that_holds_the_key_may_be_the_key(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, metadata={"key": "_key"}, key_columns=("_key.id",))
    scenario.tell(('{"id":1,"x":1}', {"v": 1}), ('{"id":2,"x":1}', {"v": 2}), ('{"id":1,"x":2}', {"v": 3}))
    rows = sorted((row["v"], row["_key"]) for row in scenario.upsert_table())
    assert rows == [(2, {"id": 2, "x": 1}), (3, {"id": 1, "x": 2})]
    scenario.tell(('{"id":1,"x":9}', None))
    assert scenario.upsert_table("v") == [{"v": 2}]


@pytest.mark.parametrize("key", [b"\x00\xff\xfe", b'{"id":1}', b"", b"text"])
def test_any_bytes_may_be_the_key_of_a_row(tmp_path: Path, key: bytes) -> None:
    scenario = UpsertScenario(tmp_path, metadata={"key": "_key"})
    scenario.source.produce("a", 0, b'{"v":1}', key=key)
    scenario.source.produce("a", 0, b'{"v":2}', key=b"\xff other")
    scenario.catch_up()
    scenario.source.produce("a", 0, None, key=key)
    scenario.catch_up()
    assert scenario.upsert_table() == [{"v": 2, "_key": b"\xff other"}]
    assert scenario.catalog.load("n.t__dead_letters") is None


ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


class AvroScenario(UpsertSource):
    """An upsert table of changes in Avro whose keys the file does not mention. how: where records name their schemas."""

    SCHEMAS: Mapping[str, dict[str, Any]] = {"value": ENVELOPE, "key": KEY}

    def __init__(self, root: Path, how: str, **settings: Any) -> None:
        value = ValueSpec(format="avro", source="latest") if how == "latest" else ValueSpec(format="avro", framing=how)
        super().__init__(root, value=value, key=ValueSpec(format="raw"), **settings)
        self.how = how
        self.ids = {
            part: self.registry.register("avro", json.dumps(schema), subject=f"a-{part}")
            for part, schema in self.SCHEMAS.items()
        }

    def write(self, op: str, key: int, v: str | None) -> None:
        row = None if v is None else {"id": key, "v": v}
        images = {"before": {"id": key, "v": ""} if op == "d" else None, "after": row, "op": op}
        self._send({"id": key}, images)

    def forget(self, key: int) -> None:
        self._send({"id": key}, None)

    def _send(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        frame = {"confluent": ">xi", "apicurio": ">xq"}.get(self.how)
        found = {
            part: None if record is None else self._framed(frame, part, record)
            for part, record in (("key", key), ("value", value))
        }
        names = self.ids.items() if self.how == "header" else ()
        headers = tuple((f"__{part}_schema_id", struct.pack(">xi", number)) for part, number in names)
        self.source.produce("a", 0, found["value"], key=found["key"], headers=headers)

    def _framed(self, frame: str | None, part: str, record: dict[str, Any]) -> bytes:
        body, schema = io.BytesIO(), json.loads(json.dumps(self.SCHEMAS[part]))
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
        return (struct.pack(frame, self.ids[part]) if frame else b"") + body.getvalue()


@pytest.mark.parametrize("how", ["confluent", "apicurio", "header", "latest"])
def test_keys_of_which_the_file_reports_nothing_are_framed_as_their_values_are(tmp_path: Path, how: str) -> None:
    scenario = AvroScenario(tmp_path, how)
    for key in (1, 2, 3):
        scenario.write("c", key, "a")
    scenario.catch_up()
    scenario.write("u", 1, "b")
    scenario.write("d", 2, None)
    scenario.forget(2)
    scenario.forget(3)
    scenario.catch_up()
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{"id": 1, "v": "b"}], [])


def test_what_is_no_number_is_one_key_in_records_and_their_keys(tmp_path: Path) -> None:
    avro = ValueSpec(format="avro")
    scenario = UpsertScenario(tmp_path, value=avro, key=avro)
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "double"}]})
    of_key, of_value = (scenario.registry.register("avro", schema, subject=f"a-{part}") for part in ("key", "value"))
    body = struct.pack("<d", float("nan"))
    for _ in range(2):
        value = struct.pack(">xi", of_value) + body
        scenario.source.produce("a", 0, value, key=struct.pack(">xi", of_key) + body)
        scenario.catch_up()
    assert len(scenario.upsert_table()) == 1
    assert scenario.catalog.load("n.t__dead_letters") is None


@pytest.mark.parametrize(
    ("kind", "keys", "values"),
    [
        ({"type": "string", "logicalType": "uuid"}, (str(UUID(int=1)), str(UUID(int=2))), (UUID(int=1), UUID(int=2))),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, (Decimal(1), Decimal(2)), (1, 2)),
    ],
    ids=["uuid", "decimal"],
)
def test_keys_with_a_schema_tell_the_type_of_a_key_column_that_values_in_json_have_too(
    tmp_path: Path, kind: dict[str, Any], keys: tuple[Any, Any], values: tuple[Any, Any]
) -> None:
    scenario = UpsertScenario(tmp_path, key=ValueSpec(format="avro"))
    schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]}
    number = scenario.registry.register("avro", json.dumps(schema), subject="a-key")

    def tell(at: int, v: str | None) -> None:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"id": keys[at]})
        reported = values[at] if isinstance(values[at], int) else str(values[at])
        value = None if v is None else json.dumps({"id": reported, "v": v}).encode()
        scenario.source.produce("a", 0, value, key=struct.pack(">xi", number) + body.getvalue())

    for at, v in ((0, "a"), (1, "a"), (0, "b")):
        tell(at, v)
    scenario.catch_up()
    tell(1, None)
    scenario.catch_up()
    assert scenario.catalog.load("n.t__dead_letters") is None
    (row,) = scenario.upsert_table()
    assert (UUID(bytes=row["id"]) if isinstance(row["id"], bytes) else row["id"], row["v"]) == (values[0], "b")


def test_a_key_that_is_a_text_where_values_have_a_number_makes_bad_records_and_holds_nothing_up(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, dead_letters={"stop_above": 1.0})
    scenario.tell(('{"id":"7"}', {"id": 7}), ('{"id":8}', {"id": 8}))
    assert scenario.upsert_table() == [{"id": 8}]
    assert scenario.dead_letters() == [("type_mismatch", 'string "7" does not fit long')]


@pytest.mark.parametrize(
    ("key", "named", "reason"),
    [
        ("avro", (), "the key is not a record; name the `key_columns`"),
        ("json", (), "the key is not a record; write `key: {format: text}`, or name the `key_columns`"),
        (
            "text",
            ("id",),
            "the key is text, and its column has the type long: numbers and booleans take `format: json`",
        ),
    ],
)
def test_a_dead_letter_of_a_bare_key_reports_what_would_read_it(
    tmp_path: Path, key: Any, named: tuple[str, ...], reason: str
) -> None:
    scenario = UpsertScenario(tmp_path, key=ValueSpec(format=key), key_columns=named, dead_letters={"stop_above": 1.0})
    number = scenario.registry.register("avro", '"long"', subject="a-key")
    body = struct.pack(">xi", number) + b"\x0e" if key == "avro" else b"7"
    for value in (b'{"id": 7}', None):
        scenario.source.produce("a", 0, value, key=body)
    scenario.catch_up()
    assert scenario.dead_letters()[-1][1] == reason


@pytest.mark.parametrize("envelope", [None, EnvelopeSpec(kind="debezium")], ids=["rows", "debezium"])
def test_tombstones_have_key_columns_that_come_from_no_key(tmp_path: Path, envelope: EnvelopeSpec | None) -> None:
    columns = (
        ColumnSpec(name="region", type=parse_type("string"), constant="eu"),
        ColumnSpec(name="tenant", type=parse_type("string"), header="tenant"),
    )
    names = ("region", "tenant", "_topic", "id")
    scenario = UpsertScenario(
        tmp_path, columns=columns, key_columns=names, key=JSON_KEYS, envelope=envelope, metadata={"topic": "_topic"}
    )

    def tell(tenant: str, value: bytes | None) -> None:
        scenario.source.produce("a", 0, value, key=b'{"id":1}', headers=(("tenant", tenant.encode()),))

    for tenant in ("x", "y"):
        row = {"id": 1, "v": tenant}
        tell(tenant, json.dumps(row if envelope is None else {"op": "c", "before": None, "after": row}).encode())
    scenario.catch_up()
    tell("x", None)
    scenario.catch_up()
    assert scenario.upsert_table() == [{"region": "eu", "tenant": "y", "id": 1, "v": "y", "_topic": "a"}]
