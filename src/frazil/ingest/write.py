"""Columns to Parquet files with Iceberg's field ids and metrics; each file is described in Iceberg's own JSON.

A path is used once, ever: a fresh id per file and attempt. A file that was not finished is removed on the spot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.table.locations import load_location_provider

from frazil.clock import new_id
from frazil.failpoints import hit
from frazil.ingest.target import TableTarget
from frazil.types import DataFile

_ROW_GROUP_BYTES = 64 * 1024 * 1024
_SAMPLE_ROWS = 4096
_DICTIONARY_SHARE = 0.3


class FileWriter:
    """Writes one table's rows of one task; a new file begins when the target size is reached."""

    def __init__(self, target: TableTarget) -> None:
        self._target = target
        self._properties = dict(target.properties)
        self._io = file_io(target)
        self._locations = load_location_provider(target.location, self._properties)
        declared = int(self._properties.get("write.parquet.row-group-size-bytes", _ROW_GROUP_BYTES))
        # A row group is written at once, so one that is larger than a file should be would overshoot.
        self._row_group_bytes = min(_ROW_GROUP_BYTES, declared, target.target_file_size_bytes)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None
        self._path = ""
        self._begun: list[str] = []
        self._finished: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Takes rows in the table's Arrow schema; OSError when the store refuses them."""
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._row_group_bytes:
            self._flush()

    def finish(self) -> list[DataFile]:
        """Ends the open file and answers all files."""
        self._flush()
        self._close()
        return self._finished

    def abandon(self) -> None:
        """Removes what was written: nobody will commit it."""
        for open_file in (self._writer, self._stream):
            if open_file is not None:
                with suppress(OSError, pa.ArrowException):
                    open_file.close()
        self._writer = self._stream = None
        for path in self._begun:
            with suppress(OSError):
                self._io.delete(path)

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._pending_bytes = [], 0
        if self._writer is None:
            self._open(rows)
        assert self._writer is not None
        hit("task.write")
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if self._stream.tell() >= self._target.target_file_size_bytes:
            self._close()

    def _open(self, rows: pa.Table) -> None:
        self._path = self._locations.new_data_location(f"{new_id()}.parquet")
        self._begun.append(self._path)
        self._stream = self._io.new_output(self._path).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream, self._target.arrow_schema, store_schema=False, **_parquet_options(self._properties, rows)
        )

    def _close(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size = self._stream.tell()
        hit("task.close")
        self._stream.close()
        metadata = self._writer.writer.metadata
        self._writer = None
        content = describe_file(self._target, self._path, size, metadata)
        self._finished.append(DataFile(self._path, metadata.num_rows, size, content))


def file_io(target: TableTarget) -> FileIO:
    """PyIceberg's file access for the table's store, with the table's own credentials."""
    return _file_io(target.io_properties, urlsplit(target.location).scheme)


@lru_cache(maxsize=64)
def _file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    """One for all tables with the same access: each has connections and threads of its own."""
    return load_file_io(_in_arrow_words(dict(properties)), f"{scheme}:///" if scheme else None)


def _in_arrow_words(properties: dict[str, str]) -> dict[str, str]:
    """Iceberg's Java client puts the bucket into the host name unless told otherwise; Arrow, at an endpoint of one's
    own, into the path.
    """
    host = urlsplit(properties.get("s3.endpoint", "")).hostname or ""
    is_path_style = properties.get("s3.path-style-access", "false").lower() == "true"
    if not host or is_path_style or re.fullmatch(r"[\d.]+|.*:.*|localhost", host):
        return properties
    return {"s3.force-virtual-addressing": "true", **properties}


@lru_cache(maxsize=512)
def _statistics_plan(target: TableTarget) -> tuple[Any, Any]:
    return (
        compute_statistics_plan(target.schema, dict(target.properties)),
        parquet_path_to_id_mapping(target.schema),
    )


def describe_file(target: TableTarget, path: str, size: int, metadata: pq.FileMetaData) -> str:
    """The file as Iceberg's ContentFileParser reads it, bounds and counts from the Parquet footer."""
    plan, ids = _statistics_plan(target)
    statistics = data_file_statistics_from_parquet_metadata(metadata, plan, ids).to_serialized_dict()
    description: dict[str, Any] = {
        "spec-id": target.spec_id,
        "content": "data",
        "file-path": path,
        "file-format": "parquet",
        "partition": {},
        "file-size-in-bytes": size,
        "record-count": metadata.num_rows,
        "split-offsets": statistics.get("split_offsets"),
    }
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        numbers = statistics.get(name) or {}
        description[name.replace("_", "-")] = {"keys": list(numbers), "values": list(numbers.values())}
    for name in ("lower_bounds", "upper_bounds"):
        bounds = statistics.get(name) or {}
        texts = [bound.hex().upper() for bound in bounds.values()]
        description[name.replace("_", "-")] = {"keys": list(bounds), "values": texts}
    return json.dumps(description)


def _parquet_options(properties: dict[str, str], rows: pa.Table) -> dict[str, Any]:
    """The table's `write.parquet.*` properties in pyarrow's words; zstd level 1 where it says nothing."""
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    options: dict[str, Any] = {
        "compression": "none" if codec == "uncompressed" else codec,
        "use_dictionary": _dictionary_columns(rows),
        "data_page_size": int(properties.get("write.parquet.page-size-bytes", 1024 * 1024)),
    }
    level = properties.get("write.parquet.compression-level", "1" if codec == "zstd" else None)
    if level not in (None, "", "null"):
        options["compression_level"] = int(level)
    filters = _bloom_filters(properties)
    if filters:
        options["bloom_filter_options"] = filters
    return options


def _bloom_filters(properties: dict[str, str]) -> dict[str, Any]:
    prefix = "write.parquet.bloom-filter-enabled.column."
    chosen = [name.removeprefix(prefix) for name, on in properties.items() if name.startswith(prefix) and on == "true"]
    fpp = "write.parquet.bloom-filter-fpp.column."
    return {column: {"fpp": float(properties.get(fpp + column, "0.01"))} for column in chosen}


def _dictionary_columns(rows: pa.Table) -> list[str]:
    """Columns whose values repeat, by their paths in Parquet: a dictionary elsewhere costs time and is thrown away by the
    writer at last.
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    chosen = []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        for path, leaf in _leaves(name, column.combine_chunks()):
            if pc.count_distinct(leaf).as_py() <= max(1, len(leaf) * _DICTIONARY_SHARE):
                chosen.append(path)
    return chosen


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The plain columns in a column, of lists and maps their members; those that a dictionary is of no use for are left
    out.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(place).name}", array.field(place))
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", array.keys[:_SAMPLE_ROWS])
        yield from _leaves(f"{path}.key_value.value", array.items[:_SAMPLE_ROWS])
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", array.flatten()[:_SAMPLE_ROWS])
    elif not pa.types.is_boolean(kind):
        yield path, array
