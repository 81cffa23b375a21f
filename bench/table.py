"""A table as its readers see it: the catalog's row, the metadata file it names, and the data files behind that.

Read without the product and without Spark, so that no subject vouches for itself.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlparse

import numpy
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, S3FileSystem
from pyiceberg.table import StaticTable

from bench.arithmetic import in_64_bits
from bench.records import FIRST_TS, Totals

_LOCATION = "select metadata_location from iceberg_tables where table_namespace = ? and table_name = ?"
_NAMES = "select table_name from iceberg_tables where table_namespace = ?"
_VALUES = ["id", "user_id", "amount", "ok", "ts"]
_TEXTS = ["page_url", "action", "ua"]


def local_path(location: str) -> Path:
    """The file behind a location with or without a scheme; of an object, its bucket and key."""
    address = urlparse(location)
    return Path(address.netloc + address.path)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A commit of rows: what was added and when it says it happened."""

    id: int
    time_ms: int
    added_records: int


class Table:
    """One table of a JDBC catalog on SQLite."""

    def __init__(
        self, catalog: Path, namespace: str, name: str, properties: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """properties: PyIceberg's of the S3 store that the files are in; empty: they are local."""
        self.catalog, self.namespace, self.name = catalog, namespace, name
        self._properties = dict(properties)
        self._store = _store_of(properties)
        self._location, self._metadata = "", {}  # type: str, dict[str, Any]

    def dead_letters(self) -> Table:
        """The table of what could not become a row of this one."""
        return Table(self.catalog, self.namespace, f"{self.name}__dead_letters", self._properties)

    def location(self) -> str:
        """The current metadata file, or nothing while there is no table."""
        if not self.catalog.exists():
            return ""
        connection = sqlite3.connect(f"file:{self.catalog}?mode=ro", uri=True, timeout=5)
        try:
            row = connection.execute(_LOCATION, (self.namespace, self.name)).fetchone()
        except sqlite3.OperationalError:
            return ""
        finally:
            connection.close()
        return str(row[0]) if row else ""

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot that added rows, in the order of the commits."""
        location = self.location()
        if location and location != self._location:
            with self._store.open_input_stream(str(local_path(location))) as stream:
                self._metadata = json.loads(stream.read())
            self._location = location
        ordered = sorted(self._metadata.get("snapshots", []), key=lambda one: one.get("sequence-number", 0))
        return [
            Snapshot(one["snapshot-id"], one["timestamp-ms"], int(one["summary"].get("added-records", 0)))
            for one in ordered
            if one["summary"]["operation"] == "append"
        ]

    def committed(self) -> int:
        """How many rows the current snapshot's data files hold: right also where older snapshots have expired."""
        self.snapshots()
        current = self._metadata.get("current-snapshot-id", -1)
        found = [one for one in self._metadata.get("snapshots", []) if one["snapshot-id"] == current]
        return int(found[0]["summary"].get("total-records", 0)) if found else 0

    def files(self) -> list[tuple[int, Path]]:
        """Every live data file with the id of the snapshot that added it."""
        location = self.location()
        if not location:
            return []
        table = StaticTable.from_metadata(
            location if self._properties else f"file://{local_path(location)}", self._properties
        )
        current = table.current_snapshot()
        if current is None:
            return []
        return [
            (entry.snapshot_id or current.snapshot_id, local_path(entry.data_file.file_path))
            for manifest in current.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]

    def totals(self) -> Totals:
        """What the table holds, for comparison with what was produced."""
        kept, text_bytes = [], 0
        for _, path in self.files():
            with pq.ParquetFile(str(path), filesystem=self._store) as file:
                found = file.read(columns=[*_VALUES, *_TEXTS])
            text_bytes += sum(_total(pc.sum(pc.binary_length(found[name]))) for name in _TEXTS)
            kept.append(found.select(_VALUES))
        rows = pyarrow.concat_tables(kept)
        return Totals(
            rows=rows.num_rows,
            distinct_ids=_total(pc.count_distinct(rows["id"])),
            id_sum=_total(pc.sum(rows["id"])),
            user_id_sum=_total(pc.sum(rows["user_id"])),
            amount_cents=int(numpy.rint(rows["amount"].to_numpy() * 100).astype(numpy.int64).sum()),
            ok_count=_total(pc.sum(rows["ok"])),
            ts_sum=_total(pc.sum(pc.subtract(pc.cast(rows["ts"], pyarrow.int64()), FIRST_TS))),
            text_bytes=text_bytes,
        )

    def field_totals(self) -> dict[str, int]:
        """The sum of every field, lists and objects opened, with rows and different ids; as the wide records count it."""
        sums: dict[str, int] = {}
        ids = []
        for _, path in self.files():
            with pq.ParquetFile(str(path), filesystem=self._store) as file:
                for name in file.schema_arrow.names:
                    column = file.read(columns=[name])[name]
                    _add_totals(sums, name, column)
                    if name == "id":
                        ids.append(column.to_numpy())
        rows = sum(len(part) for part in ids)
        return {"(rows)": rows, "(different ids)": len(numpy.unique(numpy.concatenate(ids))) if ids else 0, **sums}

    def positions(self, partition: str = "_kafka_partition", offset: str = "_offset") -> int:
        """How many different (partition, offset) these columns hold."""
        names = [str(path) for _, path in self.files()]
        seen = [
            pq.read_table(name, columns=[partition, offset], partitioning=None, filesystem=self._store)
            for name in names
        ]
        if not seen:
            return 0
        rows = pyarrow.concat_tables(seen)
        keys = rows[partition].to_numpy().astype(numpy.int64) * (1 << 40) + rows[offset].to_numpy()
        return len(numpy.unique(keys))

    def size_bytes(self) -> int:
        """Bytes of the live data files."""
        return sum(self._store.get_file_info(str(path)).size for _, path in self.files())


class Tables(Table):
    """All tables of a namespace that a route makes, read as one; `name` is the table of the rest."""

    def __init__(self, catalog: Path, namespace: str, name: str) -> None:
        super().__init__(catalog, namespace, name)
        self._members: dict[str, Table] = {}

    def snapshots(self) -> list[Snapshot]:
        """Those of all of them, by time."""
        return sorted((one for table in self._all() for one in table.snapshots()), key=lambda one: one.time_ms)

    def committed(self) -> int:
        """The rows of all of them."""
        return sum(table.committed() for table in self._all())

    def files(self) -> list[tuple[int, Path]]:
        """The data files of all of them."""
        return [file for table in self._all() for file in table.files()]

    def _all(self) -> list[Table]:
        for name in self._names() - self._members.keys():
            self._members[name] = Table(self.catalog, self.namespace, name)
        return list(self._members.values())

    def _names(self) -> set[str]:
        if not self.catalog.exists():
            return set()
        connection = sqlite3.connect(f"file:{self.catalog}?mode=ro", uri=True, timeout=5)
        try:
            rows = connection.execute(_NAMES, (self.namespace,)).fetchall()
        except sqlite3.OperationalError:
            return set()
        finally:
            connection.close()
        return {name for (name,) in rows if not name.endswith("__dead_letters")}


def _store_of(properties: Mapping[str, str]) -> Any:
    """Arrow's access to an S3 store by Iceberg's names for it; to local files without any."""
    if not properties:
        return LocalFileSystem()
    return S3FileSystem(
        endpoint_override=properties["s3.endpoint"],
        access_key=properties["s3.access-key-id"],
        secret_key=properties["s3.secret-access-key"],
        region=properties["client.region"],
    )


def _add_totals(sums: dict[str, int], path: str, column: Any) -> None:
    """Adds the column's sum, or those of its members or elements, to what the files before it had."""
    if pyarrow.types.is_struct(column.type):
        for field, member in zip(column.type, column.flatten(), strict=True):
            _add_totals(sums, f"{path}.{field.name}", member)
    elif pyarrow.types.is_list(column.type):
        _add_totals(sums, path, pc.list_flatten(column))
    else:
        sums[path] = in_64_bits(sums.get(path, 0) + _total(pc.sum(_weights(column))))


def _weights(column: Any) -> Any:
    if pyarrow.types.is_floating(column.type):
        return pc.cast(pc.round(pc.multiply(column, 100.0)), pyarrow.int64())
    return pc.binary_length(column) if pyarrow.types.is_string(column.type) else column


def _total(scalar: Any) -> int:
    return int(scalar.as_py() or 0)
