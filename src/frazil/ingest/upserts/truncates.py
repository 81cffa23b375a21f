"""Truncates that have a place among the changes of all partitions: which changes and which rows they take away.

A source writes a truncate to one partition, whichever it is, and the changes of the others may come long before it and long
after. So it is no change of a batch, but a place in the source's order, which the table's progress keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.catalog.scans import LiveFile
from frazil.errors import RecordError, SpecError
from frazil.ingest.target import TableTarget
from frazil.ingest.upserts.changes import TRUNCATE, Changes
from frazil.ingest.upserts.fold import Ranked
from frazil.ingest.upserts.live_rows import read_columns
from frazil.ingest.upserts.resolve import Found, Hits, live_hits

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Parted:
    """Changes of a batch, apart from truncates that are none. kept: which they are. emptied: the place of the newest
    truncate; empty: there was none. unplaced: which are truncates without a place.
    """

    kept: Bools
    emptied: str
    unplaced: Bools


def part_truncates(target: TableTarget, changes: Changes) -> Parted:
    """Takes the truncates out, unless they have their place by arrival: in the only partition those that have no other."""
    assert target.changes is not None
    is_placed = have_place(target, changes)
    is_unplaced = (changes.ops == TRUNCATE) & ~is_placed & (not target.changes.is_one_partition)
    newest = ""
    if changes.order is not None and is_placed.any():
        newest = pc.max(changes.order.filter(pa.array(is_placed))).as_py()
    return Parted(~(is_placed | is_unplaced), newest, is_unplaced)


def have_place(target: TableTarget, changes: Changes) -> Bools:
    """The truncates that have a place among the changes of all partitions."""
    assert target.changes is not None
    if not target.changes.has_source_order or changes.order is None:
        return np.zeros(changes.ops.size, np.bool_)
    return np.asarray((changes.ops == TRUNCATE) & np.asarray(changes.order.is_valid()), np.bool_)


def unplaced(place: tuple[str, int, int]) -> RecordError:
    """What stops a table at such a truncate: taken where it arrives, it would take newer rows and leave older ones."""
    topic, partition, offset = place
    return RecordError(
        "a truncate has no place among the changes of other partitions",
        topic=topic,
        partition=partition,
        offset=offset,
        remedy="begin the table anew, with `metadata: [source_order]` and `order_by: _source_order`, or from a topic of one "
        "partition",
    )


def is_truncated(target: TableTarget, keys: Ranked, emptied: str) -> Bools:
    """Which changes are from before the truncate at the place `emptied`; none where that is empty."""
    assert target.changes is not None
    if not emptied or keys.order is None or not target.changes.has_source_order:
        return np.zeros(len(keys), np.bool_)
    return np.asarray(pc.fill_null(pc.less(keys.order, emptied), False), np.bool_)


def find_truncated(target: TableTarget, files: Sequence[LiveFile], emptied: str) -> list[Hits]:
    """The live rows from before the truncate at the place `emptied`, whatever their keys are. OSError as the store,
    SpecError where rows do not tell; in the only partition such a row is one that was there before all changes.
    """
    assert target.changes is not None
    column, found = target.changes.order_by, []
    for file in files:
        (order,) = read_columns(target, file, [(column,)])
        stays = np.asarray(pc.fill_null(pc.greater_equal(order, emptied), False))
        hits = live_hits(target, file, np.flatnonzero(~stays))
        if order.take(pa.array(hits.rows)).null_count and not target.changes.is_one_partition:
            raise SpecError(
                f"rows have no value in the column {column}, and a truncate takes away those that are older",
                remedy="begin the table anew",
                where=target.name,
            )
        if hits.rows.size:
            found.append(hits)
    return found


def without_rows(found: Found, gone: Sequence[Hits]) -> Found:
    """What was found, but for these rows."""
    if not gone:
        return found
    rows = {hits.file.path: hits.rows for hits in gone}
    left = []
    for hits in found.hits:
        stays = ~np.isin(hits.rows, rows.get(hits.file.path, ()))
        left.append(replace(hits, rows=hits.rows[stays], keys=hits.keys[stays]))
    return replace(found, hits=[hits for hits in left if hits.rows.size])
