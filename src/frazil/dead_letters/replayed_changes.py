"""Dead letters as changes of rows: read and written as in a task, before anything is looked up in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.dead_letters.crashing import still_crashing
from frazil.dead_letters.files import Place, places_of, records_of
from frazil.dead_letters.newer_changes import Stamp
from frazil.dead_letters.record import UNEXPLAINED, first_mismatches
from frazil.dead_letters.requirements import Needs
from frazil.decode.columns import Mismatch
from frazil.decode.pieces import read_bounded
from frazil.report.changes import ChangeReport, Touched
from frazil.report.files import WrittenFiles
from frazil.report.task_report import TaskReport
from frazil.rows.record_timestamps import refuse_far_times
from frazil.schema.arrow import pick
from frazil.upsert.change_rows import ChangeRows, rank
from frazil.upsert.changes import TRUNCATE, Changes
from frazil.upsert.deduplicate import Ranked, concat_ranked, load_ranked
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.read_changes import read_checked, refuse, rows_of
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_ALL = 2**31
_EMPTYING = "a truncate deletes all rows, and it is unknown which rows are newer"


class Draft:
    """Reads dead letters until a missing schema or column is found; all of them are in memory until `finish`."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self.target = target
        #: The topics of the dead letters.
        self.topics = tuple(topics)
        self.needs = Needs()
        #: By place, the stamps of the records taken, also of those that were not read.
        self.stamps: dict[Place, Stamp] = {}
        #: By place, the mismatch of each record that cannot become a change.
        self.mismatches: dict[Place, Mismatch] = {}
        #: The truncates among the dead letters, which all remain.
        self.truncates: list[Ranked] = []
        #: The report of a task with these changes; None before `finish`.
        self.report: TaskReport | None = None
        self.writer = FileWriter(target)
        self._rows = ChangeRows(target, self.topics)
        self._ranked: list[Ranked] = []

    @property
    def lost(self) -> set[Place]:
        """Primary-key updates whose old row is unknown."""
        return self._rows.lost

    @property
    def changes(self) -> Ranked:
        """All changes of all dead letters, of which there is at least one."""
        return concat_ranked(self._ranked)

    @property
    def latest(self) -> Ranked:
        """The changes after deduplication, as a task reports them."""
        assert self.report is not None
        return load_ranked(self.report.changes.touched[0].keys)

    def take(self, dead_letters: pa.RecordBatch) -> None:
        """Reads dead letters to be replayed; those that crash their reader are mismatches."""
        crashing = still_crashing(self.target, pa.Table.from_batches([dead_letters]))
        if crashing:
            self.mismatches |= crashing
            is_bad = pa.array([place in crashing for place in places_of(dead_letters)], pa.bool_())
            bad = dead_letters.filter(is_bad)
            self.stamps |= dict(zip(places_of(bad), _stamps(records_of(bad)), strict=True))
            dead_letters = dead_letters.filter(pc.invert(is_bad))
        for topic in pc.unique(dead_letters.column("topic")).to_pylist():
            self._take(topic, dead_letters.filter(pc.equal(dead_letters.column("topic"), topic)))

    def finish(self) -> bool:
        """Closes the files; returns False where they cannot be used, because something is missing or values are lost."""
        if not self.needs.is_met:
            return False
        keys, held, count = self._rows.finish(self.writer)
        if self.lost:
            return False
        files = tuple(self.writer.finish())
        touched = (Touched(keys, held, tuple(file.path for file in files), count),) if keys else ()
        self.report = TaskReport(
            table=self.target.name, written=WrittenFiles(data=files), changes=ChangeReport(touched=touched)
        )
        return True

    def _take(self, topic: str, dead_letters: pa.RecordBatch) -> None:
        def read(records: Mapping[str, pa.Array]) -> Changes:
            changes = read_checked(self.target, topic, records, _ALL)
            return replace(changes, decoded=refuse_far_times(self.target, records, changes.decoded, _ALL))

        for some, records, changes in read_bounded(dead_letters, read, self.target.reading.columns_left, records_of):
            self._take_read(topic, some, records, changes)

    def _take_read(
        self, topic: str, dead_letters: pa.RecordBatch, records: Mapping[str, pa.Array], changes: Changes
    ) -> None:
        self.needs.note(changes.decoded, [topic], self.target.fixed)
        self.needs.key_columns = self.needs.key_columns or changes.key_columns
        if not self.needs.is_met:
            return
        readable = changes.without_refused()
        self._note_truncates(topic, readable.only(readable.ops == TRUNCATE), records)
        known = first_mismatches(changes.decoded) | {mismatch.row: mismatch for mismatch in self._refuse(changes)}
        places = places_of(dead_letters)
        self.stamps |= dict(zip(places, _stamps(records), strict=True))
        for row in np.flatnonzero(changes.decoded.refused).tolist():
            self.mismatches[places[row]] = known.get(row, UNEXPLAINED)
        kept = changes.without_refused()
        if kept.ops.size:
            of_change = pick(records, kept.records)
            rows = rows_of(self.target, kept, of_change)
            self._rows.take(topic, rows, kept, of_change)
            self._ranked.append(rank(self.target, self.topics.index(topic), rows, kept, of_change))

    def _note_truncates(self, topic: str, truncates: Changes, records: Mapping[str, pa.Array]) -> None:
        if truncates.ops.size:
            of_change = pick(records, truncates.records)
            rows = rows_of(self.target, truncates, of_change)
            self.truncates.append(rank(self.target, self.topics.index(topic), rows, truncates, of_change))

    def _refuse(self, changes: Changes) -> list[Mismatch]:
        """Refuses changes that ingestion applies in place and a dead letter cannot."""
        reading = self.target.changes
        assert reading is not None
        found = refuse(changes, changes.ops == TRUNCATE, "", "order_unknown", _EMPTYING, _ALL)
        for path, name in zip(reading.paths, reading.key_columns, strict=True):
            if not has_column(self.target, path):
                lacks = np.ones(changes.ops.size, np.bool_)
                found += refuse(changes, lacks, name, "no_key", f"the key column {name} has no value", _ALL)
        return found


def _stamps(records: Mapping[str, pa.Array]) -> Iterator[Stamp]:
    times = records["timestamp"].cast(pa.int64()).to_pylist()
    for key, at_us in zip(records["key"].to_pylist(), times, strict=True):
        yield key, None if at_us is None else at_us // 1000
