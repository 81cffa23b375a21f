"""Replays dead letters into an upsert table: each applies only where no newer change of its key exists.

Dead letters are read and written once. For each version of the table, the rows that they replace are looked up, the
table and the topics are searched for newer changes, and the rows are committed on top of exactly that version. Replayed
dead letters are removed afterwards (`pending`); the others remain, with the current reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, Replacement, TableState
from frazil.catalog.progress import COMMIT_ID, LOOKUPS, REMOVED, REPLAY_ID, dump_lookups, is_unmoved
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.dead_letters.changes import NOT_KNOWN, ChangeReader, Draft, HistoryQuery, NewerChanges, TopicReaders
from frazil.dead_letters.files import (
    Place,
    ReplayResult,
    Selection,
    abandoning,
    pieces,
    places_of,
    with_new_reason,
    write_some,
)
from frazil.dead_letters.pending import (
    RemovedDeadLetters,
    clear_mark,
    mark_removal,
    remove_dead_letters,
    replace_files,
)
from frazil.dead_letters.requirements import endless_changes, fetch_schemas, meet, split_crashing
from frazil.dead_letters.superseded import (
    APPLY,
    ASK,
    SUPERSEDED,
    RemainingDeadLetters,
    Verdicts,
    are_marked,
    by_table,
    not_reached,
    staying,
    with_log,
)
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, FrazilError
from frazil.failpoints import hit
from frazil.ingest.tables.queries import QueryTables
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.schema.arrow import Bools
from frazil.stages.changes import UPSERT
from frazil.types import DataFile, Progress, RowDelta
from frazil.upsert.commit import OldRowsMissing, Prepared, prepare_changes
from frazil.upsert.deduplicate import LatestChanges, Ranked
from frazil.upsert.lookup.live_rows import check_columns
from frazil.upsert.lookup.search import Found
from frazil.upsert.truncates import is_truncated
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_ALL = Selection()
_TRIES = 20
_ROUNDS = 20
_NOTHING = Prepared((), RowDelta(None))


@dataclass(frozen=True)
class SelectedDeadLetters:
    """The dead letters to be replayed."""

    #: Their dead-letter table as it was read.
    state: TableState
    #: The files with selected dead letters.
    files: tuple[LiveFile, ...]
    selection: Selection
    #: The newest snapshot of the upsert table before that; None without one.
    since: int | None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files."""
        return tuple(file.path for file in self.files)

    def pieces(self) -> Iterable[pa.Table]:
        """Yields the dead letters of the files in pieces."""
        target = plain_target(self.state)
        return (rows for file in self.files for rows in pieces(target, file))


def replace_rows(
    catalog: Catalog,
    queries: QueryTables,
    schemas: Schemas | None,
    topic_readers: TopicReaders | None,
    table: Table,
    dead_letters: SelectedDeadLetters,
) -> ReplayResult:
    """Replays the dead letters into the upsert table where they still apply.

    Raises: as Replayer.replay; ConflictError where the replay must start again.
    """
    check_columns(target_of(table))
    table.key_updates.is_single_task = True
    work = _Replacing(catalog, queries, schemas, topic_readers, table, dead_letters)
    for _ in range(_ROUNDS):
        draft = work.draft()
        if draft is None:
            continue
        try:
            return work.put(draft)
        except OldRowsMissing as gone:
            table.key_updates.unpaired |= set(gone.places(draft.topics))
    raise endless_changes(table)


class _Judge:
    """Decides, for one version of the table, which keys keep their row, and which dead letters therefore remain."""

    def __init__(
        self, draft: Draft, only_topic: str, newer_changes: NewerChanges | None, remaining: RemainingDeadLetters | None
    ) -> None:
        self._draft = draft
        self._only_topic = only_topic
        self._newer_changes = newer_changes
        self._remaining = remaining
        self.progress = Progress()
        #: The dead letters that remain, by place, after a call.
        self.mismatches: Mapping[Place, Mismatch] = {}
        #: Whether the table changes at all, after a call.
        self.has_effect = False

    def __call__(self, changes: Ranked, latest: LatestChanges, live_rows: Found) -> Bools:
        keys, draft = changes.take(latest.last), self._draft
        live = np.zeros(len(keys), np.bool_)
        live[live_rows.keys()] = True
        verdicts = by_table(draft.target, draft.topics, self._only_topic, keys, live_rows)
        verdicts = not_reached(verdicts, draft.topics, keys, live, self.progress.offsets)
        if (verdicts >= ASK).any():
            verdicts = with_log(verdicts, self._ask(changes, latest, verdicts >= ASK))
        verdicts[is_truncated(draft.target, keys, self.progress.emptied)] = SUPERSEDED
        is_new = (verdicts == APPLY) & (keys.ops == UPSERT) & (~live | are_marked(draft.target, live_rows, len(keys)))
        if self._remaining is not None and is_new.any():
            verdicts[is_new] = self._remaining.verdicts(changes, latest)[is_new]
        late, verdicts = staying(draft.changes, draft.topics, keys.keys, verdicts, live)
        self.mismatches = {**draft.mismatches, **late}
        self.has_effect = bool(((verdicts == APPLY) & ((keys.ops == UPSERT) | live)).any())
        return np.asarray(verdicts != APPLY, np.bool_)

    def _ask(self, changes: Ranked, latest: LatestChanges, is_asked: Bools) -> Verdicts:
        if self._newer_changes is None:
            return np.full(is_asked.size, NOT_KNOWN, np.int8)
        asked = changes.take(latest.last[is_asked])
        numbers = zip(asked.source.tolist(), asked.partition.tolist(), strict=True)
        self._newer_changes.read_on({(self._draft.topics[source], number) for source, number in numbers}, self.progress)
        return self._newer_changes.of(changes, latest)


@dataclass(frozen=True)
class _Attempt:
    """The files of one commit."""

    #: Data files and deletes for the upsert table.
    prepared: Prepared
    #: Files for the dead-letter table, with the dead letters that remain.
    added: tuple[DataFile, ...]
    #: The dead letters that remain, by place, with the reason.
    mismatches: Mapping[Place, Mismatch]
    #: Whether the upsert table changes.
    has_effect: bool


class _Replacing:
    """The replay of selected dead letters of one upsert table."""

    def __init__(
        self,
        catalog: Catalog,
        queries: QueryTables,
        schemas: Schemas | None,
        topic_readers: TopicReaders | None,
        table: Table,
        dead_letters: SelectedDeadLetters,
    ) -> None:
        self._catalog = catalog
        self._queries = queries
        self._schemas = schemas
        self._topic_readers = topic_readers
        self._table = table
        self._dead_letters = dead_letters
        self._reader = ChangeReader(self._fetch, queries)
        self._topics = sorted({topic for topic, _, _ in self._places(dead_letters.files)})

    # ---- dead letters to changes

    def draft(self) -> Draft | None:
        """Returns the dead letters as changes; None where a missing schema or column exists now."""
        draft = Draft(target_of(self._table), self._topics, self._queries)
        with abandoning(draft.writer):
            for rows in self._dead_letters.pieces():
                draft.take(rows.filter(self._dead_letters.selection.of(rows)))
            if draft.finish():
                return draft
        draft.writer.abandon()
        if draft.lost:
            self._table.key_updates.unpaired |= draft.lost
        else:
            meet(self._catalog, self._queries, self._schemas, self._table, draft.needs)
        return None

    def put(self, draft: Draft) -> ReplayResult:
        """Commits the changes that apply.

        Raises: OldRowsMissing where dead letters lack the rows whose values they need.
        """
        judge = _Judge(draft, self._only_topic(), self._newer_changes(draft), self._remaining(draft))
        for _ in range(_TRIES):
            with self._cleaning(draft):
                state = self._fresh()
                attempt = self._attempt(draft, state, judge)
                hit("replay.written")
                if not attempt.has_effect:
                    self._put_back(draft, attempt)
                    return self._result(draft, attempt)
                removal = self._announce(attempt)
            if self._commit(draft, state, attempt, removal):
                return self._result(draft, attempt)
        with self._cleaning(draft):
            raise ConflictError(
                "other writers change the table faster than rows can be looked up in it", where=self._table.name
            )

    def _newer_changes(self, draft: Draft) -> NewerChanges | None:
        if self._topic_readers is None or not draft.report.changes.touched:
            return None
        files = self._catalog.scan(self._dead_letters.state.name).files
        dead_letters, unread = self._places(files), self._places(files, Selection(ErrorClass.CRASHES_DECODER))
        asked = HistoryQuery(draft.topics, draft.latest, draft.stamps, frozenset(dead_letters), frozenset(unread))
        return NewerChanges(self._topic_readers, asked, draft.target, self._reader)

    def _remaining(self, draft: Draft) -> RemainingDeadLetters | None:
        if self._dead_letters.selection == Selection() and not draft.truncates:
            return None
        return RemainingDeadLetters(self._others, draft.truncates, draft.topics, draft.target, self._reader)

    def _others(self) -> Iterator[pa.Table]:
        """Yields the dead letters that are not selected."""
        if self._dead_letters.selection == Selection():
            return
        target = plain_target(self._dead_letters.state)
        for file in self._catalog.scan(self._dead_letters.state.name).files:
            for rows in pieces(target, file):
                others = rows.filter(pc.invert(self._dead_letters.selection.of(rows)))
                readable, _, _ = split_crashing(target_of(self._table), others)
                yield readable

    def _fetch(self, ids: Iterable[str]) -> TableTarget:
        fetch_schemas(self._schemas, self._table, ids, self._topics)
        return target_of(self._table)

    def _only_topic(self) -> str:
        selectors = self._table.spec.source.topics
        return (selectors[0].literal or "") if len(selectors) == 1 else ""

    def _places(self, files: Iterable[LiveFile], selection: Selection = _ALL) -> set[Place]:
        """Returns the places of the dead letters in these files."""
        target, columns = plain_target(self._dead_letters.state), ("topic", "partition", "offset", "error_class")
        dead_letters = (rows.filter(selection.of(rows)) for file in files for rows in pieces(target, file, columns))
        return {place for rows in dead_letters for place in places_of(rows)}

    # ---- changes to rows

    def _fresh(self) -> TableState:
        """Returns the table, loaded now.

        Raises: ConflictError where the dead letters must be read again.
        """
        name, before = self._table.name, self._table.state
        state = self._catalog.load(name)
        if state is None or before is None or state.uuid != before.uuid:
            raise ConflictError("the table was recreated while its dead letters were read", where=name)
        history = self._catalog.history(name, (REPLAY_ID, COMMIT_ID))
        if not is_unmoved(history, self._dead_letters.since, state.progress.commit_id):
            raise ConflictError("other replays of dead letters are running", where=name)
        return state

    def _attempt(self, draft: Draft, state: TableState, judge: _Judge) -> _Attempt:
        judge.progress, judge.mismatches, judge.has_effect = state.progress, draft.mismatches, False
        prepared = _NOTHING
        if draft.report.changes.touched:
            prepared = prepare_changes(self._catalog, draft.target, state, draft.report, judge)
        try:
            added = self._write_dead_letters(judge.mismatches)
        except FrazilError:
            self._catalog.delete_files(self._table.name, prepared.paths)
            raise
        return _Attempt(prepared, added, judge.mismatches, judge.has_effect)

    def _write_dead_letters(self, mismatches: Mapping[Place, Mismatch]) -> tuple[DataFile, ...]:
        """Writes the dead letters that remain, and the unselected ones of the same files."""
        writer = FileWriter(plain_target(self._dead_letters.state))
        with abandoning(writer):
            for rows in self._dead_letters.pieces():
                chosen = self._dead_letters.selection.of(rows)
                write_some(writer, rows.filter(pc.invert(chosen)))
                mine = rows.filter(chosen)
                reasons = [mismatches.get(place) for place in places_of(mine)]
                left = mine.filter(pa.array([reason is not None for reason in reasons], pa.bool_()))
                if left.num_rows:
                    writer.write(with_new_reason(left, [reason for reason in reasons if reason is not None]))
            return tuple(writer.finish())

    # ---- committing

    def _announce(self, attempt: _Attempt) -> RemovedDeadLetters:
        dead_letters = self._dead_letters
        assert dead_letters.state.head_id is not None
        removal = RemovedDeadLetters(
            new_id(),
            self._table.name,
            dead_letters.since,
            dead_letters.state.head_id,
            dead_letters.paths,
            attempt.added,
        )
        try:
            mark_removal(self._catalog, dead_letters.state.name, removal)
        except FrazilError:
            self._give_up(attempt)
            raise
        hit("replay.marked")
        return removal

    def _commit(self, draft: Draft, state: TableState, attempt: _Attempt, removal: RemovedDeadLetters) -> bool:
        """Commits the rows and then removes the dead letters; returns False where the table has changed since it was
        looked up.
        """
        prepared, dead_letters = attempt.prepared, self._dead_letters.state.name
        replacement = Replacement(
            self._table.name, prepared.files, prepared.delta, state.progress, removal.since, removal.id
        )
        try:
            lookups = dump_lookups(self._table.schema.reference_versions)
            summary = {REMOVED: removal.dump()} | ({LOOKUPS: lookups} if lookups else {})
            self._catalog.replace_once(replace(replacement, summary=summary))
        except ConflictError:
            with self._cleaning(draft):
                self._give_up(attempt)
                clear_mark(self._catalog, dead_letters, removal.id)
            return False
        self._catalog.delete_files(self._table.name, prepared.unused)
        hit("replay.replaced")
        remove_dead_letters(self._catalog, dead_letters, removal)
        clear_mark(self._catalog, dead_letters, removal.id)
        hit("replay.done")
        return True

    def _put_back(self, draft: Draft, attempt: _Attempt) -> None:
        """Commits the dead-letter table alone: dead letters that change nothing are removed, the others get their
        reasons.
        """
        try:
            replace_files(self._catalog, self._dead_letters.state, new_id(), self._dead_letters.paths, attempt.added)
        except ConflictError:
            self._catalog.delete_files(self._table.name, attempt.prepared.paths)
            raise
        self._catalog.delete_files(self._table.name, [*attempt.prepared.paths, *_paths(draft)])

    def _give_up(self, attempt: _Attempt) -> None:
        """Deletes files that no commit can name any more."""
        self._catalog.delete_files(self._table.name, attempt.prepared.paths)
        self._catalog.delete_files(self._dead_letters.state.name, [file.path for file in attempt.added])

    @contextmanager
    def _cleaning(self, draft: Draft) -> Iterator[None]:
        """Deletes the draft's files where its block raises: no commit has named them."""
        try:
            yield
        except (FrazilError, OldRowsMissing):
            self._catalog.delete_files(self._table.name, _paths(draft))
            raise

    @staticmethod
    def _result(draft: Draft, attempt: _Attempt) -> ReplayResult:
        return ReplayResult(len(draft.stamps) - len(attempt.mismatches), len(attempt.mismatches))


def _paths(draft: Draft) -> list[str]:
    return [file.path for file in draft.report.written.data]
