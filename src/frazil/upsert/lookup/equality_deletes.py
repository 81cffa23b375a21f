"""Rows that equality deletes of other writers have deleted: rows whose values occur in the delete file, where null
equals null.

Iceberg determines which delete files apply to a data file. Table maintenance applies equality deletes permanently;
until then each look-up applies them.
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
from frazil.upsert.lookup.live_rows import Path, key_columns, reserved_column
from frazil.write.target import TableTarget

Bools = NDArray[np.bool_]


def are_deleted(target: TableTarget, file: LiveFile, rows: NDArray[np.int64]) -> Bools:
    """Returns which rows at these positions of the file equality deletes have deleted, bool `(n_rows,)`.

    Raises: OSError where the store fails; UnavailableError where a delete file cannot be read.
    """
    gone = np.zeros(rows.size, np.bool_)
    for delete in file.deletes:
        if delete.kind == "equality" and not gone.all():
            gone |= _are_named(target, file, rows, delete)
    return gone


def _are_named(target: TableTarget, file: LiveFile, rows: NDArray[np.int64], delete: DeleteFile) -> Bools:
    if not delete.is_parquet:
        raise _unreadable(target)
    deletes, places, by_id = LiveFile(delete.path, delete.record_count, delete.content), pa.array(rows), _paths(target)
    pairs = []
    for number in json.loads(delete.content)["equality-ids"]:
        if number in by_id:
            named, own = (key_columns(target, one, [by_id[number]])[0] for one in (deletes, file))
        else:
            named, own = _dropped(target, deletes, file, number)
        pairs.append(pa.concat_arrays([named, own.take(places)]))
    codes, count = key_codes(pairs), len(pairs[0]) - rows.size
    return np.isin(codes[count:], codes[:count])


def _dropped(target: TableTarget, deletes: LiveFile, file: LiveFile, field_id: int) -> tuple[pa.Array, pa.Array]:
    """Returns a column of a delete file and of a data file that the table has dropped, both in the wider of their
    types.
    """
    named, own = (reserved_column(target, one, field_id) for one in (deletes, file))
    if named is None or own is None:  # It was inside a struct, or had a name in files without field ids, or a default.
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
    """Returns the paths of the table's columns by field id."""
    return dict(_columns(target.schema.as_struct()))


def _columns(struct: StructType, above: Path = ()) -> Iterator[tuple[int, Path]]:
    """Yields the id and path of each field outside of lists and maps."""
    for field in struct.fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, path)
