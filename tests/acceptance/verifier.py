"""The proof from outside: reads a table as any Iceberg reader does and compares it with a ledger. Nothing of the
product is imported here.

Of the snapshots that the table still has, each record before the snapshot's progress must be there exactly once with
its value, and nothing else. DuckDB's iceberg extension reads the snapshots, PyIceberg the newest one a second time, from
the local disk or from an S3 store. DuckDB cannot read HDFS: there PyIceberg reads all of them.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlparse

import duckdb
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable

TARGET_BYTES = 128 * 1024 * 1024
"""The size that data files should have, unless a pipeline file has another."""
MOST_SNAPSHOTS = 300
"""More come from soaks alone, and to read a few thousand takes longer than the soak did."""
Place = tuple[str, int, int]
Records = Mapping[Place, bytes | None]
Rows = dict[Place, dict[str, Any]]
_PLACE_COLUMNS = ("_topic", "_kafka_partition", "_offset")
_LOCATIONS = "select table_namespace, table_name, metadata_location from iceberg_tables"


@dataclass(frozen=True)
class Stored:
    """A table's metadata file in an S3 store, or in HDFS. properties: what leads there, in Iceberg's names."""

    location: str
    properties: Mapping[str, str] = field(repr=False, compare=False)

    @property
    def is_in_hdfs(self) -> bool:
        """Whether PyIceberg and Spark alone can read it."""
        return self.location.startswith("hdfs:")

    def __str__(self) -> str:
        return self.location


Metadata = Path | Stored
"""A table's metadata file, which names all of the table."""


@dataclass(frozen=True)
class Difference:
    """What is wrong with one set of rows; empty when nothing is."""

    lost: tuple[Place, ...] = ()
    doubled: tuple[Place, ...] = ()
    invented: tuple[Place, ...] = ()
    mismatched: tuple[Place, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name} {len(places)} ({list(places[:3])})" for name, places in vars(self).items() if places)


@dataclass
class Verdict:
    """What the verifier saw. problems: one sentence each; empty when the table keeps its promise."""

    row_count: int = 0
    snapshot_count: int = 0
    progress: dict[str, dict[int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def verify(metadata: Metadata, pipeline: str, records: Records) -> Verdict:
    """Compares the snapshots of the table whose current metadata file is `metadata` with the ledger's `records`: all, or
    about MOST_SNAPSHOTS, evenly spread, the newest among them.
    """
    document = document_of(metadata)
    verdict = Verdict()
    newest = newest_snapshot(document)
    rows: list[dict[str, Any]] = []
    known: Rows = {}
    schema = None
    with open_duckdb(metadata) as reader:
        for snapshot in chosen_snapshots(document.get("snapshots", [])):
            if snapshot.get("schema-id") != schema:
                known, schema = {}, snapshot.get("schema-id")
            progress = progress_at(document, snapshot, pipeline)
            try:
                found = read_snapshot(reader, metadata, snapshot["snapshot-id"])
            except (duckdb.Error, OSError) as error:
                verdict.problems.append(f"snapshot {snapshot['snapshot-id']} cannot be read: {error}")
                continue
            if progress or not is_cut(document, snapshot):
                difference = compare(found, prefix(records, progress), known)
            else:  # Kept for readers only, after a compaction: nothing is left that reports how far it goes.
                difference = replace(compare(found, records, known), lost=())
            if difference != Difference():
                verdict.problems.append(f"snapshot {snapshot['sequence-number']} at {progress}: {difference}")
            verdict.snapshot_count += 1
            if newest is not None and snapshot["snapshot-id"] == newest["snapshot-id"]:
                rows, verdict.progress = found, progress
    verdict.row_count = len(rows)
    verdict.problems += _second_opinion(metadata, prefix(records, verdict.progress))
    verdict.problems += _repeated_files(document, metadata)
    return verdict


def chosen_snapshots(snapshots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All, or about MOST_SNAPSHOTS, evenly spread, the newest among them; in the order of their sequence numbers."""
    newest_first = sorted(snapshots, key=lambda one: one["sequence-number"], reverse=True)
    return newest_first[:: -(-len(newest_first) // MOST_SNAPSHOTS) or 1][::-1]


def compare(rows: list[dict[str, Any]], expected: Records, known: Rows | None = None) -> Difference:
    """Rows with their places against the records that should be there. known: rows of earlier snapshots, of the same columns
    as these, that were what their records say; others join them. Most rows are in every snapshot after their first.
    """
    seen = Counter(place_of(row) for row in rows)
    known = {} if known is None else known
    mismatched = []
    for row in rows:
        place = place_of(row)
        if place not in expected or known.get(place) == row:
            continue
        if _is_equal(row, expected[place]):
            known[place] = row
        else:
            mismatched.append(place)
    return Difference(
        lost=_sorted(place for place in expected if place not in seen),
        doubled=_sorted(place for place, times in seen.items() if times > 1),
        invented=_sorted(place for place in seen if place not in expected),
        mismatched=_sorted(iter(mismatched)),
    )


def place_of(row: Mapping[str, Any]) -> Place:
    """Where the row's record lies in Kafka, by its own columns."""
    return (row["_topic"], row["_kafka_partition"], row["_offset"])


def prefix(records: Records, progress: Mapping[str, Mapping[int, int]]) -> dict[Place, bytes | None]:
    """The records before `progress`."""
    return {
        (topic, partition, offset): value
        for (topic, partition, offset), value in records.items()
        if offset < progress.get(topic, {}).get(partition, 0)
    }


def newest_snapshot(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The snapshot that `main` points to."""
    by_id: dict[int, dict[str, Any]] = {one["snapshot-id"]: one for one in document.get("snapshots", [])}
    return by_id.get(document.get("current-snapshot-id") or -1)


def newest_commit(document: Mapping[str, Any], snapshot: Mapping[str, Any], pipeline: str) -> Mapping[str, Any] | None:
    """The snapshot, or its nearest ancestor, that reports what the pipeline has read; a compaction does not."""
    by_id = {one["snapshot-id"]: one for one in document["snapshots"]}
    at: Mapping[str, Any] | None = snapshot
    while at is not None and f"frazil.{pipeline}.offsets" not in at["summary"]:
        at = by_id.get(at.get("parent-snapshot-id", -1))
    return at


def progress_at(document: Mapping[str, Any], snapshot: Mapping[str, Any], pipeline: str) -> dict[str, dict[int, int]]:
    """What the snapshot, or its nearest ancestor that reports it, names as read: the next offsets."""
    at = newest_commit(document, snapshot, pipeline)
    if at is not None:
        offsets = json.loads(at["summary"][f"frazil.{pipeline}.offsets"])
        return {t: {int(p): int(o) for p, o in ps.items()} for t, ps in offsets.items()}
    return {}


def is_cut(document: Mapping[str, Any], snapshot: Mapping[str, Any]) -> bool:
    """Whether some ancestor of the snapshot has been expired."""
    by_id = {one["snapshot-id"]: one for one in document["snapshots"]}
    at = snapshot
    while (parent := at.get("parent-snapshot-id")) in by_id:
        at = by_id[parent]
    return at.get("parent-snapshot-id") is not None


def metadata_file(catalog: Path, table: str) -> Path | None:
    """The current metadata file of a local table in a JDBC catalog on SQLite; None while there is no table."""
    location = metadata_location(catalog, table)
    return local_path(location) if location else None


def metadata_location(catalog: Path, table: str) -> str | None:
    """Where the current metadata file of a table in a JDBC catalog on SQLite is; None while there is no table."""
    namespace, _, name = table.rpartition(".")
    return metadata_locations(catalog, " where table_namespace = ? and table_name = ?", namespace, name).get(table)


def metadata_locations(catalog: Path, where: str = "", *values: str) -> dict[str, str]:
    """The same of every table, or of those that a condition with these values holds for."""
    if not catalog.exists():
        return {}
    connection = sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=30)
    try:
        rows = connection.execute(_LOCATIONS + where, values).fetchall()
    except sqlite3.OperationalError:
        return {}
    finally:
        connection.close()
    return {f"{namespace}.{name}": location for namespace, name, location in rows}


def metadata_at(location: str, properties: Mapping[str, str]) -> Metadata:
    """The metadata file at a location. properties: what leads to the store, where it is in one."""
    return Stored(location, properties) if location.startswith(("s3:", "hdfs:")) else local_path(location)


def document_of(metadata: Metadata) -> dict[str, Any]:
    """What a metadata file has."""
    document: dict[str, Any] = json.loads(metadata.read_text() if isinstance(metadata, Path) else _fetched(metadata))
    return document


@lru_cache(maxsize=64)  # Nobody writes over a metadata file, and waiting asks for the same one again and again.
def _fetched(stored: Stored) -> bytes:
    with load_file_io(dict(stored.properties), stored.location).new_input(stored.location).open() as file:
        content: bytes = file.read()
    return content


def open_table(metadata: Metadata) -> StaticTable:
    """The table in PyIceberg's hands."""
    if isinstance(metadata, Path):
        return StaticTable.from_metadata(f"file://{metadata}")
    return StaticTable.from_metadata(metadata.location, dict(metadata.properties))


def local_path(location: str) -> Path:
    """The file behind a location with or without a scheme."""
    return Path(urlparse(location).path)


def data_files(metadata: Path) -> list[Path]:
    """The data files of the newest snapshot."""
    return [local_path(task.file.file_path) for task in open_table(metadata).scan().plan_files()]


def unnamed(metadata: Path | None) -> frozenset[str]:
    """Data and delete files on the disk that no snapshot names."""
    assert metadata is not None, "there is no table"
    there = {str(path) for path in (metadata.parent.parent / "data").rglob("*") if path.is_file()}
    return frozenset(there - _named(metadata))


def unnamed_metadata(metadata: Path | None) -> frozenset[str]:
    """Files on the disk beside a metadata file that it does not lead to: older metadata files that it no longer lists, and
    manifests, lists and statistics of no snapshot. Checksums that Hadoop lays beside what others write are not looked at.
    """
    assert metadata is not None, "there is no table"
    there = {str(path) for path in metadata.parent.iterdir() if path.suffix != ".crc"}
    return frozenset(there - _named_metadata(metadata))


@lru_cache(maxsize=16)
def _named_metadata(metadata: Path) -> frozenset[str]:
    document, table = document_of(metadata), open_table(metadata)
    found = [one["manifest-list"] for one in document.get("snapshots", ())]
    found += [one["metadata-file"] for one in document.get("metadata-log", ())]
    statistics = (*document.get("statistics", ()), *document.get("partition-statistics", ()))
    found += [one["statistics-path"] for one in statistics]
    found += [manifest.manifest_path for one in table.snapshots() for manifest in one.manifests(table.io)]
    return frozenset([str(metadata), *(str(local_path(path)) for path in found)])


@lru_cache(maxsize=16)
def _named(metadata: Path) -> frozenset[str]:
    found = open_table(metadata).inspect.all_files()["file_path"].to_pylist()
    return frozenset(str(local_path(path)) for path in found)


@lru_cache(maxsize=16)
def untidy(metadata: Path) -> tuple[str, ...]:
    """Partitions of the newest snapshot with files that should be one: several below three quarters of the target size, more
    than a tenth of all files, or a median below half of it.
    """
    sizes: dict[str, list[int]] = {}
    for task in open_table(metadata).scan().plan_files():
        partition = f"spec {task.file.spec_id}: {task.file.partition}"
        sizes.setdefault(partition, []).append(task.file.file_size_in_bytes)
    many = {partition: found for partition, found in sizes.items() if len(found) > 1}
    small = sum(size < 0.75 * TARGET_BYTES for found in many.values() for size in found)
    every = [size for found in sizes.values() for size in found]
    if small <= 0.1 * len(every) and (not many or median(every) >= TARGET_BYTES / 2):
        return ()
    return tuple(f"{partition}: {len(found)} files" for partition, found in many.items())


def values_of(metadata: Path) -> Counter[str]:
    """How often each row is in the newest snapshot, whatever place it came from."""
    newest = newest_snapshot(json.loads(metadata.read_text()))
    return Counter(canonical(row) for row in read_newest(metadata)) if newest is not None else Counter()


def read_newest(metadata: Path) -> list[dict[str, Any]]:
    """The rows of the newest snapshot."""
    newest = newest_snapshot(json.loads(metadata.read_text()))
    assert newest is not None, f"{metadata} has no snapshot"
    with open_duckdb() as reader:
        return read_snapshot(reader, metadata, newest["snapshot-id"])


def read_snapshot(reader: duckdb.DuckDBPyConnection, metadata: Metadata, snapshot_id: int) -> list[dict[str, Any]]:
    """The rows of one snapshot."""
    if isinstance(metadata, Stored) and metadata.is_in_hdfs:
        rows: list[dict[str, Any]] = open_table(metadata).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    else:
        rows = scan_snapshot(reader, metadata, snapshot_id).to_pylist()
    return rows


def scan_snapshot(reader: duckdb.DuckDBPyConnection, metadata: Metadata, snapshot_id: int) -> pa.Table:
    """The same as a table."""
    query = f"select * from iceberg_scan('{metadata}', snapshot_from_id => {int(snapshot_id)}::ubigint)"
    return reader.execute(query).to_arrow_table()


def _second_opinion(metadata: Metadata, expected: Records) -> Iterator[str]:
    try:
        rows = open_table(metadata).scan().to_arrow().to_pylist()
    except OSError as error:
        yield f"the newest snapshot cannot be read by PyIceberg: {error}"
        return
    difference = compare(rows, expected)
    if difference != Difference():
        yield f"the newest snapshot, read by PyIceberg: {difference}"


def _is_equal(row: Mapping[str, Any], value: bytes | None) -> bool:
    columns = {name: content for name, content in row.items() if name not in _PLACE_COLUMNS}
    return value is not None and canonical(columns) == canonical(json.loads(value))


def canonical(value: Any) -> str:
    """A text that is the same for a record and for the row it became."""
    return json.dumps(_present(value), sort_keys=True)


def _present(value: Any) -> Any:
    """The value without its nulls: to a table, an absent field and a null are the same; so are 3 and 3.0."""
    if isinstance(value, dict):
        plain = {name: _present(member) for name, member in value.items()}
        return {name: member for name, member in plain.items() if member is not None and member != {}}
    if isinstance(value, list):
        return [_present(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _repeated_files(document: Mapping[str, Any], metadata: Metadata) -> Iterator[str]:
    """A path that the newest snapshot lists twice: the same rows twice, even where a reader might hide it."""
    if newest_snapshot(document) is None:
        return
    for path, times in Counter(task.file.file_path for task in open_table(metadata).scan().plan_files()).items():
        if times > 1:
            yield f"{path} is in the table {times} times"


def _sorted(places: Iterator[Place]) -> tuple[Place, ...]:
    return tuple(sorted(places))


def open_duckdb(metadata: Metadata | None = None) -> duckdb.DuckDBPyConnection:
    """DuckDB, able to read Iceberg tables: local ones, and those in the store that has this metadata file."""
    secret = _secret(metadata.properties) if isinstance(metadata, Stored) and not metadata.is_in_hdfs else ""
    return _duckdb(secret).cursor()


@cache  # Loading the extensions takes a third of a CPU-second.
def _duckdb(secret: str) -> duckdb.DuckDBPyConnection:
    """One database, which remembers nothing of what it has read."""
    connection = duckdb.connect(config={"threads": 2, "enable_external_file_cache": False})
    connection.execute(load_iceberg())
    if secret:
        connection.execute(secret)
    return connection


def load_iceberg() -> str:
    """DuckDB's words for loading what reads Iceberg tables, from the packages that have it in place of a network."""
    statements = []
    for name in ("avro", "httpfs", "iceberg"):
        package = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert package is not None
        assert package.origin is not None
        [extension] = Path(package.origin).parent.glob(f"extensions/*/{name}.duckdb_extension")
        statements.append(f"load '{extension}';")
    return " ".join(statements)


def _secret(properties: Mapping[str, str]) -> str:
    """DuckDB's words for what leads to a store."""
    endpoint = urlparse(properties["s3.endpoint"])
    reported = {
        "key_id": properties["s3.access-key-id"],
        "secret": properties["s3.secret-access-key"],
        "region": properties["client.region"],
        "endpoint": endpoint.netloc,
        "url_style": "path",
    }
    words = ", ".join(f"{name} '{value}'" for name, value in reported.items())
    return f"create secret (type s3, {words}, use_ssl {endpoint.scheme == 'https'})"
