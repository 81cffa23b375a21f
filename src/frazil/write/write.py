"""Columns to data files with Iceberg's field ids and metrics; the options of Parquet, such as compression.

Each file is described in Iceberg's own JSON. A path is used only once: each file of each attempt has a new id. A file
that was not finished is removed at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import index_by_id
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import BooleanType

from frazil.clock import new_id
from frazil.failpoints import hit
from frazil.store.file_io import store_of
from frazil.types import DataFile
from frazil.write.cluster import Partition, arrangement_of, clusters, is_scattered
from frazil.write.file_formats import PARQUET
from frazil.write.parquet import OpenFile, statistics_of
from frazil.write.target import TableTarget
from frazil.write.transforms import TooManyPartitions

_ROW_GROUP_BYTES = 64 * 1024 * 1024
_SAMPLE_ROWS = 4096
_FIRST_SAMPLE = 1024
_DICTIONARY_SHARE = 0.3
_NO_DICTIONARY_SHARE = 0.8
_CLUSTER_BYTES = 256 * 1024 * 1024
# Where rows have very many partitions, the amount written at once decides the number of files.
_SCATTERED_BYTES = 512 * 1024 * 1024
_MAX_OPEN = 32
_SMALL_BYTES = 256 * 1024
_GZIP_LEVELS = 9
_LEVELLED = ("zstd", "gzip", "brotli", "lz4", "lz4_raw")


class FileWriter:
    """Writes one table's rows of one task. A new file begins when the previous one has the target size, and for each
    partition.

    Rows of a table with partitions or a sort order are collected up to 256 MiB (512 MiB where they have very many
    partitions), ordered and then written, so that each partition mostly gets one file and few files are open.
    """

    def __init__(
        self, target: TableTarget, schema: pa.Schema | None = None, partition: Partition | None = None
    ) -> None:
        """schema: of the rows, where metadata columns of Iceberg follow the table's columns. partition: of all rows;
        None: computed from the rows.
        """
        self._target = target
        self._schema = schema or target.arrow_schema
        self._properties = dict(target.files.properties)
        self._io = file_io(target)
        self._asides = [aside for stage in target.stages if (aside := stage.open(target)) is not None]
        self._locations = load_location_provider(target.files.location, self._properties)
        declared = int(self._properties.get("write.parquet.row-group-size-bytes", _ROW_GROUP_BYTES))
        # A row group is written at once, so one larger than the target file size would overshoot it.
        self._row_group_bytes = min(_ROW_GROUP_BYTES, declared, target.files.target_file_size_bytes)
        self._arrangement = arrangement_of(target)
        self._only = partition or Partition()
        is_arranged = partition is None and bool(self._arrangement.fields or self._arrangement.sort_keys)
        self._pending_limit = _CLUSTER_BYTES if is_arranged else self._row_group_bytes
        self._is_arranged = is_arranged
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._open: dict[Partition, OpenFile] = {}
        self._seen: set[Partition] = set()
        self._begun: list[str] = []
        self._finished: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Adds rows in the writer's Arrow schema.

        Raises: OSError when the store refuses them, TooManyPartitions when the rows exceed the task's limit of
        partitions.
        """
        rows = self.keep_aside(rows)
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._pending_limit and not self._may_wait(rows):
            self._flush()

    def keep_aside(self, rows: pa.Table) -> pa.Table:
        """Returns the rows as the files have them, once the table's stages have written what they keep beside the files.

        Raises: OSError when the store refuses it.
        """
        for aside in self._asides:
            rows = aside.write(rows)
        return rows

    def _may_wait(self, rows: pa.Table) -> bool:
        """Whether to collect more rows, as files would be very small otherwise: decided once, from the latest rows."""
        may_be_scattered = self._pending_limit == _CLUSTER_BYTES and self._arrangement.fields and rows.num_rows
        if may_be_scattered and is_scattered(self._arrangement, rows):
            self._pending_limit = _SCATTERED_BYTES
        return self._pending_bytes < self._pending_limit

    def finish(self) -> list[DataFile]:
        """Closes the open files and returns all data files. Raises the same errors as `write`."""
        for aside in self._asides:
            aside.finish()
        self._flush(is_last=True)
        for file in list(self._open.values()):
            self._close(file)
        return self._finished

    def abandon(self) -> None:
        """Removes the written files, which nobody will commit."""
        for aside in self._asides:
            aside.abandon()
        for file in self._open.values():
            file.discard()
        self._open.clear()
        for path in self._begun:
            with suppress(OSError):
                self._io.delete(path)

    def _flush(self, is_last: bool = False) -> None:
        if not self._pending:
            return
        options = _parquet_options(self._properties, self._pending)
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not self._is_arranged:
            self._append(self._only, pa.concat_tables(pending), options)
            return
        open_partition: Partition | None = None
        for cluster in clusters(self._arrangement, pending):
            if open_partition is not None and cluster.partition is not open_partition:
                self._end(open_partition, is_last)
            open_partition = cluster.partition
            self._count(open_partition)
            self._append(open_partition, cluster.rows, options)
        if open_partition is not None:
            self._end(open_partition, is_last)

    def _end(self, partition: Partition, is_last: bool) -> None:
        """Closes a partition's file, unless more of its rows may follow: of a few partitions, whose rows are unordered."""
        file = self._open.get(partition)
        if file is not None and (is_last or self._arrangement.sort_keys or len(self._open) > _MAX_OPEN):
            self._close(file)

    def _count(self, partition: Partition) -> None:
        self._seen.add(partition)
        most = self._target.files.max_partitions
        if most and len(self._seen) > most:
            paths = sorted(seen.path for seen in self._seen)
            raise TooManyPartitions(self._target.name, most, (paths[0], paths[-1]))

    def _append(self, partition: Partition, rows: pa.Table, options: ParquetOptions) -> None:
        hit("task.write")
        file = self._open.get(partition) or self._begin(partition, rows, options)
        began = file.size_bytes
        file.append(rows, self._row_group_bytes if self._is_arranged else rows.nbytes)
        # The file ends where its size is nearest to the target: another piece of the same size would overshoot by more.
        if file.size_bytes + (file.size_bytes - began) / 2 >= self._target.files.target_file_size_bytes:
            self._close(file)

    def _begin(self, partition: Partition, rows: pa.Table, options: ParquetOptions) -> OpenFile:
        place = partition if self._target.partitioning.fields else None
        path = self._locations.new_data_location(f"{new_id()}.{PARQUET}", place)  # type: ignore[arg-type]
        self._begun.append(path)
        is_small = self._is_arranged and rows.nbytes < min(_SMALL_BYTES, self._row_group_bytes)
        chosen = {**(options.small if is_small else options.usual), **_bloom_filters(self._target, rows.num_rows)}
        self._open[partition] = OpenFile(path, partition, self._io, self._schema, chosen, is_small)
        return self._open[partition]

    def _close(self, file: OpenFile) -> None:
        del self._open[file.partition]
        metadata = file.finish()
        size = file.store()
        content = describe_file(self._target, file, size, metadata)
        self._finished.append(DataFile(file.path, metadata.num_rows, size, content))


def file_io(target: TableTarget) -> FileIO:
    """Returns the file access for the table's store, with the table's own credentials."""
    return store_of(target.files.io_properties)


def describe_file(target: TableTarget, file: OpenFile, size: int, metadata: pq.FileMetaData) -> str:
    """Returns the file as JSON of Iceberg's `ContentFileParser`, with bounds and counts from the Parquet footer."""
    statistics = statistics_of(target, metadata)
    description: dict[str, Any] = {
        "spec-id": target.files.spec_id,
        "content": "data",
        "file-path": file.path,
        "file-format": PARQUET,
        "partition": file.partition.values or {},
        "file-size-in-bytes": size,
        "record-count": metadata.num_rows,
        "split-offsets": statistics.split_offsets,
    }
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        numbers = getattr(statistics, name)
        description[name.replace("_", "-")] = {"keys": list(numbers), "values": list(numbers.values())}
    for name in ("lower_bounds", "upper_bounds"):
        bounds = getattr(statistics, name)
        texts = [bound.hex().upper() for bound in bounds.values()]
        description[name.replace("_", "-")] = {"keys": list(bounds), "values": texts}
    if target.sorting.fields:
        description["sort-order-id"] = target.sorting.order_id
    return json.dumps(description)


@dataclass(frozen=True)
class ParquetOptions:
    """Options of pyarrow's Parquet writer."""

    #: The options for most files.
    usual: dict[str, Any]
    #: The options for small files of many partitions.
    small: dict[str, Any]


def _parquet_options(properties: dict[str, str], tables: list[pa.Table]) -> ParquetOptions:
    """Returns the table's `write.parquet.*` properties as pyarrow's options; zstd level 1 by default.

    zstd takes more time to begin a column than to compress a small one. Level 1 is Frazil's own default for its tables;
    in its place small files of partitions have snappy.
    """
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    usual: dict[str, Any] = {
        "compression": "none" if codec == "uncompressed" else codec,
        "use_dictionary": _dictionary_columns(max(tables, key=len)),
        "data_page_size": int(properties.get("write.parquet.page-size-bytes", 1024 * 1024)),
    }
    level = properties.get("write.parquet.compression-level", "1" if codec == "zstd" else None)
    if codec in _LEVELLED and level not in (None, "", "null"):
        # Codecs take the nearest level that they have, except for gzip.
        usual["compression_level"] = min(max(int(level), 0), _GZIP_LEVELS) if codec == "gzip" else int(level)
    if (usual["compression"], usual.get("compression_level")) != ("zstd", 1):
        return ParquetOptions(usual, usual)
    return ParquetOptions(usual, {**usual, "compression": "snappy", "compression_level": None})


def _bloom_filters(target: TableTarget, rows: int) -> dict[str, Any]:
    """Returns pyarrow's options for Bloom filters, which a boolean column has none of. rows: of a row group; the filters
    are sized for as many distinct values, as a larger filter takes more space than the column and a smaller one rejects
    nothing.
    """
    prefix, fpp = "write.parquet.bloom-filter-enabled.column.", "write.parquet.bloom-filter-fpp.column."
    properties = dict(target.files.properties)
    asked = [
        name.removeprefix(prefix)
        for name, on in target.files.properties
        if name.startswith(prefix) and on.lower() == "true"
    ]
    booleans = (
        {
            target.schema.find_column_name(field_id)
            for field_id, field in index_by_id(target.schema).items()
            if isinstance(field.field_type, BooleanType)
        }
        if asked
        else set()
    )
    filters = {
        column: {"ndv": max(1, rows), "fpp": float(properties.get(fpp + column, "0.01"))}
        for column in asked
        if column not in booleans
    }
    return {"bloom_filter_options": filters} if filters else {}


def _dictionary_columns(rows: pa.Table) -> list[str]:
    """Returns the Parquet paths of columns whose values repeat: for others a dictionary costs time and is discarded by
    the writer in the end.
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    chosen = []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        for path, leaf in _leaves(name, column.combine_chunks()):
            if _repeats(leaf):
                chosen.append(path)
    return chosen


def _repeats(leaf: pa.Array) -> bool:
    """Whether at most a third of a sample's values are different. Mostly the first of them decide: where few of them are
    different, so are few of all, and where most are, more than a third of all will be.
    """
    first = leaf[:_FIRST_SAMPLE]
    distinct_count = pc.count_distinct(first).as_py()
    if len(first) < len(leaf) and len(first) * _DICTIONARY_SHARE < distinct_count <= len(first) * _NO_DICTIONARY_SHARE:
        first, distinct_count = leaf, pc.count_distinct(leaf).as_py()
    return bool(distinct_count <= max(1, len(first) * _DICTIONARY_SHARE))


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields the primitive columns inside a column, with the members of lists and maps; without those for which a
    dictionary is of no use.
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
