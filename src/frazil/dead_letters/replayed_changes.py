"""Letters as changes of rows: read as a task reads records, written as rows, before anything is looked up in the table."""

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
from frazil.decode.pieces import read_in_pieces
from frazil.rows.record_timestamps import refuse_far_times
from frazil.schema.arrow import pick
from frazil.types import TaskReport, Touched
from frazil.upsert.change_rows import ChangeRows, rank
from frazil.upsert.changes import TRUNCATE, Changes
from frazil.upsert.deduplicate import Ranked, concat_ranked, load_ranked
from frazil.upsert.live_rows import has_column
from frazil.upsert.read_changes import read_checked, refuse, rows_of
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_ALL = 2**31
_EMPTYING = "a truncate deletes all rows, and it is unknown which rows are newer"


class Draft:
    """Takes letters for as long as nothing is found that must be there first; all of them are in memory until `finish`.

    topics: of the letters. stamps: of the records that were taken, by place, also of those that were not read. mismatches:
    of those that cannot be changes, what is wrong with them. truncates: those among the letters, which all stay. lost: as
    in ChangeRows. report: as a task's, of no letters; None unless it is finished.
    """

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self.target = target
        self.topics = tuple(topics)
        self.needs = Needs()
        self.stamps: dict[Place, Stamp] = {}
        self.mismatches: dict[Place, Mismatch] = {}
        self.truncates: list[Ranked] = []
        self.report: TaskReport | None = None
        self.writer = FileWriter(target)
        self._rows = ChangeRows(target, self.topics)
        self._ranked: list[Ranked] = []

    @property
    def lost(self) -> set[Place]:
        """Rows that got another key, and nobody knows the row of the old one."""
        return self._rows.lost

    @property
    def changes(self) -> Ranked:
        """All changes of all letters; there is one at least."""
        return concat_ranked(self._ranked)

    @property
    def latest(self) -> Ranked:
        """What is left of them, as a task reports it."""
        assert self.report is not None
        return load_ranked(self.report.touched[0].keys)

    def take(self, dead_letters: pa.RecordBatch) -> None:
        """Letters that are to be retried; those that nobody can read without ending are misfits."""
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
        """Ends the files; False where they are of no use, as something is needed first or rows are lost."""
        if not self.needs.is_met:
            return False
        keys, held, count = self._rows.finish(self.writer)
        if self.lost:
            return False
        files = tuple(self.writer.finish())
        touched = (Touched(keys, held, tuple(file.path for file in files), count),) if keys else ()
        self.report = TaskReport(table=self.target.name, files=files, touched=touched)
        return True

    def _take(self, topic: str, dead_letters: pa.RecordBatch) -> None:
        def read(records: Mapping[str, pa.Array]) -> Changes:
            changes = read_checked(self.target, topic, records, _ALL)
            return replace(changes, decoded=refuse_far_times(self.target, records, changes.decoded, _ALL))

        for some, records, changes in read_in_pieces(dead_letters, read, self.target.reading.room, records_of):
            self._take_read(topic, some, records, changes)

    def _take_read(
        self, topic: str, dead_letters: pa.RecordBatch, records: Mapping[str, pa.Array], changes: Changes
    ) -> None:
        self.needs.note(changes.decoded, [topic], self.target.fixed)
        self.needs.key_columns = self.needs.key_columns or changes.key_columns
        if not self.needs.is_met:
            return
        told = changes.without_refused()
        self._note_truncates(topic, told.only(told.ops == TRUNCATE), records)
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
        """What ingestion can do and a letter cannot: it does not come in its place."""
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
