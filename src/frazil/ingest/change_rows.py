"""A task's changes of one table: kept until all are there, folded, and written as rows.

Rows that wait for values of the row they replace, or for the changes of other tasks, are not written: the driver writes
those that it takes (see `ingest.upsert`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.ingest.changes import UPSERT, Changes
from frazil.ingest.fold import (
    Folded,
    Ints,
    Ranked,
    concat_ranked,
    dump_ranked,
    dump_table,
    fold,
    previous_places,
)
from frazil.ingest.row_changes import key_of
from frazil.ingest.target import TableTarget
from frazil.ingest.write import FileWriter

_FOLD_AT = 1_000_000
KEY_PLACE = "\x00key"
"""A column of held rows: the place of the row's key in the touched keys."""
WAITING = "\x00waits:"
"""How columns of held rows begin that say whether a column waits for the value of the old row."""


@dataclass(frozen=True)
class _Part:
    """Changes with their rows. waits: by column of the table the rows that have no value of their own for it."""

    ranked: Ranked
    rows: pa.Table
    waits: Mapping[str, NDArray[np.bool_]]
    count: int


class ChangeRows:
    """Takes changes in any order; `finish` writes what is left of them."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self._target = target
        self._topics = topics
        self._parts: list[_Part] = []
        self._pending = 0

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Mapping[str, pa.Array]) -> None:
        """Changes with a row of the files' schema each. records: their records' columns, as many as there are changes."""
        assert self._target.changes is not None
        keys = tuple(key_of(rows, path) for path in self._target.changes.paths)
        count = changes.ops.size
        order = changes.order
        ranked = Ranked(
            keys,
            changes.ops,
            np.full(count, self._topics.index(topic), np.int64),
            np.asarray(records["partition"]).astype(np.int64),
            np.asarray(records["offset"]).astype(np.int64),
            np.arange(count) - np.searchsorted(changes.records, changes.records),
            np.asarray(order.is_null()) if order is not None else np.zeros(count, np.bool_),
            order,
        )
        names = [field.name for field in self._target.fields]
        self._parts.append(_Part(ranked, rows, {names[n]: m for n, m in changes.unavailable.items()}, count))
        self._pending += count
        if self._pending >= _FOLD_AT:
            self._fold()

    def finish(self, writer: FileWriter) -> tuple[str, str, int]:
        """Writes a row of each key that has all its values; keys and held rows as text, and the count of changes."""
        if not self._parts:
            return "", "", 0
        if self._pending:
            self._fold()
        (part,) = self._parts
        waiting = np.zeros(len(part.ranked), np.bool_)
        for mask in part.waits.values():
            waiting |= mask
        if part.ranked.order is not None:
            # One row of a key is written; what may come to decide in its place is held as well.
            is_last = np.zeros(waiting.size, np.bool_)
            is_last[fold(part.ranked).last] = True
            waiting |= ~is_last
        is_row = part.ranked.ops == UPSERT
        waiting &= is_row
        is_complete = is_row & ~waiting
        complete = part.rows if is_complete.all() else part.rows.filter(pa.array(is_complete))
        if complete.num_rows:
            writer.write(complete)
        held = ""
        if waiting.any():
            held = dump_table(_held(part, np.flatnonzero(waiting)))
        return dump_ranked(part.ranked), held, part.count

    def _fold(self) -> None:
        whole = _concat(self._parts)
        folded = fold(whole.ranked)
        self._pending = 0
        if folded.kept.size == len(whole.ranked) and not whole.waits and folded.cut < 0:
            self._parts = [whole]  # No key was there twice.
            return
        rows, waits = _fill(whole, folded)
        self._parts = [_Part(whole.ranked.take(folded.kept), rows, waits, whole.count)]


def _concat(parts: Sequence[_Part]) -> _Part:
    names = {name for part in parts for name in part.waits}
    waits = {
        name: np.concatenate([part.waits.get(name, np.zeros(len(part.ranked), np.bool_)) for part in parts])
        for name in sorted(names)
    }
    ranked = concat_ranked([part.ranked for part in parts])
    return _Part(ranked, pa.concat_tables([part.rows for part in parts]), waits, sum(part.count for part in parts))


def _fill(part: _Part, folded: Folded) -> tuple[pa.Table, dict[str, NDArray[np.bool_]]]:
    """The rows of the changes that are kept, with values of the changes before them where they have none of their own; and
    which values still wait for the old row.
    """
    kept, waits = folded.kept, {}
    rows = part.rows.take(pa.array(kept))
    masks = {name: mask for name, mask in part.waits.items() if mask[kept].any()}
    before = previous_places(part.ranked) if masks else kept
    for name, mask in masks.items():
        sources, waiting = _sources(part.ranked, before, mask, kept)
        place = rows.schema.get_field_index(name)
        column = part.rows.column(place).take(pa.array(sources, mask=sources < 0))
        rows = rows.set_column(place, rows.schema.field(place), column)
        if waiting.any():
            waits[name] = waiting
    # After a truncate there is no old row whose values could stay.
    return rows, waits if folded.cut < 0 else {}


def _sources(ranked: Ranked, before: Ints, mask: NDArray[np.bool_], kept: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Per kept change the place whose value it has: -1 for a null; and whether the old row has it."""
    sources, waiting = kept.copy(), np.zeros(kept.size, np.bool_)
    for n in np.flatnonzero(mask[kept] & (ranked.ops[kept] == UPSERT)).tolist():
        at = int(kept[n])
        while at >= 0 and ranked.ops[at] == UPSERT and mask[at]:
            at = int(before[at])
        waiting[n] = at < 0
        sources[n] = at if at >= 0 and ranked.ops[at] == UPSERT else -1
    return sources, waiting


def _held(part: _Part, rows: Ints) -> pa.Table:
    held = part.rows.take(pa.array(rows)).append_column(KEY_PLACE, pa.array(rows))
    for name, mask in part.waits.items():
        held = held.append_column(WAITING + name, pa.array(mask[rows]))
    return held
