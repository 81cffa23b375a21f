"""Data files that contain none of a few keys, which are not read.

They are found by the bounds of their columns, by their Bloom filters, and by their partition where the key determines
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from frazil.catalog.scans import LiveFile
from frazil.schema.arrow import Bools
from frazil.schema.selection import Path
from frazil.upsert.lookup.live_rows import ColumnCache, as_numbers
from frazil.upsert.lookup.xxh64 import hash_rows, hash_values
from frazil.write.target import TableTarget
from frazil.write.transforms import partition_texts, transformed
from frazil.write.write import file_io

_NARROW = 4
_WIDENED = (LongType, TimestampType, TimestamptzType)
_MOST_KEYS_TO_SORT = 100_000
# Not of UUIDs: Iceberg's Java library compared their two 64-bit parts as signed numbers when it merged bounds of row
# groups (apache/iceberg#14216), and a file does not name its writer.
BOUNDED = (
    IntegerType,
    LongType,
    DecimalType,
    StringType,
    BinaryType,
    FixedType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
)


def bounds_of(file: LiveFile, field_id: int, kind: PrimitiveType) -> tuple[Any, Any]:
    """Returns a value that is at most the smallest of the column in the file, and one that is at least the greatest;
    None for an unknown bound, or one written in a type that cannot be compared. Iceberg truncates bounds of texts.
    """
    return _bound(file, "lower-bounds", field_id, kind), _bound(file, "upper-bounds", field_id, kind)


def null_count_of(file: LiveFile, field_id: int) -> int | None:
    """Returns the number of nulls of the column in the file; None where it is unknown."""
    count: int | None = file.column_metrics(field_id).get("null-value-counts")
    return count


def _bound(file: LiveFile, name: str, field_id: int, kind: PrimitiveType) -> Any:
    stored = file.column_metrics(field_id).get(name)
    if stored is None:
        return None
    raw = bytes.fromhex(stored)
    if len(raw) == _NARROW and isinstance(kind, _WIDENED):  # The file is older than the column's type.
        return from_bytes(IntegerType(), raw) if isinstance(kind, LongType) else None
    return from_bytes(kind, raw)


class KeyBounds:
    """Excludes files whose column bounds exclude every key; with very many keys, files whose bounds lie outside the
    range of all keys.
    """

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        self._sorted: list[tuple[int, PrimitiveType, Any]] = []
        self._are_ends = len(keys[0]) > _MOST_KEYS_TO_SORT
        for key, path in zip(keys, paths, strict=True):
            column = target.schema.find_field(".".join(path))
            if isinstance(column.field_type, BOUNDED):
                values = _plain_sorted(_ends(key) if self._are_ends else key)
                self._sorted.append((column.field_id, column.field_type, values))

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether the bounds admit some key."""
        return file.record_count > 0 and all(
            _overlaps(file, field_id, kind, values, self._are_ends) for field_id, kind, values in self._sorted
        )


def _plain_sorted(key: pa.Array) -> Any:
    """Returns the keys sorted as Iceberg compares bounds: an integer array, or an object array of texts."""
    key = as_numbers(key)
    ordered = key.take(pc.sort_indices(key))
    return np.asarray(ordered) if pa.types.is_integer(ordered.type) else np.array(ordered.to_pylist(), object)


def _ends(key: pa.Array) -> pa.Array:
    """Returns the smallest and the greatest key, in the order of bounds."""
    ends = pc.min_max(as_numbers(key))
    return pa.array([ends["min"].as_py(), ends["max"].as_py()], as_numbers(key).type)


def _overlaps(file: LiveFile, field_id: int, kind: PrimitiveType, values: Any, are_ends: bool) -> bool:
    """Returns whether some key lies within the file's bounds. are_ends: `values` are the ends of a range, in which any
    value may be a key.
    """
    lower, upper = bounds_of(file, field_id, kind)
    first = np.searchsorted(values, lower, "left") if lower is not None else 0
    last = np.searchsorted(values, upper, "right") if upper is not None else len(values)
    return bool(first < len(values) and last > 0) if are_ends else bool(first < last)


_MOST_KEYS = 10_000
"""With more keys, every file is likely to contain some."""
_ENABLED = "write.parquet.bloom-filter-enabled.column."
_CACHE_BYTES = 256 * 1024 * 1024
_filters = ColumnCache(_CACHE_BYTES)
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
# The rest of the header in Thrift's compact protocol: algorithm BLOCK, hash XXHASH, UNCOMPRESSED.
_REST_OF_HEADER = bytes.fromhex("1c1c00001c1c00001c1c000000")
_LONGEST_HEADER = 32
_WIDTHS = {"INT32": 4, "INT64": 8}
Words = NDArray[np.uint64]


class KeyFilters:
    """Checks keys against the Bloom filters of files. The keys are distinct and in top-level columns of the table."""

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        properties = dict(target.files.properties)
        self._target = target
        self._columns: list[tuple[int, pa.Array]] = []
        self._hashes: dict[tuple[int, str], tuple[Words, Bools]] = {}
        if len(keys[0]) > _MOST_KEYS:
            return
        for key, path in zip(keys, paths, strict=True):
            is_filtered = properties.get(_ENABLED + ".".join(path)) == "true"
            if is_filtered and len(path) == 1 and _has_plain_bytes(key.type):
                self._columns.append((target.schema.find_field(path[0]).field_id, key))

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether the file's filters admit some key.

        Raises: OSError where the store fails.
        """
        masks = [mask for column in self._columns if (mask := self._mask(file, *column)) is not None]
        return not masks or bool(np.logical_and.reduce(masks).any())

    def _mask(self, file: LiveFile, field_id: int, key: pa.Array) -> Bools | None:
        """Returns per key whether the file may contain it, bool `(n_keys,)`; None without a usable filter."""
        if file.file_format != "parquet":
            return None
        name = (file.path, field_id)
        buffered = _filters.get(name)
        if buffered is None:
            buffered = _read(self._target, file.path, field_id)
            _filters.put(name, buffered)
        kind, *groups = buffered
        physical = str(kind[0].as_py())
        if not physical:
            return None
        if (field_id, physical) not in self._hashes:
            self._hashes[field_id, physical] = hashes(key, physical)
        words, is_there = self._hashes[field_id, physical]
        may_contain = np.zeros(len(key), np.bool_)
        for blocks in groups:
            may_contain |= is_in(np.asarray(blocks), words)
        return may_contain & is_there


def _read(target: TableTarget, path: str, field_id: int) -> tuple[pa.Array, ...]:
    """Returns the physical type of the file's column with this field id and, per row group, the words of its filter.
    The type is empty where some row group has no filter.
    """
    nothing = (pa.array([""]),)
    with file_io(target).new_input(path).open() as stream:
        footer = pq.read_metadata(stream)
        ids = {int((f.metadata or {}).get(b"PARQUET:field_id", b"-1")): f.name for f in footer.schema.to_arrow_schema()}
        if field_id not in ids:
            return nothing
        kind, groups = "", []
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            columns = (group.column(place) for place in range(group.num_columns))
            column = next((chunk for chunk in columns if chunk.path_in_schema == ids[field_id]), None)
            blocks = _blocks(stream, column) if column is not None else None
            if column is None or blocks is None:
                return nothing
            kind = column.physical_type
            groups.append(pa.array(blocks))
    return (pa.array([kind]), *groups) if groups else nothing


def _blocks(stream: Any, column: Any) -> NDArray[np.uint32] | None:
    """Returns the filter of one column chunk, uint32 words; None without a filter of a supported kind."""
    offset = column.bloom_filter_offset
    if offset is None:
        return None
    stream.seek(offset)
    header = stream.read(_LONGEST_HEADER)
    size, end = 0, 1
    while header[:1] == b"\x15" and end < len(header):
        size |= (header[end] & 0x7F) << (7 * (end - 1))
        end += 1
        if header[end - 1] < 0x80:
            break
    size >>= 1  # Thrift encodes integers as zigzag, and this one is not negative.
    if not size or size % 32 or header[end : end + len(_REST_OF_HEADER)] != _REST_OF_HEADER:
        return None
    stream.seek(offset + end + len(_REST_OF_HEADER))
    payload = stream.read(size)
    return np.frombuffer(payload, "<u4").astype(np.uint32) if len(payload) == size else None


def is_in(blocks: NDArray[np.uint32], words: Words) -> Bools:
    """Returns per hash whether the filter admits its value, bool `(n_hashes,)`."""
    table = blocks.reshape(-1, len(_SALT))
    place = ((words >> np.uint64(32)) * np.uint64(len(table))) >> np.uint64(32)
    low = words.astype(np.uint32)
    bits = (low[:, None] * _SALT[None, :]) >> np.uint32(27)
    return np.asarray(((table[place] >> bits) & np.uint32(1)).all(axis=1), np.bool_)


def hashes(key: pa.Array, physical: str) -> tuple[Words, Bools]:
    """Returns the XXH64 of each value in its encoding for this physical type, and whether a column of this type can
    contain the value.
    """
    is_there = np.asarray(key.is_valid())
    if physical not in _WIDTHS:
        return hash_values(key.cast(pa.binary()).fill_null(b"")), is_there
    numbers = np.asarray(as_numbers(key).fill_null(0)).astype(np.int64)
    if physical == "INT32":  # Also in a file that is older than the column's wider type.
        is_there = is_there & (numbers >= -(2**31)) & (numbers < 2**31)
    raw = numbers.astype(f"<i{_WIDTHS[physical]}").view(np.uint8).reshape(len(key), -1)
    return hash_rows(raw), is_there


def _has_plain_bytes(kind: pa.DataType) -> bool:
    """Returns whether Parquet encodes values of this type unchanged: integers, times, texts and bytes."""
    tests = (pa.types.is_integer, pa.types.is_temporal, pa.types.is_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_binary)) and not pa.types.is_decimal(kind)


_OF_ANY_TYPE = ("bucket", "year", "month", "day", "hour")
# Values of other types have several representations; a file with one such value has it as its bounds too.
_PLAIN = (IntegerType, LongType, StringType, DateType)


class KeyPartitions:
    """The partitions of keys by the table's current partition spec. A file with an older spec is never excluded."""

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        columns = [target.schema.find_field(".".join(path)) for path in paths]
        by_id = {column.field_id: (column.field_type, key) for column, key in zip(columns, keys, strict=True)}
        self._spec_id = target.files.spec_id
        self._count = len(target.partitioning.fields)
        self._places: list[tuple[int, str]] = []
        partition_values: dict[str, tuple[str, IcebergType, pa.Array]] = {}
        for place, field in enumerate(target.partitioning.fields):
            kind, key = by_id.get(field.source_id, (None, None))
            if kind is not None and _is_prunable(field, kind):
                self._places.append((place, str(field.field_id)))
                partition_values[str(place)] = (str(field.transform), kind, transformed(str(field.transform), key))
        self._wanted = _distinct(partition_values)

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether some key belongs to the file's partition."""
        described = file.description
        values = described["partition"]
        if not self._places or described["spec-id"] != self._spec_id:
            return True
        if isinstance(values, list):
            own = tuple(values[place] for place, _ in self._places) if len(values) == self._count else (None,)
        else:
            own = tuple(values.get(name) for _, name in self._places)
        return None in own or own in self._wanted


def _is_prunable(field: PartitionField, kind: IcebergType) -> bool:
    """Returns whether a partition value of this transform and type has exactly one representation."""
    word = str(field.transform).split("[", maxsplit=1)[0]
    return word in _OF_ANY_TYPE or (word in ("identity", "truncate") and isinstance(kind, _PLAIN))


def _distinct(partition_values: dict[str, tuple[str, IcebergType, pa.Array]]) -> frozenset[tuple[Any, ...]]:
    """Returns the distinct partitions of the keys, in the representation of Iceberg's JSON."""
    if not partition_values:
        return frozenset()
    values = pa.table({name: column for name, (_, _, column) in partition_values.items()})
    once = values.group_by(values.column_names).aggregate([]).combine_chunks()
    words = [
        [word for word, _ in partition_texts(transform, kind, pa.concat_arrays(once[name].chunks))]
        for name, (transform, kind, _) in partition_values.items()
    ]
    return frozenset(zip(*words, strict=True))
