"""The changes of one table in one task, each with its row and its place in the order of records.

No row is written by the task, because each needs the versions in the table: the driver writes them
(`frazil_state.history.commit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints, Records, is_every, one_array
from frazil.stages.changes import DELETE, UPSERT, Changes
from frazil.upsert.deduplicate import Ranked, dump_table, key_codes, load_table
from frazil.upsert.records.read_changes import keys_of
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from frazil_state.history.times import micros

_DELETE, _PLACED = "\x00delete", "\x00placed"
"""Columns of reported rows: whether the change is a delete; whether it has a time in the order of versions. bool."""
_PLACES = ("\x00source", "\x00partition", "\x00offset", "\x00step")
"""Columns with the place of the change: the number of the topic, partition, offset, and its index among the changes of
its record. int64.
"""


class EventRows:
    """Collects the changes of one table; `finish` returns them. It has the place of `change_rows.ChangeRows`."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self._target, self._topics = target, topics
        self._rows: list[pa.Table] = []

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Records) -> None:
        """Adds changes of one topic, as `ChangeRows.take`."""
        count = changes.ops.size
        if not count:
            return
        is_placed = np.asarray(changes.order.is_valid()) if changes.order is not None else np.zeros(count, np.bool_)
        columns = {
            _DELETE: changes.ops == DELETE,
            _PLACED: is_placed,
            _PLACES[0]: np.full(count, self._topics.index(topic), np.int64),
            _PLACES[1]: np.asarray(records["partition"]).astype(np.int64),
            _PLACES[2]: np.asarray(records["offset"]).astype(np.int64),
            _PLACES[3]: np.arange(count) - np.searchsorted(changes.records, changes.records),
        }
        for name, values in columns.items():
            rows = rows.append_column(name, pa.array(values))
        self._rows.append(rows)

    def finish(self, _: FileWriter) -> tuple[str, str, int]:
        """Returns the changes serialized as text, no buffered rows, and their number."""
        if not self._rows:
            return "", "", 0
        rows, self._rows = pa.concat_tables(self._rows), []
        return dump_table(rows), "", rows.num_rows


@dataclass(frozen=True)
class Events:
    """The changes of a batch in the order of their records. Arrays have the shape `(n_events,)`."""

    #: The row of each change, in the schema of the files, with its time in `valid_from`.
    rows: pa.Table
    #: Its time in microseconds.
    times: Ints
    #: Whether the change is a delete.
    are_deletes: Bools
    #: Whether the change belongs at its time among the versions; otherwise it is the newest, whatever its time.
    are_placed: Bools
    #: The index of its key among the distinct keys.
    codes: Ints
    #: The distinct keys, each with the place of its last change.
    keys: Ranked

    def only(self, kept: Bools) -> Events:
        """Returns the changes of these keys, bool `(n_keys,)`. Indexes of keys stay as they are."""
        mask = kept[self.codes]
        if mask.all():
            return self
        rows = self.rows.filter(pa.array(mask))
        return Events(
            rows, self.times[mask], self.are_deletes[mask], self.are_placed[mask], self.codes[mask], self.keys
        )


def load_events(target: TableTarget, report: TaskReport, *, is_placed: bool = False) -> Events:
    """Returns the changes of all tasks of `report`, of which at least one has some. is_placed: every change belongs at its
    time, as that of a dead letter which is replayed.
    """
    tables = [load_table(touched.keys) for touched in report.changes.touched]
    rows = pa.concat_tables(tables).combine_chunks()
    places = [np.asarray(one_array(rows[name])) for name in _PLACES]
    order = np.lexsort(places[::-1])
    if not is_every(order, order.size):
        rows, places = rows.take(pa.array(order)), [numbers[order] for numbers in places]
    are_deletes, are_placed = (np.asarray(one_array(rows[name])) for name in (_DELETE, _PLACED))
    rows = rows.drop_columns([_DELETE, _PLACED, *_PLACES]).combine_chunks()
    keys = keys_of(target, rows)
    codes = key_codes(keys)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(codes.size)  # Of equal indexes the last assignment is kept.
    last.sort()
    numbers = np.empty(last.size, np.int64)
    numbers[codes[last]] = np.arange(last.size)
    assert target.changes is not None
    assert target.changes.history is not None
    times = micros(one_array(rows[target.changes.history.valid_from]), 0)
    ops = np.where(are_deletes[last], DELETE, UPSERT).astype(np.int8)
    distinct = tuple(key.take(pa.array(last)) for key in keys)
    none = np.zeros(last.size, np.bool_)
    source, partition, offset, step = (place[last] for place in places)
    ranked = Ranked(distinct, ops, source, partition, offset, step, none)
    return Events(rows, times, are_deletes, are_placed | is_placed, numbers[codes], ranked)
