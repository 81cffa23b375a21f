"""What other engines have written into the metadata of a table: commits and changes of Frazil's keep it, in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.runtime.light_jvm import LightJvm
from frazil.schema.evolve import extend_schema
from tests.contracts.catalogs import IcebergLake
from tests.contracts.tables import TABLE, commit_of, create, load
from tests.contracts.test_row_deltas import Hand
from tests.fixtures.jvms import light_jvm

pytestmark = pytest.mark.jvm

_KEPT = (
    "table-uuid", "location", "format-version", "statistics", "partition-statistics", "encryption-keys",
    "default-spec-id", "default-sort-order-id",
)  # fmt: skip
_DEFAULTS = {
    "boolean": True, "int": 7, "long": 1 << 40, "float": 0.5, "double": 0.25, "decimal(9, 2)": "14.20",
    "date": "2024-02-29", "time": "10:11:12.123456", "timestamp": "2024-02-29T10:11:12.123456",
    "timestamptz": "2024-02-29T10:11:12.123456+00:00", "string": "new", "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "fixed[3]": "0A0B0C", "binary": "0AFF",
}  # fmt: skip


def columns_with_defaults(first_id: int) -> list[dict[str, Any]]:
    return [
        {
            "id": first_id + number, "name": f"c{number}", "required": False, "type": kind, "doc": f"of {kind}",
            "initial-default": value, "write-default": value,
        }
        for number, (kind, value) in enumerate(_DEFAULTS.items())
    ]  # fmt: skip


def as_another_engine_left_it(folder: Path, version: int) -> dict[str, Any]:
    """Adds to the newest metadata what engines write that Frazil never does; returns it."""
    newest = max(folder.rglob("*.metadata.json"), key=lambda file: file.stat().st_mtime_ns)
    document: dict[str, Any] = json.loads(newest.read_text())
    first, second = (snapshot["snapshot-id"] for snapshot in document["snapshots"])
    [schema] = document["schemas"]
    last = document["last-column-id"]
    columns = columns_with_defaults(last + 1)
    if version < 3:
        columns = [{k: v for k, v in column.items() if "default" not in k} for column in columns]
    schema["fields"] += columns
    document["last-column-id"] = last + len(columns)
    by_type = {column["type"]: column["id"] for column in columns}
    fields = [("bucket[4]", "decimal(9, 2)"), ("truncate[2]", "string"), ("void", "int"), ("hour", "timestamptz")]
    spec = [
        {"name": f"p{number}", "transform": transform, "source-id": by_type[kind], "field-id": 1000 + number}
        for number, (transform, kind) in enumerate(fields)
    ]
    document["partition-specs"] += [{"spec-id": 1, "fields": spec}]
    document["default-spec-id"], document["last-partition-id"] = 1, 1003
    order = [
        {"transform": "bucket[8]", "source-id": 1, "direction": "desc", "null-order": "nulls-last"},
        {"transform": "truncate[3]", "source-id": by_type["binary"], "direction": "asc", "null-order": "nulls-first"},
    ]
    document["sort-orders"] += [{"order-id": 5, "fields": order}]
    document["default-sort-order-id"] = 5
    document["refs"] = {
        "main": {"snapshot-id": second, "type": "branch", "min-snapshots-to-keep": 3},
        "audit": {"snapshot-id": first, "type": "branch", "max-snapshot-age-ms": 10**12, "max-ref-age-ms": 10**12},
        "v1": {"snapshot-id": first, "type": "tag", "max-ref-age-ms": 10**12},
    }
    document["properties"] |= {
        "schema.name-mapping.default": json.dumps([{"field-id": 1, "names": ["id", "ID"]}]),
        "write.wap.enabled": "true", "read.split.target-size": "1000", "com.example.anything": "é ☃",
        "write.metadata.metrics.default": "counts",
    }  # fmt: skip
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": first, "sequence-number": 1, "fields": [1]}
    document["statistics"] = [
        {
            "snapshot-id": first, "statistics-path": f"{folder}/s.stats", "file-size-in-bytes": 9,
            "file-footer-size-in-bytes": 4, "blob-metadata": [{**blob, "properties": {"ndv": "2"}}],
        }
    ]  # fmt: skip
    document["partition-statistics"] = [
        {"snapshot-id": second, "statistics-path": f"{folder}/p.parquet", "file-size-in-bytes": 9}
    ]
    if version == 3:
        document["encryption-keys"] = [
            {"key-id": "k1", "encrypted-key-metadata": "YWJj", "encrypted-by-id": "k0", "properties": {"a": "b"}}
        ]
    newest.write_text(json.dumps(document))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return document


@pytest.fixture(scope="module")
def small_jvm() -> Iterator[LightJvm]:
    with light_jvm(needs_spark_jars=True) as running:  # Snappy is among these.
        running.listen()
        yield running


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_other_engines_wrote_stays(small_jvm: LightJvm, folder: Path, version: int) -> None:
    lake = IcebergLake(small_jvm, folder)
    create(lake.catalog(), version)
    for _ in range(2):
        lake.append_foreign(TABLE)
    before = as_another_engine_left_it(folder, version)
    mine = lake.catalog()
    mine.commit(commit_of(load(mine), 5))
    mine.evolve(TABLE, lambda schema: extend_schema(schema, {(): {"added": StringType()}}))
    mine.mark(TABLE, "word", "yes")
    after = json.loads(max(folder.rglob("*.metadata.json"), key=lambda file: file.stat().st_mtime_ns).read_text())
    assert {name: after.get(name) for name in _KEPT} == {name: before.get(name) for name in _KEPT}
    [mapped, *_] = json.loads(after["properties"]["schema.name-mapping.default"])
    assert mapped == json.loads(before["properties"].pop("schema.name-mapping.default"))[0]
    assert after["properties"].items() >= before["properties"].items()
    main = {**before["refs"].pop("main"), "snapshot-id": after["current-snapshot-id"]}
    assert after["refs"] == {**before["refs"], "main": main}
    for part in ("partition-specs", "sort-orders"):
        assert [one for one in after[part] if one in before[part]] == before[part]
    newest = next(schema for schema in after["schemas"] if schema["schema-id"] == after["current-schema-id"])
    assert newest["fields"][: len(before["schemas"][0]["fields"])] == before["schemas"][0]["fields"]
    assert [field["name"] for field in newest["fields"]][-1] == "added"
    assert lake.column(TABLE, "id") == [1, 2]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_of_a_table_whose_partition_fields_were_all_removed_are_deleted(
    small_jvm: LightJvm, folder: Path, version: int
) -> None:
    lake = IcebergLake(small_jvm, folder)
    catalog = lake.catalog()
    assert isinstance(catalog, IcebergCatalog)
    hand, java = Hand(catalog, 1), catalog.java_table("lake.t")
    java.updateSpec().addField("id").commit()
    java.updateSpec().removeField("id").commit()
    java.updateProperties().set("format-version", str(version)).commit()
    hand.version = version
    hand.fresh()
    hand.send(hand.commit(1, 2, 3))
    for gone in (0, 2):  # The second replaces the deletes of the first.
        hand.send(hand.commit(delta=hand.delete(hand.scan(), f0=[gone])))
    assert lake.column("lake.t", "id") == [2]
