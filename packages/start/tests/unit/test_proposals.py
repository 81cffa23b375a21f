"""What a few records of a topic make of its table in a first pipeline file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.scan import ROOT
from frazil.kafka.port import ReadRecord
from frazil.registry.port import RegisteredSchema
from frazil.spec import load_spec
from frazil_start.proposals import Proposal, clashing_tables, file_of, is_internal, propose
from frazil_testing.memory_registry import MemoryRegistry

CHANGE = {"op": "c", "before": None, "after": {"id": 1}, "source": {}}
CANAL = {"isDdl": False, "type": "INSERT", "data": [], "database": "d", "table": "t"}
MAXWELL = {"database": "d", "table": "t", "type": "insert", "data": {}}


def _records(*pairs: tuple[Any, Any]) -> list[ReadRecord]:
    """Records of these keys and values: bytes as they are, others as JSON."""
    made = [[one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in pair] for pair in pairs]
    return [ReadRecord("t", 0, offset, value, key=key) for offset, (key, value) in enumerate(made)]


def test_the_page_shows_a_file_as_it_is_written() -> None:
    page = (ROOT / "docs/start/first-file.md").read_text()
    key, change = (
        RegisteredSchema(number, "avro", json.dumps({"fields": [{"name": name, "type": "string"} for name in names]}))
        for number, names in enumerate((["order_id"], CHANGE))
    )
    records = _records(*[(b"\0\0\0\0\0", b"\0\0\0\0\1")] * 20)
    changes = propose("shop.public.orders", records, [key, change].__getitem__)
    views = propose("page_views", _records(*[(None, {"id": 1})] * 40), None)
    left_out = [propose("__consumer_offsets", (), None), propose("audit", (), None)]
    head = {
        "pipeline": "lake",
        "kafka": {"bootstrap.servers": "broker:9092"},
        "registry": {"url": "https://registry:8081"},
        "catalog": {"warehouse": "/data/warehouse"},
    }
    assert f"```yaml\n{file_of(head, 'lake', [views, changes, *left_out])}```" in page
    assert "frazil.yaml: 2 of 4 topics; next: frazil plan -f frazil.yaml" in page


@pytest.mark.parametrize(
    ("records", "settings", "seen"),
    [
        (_records((None, {"a": 1})), {}, "JSON in 1 record"),
        (_records((None, b"a line"), (None, b"{")), {"value": {"format": "text"}}, "text in 2 records"),
        (_records(*[(None, {"a": 1})] * 9, (None, b'{"a": ')), {}, "JSON in 9 of 10 records, the others are damaged"),
        (_records(*[(None, {"a": 1})] * 8, (None, b'{"a": ')), {"value": {"format": "text"}}, "text in 9 records"),
        (_records((None, b"a\tb\r\n"), (None, b"\n")), {"value": {"format": "text"}}, "text in 2 records"),
        (_records((None, b"\xff\x00")), {"value": {"format": "raw"}}, "raw in 1 record"),
        (
            _records(({"id": 1}, CHANGE), ({"id": 1}, None)),
            {"envelope": "debezium", "mode": "upsert", "key": {"format": "json"}},
            "changes of Debezium, tombstones, keys of id",
        ),
        (
            _records(({"schema": {}, "payload": {"id": 1}}, {"schema": {}, "payload": CHANGE})),
            {"envelope": "debezium", "mode": "upsert", "key": {"format": "json"}},
            "Kafka Connect's schema in each",
        ),
        (_records((None, CANAL)), {"envelope": "canal"}, "the keys have no fields"),
        (_records((None, MAXWELL)), {"envelope": "maxwell"}, "changes of Maxwell"),
        (
            _records(({"id": 1}, {"a": 1}), ({"id": 1}, None)),
            {"mode": "upsert", "key": {"format": "json"}},
            "tombstones",
        ),
        (_records((b"k", {"a": 1}), (b"k", None)), {}, "the keys have no fields"),
        (_records((b"k", {"a": 1})), {}, "add `mode: upsert` and `key_columns`"),
    ],
)
def test_records_show_format_envelope_and_key(records: list[ReadRecord], settings: dict[str, Any], seen: str) -> None:
    found = propose("t", records, None)
    assert found.settings == {"topic": "t", **settings}
    assert seen in found.seen


@pytest.mark.parametrize("value", [b"a line", b"\xff\x00"])
def test_key_columns_are_not_proposed_for_values_without_fields(value: bytes) -> None:
    found = propose("t", _records((b"k", value)), None)
    assert found.seen == ("raw in 1 record" if value[0] == 0xFF else "text in 1 record")


def test_the_registry_names_the_format() -> None:
    registry = MemoryRegistry()
    fields = [{"name": name, "type": "string"} for name in CHANGE]
    number = registry.register("avro", json.dumps({"type": "record", "name": "r", "fields": fields}))
    key = registry.register("avro", json.dumps({"type": "record", "name": "k", "fields": fields[:1]}))
    records = _records(*[(b"\0" + key.to_bytes(4, "big") + b"k", b"\0" + number.to_bytes(4, "big") + b"v")] * 2)
    settings = {
        "topic": "t",
        "value": {"format": "avro"},
        "envelope": "debezium",
        "mode": "upsert",
        "key": {"format": "avro"},
    }
    assert propose("t", records, registry.by_id).settings == settings
    unknown = propose("t", records, None)
    assert unknown.settings is None
    assert "--registry" in unknown.seen


@pytest.mark.parametrize("damaged", [b"a line", b"\xff", b"\0\0\0\xff\xffjunk"])
def test_a_damaged_record_among_ten_does_not_hide_the_format_that_the_registry_names(damaged: bytes) -> None:
    registry = MemoryRegistry()
    record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    value = b"\0" + registry.register("avro", json.dumps(record)).to_bytes(4, "big") + b"\2"
    found = propose("t", _records(*[(None, value)] * 9, (None, damaged)), registry.by_id)
    assert found.settings == {"topic": "t", "value": {"format": "avro"}}
    assert found.seen.startswith("Avro in 9 of 10 records, the others are damaged")
    without = propose("t", _records(*[(None, value)] * 9, (None, damaged)), None)
    assert (without.settings, "--registry" in without.seen) == (None, True)
    more = propose("t", _records(*[(None, value)] * 8, *[(None, damaged)] * 2), registry.by_id)
    assert more.settings is None or more.settings["value"] == {"format": "raw"}


@pytest.mark.parametrize(
    "topic",
    ["__consumer_offsets", "_schemas", "connect-configs", "my-connect-offsets", "app-KSTREAM-1-changelog",
     "app-repartition", "schema-changes.inventory", "__debezium-heartbeat.shop"],
)  # fmt: skip
def test_topics_of_other_programs_are_left_out(topic: str) -> None:
    assert is_internal(topic)
    assert propose(topic, _records((None, {"a": 1})), None) == Proposal(topic, None, "internal")


_TRANSACTION = {"status": "BEGIN", "id": "571:1", "ts_ms": 1, "event_count": None, "data_collections": None}
_SCHEMA_CHANGE = {"source": {}, "ts_ms": 1, "databaseName": "shop", "schemaName": None, "ddl": "drop table t"}


@pytest.mark.parametrize("form", ["json", "json with its schema", "avro"])
@pytest.mark.parametrize(
    ("value", "kind"), [(_TRANSACTION, "transaction"), (_SCHEMA_CHANGE, "schema_change"), ({"ts_ms": 1}, "heartbeat")]
)
def test_topics_of_a_connector_without_changes_are_left_out(value: dict[str, Any], kind: str, form: str) -> None:
    registry, told = MemoryRegistry(), value
    if form == "json with its schema":
        told = {"schema": {}, "payload": value}
    records = _records(*[(None, told)] * 3)
    if form == "avro":
        fields = [{"name": name, "type": "string"} for name in value]
        number = registry.register("avro", json.dumps({"type": "record", "name": "r", "fields": fields}))
        records = _records((None, b"\0" + number.to_bytes(4, "big") + b"v"))
    found = propose("shop", records, registry.by_id)
    assert found == Proposal("shop", None, f"a connector's records that change no row: {kind}")
    mixed = propose("shop", [*records, *_records((None, {"id": 1, "ts_ms": 1}))], registry.by_id)
    assert form == "avro" or mixed.settings is not None


_ROUTED = "__dbz__physicalTableIdentifier"


@pytest.mark.parametrize("form", ["json", "json with its schema", "avro", "json_schema"])
@pytest.mark.parametrize("field", [_ROUTED, "shard"])
def test_rows_of_several_tables_in_a_topic_are_kept_apart_by_their_source_table(form: str, field: str) -> None:
    registry = MemoryRegistry()
    keys: list[Any] = [{"id": 1, field: f"shop.public.t{n}"} for n in (1, 2)]
    values: list[Any] = [{**CHANGE, "source": {"db": "shop", "schema": "public", "table": f"t{n}"}} for n in (1, 2)]
    if form == "json with its schema":
        keys, values = ([{"schema": {}, "payload": one} for one in many] for many in (keys, values))
    if form == "avro":
        row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
        kinds: dict[str, Any] = {
            "before": ["null", row],
            "after": ["null", "Value"],
            "op": "string",
            "source": "string",
        }
        schemas: list[dict[str, Any]] = [
            {"type": "record", "name": "Envelope", "fields": [{"name": n, "type": k} for n, k in kinds.items()]},
            {"type": "record", "name": "Key", "fields": [{"name": n, "type": "string"} for n in ("id", field)]},
        ]
    if form == "json_schema":
        image = {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"id": {"type": "integer"}}}]}
        members: dict[str, Any] = {
            "before": image,
            "after": image,
            "op": {"type": "string"},
            "source": {"type": "object"},
        }
        named = {name: {"type": "string"} for name in ("id", field)}
        schemas = [{"type": "object", "properties": one} for one in (members, named)]
    if form in ("avro", "json_schema"):
        value, key = (
            b"\0" + registry.register("avro" if form == "avro" else "json_schema", json.dumps(one)).to_bytes(4, "big")
            for one in schemas
        )
        keys, values = [key + b"k"], [value + b"v"]
    found = propose("customers", _records(*zip(keys, values, strict=True)), registry.by_id)
    assert found.settings is not None
    assert {name: found.settings[name] for name in ("metadata", "key_columns")} == {
        "metadata": ["source_table"],
        "key_columns": ["_source_table", "id"],
    }
    assert found.seen.endswith(f"rows lack {field}, so that the source table identifies each too")


def test_shards_in_several_databases_are_kept_apart_by_their_database_too() -> None:
    pairs = [
        ({"id": 1, _ROUTED: f"{db}.t"}, {**CHANGE, "source": {"db": db, "schema": None, "table": "t"}})
        for db in ("shard_1", "shard_2")
    ]
    found = propose("customers", _records(*pairs), None)
    assert found.settings == {
        "topic": "customers",
        "envelope": "debezium",
        "mode": "upsert",
        "key": {"format": "json"},
        "metadata": ["source_database", "source_table"],
        "key_columns": ["_source_database", "_source_table", "id"],
    }


def test_a_name_in_a_record_cannot_end_a_comment() -> None:
    odd = Proposal("a", {"topic": "a"}, "keys of a\nb: 1")
    assert yaml.safe_load(file_of({"pipeline": "lake"}, "lake", [odd])) == {
        "pipeline": "lake",
        "tables": {"lake.a": {"topic": "a"}},
    }


def test_the_file_is_valid_and_names_what_is_left_out(tmp_path: Path) -> None:
    proposals = [propose(name, _records((None, {"a": 1})), None) for name in ("Shop.orders", "shop-orders", "_schemas")]
    proposals.append(propose("empty", [], None))
    head = {"pipeline": "lake", "kafka": {"bootstrap.servers": "b:1"}}
    text = file_of(head, "lake", clashing_tables("lake", proposals))
    assert yaml.safe_load(text) == {**head, "tables": {"lake.shop_orders": {"topic": "Shop.orders"}}}
    assert "#   shop-orders: its table would be that of Shop.orders\n#   _schemas: internal\n" in text
    assert "#   empty: no records to look at\n" in text
    (tmp_path / "frazil.yaml").write_text(text)
    assert load_spec(tmp_path / "frazil.yaml").tables[0].name == "lake.shop_orders"


def test_a_topic_of_dead_letters_gets_a_table_beside_that_of_its_topic(tmp_path: Path) -> None:
    proposals = [propose(topic, _records((None, {"a": 1})), None) for topic in ("orders", "orders__dead_letters")]
    path = tmp_path / "frazil.yaml"
    head = {"pipeline": "p", "kafka": {"bootstrap.servers": "k:9092"}}
    path.write_text(file_of(head, "lake", clashing_tables("lake", proposals)))
    assert [table.name for table in load_spec(path).tables] == ["lake.orders", "lake.orders_dead_letters"]
