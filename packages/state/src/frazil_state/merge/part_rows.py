"""The records of one table in one task, merged into parts: one for each key and partition.

No row is written by the task, because each needs the row in the table: the driver writes them
(`frazil_state.merge.state`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Ints, Records, one_array
from frazil.stages.changes import DELETE, UPSERT, Changes
from frazil.upsert.change_rows import only
from frazil.upsert.deduplicate import comparable, dump_table
from frazil.upsert.records.read_changes import keys_of
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from frazil_state.merge.functions import ADDING, merged_columns
from frazil_state.merge.parts import FILLED, FRESH, KEY, PLACES, PUT, Merging, group_parts, limb_names, sketch_names
from frazil_state.merge.sessions import in_sessions
from frazil_state.merge.sketch_kinds import SKETCHES
from frazil_state.merge.sums import split, zero

_COMBINE_AT = 250_000
CUT = "\x00cut"
"""Column of a task's parts: whether the part is the place of a delete of all rows, before which no record counts. bool."""


def merging_of(target: TableTarget) -> Merging:
    """Returns how the parts of a table are merged."""
    assert target.changes is not None
    return Merging(merged_columns(target), target.changes.order_by)


class PartRows:
    """Collects the records of one table; `finish` returns the parts. It has the place of `change_rows.ChangeRows`."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self._target = target
        self._topics = topics
        self._merging = merging_of(target)
        self._combined: pa.Table | None = None
        self._parts: list[pa.Table] = []
        self._pending = 0
        self._count = 0
        self._cut: tuple[int, ...] | None = None

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Records) -> None:
        """Adds changes of one topic, as `ChangeRows.take`."""
        source = self._topics.index(topic)
        cuts = np.flatnonzero(~changes.have_keys)
        if cuts.size:
            at = int(cuts[-1])
            self._combined, self._parts, self._pending = None, [], 0
            self._cut = (source, records["partition"][at].as_py(), records["offset"][at].as_py(), 0)
            rows, changes, records = only(np.arange(changes.ops.size) > at, rows, changes, records)
        self._count += changes.ops.size
        if changes.ops.size:
            self._parts.append(parts_of(self._target, self._merging, source, rows, changes, records))
            self._pending += changes.ops.size
        combined_count = 0 if self._combined is None else len(self._combined)
        # With mostly new keys, growing lots keep the total work small.
        if self._pending >= max(_COMBINE_AT, combined_count):
            self._combine()

    def finish(self, _: FileWriter) -> tuple[str, str, int]:
        """Returns the parts serialized as text, no buffered rows, and the number of changes taken."""
        self._combine()
        parts = self._combined
        self._combined = None
        if parts is None and self._cut is None:
            return "", "", 0
        tables = [] if parts is None else [parts.append_column(CUT, pa.array(np.zeros(len(parts), np.bool_)))]
        if self._cut is not None:
            tables.append(self._cut_part())
        return dump_table(pa.concat_tables(tables)), "", max(1, self._count)

    def _combine(self) -> None:
        if not self._parts:
            return
        earlier = [self._combined] if self._combined is not None else []
        parts = pa.concat_tables([*earlier, *self._parts]).combine_chunks()
        self._parts, self._pending = [], 0
        groups = group_parts(parts, by_partition=True)
        self._combined = self._merging.combine(parts, *in_sessions(self._target, parts, *groups))

    def _cut_part(self) -> pa.Table:
        """Returns a part without a key that is the place of the last delete of all rows."""
        assert self._cut is not None
        schema = self._target.arrow_schema
        rows = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], names=schema.names)
        empty = part_table(self._target, self._merging, rows, None)
        flags = {name: pa.array([False]) for name in (FRESH, FILLED, PUT)} | {CUT: pa.array([True])}
        numbers = {name: pa.array([number], pa.int64()) for name, number in zip(PLACES, self._cut, strict=True)}
        for name, values in {**numbers, **flags}.items():
            empty = empty.append_column(name, values)
        return empty


def parts_of(
    target: TableTarget, merging: Merging, source: int, rows: pa.Table, changes: Changes, records: Records
) -> pa.Table:
    """Returns each change as a part. source: the number of the topic. rows: one per change, in the schema of the files."""
    assert target.changes is not None
    count, is_put = changes.ops.size, changes.ops == UPSERT
    is_taken_off = (changes.ops == DELETE) & target.changes.retracts
    signs = np.where(is_taken_off, -1, 1) if is_taken_off.any() else None
    parts = part_table(target, merging, rows, signs)
    numbers: dict[str, Ints] = {
        PLACES[0]: np.full(count, source, np.int64),
        PLACES[1]: np.asarray(records["partition"]).astype(np.int64),
        PLACES[2]: np.asarray(records["offset"]).astype(np.int64),
        PLACES[3]: np.arange(count) - np.searchsorted(changes.records, changes.records),
    }
    flags = {FRESH: ~is_put & ~is_taken_off, FILLED: is_put | is_taken_off, PUT: is_put}
    for name, values in {**numbers, **flags}.items():
        parts = parts.append_column(name, pa.array(values))
    return parts


def part_table(
    target: TableTarget, merging: Merging, rows: pa.Table, signs: Ints | None, is_stored: bool = False
) -> pa.Table:
    """Returns the keys and the values of rows as those of parts. signs: as for `sums.split`. is_stored: whether the rows are
    those of the table, which has sketches in place of values.
    """
    assert target.changes is not None
    arrays = {f"{KEY}{n}": key for n, key in enumerate(keys_of(target, rows))}
    for column in merging.columns:
        values = one_array(rows[column.name])
        if column.is_of_key:
            values = comparable(values)  # Else the row would have the zero, or the NaN, of whichever record is last.
        if column.function in ADDING:
            if target.changes.retracts:
                # Whether a sum from which all values are subtracted has had a value is unknown.
                values = pc.coalesce(values, zero(values.type))
            arrays |= dict(zip(limb_names(column), split(values, signs), strict=True))
        elif column.function in SKETCHES:
            kind = SKETCHES[column.function]
            sketches = kind.of_images(values) if is_stored else kind.of_values(values)
            arrays |= dict(zip(sketch_names(column), sketches, strict=True))
        else:
            arrays[column.name] = values
    return pa.table(arrays)
