"""One Parquet file while it is written, and its counts and bounds for Iceberg, computed from its footer.

Arrow's writer takes nulls of required fields inside structs that are null for missing values, so these are replaced. The
rules of bounds are PyIceberg's. PyIceberg's own code takes a fifth of a millisecond per file, of which a batch may have ten
thousand, and converts bounds to Python's times, which lack some values that a column may hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from shutil import copyfileobj
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.utils.decimal import decimal_to_bytes, unscaled_to_decimal
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from frazil.failpoints import hit
from frazil.write.cluster import Partition
from frazil.write.target import TableTarget


def hides_nulls(kind: pa.DataType) -> bool:
    """Whether the type contains a struct with a required field of a primitive type."""
    fields = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    has_own = pa.types.is_struct(kind) and any(_is_required(field) for field in fields)
    return has_own or any(hides_nulls(field.type) for field in fields)


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column without nulls in required fields whose struct is null itself; the values put in their place
    are not written.
    """
    return pa.chunked_array([_shown(chunk) for chunk in column.chunks], column.type)


def _is_required(field: pa.Field) -> bool:
    return not field.nullable and not pa.types.is_nested(field.type)


def _shown(array: pa.Array) -> pa.Array:
    kind = array.type
    if not hides_nulls(kind):
        return array
    if array.offset:
        # The buffers below are used entirely: an array that is a slice must begin where they do.
        array = pa.concat_arrays([array])
    if pa.types.is_struct(kind):
        is_gone = np.asarray(array.is_null())
        children = []
        for n in range(kind.num_fields):
            child = _shown(array.field(n))
            if _is_required(kind.field(n)) and child.null_count and not (np.asarray(child.is_null()) & ~is_gone).any():
                child = pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], 0, child.offset)
            children.append(child)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, children=children)
    if pa.types.is_map(kind):
        parts = [array.keys, _shown(array.items)]
        children = [pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])]
    else:
        children = [_shown(array.values)]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=children)


class OpenFile:
    """A Parquet file at `path` with rows of one partition. A staged file is in memory until it is complete, and then sent
    to the store in one piece.
    """

    def __init__(
        self,
        path: str,
        partition: Partition,
        io: FileIO,
        schema: pa.Schema,
        options: Mapping[str, Any],
        is_staged: bool,
    ) -> None:
        """Opens the file.

        Raises: OSError when the store refuses it.
        """
        self.path = path
        self.partition = partition
        self._io = io
        self._is_staged = is_staged
        self._hides_nulls = [n for n, kind in enumerate(schema.types) if hides_nulls(kind)]
        self._stream: Any = BytesIO() if is_staged else io.new_output(path).create(overwrite=True)
        self._writer = pq.ParquetWriter(self._stream, schema, store_schema=False, **options)

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        size: int = self._stream.tell()
        return size

    def append(self, rows: pa.Table, row_group_bytes: int) -> None:
        """Writes the rows in row groups of about `row_group_bytes`.

        Raises: OSError when the store refuses them.
        """
        for n in self._hides_nulls:
            rows = rows.set_column(n, rows.schema.field(n), without_hidden_nulls(rows.column(n)))
        count = rows.num_rows
        if not self._is_staged:
            count = min(count, rows.num_rows * row_group_bytes // max(1, rows.nbytes))
        self._writer.write_table(rows, row_group_size=max(1, count))

    def finish(self) -> pq.FileMetaData:
        """Ends the Parquet file and returns its footer; `store` must follow."""
        self._writer.close()
        return self._writer.writer.metadata

    def store(self) -> int:
        """Closes the file, and copies a staged one to the store; returns its size in bytes.

        Raises: OSError when the store refuses it.
        """
        size = self.size_bytes
        hit("task.close")
        if self._is_staged:
            self._stream.seek(0)
            with self._io.new_output(self.path).create(overwrite=True) as stream:
                copyfileobj(self._stream, stream)
        self._stream.close()
        return size

    def discard(self) -> None:
        """Releases the file's resources, whatever its state."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()


Bound = Callable[[Any], bytes | None]
_FORMATS: dict[type[t.IcebergType], str] = {
    t.BooleanType: "<?",
    t.IntegerType: "<i",
    t.DateType: "<i",
    t.LongType: "<q",
    t.TimeType: "<q",
    t.TimestampType: "<q",
    t.TimestamptzType: "<q",
    t.FloatType: "<f",
    t.DoubleType: "<d",
}


@dataclass(frozen=True)
class Statistics:
    """The metrics of a data file that Iceberg stores, by field id; bounds in Iceberg's binary single-value
    serialization.
    """

    #: The offsets of the row groups, in bytes.
    split_offsets: list[int] = field(default_factory=list)
    #: The compressed size of each column, in bytes.
    column_sizes: dict[int, int] = field(default_factory=dict)
    #: The number of values, nulls included.
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    #: The lower bound of each column.
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    #: The upper bound of each column.
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _Leaf:
    """The metrics to collect for one column."""

    field_id: int
    #: Whether values and nulls are counted; otherwise only the size is recorded.
    has_counts: bool
    #: How to make the lower and upper bound; None without bounds.
    bounds: tuple[Bound, Bound] | None
    #: Returns a comparable value of a bound in the footer.
    value: Callable[[Any], Any]
    #: Whether some values may be NaN, which bounds in the footer leave out.
    may_be_nan: bool = False


class _Columns:
    """The columns of a table's files; their positions are taken from the first file."""

    def __init__(self, target: TableTarget) -> None:
        self._plan = compute_statistics_plan(target.schema, dict(target.files.properties))
        self._ids = parquet_path_to_id_mapping(target.schema)
        self._leaves: list[_Leaf] = []

    def read(self, metadata: pq.FileMetaData) -> Statistics:
        """Returns the statistics of a file."""
        if not self._leaves:
            # Iceberg's own metadata columns come last, and no reader needs their bounds.
            paths = (metadata.schema.column(n).path for n in range(metadata.num_columns))
            ids = [self._ids[path] for path in paths if path in self._ids]
            self._leaves = [_leaf(field_id, self._plan[field_id]) for field_id in ids]
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        file_statistics = Statistics(split_offsets=sorted(_offset(group.column(0)) for group in groups))
        for position, leaf in enumerate(self._leaves):
            chunks = [group.column(position) for group in groups]
            file_statistics.column_sizes[leaf.field_id] = sum([chunk.total_compressed_size for chunk in chunks])
            if leaf.has_counts:
                # Parquet's writer stores these for every column, except for types that Iceberg does not have.
                statistics = [chunk.statistics for chunk in chunks]
                file_statistics.value_counts[leaf.field_id] = sum([chunk.num_values for chunk in chunks])
                file_statistics.null_value_counts[leaf.field_id] = sum(
                    [chunk_statistics.null_count for chunk_statistics in statistics]
                )
                _bound(file_statistics, leaf, statistics)
        return file_statistics


_columns = lru_cache(maxsize=512)(_Columns)


def statistics_of(target: TableTarget, metadata: pq.FileMetaData) -> Statistics:
    """Returns the statistics of a file of the table."""
    return _columns(target).read(metadata)


def _offset(column: pq.ColumnChunkMetaData) -> int:
    data: int = column.data_page_offset
    return min(data, column.dictionary_page_offset) if column.has_dictionary_page else data


def _bound(file_statistics: Statistics, leaf: _Leaf, groups: list[pq.Statistics]) -> None:
    """Adds the bounds of a column, whose row groups have these statistics."""
    if leaf.bounds is None:
        return
    bounded = [group for group in groups if group.has_min_max]
    # A column of nulls or NaN alone has no bounds. For other values the writer omits both when one is longer than 4 KiB.
    is_cut = not leaf.may_be_nan and any(group.num_values for group in groups if not group.has_min_max)
    if is_cut or not bounded:
        return
    lower = leaf.bounds[0](min([leaf.value(group.min_raw) for group in bounded]))
    upper = leaf.bounds[1](max([leaf.value(group.max_raw) for group in bounded]))
    if lower is not None:
        file_statistics.lower_bounds[leaf.field_id] = lower
    if upper is not None:
        file_statistics.upper_bounds[leaf.field_id] = upper


def _leaf(field_id: int, wanted: StatisticsCollector) -> _Leaf:
    mode, kind = wanted.mode.type, wanted.iceberg_type
    has_bounds = mode not in (MetricModeTypes.NONE, MetricModeTypes.COUNTS)
    bounds = _bounds(kind, wanted.mode.length) if has_bounds else None
    value = _number if isinstance(kind, t.DecimalType) else _same
    return _Leaf(field_id, mode != MetricModeTypes.NONE, bounds, value, isinstance(kind, t.FloatType | t.DoubleType))


def _same(raw: Any) -> Any:
    return raw


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _bounds(kind: t.IcebergType, length: int | None) -> tuple[Bound, Bound]:
    if isinstance(kind, t.StringType):
        return lambda raw: raw.decode()[:length].encode(), lambda raw: _upper_text(raw, length)
    if isinstance(kind, t.BinaryType):
        return lambda raw: raw[:length], lambda raw: truncate_upper_bound_binary_string(raw, length)
    if isinstance(kind, t.DecimalType):
        return (lambda number: decimal_to_bytes(unscaled_to_decimal(number, kind.scale)),) * 2
    if isinstance(kind, t.FixedType | t.UUIDType):
        return bytes, bytes
    return (struct.Struct(_FORMATS[type(kind)]).pack,) * 2


def _upper_text(raw: bytes, length: int | None) -> bytes | None:
    text = truncate_upper_bound_text_string(raw.decode(), length)
    # The next character after U+D7FF is U+E000: the code points between are surrogates, which are not characters.
    return text.replace("\ud800", "\ue000").encode() if text is not None else None
