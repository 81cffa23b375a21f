"""Columns of `metadata` that an envelope provides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.change_plan import (
    EMPTY,
    OPERATIONS,
    REMOVE,
    SNAPSHOT,
    Opened,
    Records,
)
from frazil.cdc.envelope import (
    ROW,
)
from frazil.cdc.source.positions import mark_snapshot_rows
from frazil.decode.envelope import OWN_TYPES
from frazil.schema.arrow import arrow_type
from frazil.upsert.changes import Changes
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class Facts:
    """The inputs for columns of `metadata`."""

    target: TableTarget
    opened: Opened
    records: Records
    #: The fields of `metadata` that the table has.
    own: frozenset[str]


def own_values(facts: Facts, changes: Changes) -> dict[str, pa.Array]:
    """Returns the columns of `metadata` that come from the envelope, a row per change."""
    opened, rows = facts.opened, changes.records
    places = pa.array(rows)
    found = {name: array.take(places) for name, array in opened.facts.items() if name in facts.own}
    if "source_order" in found and "partition" in facts.records:
        is_read, partitions = pa.array(opened.op[rows] == SNAPSHOT), facts.records["partition"].take(places)
        found["source_order"] = mark_snapshot_rows(found["source_order"], is_read, partitions)
    if "op" in facts.own:
        found["op"] = pa.array(OPERATIONS).take(pa.array(opened.op[rows]))
    if "image" in facts.own:
        found["image"] = _image_names(opened, changes)
    if "unavailable" in facts.own:
        found["unavailable"] = _unsent_names(facts.target, changes)
    removals = opened.op[rows] == REMOVE
    if "deleted" in facts.own:
        found["deleted"] = pa.array(removals)
    if "deleted_at" in facts.own:
        found["deleted_at"] = pc.if_else(pa.array(removals), change_times(opened, facts.records).take(places), None)
    return found


def change_times(opened: Opened, records: Records) -> pa.Array:
    """Returns when the source made the change of each record; without this, when the record was sent."""
    times = opened.facts["source_ts"]
    return pc.coalesce(times, records["timestamp"]) if "timestamp" in records else times


def _image_names(opened: Opened, changes: Changes) -> pa.Array:
    """Returns `after`, `before`, or `identity`: a row before its change that lacks values, which the source may not
    have sent.
    """
    rows, op = changes.records, opened.op[changes.records]
    leads = np.zeros(rows.size, np.bool_)
    leads[:-1] = rows[1:] == rows[:-1]
    is_before = leads | (op == REMOVE)
    lacks = np.zeros(rows.size, np.bool_)
    for column in changes.columns:
        lacks |= np.asarray(column.is_null())
    kinds = opened.facts["connector"].take(pa.array(rows))
    may_lack = np.asarray(pc.fill_null(pc.equal(kinds, "postgresql"), opened.record_kind.size == 0))
    may_lack |= np.asarray(kinds.is_null()) & (opened.record_kind[rows] == ROW)
    names = np.where(is_before, np.where(lacks & may_lack, "identity", "before"), "after")
    nothing = (op == EMPTY) | ((op == REMOVE) & ~(opened.has_before | opened.has_after)[rows])
    return pa.array(names, pa.string(), mask=nothing)


def _unsent_names(target: TableTarget, changes: Changes) -> pa.Array:
    """Returns the names of the columns whose value was not sent; null where all were sent."""
    kind = arrow_type(OWN_TYPES["unavailable"])
    if not changes.unavailable:
        return pa.nulls(changes.records.size, kind)
    columns = list(changes.unavailable)
    flags = np.stack([changes.unavailable[n] for n in columns], axis=1)
    names = pa.array([target.fields[n].name for n in columns])
    counts = flags.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    items = names.take(pa.array(np.nonzero(flags)[1]))
    mask = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(kind, flags.shape[0], [mask, pa.py_buffer(offsets)], children=[items])
