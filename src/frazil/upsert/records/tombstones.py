"""Tombstones in CDC topics of an upsert table: each deletes the row that its record's key identifies.

Most tombstones follow a delete and change nothing. Some deletes leave only a tombstone: an unwrap transform (Debezium
`ExtractNewRecordState`) can drop the delete, and a compacted topic keeps only the last record of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import BooleanType, IntegerType, LongType, StringType

from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.schema.arrow import arrow_type
from frazil.upsert.changes import DELETE, Changes
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.record_keys import Keys, put_keys, read_keys, read_row_keys
from frazil.write.target import TableTarget

Records = Mapping[str, pa.Array]
_PLAIN = (BooleanType, IntegerType, LongType, StringType)


def take_tombstones(target: TableTarget, records: Records, changes: Changes) -> Changes:
    """Returns the changes with a delete for each tombstone whose key has a value for every key column. Other tombstones
    are ignored, because a table may have key columns that its records' keys lack.
    """
    if changes.tombstones is None or not changes.tombstones.any():
        return changes
    read = read_keys if _is_plain(target) else read_row_keys
    keys = read(target, records, changes.tombstones & np.asarray(records["key"].is_valid()), MAX_MISMATCHES)
    missing = replace(changes.decoded, missing=changes.decoded.missing | keys.decoded.missing)
    rows = np.flatnonzero(_named(changes.tombstones, keys))
    if not rows.size:
        return replace(changes, decoded=missing)
    return replace(_merged(target, changes, keys, rows.astype(np.int32)), decoded=missing)


def _is_plain(target: TableTarget) -> bool:
    """Returns whether all key columns have types whose values a key contains unchanged. A time, for example, may be a
    number.
    """
    reading = target.changes
    assert reading is not None
    kinds = [
        target.schema.find_field(name).field_type
        for path, name in zip(reading.paths, reading.key_columns, strict=True)
        if has_column(target, path)
    ]
    return all(isinstance(kind, _PLAIN) for kind in kinds)


def _named(tombstones: NDArray[np.bool_], keys: Keys) -> NDArray[np.bool_]:
    """Returns which tombstones identify a row, bool `(n_records,)`."""
    if not keys.columns:
        return tombstones & np.False_
    named = tombstones & ~keys.decoded.refused
    for column in keys.columns.values():
        named &= np.asarray(column.is_valid())
    return named


def _merged(target: TableTarget, changes: Changes, keys: Keys, rows: NDArray[np.int32]) -> Changes:
    """Returns the changes together with deletes of the records `rows`, in the order of the records."""
    places, every = pa.array(rows), np.ones(rows.size, np.bool_)
    mine = replace(keys, columns={path: column.take(places) for path, column in keys.columns.items()})
    records = np.concatenate([changes.records, rows])
    order = np.argsort(records, kind="stable")
    at = pa.array(order)

    def joined(there: pa.Array, more: pa.Array) -> pa.Array:
        return pa.concat_arrays([there, more]).take(at)

    def padded(there: pa.Array) -> pa.Array:
        return joined(there, pa.nulls(rows.size, there.type))

    columns = []
    for field, column in zip(target.fields, changes.columns, strict=True):
        kind = arrow_type(field.field_type)
        own = put_keys(field, pa.nulls(rows.size, kind), mine, every)
        columns.append(joined(column.cast(kind) if column.type != kind else column, own))
    left = changes.ignored_records.get("tombstone", 0) - rows.size
    ignored_records = {word: count for word, count in changes.ignored_records.items() if word != "tombstone"}
    return replace(
        changes,
        columns=columns,
        ops=np.concatenate([changes.ops, np.full(rows.size, DELETE, np.int8)])[order],
        records=records[order],
        unavailable={n: np.concatenate([flags, ~every])[order] for n, flags in changes.unavailable.items()},
        old_keys=None if changes.old_keys is None else [padded(key) for key in changes.old_keys],
        positions=None if changes.positions is None else padded(changes.positions),
        rescued=None if changes.rescued is None else padded(changes.rescued),
        own={name: padded(values) for name, values in changes.own.items()},
        ignored_records=ignored_records | ({"tombstone": left} if left else {}),
    )
