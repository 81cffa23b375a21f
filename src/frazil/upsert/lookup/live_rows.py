"""Columns of data files that are in a table, read by field id, several files at a time.

The schema of a file may differ from the table's: missing columns, columns without field ids, and members of structs (Iceberg
specification, "Column Projection" and "Name Mapping Serialization").
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from frazil.catalog.scans import LiveFile
from frazil.decode.lossless import format_type
from frazil.errors import UnusableType
from frazil.schema.arrow import Ints, arrow_type, as_written, field_id_of, is_every, one_array, unsliced, with_children
from frazil.schema.selection import Path
from frazil.types import DeleteFile
from frazil.write.file_formats import read_file
from frazil.write.target import TableTarget
from frazil.write.write import file_io

_ENTRY_BYTES = 512
Name = tuple[Any, ...]
"""A cache key: the path of the file first, then whatever distinguishes several entries of one file."""
_MAPPING = "schema.name-mapping.default"


class ColumnCache:
    """A cache of columns by name: the least recently used entries are evicted. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._columns: dict[Name, tuple[pa.Array, ...]] = {}  # The one used last is last.
        self._limit_bytes, self._size_bytes = limit_bytes, 0
        self._lock = threading.Lock()
        _caches.append(self)

    @property
    def size_bytes(self) -> int:
        """The size of all entries."""
        return self._size_bytes

    def get(self, name: Name) -> tuple[pa.Array, ...] | None:
        """Returns the columns under this name; None without an entry."""
        with self._lock:
            columns = self._columns.pop(name, None)
            if columns is not None:
                self._columns[name] = columns
            return columns

    def put(self, name: Name, columns: tuple[pa.Array, ...]) -> None:
        """Stores the columns under this name, unless they are larger than the limit."""
        size = _size(columns)
        with self._lock:
            self._drop(name)
            if size > self._limit_bytes:
                return
            while self._size_bytes + size > self._limit_bytes:
                self._drop(next(iter(self._columns)))
            self._columns[name] = columns
            self._size_bytes += size

    def forget(self, paths: Set[str]) -> None:
        """Removes the entries of these files."""
        with self._lock:
            for name in [name for name in self._columns if name[0] in paths]:
                self._drop(name)

    def _drop(self, name: Name) -> None:
        """Removes an entry, if there is one. To be called under the lock."""
        self._size_bytes -= _size(self._columns[name]) if name in self._columns else 0
        self._columns.pop(name, None)


_caches: list[ColumnCache] = []
_live: dict[str, frozenset[str]] = {}


def retain_live_files(table: str, files: Iterable[LiveFile]) -> None:
    """Removes the entries of files that have left the table since the last call: table maintenance replaces files again
    and again.
    """
    now = frozenset(path for file in files for path in (file.path, *(delete.path for delete in file.deletes)))
    forget_files(_live.get(table, frozenset()) - now)
    _live[table] = now


def forget_files(paths: Set[str]) -> None:
    """Removes the entries of these files, which are no longer in any table, from every cache."""
    for cache in _caches if paths else ():
        cache.forget(paths)


def _size(columns: Sequence[pa.Array]) -> int:
    return _ENTRY_BYTES + sum(int(column.nbytes) for column in columns)


_CACHE_BYTES = 512 * 1024 * 1024
_cache = ColumnCache(_CACHE_BYTES)


def key_columns(target: TableTarget, file: LiveFile, paths: Sequence[Path]) -> tuple[pa.Array, ...]:
    """Returns the columns at these paths in the table's types, one array each, from the cache or the file.

    Raises: OSError where the store fails.
    """
    name = (file.path, tuple(_field_id(target, path) for path in paths), tuple(_kind(target, path) for path in paths))
    key_arrays = _cache.get(name)
    if key_arrays is None:
        key_arrays = tuple(read_columns(target, file, paths))
        _cache.put(name, key_arrays)
    return key_arrays


def read_columns(
    target: TableTarget, file: LiveFile, paths: Sequence[Path], rows: Ints | None = None
) -> list[pa.Array]:
    """Returns the columns at these paths in the table's types, without a cache. rows: row positions; with them one row
    group at a time is in memory. Default: all rows.

    Raises: OSError where the store fails.
    """
    with opened(target, file) as parquet:
        if rows is None:
            return [_read(parquet, target, file, path) for path in paths]
        return [_read_rows(parquet, target, file, path, rows) for path in paths]


def column_pieces(target: TableTarget, file: LiveFile, path: Path) -> Iterator[pa.Array]:
    """Yields a column in pieces, of which one at a time is in memory.

    Raises: OSError where the store fails.
    """
    with opened(target, file) as parquet:
        names, kind = _names(parquet, target, path), _kind(target, path)
        if not names:
            yield missing_column(target, file, path, parquet.metadata.num_rows, kind)
            return
        for piece in parquet.iter_batches(columns=[".".join(names)], use_threads=False):
            yield to_table_type(target, member(piece.column(0), names[1:]), _type(target, path))


@contextmanager
def opened(target: TableTarget, file: LiveFile | DeleteFile, **options: Any) -> Iterator[pq.ParquetFile]:
    """Opens a file of the table as a Parquet file, whatever its format. options: of pyarrow's reader.

    Raises: OSError where the store fails; SpecError where a file in another format cannot be read.
    """
    with file_io(target).new_input(file.path).open() as stream:
        yield read_file(stream, file.file_format, file.path, **options)


def reserved_column(target: TableTarget, file: LiveFile, field_id: int) -> pa.Array | None:
    """Returns the column with this reserved field id of Iceberg; None where the file does not contain it.

    Raises: OSError where the store fails.
    """
    with opened(target, file) as parquet:
        field = next(
            (arrow_field for arrow_field in parquet.schema_arrow if field_id_of(arrow_field) == field_id), None
        )
        return None if field is None else _read_column(parquet, field.name)


def _read(parquet: pq.ParquetFile, target: TableTarget, file: LiveFile, path: Path) -> pa.Array:
    names, kind = _names(parquet, target, path), _kind(target, path)
    if not names:
        return missing_column(target, file, path, parquet.metadata.num_rows, kind)
    return to_table_type(target, member(_read_column(parquet, ".".join(names)), names[1:]), _type(target, path))


def _read_rows(parquet: pq.ParquetFile, target: TableTarget, file: LiveFile, path: Path, rows: Ints) -> pa.Array:
    names, kind = _names(parquet, target, path), _kind(target, path)
    if not names:
        return missing_column(target, file, path, rows.size, kind)
    sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    begins = np.cumsum([0, *sizes])
    groups = np.searchsorted(begins, rows, "right") - 1
    at, pieces, count = np.empty(rows.size, np.int64), [pa.nulls(0, kind)], 0
    for group in np.unique(groups).tolist():
        mine = np.flatnonzero(groups == group)
        mine = mine[np.argsort(rows[mine], kind="stable")]
        wanted, begin, end = rows[mine] - begins[group], 0, 0
        # In pieces, which the processor's caches have room for: a whole group is memory that is touched first.
        for piece in parquet.iter_batches(row_groups=[group], columns=[".".join(names)], use_threads=False):
            first, end = end, int(np.searchsorted(wanted, begin + len(piece)))
            if first < end:
                taken = member(piece.column(0), names[1:]).take(pa.array(wanted[first:end] - begin))
                pieces.append(to_table_type(target, taken, _type(target, path)))
            if end == mine.size:
                break
            begin += len(piece)
        at[mine] = count + np.arange(mine.size)
        count += mine.size
    values = pa.concat_arrays(pieces)
    return values if is_every(at, count) else values.take(pa.array(at))


def _names(parquet: pq.ParquetFile, target: TableTarget, path: Path) -> list[str]:
    """Returns the names of the path's fields in the file; empty where the file does not contain the column."""
    names, fields = [], list(parquet.schema_arrow)
    for depth in range(1, len(path) + 1):
        place = field_index(target, fields, path[depth - 1], _field_id(target, path[:depth]))
        if place is None:
            return []
        field = fields[place]
        names.append(field.name)
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    return names


def _read_column(parquet: pq.ParquetFile, path: str) -> pa.Array:
    return one_array(parquet.read(columns=[path], use_threads=False).column(0))


def as_numbers(column: pa.Array) -> pa.Array:
    """Returns dates and times as their integers; any other column unchanged."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())


def member(array: pa.Array, names: Sequence[str]) -> pa.Array:
    """Returns the member of a struct at this path; null where a struct is null."""
    for name in names:
        array = pa.compute.struct_field(array, name)
    return array


def _field_id(target: TableTarget, path: Path) -> int:
    return target.schema.find_field(".".join(path)).field_id


def _kind(target: TableTarget, path: Path) -> pa.DataType:
    return arrow_type(_type(target, path))


def _type(target: TableTarget, path: Path) -> IcebergType:
    return target.schema.find_field(".".join(path)).field_type


_NO_KEY = (
    "name other columns under `key_columns`, or read the topic into a table with `mode: append`: a list or map cannot"
    " identify rows; if only some records have one there, declare the column, `columns: {NAME: TYPE}`: they become"
    " dead letters"
)
_NO_ID = (
    "name other columns under `dedupe`: a list or map cannot identify events; if only some records have one there, declare"
    " the column, `columns: {NAME: TYPE}`: they become dead letters"
)
_REMEDIES = {"key_columns": _NO_KEY, "dedupe": _NO_ID}
_STRUCT_KEY = "name the columns inside it, or another one"
_NO_ORDER = (
    "name another column under `order_by`, such as one that `columns` makes of a field inside it, or remove it to apply"
    " changes in the order of their offsets"
)


def check_columns(target: TableTarget, key_columns: Sequence[str] = ()) -> None:
    """Checks the types of the key columns and the ordering column. key_columns: those columns of a table that does not know
    its key yet.

    Raises: UnusableType where a column is a struct, list or map.
    """
    assert target.changes is not None
    for path in replace(target.changes, key_columns=tuple(key_columns) or target.changes.key_columns).paths:
        _check_plain(target, path, "key_columns")
    if target.changes.order_by:
        _check_plain(target, (target.changes.order_by,), "order_by")


def check_ids(target: TableTarget) -> None:
    """Checks the types of the columns by which an append table drops duplicates.

    Raises: UnusableType where a column is a struct, list or map.
    """
    for path in target.dedupe.paths if target.dedupe is not None else ():
        _check_plain(target, path, "dedupe")


def _check_plain(target: TableTarget, path: Path, setting: str) -> None:
    kind: IcebergType = target.schema.as_struct()
    names: list[str] = []
    while isinstance(kind, StructType) and len(names) < len(path):
        field = next((column for column in kind.fields if column.name == path[len(names)]), None)
        if field is None:
            return
        names.append(field.name)
        kind = field.field_type
    if not isinstance(kind, PrimitiveType):
        is_struct = isinstance(kind, StructType)
        raise UnusableType(
            f"the column {'.'.join(names)} has the type {format_type(kind)}, and `{setting}` takes columns with plain"
            " values only",
            tuple(names),
            remedy=_NO_ORDER if setting == "order_by" else _STRUCT_KEY if is_struct else _REMEDIES[setting],
            where=target.name,
        )


def has_column(target: TableTarget, path: Path) -> bool:
    """Returns whether the table has a field at this path."""
    struct: Any = target.schema.as_struct()
    for name in path:
        field = (
            next((column for column in struct.fields if column.name == name), None)
            if isinstance(struct, StructType)
            else None
        )
        if field is None:
            return False
        struct = field.field_type
    return True


Some = TypeVar("Some")
Other = TypeVar("Other")


def in_threads(work: Callable[[Some], Other], members: Sequence[Some], most: int | None = None) -> Iterable[Other]:
    """Returns the result of `work` for each member, in order. most: the number of threads; default: the number of
    cores.
    """
    if len(members) <= 1:
        return map(work, members)
    with ThreadPoolExecutor(min(most or os.cpu_count() or 1, len(members))) as pool:
        return list(pool.map(work, members))


def missing_column(target: TableTarget, file: LiveFile, path: Sequence[str], count: int, kind: pa.DataType) -> pa.Array:
    """Returns `count` rows of a column that the file does not contain: the value of an identity partition field, the
    initial default, or null. Imported files lack the columns that their partition determines.
    """
    value = None
    if len(path) == 1:
        field = target.schema.find_field(path[0])
        value = _of_partition(target, file, field)
        value = field.initial_default if value is None else value
    return _repeated(value, count, kind)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(pa.scalar(value.bytes if isinstance(value, UUID) else value, kind), count)


def _of_partition(target: TableTarget, file: LiveFile, field: NestedField) -> Any:
    """Returns the value that all rows of the file have by its partition; None without one."""
    partition = file.description.get("partition")
    if not partition or not isinstance(field.field_type, PrimitiveType):
        return None
    spec = _specs(target.files.partition_spec, *target.files.older_specs).get(
        file.description["spec-id"], PartitionSpec()
    )
    for place, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            word = partition.get(str(part.field_id)) if isinstance(partition, dict) else partition[place]
            return None if word is None else _value(field.field_type, word)
    return None


def _value(kind: PrimitiveType, word: Any) -> Any:
    return float(word) if isinstance(kind, FloatType | DoubleType) else from_json(kind, word)


@lru_cache(maxsize=64)
def _specs(*texts: str) -> dict[int, PartitionSpec]:
    specs = (PartitionSpec.model_validate_json(text) for text in texts if text)
    return {spec.spec_id: spec for spec in specs}


def field_index(target: TableTarget, fields: Sequence[pa.Field], name: str, field_id: int) -> int | None:
    """Returns the index of the field with this id or, without ids in the file, with a name of that field; None without
    such a field.
    """
    ids = [field_id_of(field) for field in fields]
    if any(number >= 0 for number in ids):
        return ids.index(field_id) if field_id in ids else None
    # Files without field ids have names: by the table's name mapping, else the column's current name.
    mapping = dict(target.files.properties).get(_MAPPING)
    names = (name,) if mapping is None else _mapped(mapping).get(field_id, ())
    return next((place for place, field in enumerate(fields) if field.name in names), None)


def to_table_type(target: TableTarget, array: pa.Array, wanted: IcebergType) -> pa.Array:
    """Returns the values in the Arrow type of `wanted`. Members of structs are matched as columns are: one may have
    been added, dropped, renamed or moved since the file was written.
    """
    kind = arrow_type(wanted)
    if isinstance(wanted, PrimitiveType) or array.type.equals(kind, check_metadata=True):
        return as_written(array, kind)
    array = unsliced(array)
    if isinstance(wanted, StructType):
        children = [_member(target, array, field) for field in wanted.fields]
    elif isinstance(wanted, MapType):
        sides = ((array.keys, wanted.key_type), (array.items, wanted.value_type))
        children = [to_table_type(target, side, side_type) for side, side_type in sides]
    else:
        assert isinstance(wanted, ListType)
        children = [to_table_type(target, array.values, wanted.element_type)]
    return with_children(array, kind, children)


def _member(target: TableTarget, array: pa.Array, field: NestedField) -> pa.Array:
    place = field_index(target, list(array.type), field.name, field.field_id)
    if place is None:
        return _repeated(field.initial_default, len(array), arrow_type(field.field_type))
    return to_table_type(target, array.field(place), field.field_type)


@lru_cache(maxsize=64)
def _mapped(mapping: str) -> dict[int, tuple[str, ...]]:
    return dict(_ids(json.loads(mapping)))


def _ids(fields: Sequence[dict[str, Any]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for field in fields:
        if "field-id" in field:
            yield field["field-id"], tuple(field["names"])
        yield from _ids(field.get("fields") or ())
