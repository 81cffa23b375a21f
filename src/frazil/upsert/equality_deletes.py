"""Rows that equality deletes of other writers have taken away: those whose values are in the delete file, null for null.

Iceberg says which delete files speak of a data file. Table care applies them for good; until then each look-up does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import StructType

from frazil.catalog.scans import LiveFile
from frazil.errors import UnavailableError
from frazil.types import DeleteFile
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.live_rows import Path, key_columns, reserved_column
from frazil.write.target import TableTarget

Bools = NDArray[np.bool_]


def are_deleted(target: TableTarget, file: LiveFile, rows: NDArray[np.int64]) -> Bools:
    """Which of the file's rows at these places equality deletes have taken away. OSError as the store, UnavailableError
    where a delete file cannot be read.
    """
    gone = np.zeros(rows.size, np.bool_)
    for delete in file.deletes:
        if delete.kind == "equality" and not gone.all():
            gone |= _are_named(target, file, rows, delete)
    return gone


def _are_named(target: TableTarget, file: LiveFile, rows: NDArray[np.int64], delete: DeleteFile) -> Bools:
    if not delete.is_parquet:
        raise _unreadable(target)
    said, places, by_id = LiveFile(delete.path, delete.record_count, delete.content), pa.array(rows), _paths(target)
    pairs = []
    for number in json.loads(delete.content)["equality-ids"]:
        if number in by_id:
            named, own = (key_columns(target, one, [by_id[number]])[0] for one in (said, file))
        else:
            named, own = _dropped(target, said, file, number)
        pairs.append(pa.concat_arrays([named, own.take(places)]))
    codes, count = key_codes(pairs), len(pairs[0]) - rows.size
    return np.isin(codes[count:], codes[:count])


def _dropped(target: TableTarget, said: LiveFile, file: LiveFile, field_id: int) -> tuple[pa.Array, pa.Array]:
    """The column of a delete file and of a data file that the table no longer has, in one type: of its types the wider."""
    named, own = (reserved_column(target, one, field_id) for one in (said, file))
    if named is None or own is None:  # It was inside another one, or had a name in files without ids, or a default.
        raise _unreadable(target)
    schemas = [pa.schema([pa.field("c", column.type)]) for column in (named, own)]
    kind = pa.unify_schemas(schemas, promote_options="permissive").field("c").type
    return named.cast(kind), own.cast(kind)


def _unreadable(target: TableTarget) -> UnavailableError:
    return UnavailableError(
        "equality deletes of another writer are not in Parquet, or have columns that the table no longer has",
        remedy="wait for table maintenance, or run `frazil maintain`: either applies the deletes permanently",
        where=target.name,
    )


def _paths(target: TableTarget) -> Mapping[int, Path]:
    """By field id the columns of the table."""
    return dict(_columns(target.schema.as_struct()))


def _columns(struct: StructType, above: Path = ()) -> Iterator[tuple[int, Path]]:
    """The fields that are in no list or map, with their ids."""
    for field in struct.fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, path)
