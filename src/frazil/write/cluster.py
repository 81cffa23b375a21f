"""Clustering: rows in the order in which they are written, by partition and then by the table's sort order.

All rows at hand are ordered first and written then, partition by partition: so only one file has to be open, however
many partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Accessor, Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.types import IcebergType, UnknownType

from frazil.write.target import TableTarget
from frazil.write.transforms import partition_texts, path_of, transformed

_MAX_CODES = 2**62
_GATHER_ROWS = 65_536
_SCATTERED_ROWS = 4


@dataclass(frozen=True)
class Partition:
    """One partition of a table."""

    #: The values of the partition fields, as in JSON of Iceberg's `ContentFileParser`.
    values: tuple[Any, ...] = ()
    #: The folder of the partition's files.
    path: str = ""

    def to_path(self) -> str:
        """Returns the folder: the method that PyIceberg's location providers call."""
        return self.path


@dataclass(frozen=True)
class Cluster:
    """Rows of one partition, in order. The next cluster may be of the same partition."""

    partition: Partition
    rows: pa.Table


@dataclass(frozen=True)
class _Source:
    """The column that feeds a partition field or a sort key."""

    #: Positions of the nested fields, from the top down to the column.
    path: tuple[int, ...]
    #: The column's type.
    kind: IcebergType
    #: The name of Iceberg's partition transform.
    transform: str


@dataclass(frozen=True)
class _SortKey:
    """A sort key with its direction."""

    source: _Source
    is_descending: bool
    #: Whether nulls come first.
    is_nulls_first: bool


@dataclass(frozen=True)
class Arrangement:
    """The clustering of a table's rows: its partition fields and sort keys."""

    #: The names of the partition fields.
    names: tuple[str, ...]
    #: The sources of the partition fields.
    fields: tuple[_Source, ...]
    sort_keys: tuple[_SortKey, ...]


@lru_cache(maxsize=512)
def arrangement_of(target: TableTarget) -> Arrangement:
    """Returns the clustering of the table's partition spec and sort order."""
    schema = target.schema
    spec, order = target.partitioning, target.sorting
    return Arrangement(
        tuple(field.name for field in spec.fields),
        tuple(_source(schema, field.source_id, str(field.transform)) for field in spec.fields),
        tuple(
            _SortKey(
                _source(schema, field.source_id, str(field.transform)),
                field.direction == SortDirection.DESC,
                field.null_order == NullOrder.NULLS_FIRST,
            )
            for field in order.fields
        ),
    )


def _source(schema: Schema, field_id: int, transform: str) -> _Source:
    if transform == "void":  # A void field's column may have been dropped.
        return _Source((), UnknownType(), transform)
    path: list[int] = []
    accessor: Accessor | None = schema.accessor_for_field(field_id)
    while accessor is not None:
        path.append(accessor.position)
        accessor = accessor.inner
    return _Source(tuple(path), schema.find_type(field_id), transform)


def is_scattered(arrangement: Arrangement, rows: pa.Table) -> bool:
    """Whether these rows, some ten thousand, have so many partitions that each has at most four of the rows."""
    sample = _united([rows])
    values = [_values(source, sample) for source in arrangement.fields]
    return bool(np.unique(_codes(values, sample.num_rows)).size * _SCATTERED_ROWS >= sample.num_rows)


def clusters(arrangement: Arrangement, pending: list[pa.Table]) -> Iterator[Cluster]:
    """Yields the rows of all these tables, each partition's rows together. The list is emptied, and rows are gathered
    piece by piece, so that all rows are never copied at once.
    """
    rows = _united(pending)
    values = [_values(source, rows) for source in arrangement.fields]
    codes = _codes(values, rows.num_rows)
    order = _order(codes, [_key(sort_key, rows) for sort_key in arrangement.sort_keys])
    ends = np.append(np.flatnonzero(np.diff(codes[order])) + 1, rows.num_rows)
    starts = np.concatenate(([0], ends[:-1]))
    partitions = _partitions(arrangement, [column.take(pa.array(order[starts])) for column in values], starts.size)
    first = 0
    while first < starts.size:
        # As many partitions per piece as make a reasonable number of rows, and one at least.
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _GATHER_ROWS, "right")))
        begin, end = int(starts[first]), int(ends[last - 1])
        for piece_begin in range(begin, end, _GATHER_ROWS) if last == first + 1 else (begin,):
            piece_end = min(end, piece_begin + _GATHER_ROWS) if last == first + 1 else end
            gathered = rows.take(pa.array(order[piece_begin:piece_end]))
            for n in range(first, last):
                low, high = max(int(starts[n]), piece_begin), min(int(ends[n]), piece_end)
                yield Cluster(partitions[n], gathered.slice(low - piece_begin, high - low))
        first = last


def _united(tables: list[pa.Table]) -> pa.Table:
    """Returns one table of one chunk, made column by column."""
    schema = tables[0].schema
    columns: list[Any] = [[chunk for table in tables for chunk in table.column(n).chunks] for n in range(len(schema))]
    tables.clear()
    for n, chunks in enumerate(columns):
        columns[n] = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        del chunks
    return pa.Table.from_arrays(columns, schema=schema)


def _values(source: _Source, rows: pa.Table) -> pa.Array:
    if source.transform == "void":
        return pa.nulls(rows.num_rows)
    first, *inner = source.path
    array = rows.column(first).chunk(0)
    values = transformed(source.transform, pc.struct_field(array, inner) if inner else array)
    if pa.types.is_floating(values.type):
        # One bit pattern for NaN; 0.0 and -0.0 stay distinct, as in Iceberg.
        return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
    return values


def _bits(values: pa.Array) -> pa.Array:
    """Returns floats as integers that compare as Iceberg compares the floats."""
    kind = pa.int32() if values.type.bit_width == 32 else pa.int64()
    raw = values.view(kind)
    most = pa.scalar(2 ** (kind.bit_width - 1) - 1, kind)
    return pc.if_else(pc.less(raw, pa.scalar(0, kind)), pc.bit_wise_xor(raw, most), raw)


def _codes(columns: Sequence[pa.Array], count: int) -> np.ndarray:
    """Returns a number for each row, uint16 or int64 of shape (n_rows,), equal for equal values; small where
    possible, because small numbers sort faster.
    """
    codes, size = np.zeros(count, np.int64), 1
    for column in columns:
        keys = _bits(column) if pa.types.is_floating(column.type) else column
        encoded = keys.dictionary_encode("encode") if keys.type != pa.null() else None
        if encoded is None:
            continue
        distinct_count = max(1, len(encoded.dictionary))
        if size * distinct_count > _MAX_CODES:
            codes, size = _renumbered(codes)
        codes, size = codes * distinct_count + encoded.indices.to_numpy(), size * distinct_count
    if size > 2**16:
        codes, size = _renumbered(codes)
    return codes.astype(np.uint16 if size <= 2**16 else np.int64)


def _renumbered(codes: np.ndarray) -> tuple[np.ndarray, int]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))


def _key(sort_key: _SortKey, rows: pa.Table) -> tuple[pa.Array, _SortKey]:
    values = _values(sort_key.source, rows)
    return (_bits(values) if pa.types.is_floating(values.type) else values), sort_key


def _order(codes: np.ndarray, keys: Sequence[tuple[pa.Array, _SortKey]]) -> np.ndarray:
    """Returns the row numbers in order; equal rows keep their order."""
    if not keys:
        return np.argsort(codes, kind="stable")
    columns: dict[str, pa.Array] = {"codes": pa.array(codes)}
    sort_keys = [("codes", "ascending")]
    for number, (values, sort_key) in enumerate(keys):
        if values.null_count:  # Arrow has one setting for the nulls of all keys; each sort key of Iceberg has its own.
            columns[f"null{number}"] = values.is_null()
            sort_keys.append((f"null{number}", "descending" if sort_key.is_nulls_first else "ascending"))
        columns[f"key{number}"] = values
        sort_keys.append((f"key{number}", "descending" if sort_key.is_descending else "ascending"))
    row_numbers: np.ndarray = pc.sort_indices(pa.table(columns), sort_keys=sort_keys).to_numpy()
    return row_numbers


def _partitions(arrangement: Arrangement, values: Sequence[pa.Array], count: int) -> list[Partition]:
    """Returns the partition of the first row of each group."""
    if not arrangement.fields:
        return [Partition()] * count
    named = zip(arrangement.fields, values, strict=True)
    texts = [partition_texts(source.transform, source.kind, column) for source, column in named]
    return [
        Partition(tuple(value for value, _ in row), path_of(arrangement.names, [text for _, text in row]))
        for row in zip(*texts, strict=True)
    ]
