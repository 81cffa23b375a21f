"""Rows that equality deletes of other writers have taken away: those whose values are in the delete file, null for null.

Iceberg says which delete files speak of a data file. Table care applies them for good; until then each look-up does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import StructType

from frazil.catalog.scans import LiveFile
from frazil.errors import UnavailableError
from frazil.ingest.target import TableTarget
from frazil.ingest.upserts.fold import key_codes
from frazil.ingest.upserts.live_rows import Path, key_columns
from frazil.types import DeleteFile

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
    described = json.loads(delete.content)
    paths = _paths(target, described)
    named = key_columns(target, LiveFile(delete.path, delete.record_count, delete.content), paths)
    places = pa.array(rows)
    own = [column.take(places) for column in key_columns(target, file, paths)]
    codes = key_codes([pa.concat_arrays(pair) for pair in zip(named, own, strict=True)])
    count = len(named[0])
    return np.isin(codes[count:], codes[:count])


def _paths(target: TableTarget, described: Mapping[str, Any]) -> list[Path]:
    """The columns whose values a delete file has."""
    by_id = dict(_columns(target.schema.as_struct()))
    ids = described["equality-ids"]
    if not all(number in by_id for number in ids) or str(described["file-format"]).lower() != "parquet":
        raise UnavailableError(
            "equality deletes of another writer are no Parquet, or speak of columns that the table no longer has",
            remedy="wait for table care, or rewrite the table's data files, which applies them",
            where=target.name,
        )
    return [by_id[number] for number in ids]


def _columns(struct: StructType, above: Path = ()) -> Iterator[tuple[int, Path]]:
    """The fields that are in no list or map, with their ids."""
    for field in struct.fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, path)
