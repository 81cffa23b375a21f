"""Replays and drops dead letters.

One commit removes them from their dead-letter table and names the pending files with their rows.

Dead letters are read and written exactly as a task reads and writes records, with the current schemas, columns and
code. The progress of both tables stays unchanged, so ingestion continues meanwhile (docs/decisions/0010). Upsert tables
are replayed by `replay_upserts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.progress import REPLAY, dump_lookups
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.dead_letters.files import (
    ReplayResult,
    Selection,
    abandoning,
    pieces,
    records_of,
    with_new_reason,
    write_some,
)
from frazil.dead_letters.pending import (
    PendingReplay,
    clear_mark,
    commit_pending,
    has_open_replays,
    leave_out,
    mark_replay,
    replace_files,
    settle_replays,
    touched,
)
from frazil.dead_letters.record import UNEXPLAINED, first_mismatches
from frazil.dead_letters.tables import DeadLetterTables
from frazil.decode.limits import read_bounded
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, FrazilError, SpecError
from frazil.failpoints import hit
from frazil.ingest.tables.queries import Queries, QueryTables
from frazil.ingest.tables.schema_changes import declared_adder
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.ingest.tasks.task import read_records
from frazil.kafka.port import TopicReaders
from frazil.rows.project import shape_rows
from frazil.schema.arrow import pick
from frazil.stages.changes import Changes
from frazil.types import DataFile
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from frazil_deadletters.replay_upserts import UpsertReplay
from frazil_deadletters.requirements import Needs, endless_changes, meet, split_crashing

_TRIES = 10
_ROUNDS = 20
_ALL = 2**31
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Written:
    """Files that no snapshot names yet."""

    #: Data files for the table.
    rows: tuple[DataFile, ...]
    #: Data files for the dead-letter table, with the dead letters that remain.
    dead_letters: tuple[DataFile, ...]
    #: Paths of the dead-letter table's files that `dead_letters` replace.
    removed: tuple[str, ...]
    #: The number of dead letters whose rows are in `rows`.
    replayed: int
    #: The number of selected dead letters.
    selected: int
    #: Whether one of them has become another one than a record that waits for a row of a reference table.
    has_effect: bool


class Replayer:
    """Replays and drops the dead letters of one table at a time. schemas: None without a schema registry.
    topic_readers: access to the topics, which have the changes after a dead letter; None without access. queries: analyses
    the queries of tables; None where no table has one.
    """

    def __init__(
        self,
        catalog: Catalog,
        schemas: Schemas | None,
        topic_readers: TopicReaders | None = None,
        queries: Queries | None = None,
    ) -> None:
        self._catalog = catalog
        self._queries = QueryTables(catalog, queries)
        self._schemas = schemas
        self._topic_readers = topic_readers
        self._tables = DeadLetterTables(catalog)

    def settled(self, table: Table) -> TableState | None:
        """Returns the dead-letter table after every pending commit to it and every earlier replay is finished; None
        where there is none.

        Raises: TableStopped where that is impossible; UnavailableError and ConflictError as the catalog.
        """
        table.state = self._catalog.load(table.name)
        self._tables.deliver(table.name, table.progress)
        for _ in range(_TRIES):
            dead_letters = self._catalog.load(table.dead_letter_table_name)
            if dead_letters is None or not has_open_replays(dead_letters):
                return dead_letters
            settle_replays(self._catalog, dead_letters)
        raise _in_the_way(table)

    def replay(self, table: Table, selection: Selection, is_of_waiting: bool = False) -> ReplayResult:
        """Replays the selected dead letters: those whose records fit now become rows; the others remain, with the
        current reason. May be called again after any exception or crash. is_of_waiting: whether they are records that wait
        for a row of a reference table: nothing is committed where all of them still do, and those that a newer change has
        replaced meanwhile are removed.

        Raises: SpecError where the table does not exist, or cannot have the columns that the dead letters need;
        otherwise as `settled`.
        """

        def act(dead_letters: TableState) -> ReplayResult:
            if table.state is None:
                raise SpecError(
                    "the table of the dead letters does not exist",
                    remedy="start `frazil run`, which creates the table",
                    where=table.name,
                )
            files = touched(self._catalog, dead_letters, selection.of, list(vars(selection)))
            if not files:
                return ReplayResult()
            since = table.state.head_id
            table.state = self._catalog.evolve(table.name, declared_adder(table.spec))
            if table.spec.has_query:
                table.state = self._queries.load(table)
            if table.spec.changes.mode == "upsert":
                services = (self._catalog, self._queries, self._schemas, self._topic_readers)
                return UpsertReplay(*services, table, selection, dead_letters, tuple(files), since, is_of_waiting).run()
            written = self._write(table, dead_letters, files, selection)
            if is_of_waiting and not written.has_effect:
                self._catalog.delete_files(dead_letters.name, [file.path for file in written.dead_letters])
            else:
                self._commit(table, dead_letters, written)
            return ReplayResult(written.replayed, written.selected - written.replayed)

        return self._tried(table, act) or ReplayResult()

    def drop(self, table: Table, selection: Selection) -> int:
        """Deletes the selected dead letters for good; returns their number.

        Raises: as `settled`.
        """
        columns = list(vars(selection))
        return (
            self._tried(
                table, lambda dead_letters: leave_out(self._catalog, dead_letters, selection.of, columns, new_id())
            )
            or 0
        )

    def _tried(self, table: Table, act: Callable[[TableState], _T]) -> _T | None:
        """Returns what `act` returns for the dead-letter table, again after conflicts; None where there is no such table."""
        for _ in range(_TRIES):
            dead_letters = self.settled(table)
            if dead_letters is None:
                return None
            with suppress(ConflictError):
                return act(dead_letters)
        raise _in_the_way(table)

    # ---- writing

    def _write(
        self, table: Table, dead_letters: TableState, files: Sequence[LiveFile], selection: Selection
    ) -> _Written:
        """Writes the rows and the remaining dead letters, after schemas and columns that they need are there."""
        for _ in range(_ROUNDS):
            attempt = _Attempt(target_of(table), plain_target(dead_letters), selection, self._queries)
            with abandoning(attempt.writer, attempt.dead_letter_writer):
                for file in files:
                    for rows in pieces(attempt.dead_letters, file):
                        attempt.take(rows)
                if attempt.needs.is_met:
                    return attempt.finish([file.path for file in files])
            attempt.abandon()
            meet(self._catalog, self._queries, self._schemas, table, attempt.needs)
        raise endless_changes(table)

    # ---- committing

    def _commit(self, table: Table, dead_letters: TableState, written: _Written) -> None:
        hit("replay.written")
        if not written.rows:
            self._replace(table, dead_letters, written, new_id(), {})
            return
        try:
            state = self._catalog.load(table.name)
            if state is None or table.state is None or state.uuid != table.state.uuid:
                raise ConflictError("the table was recreated while its dead letters were read", where=table.name)
            lookups = dump_lookups(table.schema.reference_versions)
            pending = PendingReplay(new_id(), table.name, state.uuid, state.head_id, written.rows, lookups)
            mark_replay(self._catalog, dead_letters, pending)
        except FrazilError:
            self._catalog.delete_files(table.name, [file.path for file in written.rows])
            self._catalog.delete_files(dead_letters.name, [file.path for file in written.dead_letters])
            raise
        hit("replay.marked")
        try:
            self._replace(table, dead_letters, written, pending.id, {REPLAY: pending.dump()})
        except ConflictError:
            clear_mark(self._catalog, dead_letters.name, pending.id)
            raise
        hit("replay.pending")
        try:
            commit_pending(self._catalog, dead_letters.name, pending)
        except ConflictError:
            self.settled(table)

    def _replace(
        self, table: Table, dead_letters: TableState, written: _Written, name: str, summary: Mapping[str, str]
    ) -> None:
        """Commits the removal of dead letters from their table, with those that remain."""
        try:
            replace_files(self._catalog, dead_letters, name, written.removed, written.dead_letters, summary)
        except ConflictError:
            self._catalog.delete_files(table.name, [file.path for file in written.rows])
            raise


class _Attempt:
    """Reads dead letters and writes their rows until a missing schema or column is found."""

    def __init__(
        self, target: TableTarget, dead_letters: TableTarget, selection: Selection, queries: QueryTables
    ) -> None:
        self.target = target
        self.dead_letters = dead_letters
        self.writer = FileWriter(target)
        self.dead_letter_writer = FileWriter(dead_letters)
        self.needs = Needs()
        self._selection = selection
        self._queries = queries
        self._replayed = 0
        self._selected = 0
        self._has_effect = False

    def take(self, rows: pa.Table) -> None:
        """Reads the dead letters of one file with selected ones."""
        chosen, columns_left = self._selection.of(rows), self.target.reading.evolution.columns_left
        write_some(self.dead_letter_writer, rows.filter(pc.invert(chosen)))
        readable, crashing, reasons = split_crashing(self.target, rows.filter(chosen))
        self._selected += crashing.num_rows
        write_some(self.dead_letter_writer, with_new_reason(crashing, reasons))
        read = self._queries.asking_spark(self.target, "", partial(read_records, self.target, "", limit=_ALL))
        columns_of = partial(records_of, self.target)
        for batch in readable.to_batches():
            for dead_letters, records, read_result in read_bounded(batch, read, columns_left, columns_of):
                self._take_read(dead_letters, records, read_result)

    def finish(self, removed: Sequence[str]) -> _Written:
        """Closes the files and returns them."""
        rows, dead_letters = tuple(self.writer.finish()), tuple(self.dead_letter_writer.finish())
        return _Written(rows, dead_letters, tuple(removed), self._replayed, self._selected, self._has_effect)

    def abandon(self) -> None:
        """Deletes the files."""
        self.writer.abandon()
        self.dead_letter_writer.abandon()

    def _take_read(self, batch: pa.RecordBatch, records: Mapping[str, pa.Array], changes: Changes) -> None:
        decoded = changes.decoded
        self.needs.note(decoded, pc.unique(records["topic"]).to_pylist(), (self.target.source or self.target).fixed)
        if not self.needs.is_met:
            return
        refused = pa.array(decoded.refused)
        kept = changes.without_refused()
        fitting = shape_rows(self.target, kept, pick(records, kept.records))
        self._selected += batch.num_rows
        self._replayed += batch.num_rows - decoded.mismatch_count
        self._has_effect |= batch.num_rows > decoded.mismatch_count
        write_some(self.writer, fitting)
        staying = pa.Table.from_batches([batch]).filter(refused)
        if staying.num_rows:
            reasons = first_mismatches(decoded)
            mismatches = [reasons.get(row, UNEXPLAINED) for row in np.flatnonzero(decoded.refused).tolist()]
            self._has_effect |= any(mismatch.kind != ErrorClass.LOOKUP_WAITING for mismatch in mismatches)
            self.dead_letter_writer.write(with_new_reason(staying, mismatches))


def _in_the_way(table: Table) -> ConflictError:
    return ConflictError(
        "other replays of dead letters are running",
        remedy="replay again when they have finished",
        where=table.dead_letter_table_name,
    )
