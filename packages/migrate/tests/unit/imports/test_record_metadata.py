"""Columns of record metadata have the types that Kafka Connect's sink gives them, through all transforms behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons

_KAFKA, _ICEBERG = "org.apache.kafka.connect.transforms", "org.apache.iceberg.connect.transforms"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_WITHOUT = {"value.converter": _JSON, "value.converter.schemas.enable": "false"}
_WITH = {"value.converter": _JSON}


def connector(*transforms: tuple[str, dict[str, str]], **settings: str) -> str:
    """A connector with these transforms, each a class and its options."""
    config = {"topics": "orders", "iceberg.tables": "shop.orders", **settings}
    config["transforms"] = ",".join(f"t{number}" for number in range(len(transforms)))
    for number, (kind, options) in enumerate(transforms):
        config[f"transforms.t{number}.type"] = kind
        config |= {f"transforms.t{number}.{name}": value for name, value in options.items()}
    return json.dumps(config)


def table(*transforms: tuple[str, dict[str, str]], **settings: str) -> dict[str, Any]:
    found: dict[str, Any] = document("kafka-connect", connector(*transforms, **settings))["tables"]["shop.orders"]
    return {name: value for name, value in found.items() if name in ("metadata", "add_fields", "select", "keep_fields")}


def insert(**names: str) -> tuple[str, dict[str, str]]:
    return f"{_KAFKA}.InsertField$Value", {f"{piece}.field": name for piece, name in names.items()}


def convert(field: str, target: str, **options: str) -> tuple[str, dict[str, str]]:
    return f"{_KAFKA}.TimestampConverter$Value", {"field": field, "target.type": target, **options}


_NESTED = (f"{_ICEBERG}.KafkaMetadataTransform", {"field_name": "km", "nested": "true", "external_field": "dc,eu"})


def test_a_timestamp_is_a_number_where_values_have_no_schema() -> None:
    transform = insert(timestamp="ts", offset="pos", partition="part", topic="name")
    others = {"topic": "name", "partition": "part", "offset": "pos"}
    assert table(transform, **_WITHOUT) == {
        "metadata": others,
        "select": "select *, unix_millis(_timestamp) as ts from records",
    }
    assert table(transform, **_WITH) == {"metadata": {**others, "timestamp": "ts"}}
    assert table(transform, **{"value.converter": "io.confluent.connect.avro.AvroConverter"}) == {
        "metadata": {**others, "timestamp": "ts"}
    }


def test_a_converter_that_only_the_worker_has_is_named() -> None:
    found = imported("kafka-connect", connector(insert(timestamp="ts")))
    assert [note for note in found.notes if "schemas.enable=false" in note]
    told = connector(insert(timestamp="ts"), **{"value.converter.schemas.enable": "false"})
    found = imported("kafka-connect", told)
    assert not [note for note in found.notes if "import again" in note]
    assert "unix_millis(_timestamp) as ts" in found.text


def test_metadata_that_two_transforms_add_becomes_two_columns() -> None:
    both = table((f"{_ICEBERG}.KafkaMetadataTransform", {}), insert(topic="name", timestamp="ts"), **_WITH)
    assert both == {
        "metadata": {
            **{piece: f"_kafka_metadata_{piece}" for piece in ("topic", "partition", "offset")},
            "timestamp": "ts",
        },
        "add_fields": {"name": "_topic"},
        "select": "select *, unix_millis(_timestamp) as _kafka_metadata_timestamp from records",
    }


def test_nested_metadata_is_a_struct_and_flattened_again_columns() -> None:
    members = "'topic', _topic, 'partition', {}, 'offset', _offset, 'timestamp', unix_millis(_timestamp), 'dc', 'eu'"
    members = f"named_struct({members})"
    assert table(_NESTED, **_WITH) == {"select": f"select *, {members.format('_kafka_partition')} as km from records"}
    narrow = members.format("cast(_kafka_partition as bigint)")
    assert table(_NESTED, **_WITHOUT) == {"select": f"select *, {narrow} as km from records"}
    flat = table(_NESTED, (f"{_KAFKA}.Flatten$Value", {"delimiter": "_"}), **_WITH)
    assert flat["metadata"] == {"topic": "km_topic", "partition": "km_partition", "offset": "km_offset"}
    assert flat["select"] == "select *, unix_millis(_timestamp) as km_timestamp, 'eu' as km_dc from records"


@pytest.mark.parametrize(
    ("target", "options", "settings", "expression"),
    [
        ("string", {"format": "yyyy-MM-dd"}, _WITHOUT, "date_format(_timestamp, 'yyyy-MM-dd')"),
        ("string", {"format": "yyyy-MM-dd'T'HH:mm"}, _WITH, "date_format(_timestamp, 'yyyy-MM-dd\\'T\\'HH:mm')"),
        ("Date", {}, _WITH, "to_date(_timestamp)"),
        ("Date", {}, _WITHOUT, "date_trunc('DAY', _timestamp)"),
        ("unix", {"unix.precision": "seconds"}, _WITH, "unix_seconds(_timestamp)"),
    ],
)
def test_conversions_of_the_timestamp_are_carried_over(
    target: str, options: dict[str, str], settings: dict[str, str], expression: str
) -> None:
    found = table(insert(timestamp="day"), convert("day", target, **options), **settings)
    assert found == {"select": f"select *, {expression} as day from records"}


def test_a_number_that_is_converted_to_a_timestamp_is_the_metadata_itself() -> None:
    assert table(insert(timestamp="ts"), convert("ts", "Timestamp"), **_WITHOUT) == {"metadata": {"timestamp": "ts"}}


def test_columns_of_metadata_are_renamed_dropped_cast_and_kept() -> None:
    replace = f"{_KAFKA}.ReplaceField$Value"
    added = insert(timestamp="ts", offset="pos", partition="part")
    changed = (replace, {"renames": "pos:position,part:p", "exclude": "ts"})
    assert table(added, changed, **_WITHOUT) == {"metadata": {"offset": "position", "partition": "p"}}
    kept = table(added, (replace, {"include": "id,pos"}), **_WITHOUT)
    assert kept == {"keep_fields": ["id"], "add_fields": {"pos": "_offset"}}
    cast = table(added, (f"{_KAFKA}.Cast$Value", {"spec": "pos:string,ts:int64"}), **_WITH)
    assert cast["select"] == "select *, cast(_offset as string) as pos, unix_millis(_timestamp) as ts from records"


def test_an_identity_partition_that_a_lost_conversion_leaves_is_named() -> None:
    """Each millisecond would be a partition."""
    settings = {**_WITHOUT, "iceberg.tables.default-partition-by": "kafka_date,region"}
    carried = connector(
        insert(timestamp="kafka_date"), convert("kafka_date", "string", format="yyyy-MM-dd"), **settings
    )
    assert not reasons(imported("kafka-connect", carried)).keys() & {"partition_by kafka_date", "transforms.t1"}
    week = convert("kafka_date", "string", format="YYYY-'W'ww")
    lost = imported("kafka-connect", connector(insert(timestamp="kafka_date"), week, **settings))
    assert reasons(lost).keys() == {"transforms.t1", "transforms.t1.format", "partition_by kafka_date"}
    own = ("com.example.ToDay", {"source": "created_at", "columns": "kafka_date, other"})
    assert "partition_by kafka_date" in reasons(imported("kafka-connect", connector(own, **settings)))
    record = convert("kafka_date", "string", format="yyyy-MM-dd")
    assert "partition_by kafka_date" in reasons(imported("kafka-connect", connector(record, **settings)))
