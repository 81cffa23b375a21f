"""The database, schema and table that a change is from, as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.errors import SpecError
from frazil.spec import load_spec
from frazil.spec.settings import METADATA_COLUMNS, MetadataField
from tests.needs import has_package, needs
from tests.unit.cdc.envelope_messages import LOG, UPSERT_ENVELOPE, avro, debezium
from tests.unit.cdc.envelope_reference import records_of, target_for

if has_package("protobuf"):
    from packages.protobuf.tests.unit.test_envelopes import ProtobufScenario

FIELDS: tuple[MetadataField, ...] = ("source_database", "source_schema", "source_table")
_ROW = {"id": 1, "v": "a"}
_CANAL = {
    "isDdl": False,
    "old": None,
    "pkNames": ["id"],
    "type": "INSERT",
    "es": 5,
    "ts": 6,
    "mysqlType": {"id": "int"},
}


def _schema_with(source: dict[str, Any]) -> dict[str, Any]:
    row = [{"field": "id", "type": "int64"}, {"field": "v", "type": "string"}]
    inner = [{"field": name, "type": "string", "optional": True} for name in source]
    fields = [
        {"field": "after", "type": "struct", "fields": row, "optional": True},
        {"field": "source", "type": "struct", "fields": inner},
        {"field": "op", "type": "string"},
    ]
    return {"type": "struct", "fields": fields}


def _told(envelope: Envelope, *values: bytes) -> list[tuple[Any, ...]]:
    changes = read_envelope(target_for(envelope, {"id": "long", "v": "string"}, FIELDS), records_of(values))
    assert changes.decoded.mismatches == []
    return list(zip(*(changes.own[name].to_pylist() for name in FIELDS), strict=True))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"db": "shop", "schema": "public", "table": "orders"}, ("shop", "public", "orders")),
        ({"db": "shop", "table": "orders"}, ("shop", None, "orders")),
        ({"db": "shop", "schema": None, "table": "orders"}, ("shop", None, "orders")),
        ({"db": "shop", "collection": "orders"}, ("shop", None, "orders")),
        ({"keyspace_name": "shop", "table_name": "orders"}, ("shop", None, "orders")),
        ({"connector": "x"}, (None, None, None)),
        ({"db": 7, "table": ["no", "text"]}, (None, None, None)),
    ],
    ids=json.dumps,
)
def test_a_change_in_json_tells_where_it_is_from(source: dict[str, Any], told: tuple[Any, ...]) -> None:
    value = debezium("c", after=_ROW, source=source)
    assert _told(LOG, value) == [told]
    if all(isinstance(one, str | None) for one in source.values()):
        wrapped = {"schema": _schema_with(source), "payload": json.loads(value)}
        assert _told(LOG, json.dumps(wrapped).encode()) == [told]


def test_images_and_deletes_have_the_table_of_their_change() -> None:
    source = {"db": "d", "schema": "s", "table": "t"}
    values = [debezium("u", _ROW, {**_ROW, "v": "b"}, source=source), debezium("d", _ROW, source=source)]
    assert _told(LOG, *values) == [("d", "s", "t")] * 3
    assert _told(UPSERT_ENVELOPE, values[0]) == [("d", "s", "t")]


@needs("cdc")
def test_other_envelopes_tell_it_by_their_own_members() -> None:
    row = {"database": "shop", "table": "orders"}
    assert _told(Envelope("maxwell", is_log=True), json.dumps({**row, "type": "insert", "data": _ROW}).encode()) == [
        ("shop", None, "orders")
    ]
    message = {**_CANAL, **row, "data": [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}]}
    assert _told(Envelope("canal", is_log=True), json.dumps(message).encode()) == [("shop", None, "orders")] * 2


@pytest.mark.parametrize("prefix", ["__source_", "__"])
def test_an_unwrapped_row_tells_it_beside_its_values(prefix: str) -> None:
    beside = {f"{prefix}db": "d", f"{prefix}schema": "s", f"{prefix}table": "t"}
    assert _told(LOG, json.dumps({**_ROW, "__op": "c", **beside}).encode()) == [("d", "s", "t")]


def test_an_envelope_in_avro_tells_where_it_is_from() -> None:
    source = {"type": "record", "name": "Source", "fields": [
        {"name": "db", "type": "string"}, {"name": "schema", "type": ["null", "string"]},
        {"name": "table", "type": "string"},
    ]}  # fmt: skip
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
    schema = {"type": "record", "name": "Envelope", "fields": [
        {"name": "after", "type": ["null", row]}, {"name": "source", "type": source}, {"name": "op", "type": "string"},
    ]}  # fmt: skip
    told = {"db": "d", "schema": None, "table": "t"}
    reading, records = avro({"after": {"id": 1}, "op": "c", "source": told}, schema=schema)
    changes = read_envelope(target_for(LOG, {"id": "long"}, FIELDS, reading=reading), records)
    assert [changes.own[name].to_pylist() for name in FIELDS] == [["d"], [None], ["t"]]


@needs("protobuf")
def test_an_envelope_in_protobuf_tells_where_it_is_from(tmp_path: Path) -> None:
    scenario = ProtobufScenario(tmp_path, metadata={name: METADATA_COLUMNS[name] for name in FIELDS})
    scenario.change("c", None, {"id": 1})
    scenario.send(2, {"after": {"id": 2}, "op": "c", "source": {"db": "shop"}})
    scenario.catch_up()
    assert [(row["_source_database"], row["_source_table"]) for row in scenario.by_id()] == [
        (None, None),
        ("shop", None),
    ]


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        ("envelope: debezium", True),
        pytest.param("envelope: debezium, value: {format: protobuf}", True, marks=needs("protobuf")),
        pytest.param("envelope: maxwell", True, marks=needs("cdc")),
        pytest.param("envelope: canal", True, marks=needs("cdc")),
        ("envelope: {operation: op}", False),
        ("on_bad_record: stop", False),
    ],
)
def test_check_refuses_the_columns_without_an_envelope_that_has_a_source(
    tmp_path: Path, settings: str, is_known: bool
) -> None:
    file = tmp_path / "f.yaml"
    fields = ", ".join(FIELDS)
    file.write_text(
        'pipeline: p\nkafka: {bootstrap.servers: "x:1"}\nregistry: {url: http://r}\n'
        f"tables: {{n.t: {{topic: a, {settings}, metadata: [{fields}]}}}}\n"
    )
    if is_known:
        (table,) = load_spec(file).tables
        assert {name: table.metadata[name] for name in FIELDS} == {name: f"_{name}" for name in FIELDS}
    else:
        with pytest.raises(SpecError, match="`source_database` in `metadata`"):
            load_spec(file)
