"""Replays dead letters into an upsert table: each applies where it is certain that no newer change of its row exists.

Dead letters are read and written once. For each version of the table the rows that they replace are looked up, they are
judged (`newer_changes`), and the rows are committed on top of exactly that version. Replayed dead letters are removed
afterwards (`pending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, Replacement, TableState
from frazil.catalog.progress import COMMIT_ID, LOOKUPS, REMOVED, REPLAY_ID, dump_lookups, is_unmoved
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.dead_letters import files as stored
from frazil.dead_letters.files import ReplayResult, Selection, places_of
from frazil.dead_letters.pending import RemovedDeadLetters, clear_mark, mark_removal, remove_dead_letters, replace_files
from frazil.dead_letters.record import UNEXPLAINED, first_mismatches
from frazil.decode.columns import Mismatch
from frazil.decode.limits import read_bounded
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, FrazilError
from frazil.failpoints import hit
from frazil.ingest.tables.queries import QueryTables
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.task import read_records
from frazil.kafka.port import TopicReaders
from frazil.report import ChangeReport, TaskReport, Touched, WrittenFiles
from frazil.rows.project import shape_rows
from frazil.schema.arrow import Bools, Records, pick
from frazil.stages.changes import UPSERT, Changes
from frazil.types import DataFile, Place, Progress, RowDelta
from frazil.upsert.change_notes import not_alone
from frazil.upsert.commit import Prepared, ValuesMissing
from frazil.upsert.deduplicate import LatestChanges, Ranked, concat_ranked
from frazil.upsert.kinds import prepare_rows
from frazil.upsert.late_records import FINAL, are_final, earliest_us, final_to_us
from frazil.upsert.lookup.live_rows import check_columns
from frazil.upsert.lookup.search import Found
from frazil.upsert.records.read_changes import refuse
from frazil.upsert.task_kinds import collect_changes
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from frazil_deadletters.newer_changes import APPLY, REASONS, REASONS_OF_WAITING, ChangeOrder, DeadLetters, find
from frazil_deadletters.requirements import Needs, endless_changes, fetch_schemas, meet, split_crashing

_TRIES = 20
_ROUNDS = 20
_ALL = 2**31


@dataclass
class _Attempt:
    """What is written for one version of the upsert table."""

    #: Data files and deletes for the upsert table, and whether that changes at all.
    prepared: Prepared = field(default_factory=lambda: Prepared((), RowDelta(None)))
    has_effect: bool = False
    #: The dead letters that remain, by place, and the files of the dead-letter table with them.
    mismatches: dict[Place, Mismatch] = field(default_factory=dict)
    added: tuple[DataFile, ...] = ()


@dataclass
class UpsertReplay:
    """The replay of selected dead letters of one upsert table."""

    catalog: Catalog
    queries: QueryTables
    schemas: Schemas | None
    #: None without access to the topics.
    readers: TopicReaders | None
    table: Table
    selection: Selection
    #: The dead-letter table as it was read, and its files with selected dead letters.
    dead_letters: TableState
    files: tuple[LiveFile, ...]
    #: The newest snapshot of the upsert table before that; None without one.
    since: int | None
    #: As of Replayer.replay.
    is_of_waiting: bool = False

    def run(self) -> ReplayResult:
        """Replays the dead letters where they still apply.

        Raises: as Replayer.replay; ConflictError where the replay must start again.
        """
        check_columns(target_of(self.table))
        for _ in range(_ROUNDS):
            self._target = target_of(self.table)
            topics = {topic for rows in self._every(("topic",)) for topic in rows["topic"].to_pylist()}
            draft, needs, writer = DeadLetters(topics), Needs(), FileWriter(self._target)
            with stored.abandoning(writer):
                report = self._read_all(draft, needs, writer)
            if not needs.is_met:
                writer.abandon()
                meet(self.catalog, self.queries, self.schemas, self.table, needs)
                continue
            try:
                return self._put(draft, report, writer)
            except ValuesMissing as missing:
                self.table.changes.missing_required |= set(missing.places(draft.topics))
        raise endless_changes(self.table)

    def _every(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        return self._pieces(self.catalog.scan(self.dead_letters.name).files, columns)

    def _pieces(self, files: Iterable[LiveFile], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        target = plain_target(self.dead_letters)
        return (rows for file in files for rows in stored.pieces(target, file, columns))

    # ---- dead letters to changes

    def _read_all(self, draft: DeadLetters, needs: Needs, writer: FileWriter) -> TaskReport:
        """Returns the report of a task with the changes to be replayed; it is of no use where something is missing."""
        changed_rows = collect_changes(self._target, draft.topics)
        for rows in self._every():
            chosen = self.selection.of(rows)
            for topic, _, records, changes in self._read_changes(draft, rows.filter(pc.invert(chosen))):
                draft.remaining += draft.ranked(self._target, topic, changes.without_refused(), records)
            for topic, places, records, changes in self._read_changes(draft, rows.filter(chosen)):
                needs.note(changes.decoded, [topic], (self._target.source or self._target).fixed)
                needs.key_columns = needs.key_columns or changes.key_columns
                if needs.is_met:
                    complete_us = final_to_us(self._target, self.table.progress)
                    kept, remaining = _divide(draft, places, records, changes, complete_us)
                    draft.earliest_us = min(draft.earliest_us, earliest_us(kept))
                    of_change = pick(records, kept.records)
                    if kept.ops.size:
                        changed_rows.take(topic, shape_rows(self._target, kept, of_change), kept, of_change)
                    draft.changes += draft.ranked(self._target, topic, kept, records)
                    draft.remaining += draft.ranked(self._target, topic, remaining, records)
            unread = [place for place in places_of(rows.filter(chosen)) if place in draft.unread]
            draft.mismatches |= {place: draft.unread[place] for place in unread}
        if not needs.is_met:
            return TaskReport(self.table.name)
        keys, buffered, count = changed_rows.finish(writer)
        data = tuple(writer.finish())
        touched = (Touched(keys, buffered, tuple(file.path for file in data), count),) if keys else ()
        return TaskReport(self.table.name, written=WrittenFiles(data), changes=ChangeReport(touched))

    def _read_changes(
        self, draft: DeadLetters, dead_letters: pa.Table
    ) -> Iterator[tuple[str, list[Place], dict[str, pa.Array], Changes]]:
        """Yields topic, places, columns and changes of dead letters, as far as they can be read."""
        readable, crashing, reasons = split_crashing(self._target, dead_letters)
        draft.places.update(places_of(dead_letters))
        draft.unread |= dict(zip(places_of(crashing), reasons, strict=True))
        columns_left, columns_of = self._target.reading.evolution.columns_left, partial(stored.records_of, self._target)
        for topic, batch in stored.by_topic(readable):
            for some, columns, changes in read_bounded(batch, partial(self._read, topic), columns_left, columns_of):
                yield topic, places_of(some), columns, changes

    def _read(self, topic: str, records: Records, is_committed: bool = False) -> Changes:
        """Returns the changes of records that may be bad, with the schemas that they name. is_committed: of records that had
        their rows of reference tables, and need not have them any more: what identifies a row is not looked up.
        """
        for _ in range(_ROUNDS):
            target = self._target.without_waits() if is_committed else self._target
            read = partial(read_records, target, topic, limit=_ALL)
            changes = self.queries.asking_spark(target, topic, read)(dict(records))
            if not changes.decoded.missing:
                break
            fetch_schemas(self.schemas, self.table, changes.decoded.missing, (topic,))
            self._target = target_of(self.table)
        return changes

    # ---- changes to rows

    def _put(self, draft: DeadLetters, report: TaskReport, writer: FileWriter) -> ReplayResult:
        """Commits the changes that apply. writer: has the rows of all of them.

        Raises: ValuesMissing where required columns have no value.
        """
        selectors, paths = self.table.spec.source.topics, tuple(file.path for file in self.files)
        only_topic = (selectors[0].literal or "") if len(selectors) == 1 else ""
        read = partial(self._read, is_committed=True)
        order = ChangeOrder(self._target, draft, only_topic, self.readers, read)
        for _ in range(_TRIES):
            attempt, removal = _Attempt(mismatches=dict(draft.mismatches)), None
            try:
                with stored.abandoning(writer):
                    progress = self._prepare(attempt, draft, report, order)
                    hit("replay.written")
                    is_replay = not self.is_of_waiting or self._has_ended(draft, attempt)
                    if is_replay and attempt.has_effect:
                        removal = self._announce(attempt.added)
            except (FrazilError, ValuesMissing):
                self._give_up(attempt)
                raise
            if removal is None:
                writer.abandon()
                if is_replay:
                    self.catalog.delete_files(self.table.name, attempt.prepared.paths)
                    replace_files(self.catalog, self.dead_letters, new_id(), paths, attempt.added)
                else:
                    self._give_up(attempt)
            if removal is None or self._commit(writer, progress, attempt, removal):
                return ReplayResult(len(draft.stamps.keys() - attempt.mismatches.keys()), len(attempt.mismatches))
        writer.abandon()
        message = "other writers change the table faster than rows can be looked up in it"
        raise ConflictError(message, where=self.table.name)

    @staticmethod
    def _has_ended(draft: DeadLetters, attempt: _Attempt) -> bool:
        """Returns whether one of the records waits no longer."""
        is_any_gone = bool(draft.stamps.keys() - attempt.mismatches.keys())
        return is_any_gone or any(bad.kind != ErrorClass.LOOKUP_WAITING for bad in attempt.mismatches.values())

    def _prepare(self, attempt: _Attempt, draft: DeadLetters, report: TaskReport, order: ChangeOrder) -> Progress:
        """Writes the deletes of rows that are replaced, and the dead letters that remain; returns the table's progress.

        Raises: ConflictError where the dead letters must be read again.
        """
        name, before = self.table.name, self.table.state
        state = self.catalog.load(name)
        if state is None or before is None or state.uuid != before.uuid:
            raise ConflictError("the table was recreated while its dead letters were read", where=name)
        if draft.earliest_us < final_to_us(self._target, state.progress):
            raise ConflictError(
                "windows of the table have become complete while its dead letters were read", where=name
            )
        if not is_unmoved(self.catalog.history(name, (REPLAY_ID, COMMIT_ID)), self.since, state.progress.commit_id):
            raise ConflictError("other replays of dead letters are running", where=name)

        def are_late(changes: Ranked, latest: LatestChanges, live_rows: Found) -> Bools:
            keys, every = changes.take(latest.last), concat_ranked(draft.changes)
            verdicts = order.verdicts(changes, latest, live_rows, state.progress)
            is_live = np.isin(np.arange(len(keys)), live_rows.keys())
            attempt.has_effect = bool(((verdicts == APPLY) & ((keys.ops == UPSERT) | is_live)).any())
            judged = zip(draft.places_of(every), verdicts[find(keys, every)].tolist(), strict=True)
            reasons = REASONS if not self.is_of_waiting else REASONS_OF_WAITING
            attempt.mismatches |= {
                place: Mismatch(0, "", *reasons[verdict]) for place, verdict in judged if verdict in reasons
            }
            return np.asarray(verdicts != APPLY, np.bool_)

        if report.changes.touched:
            attempt.prepared = prepare_rows(self.catalog, self._target, state, report, are_late)
        writer = FileWriter(plain_target(self.dead_letters))
        with stored.abandoning(writer):
            for rows in self._pieces(self.files):
                chosen = self.selection.of(rows)
                stored.write_some(writer, rows.filter(pc.invert(chosen)))
                mine = rows.filter(chosen)
                reasons = [attempt.mismatches.get(place) for place in places_of(mine)]
                left = mine.filter(pa.array([reason is not None for reason in reasons], pa.bool_()))
                stored.write_some(writer, stored.with_new_reason(left, [reason for reason in reasons if reason]))
            attempt.added = tuple(writer.finish())
        return state.progress

    def _announce(self, added: tuple[DataFile, ...]) -> RemovedDeadLetters:
        read_at, paths = self.dead_letters.head_id, tuple(file.path for file in self.files)
        assert read_at is not None
        removal = RemovedDeadLetters(new_id(), self.table.name, self.since, read_at, paths, added)
        mark_removal(self.catalog, self.dead_letters.name, removal)
        hit("replay.marked")
        return removal

    def _commit(self, writer: FileWriter, progress: Progress, attempt: _Attempt, removal: RemovedDeadLetters) -> bool:
        """Commits the rows and then removes the dead letters; returns False where the table has changed since it was
        looked up.
        """
        prepared, dead_letters, table = attempt.prepared, self.dead_letters.name, self.table.name
        lookups = dump_lookups(self.table.schema.reference_versions)
        summary = {REMOVED: removal.dump()} | ({LOOKUPS: lookups} if lookups else {})
        rows = Replacement(table, prepared.files, prepared.delta, progress, removal.since, removal.id, summary)
        try:
            self.catalog.replace_once(rows)
        except ConflictError:
            with stored.abandoning(writer):
                self._give_up(attempt)
                clear_mark(self.catalog, dead_letters, removal.id)
            return False
        self.catalog.delete_files(table, prepared.unused)
        hit("replay.replaced")
        remove_dead_letters(self.catalog, dead_letters, removal)
        clear_mark(self.catalog, dead_letters, removal.id)
        hit("replay.done")
        return True

    def _give_up(self, attempt: _Attempt) -> None:
        """Deletes files that no commit can name any more."""
        self.catalog.delete_files(self.table.name, attempt.prepared.paths)
        self.catalog.delete_files(self.dead_letters.name, [file.path for file in attempt.added])


def _divide(
    draft: DeadLetters, places: list[Place], records: Records, changes: Changes, complete_us: int
) -> tuple[Changes, Changes]:
    """Returns the changes that may apply, and those of readable records that remain: ingestion applies these in place, and
    a dead letter cannot. complete_us: the time up to which windows are complete for good.
    """
    readable, refused = changes.without_refused(), changes.decoded.refused
    mismatches = first_mismatches(changes.decoded)
    for mask, reason in not_alone(readable):
        mismatches |= {bad.row: bad for bad in refuse(readable, mask, "", ErrorClass.ORDER_UNKNOWN, reason, _ALL)}
    final = are_final(readable, complete_us)
    mismatches |= {bad.row: bad for bad in refuse(readable, final, "", ErrorClass.LATE, FINAL, _ALL)}
    draft.mismatches |= {places[row]: mismatches.get(row, UNEXPLAINED) for row in np.flatnonzero(refused).tolist()}
    times_ms = [None if us is None else us // 1000 for us in records["timestamp"].cast(pa.int64()).to_pylist()]
    draft.stamps |= dict(zip(places, zip(records["key"].to_pylist(), times_ms, strict=True), strict=True))
    return readable.without_refused(), readable.only(refused[readable.records])
