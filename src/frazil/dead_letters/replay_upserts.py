"""Retries letters into a table whose records replace rows: each counts as far as nothing newer is there.

Letters are read and written once. Then, as often as the table changes meanwhile, the rows that they replace are looked up,
what came later is asked of the table and of the topics, and the rows are committed on top of that very table or not at all.
Letters whose rows are in go afterwards (see `taken`); the others stay with the reason of today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.history import COMMIT_ID, REMOVED, RETRY_ID, is_unmoved
from frazil.catalog.port import Catalog, Replacement, Rewrite, StoredFile, TableState
from frazil.clock import new_id
from frazil.dead_letters.crashing import CRASHES, still_crashing
from frazil.dead_letters.files import Place, Retried, Selection, pieces, places_of
from frazil.dead_letters.newer_changes import UNTOLD, Asked, Later, Witness
from frazil.dead_letters.remaining import Waiting
from frazil.dead_letters.removal import RemovedDeadLetters, announce_removal, take_out, withdraw_removal
from frazil.dead_letters.replayed_changes import Draft
from frazil.dead_letters.requirements import fetch_schemas, meet
from frazil.dead_letters.rewriting import abandoning, with_new_reason, write_some
from frazil.dead_letters.superseded import (
    APPLY,
    ASK,
    SUPERSEDED,
    Bools,
    Verdicts,
    are_marked,
    by_table,
    not_reached,
    staying,
    with_log,
)
from frazil.decode.columns import Mismatch
from frazil.errors import ConflictError, FrazilError, SpecError
from frazil.failpoints import hit
from frazil.ingest.schemas import Schemas
from frazil.ingest.table import Table
from frazil.types import DataFile, Progress, RowDelta
from frazil.upsert.changes import UPSERT
from frazil.upsert.commit import OldRowsGone, Prepared, prepare_changes
from frazil.upsert.deduplicate import LatestChanges, Ranked
from frazil.upsert.live_rows import check_columns
from frazil.upsert.lookup import Found
from frazil.upsert.truncates import is_truncated
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_ALL = Selection()
_TRIES = 20
_ROUNDS = 20
_NOTHING = Prepared((), RowDelta(None))


@dataclass(frozen=True)
class PendingDeadLetters:
    """What is retried: the selected letters of `files`. state: their table as it was read. since: the newest snapshot of the
    table before that; None where it had none.
    """

    state: TableState
    files: tuple[StoredFile, ...]
    selection: Selection
    since: int | None

    def pieces(self) -> Iterable[pa.Table]:
        """The letters of the files, some at a time."""
        target = plain_target(self.state)
        return (rows for file in self.files for rows in pieces(target, file))


def replace_rows(
    catalog: Catalog, schemas: Schemas | None, witness: Witness | None, table: Table, dead_letters: PendingDeadLetters
) -> Retried:
    """Puts the letters into the table where they may still count. Raises as Retrier.retry does, ConflictError where it is to
    be done again from the start.
    """
    check_columns(table.target())
    table.is_single_task = True
    work = _Replacing(catalog, schemas, witness, table, dead_letters)
    for _ in range(_ROUNDS):
        draft = work.draft()
        if draft is None:
            continue
        try:
            return work.put(draft)
        except OldRowsGone as gone:
            table.unpaired |= set(gone.places(draft.topics))
    raise SpecError(
        "the dead letters need one schema change after another",
        remedy="replay fewer at a time, by --topic, --partition and --offset",
        where=table.name,
    )


class _Judge:
    """Decides, for one look at the table, which keys stay as they are, and which letters therefore do.

    mismatches: of the letters that stay, once it was asked. has_effect: whether the table changes at all.
    """

    def __init__(self, draft: Draft, only_topic: str, later: Later | None, waiting: Waiting | None) -> None:
        self._draft = draft
        self._only_topic = only_topic
        self._later = later
        self._waiting = waiting
        self.progress = Progress()
        self.mismatches: Mapping[Place, Mismatch] = {}
        self.has_effect = False

    def __call__(self, changes: Ranked, latest: LatestChanges, found: Found) -> Bools:
        keys, draft = changes.take(latest.last), self._draft
        live = np.zeros(len(keys), np.bool_)
        live[found.keys()] = True
        verdicts = by_table(draft.target, draft.topics, self._only_topic, keys, found)
        verdicts = not_reached(verdicts, draft.topics, keys, live, self.progress.offsets)
        if (verdicts >= ASK).any():
            verdicts = with_log(verdicts, self._ask(changes, latest, verdicts >= ASK))
        verdicts[is_truncated(draft.target, keys, self.progress.emptied)] = SUPERSEDED
        is_new = (verdicts == APPLY) & (keys.ops == UPSERT) & (~live | are_marked(draft.target, found, len(keys)))
        if self._waiting is not None and is_new.any():
            verdicts[is_new] = self._waiting.verdicts(changes, latest)[is_new]
        late, verdicts = staying(draft.changes, draft.topics, keys.keys, verdicts, live)
        self.mismatches = {**draft.mismatches, **late}
        self.has_effect = bool(((verdicts == APPLY) & ((keys.ops == UPSERT) | live)).any())
        return np.asarray(verdicts != APPLY, np.bool_)

    def _ask(self, changes: Ranked, latest: LatestChanges, is_asked: Bools) -> Verdicts:
        if self._later is None:
            return np.full(is_asked.size, UNTOLD, np.int8)
        asked = changes.take(latest.last[is_asked])
        numbers = zip(asked.source.tolist(), asked.partition.tolist(), strict=True)
        self._later.read_on({(self._draft.topics[source], number) for source, number in numbers}, self.progress)
        return self._later.of(changes, latest)


@dataclass(frozen=True)
class _Attempt:
    """Files for one commit, and the letters that stay."""

    prepared: Prepared
    added: tuple[DataFile, ...]
    mismatches: Mapping[Place, Mismatch]
    has_effect: bool


class _Replacing:
    """One retry of some letters of one table."""

    def __init__(
        self,
        catalog: Catalog,
        schemas: Schemas | None,
        witness: Witness | None,
        table: Table,
        dead_letters: PendingDeadLetters,
    ) -> None:
        self._catalog = catalog
        self._schemas = schemas
        self._witness = witness
        self._table = table
        self._dead_letters = dead_letters
        self._topics = sorted({topic for topic, _, _ in self._places(dead_letters.files)})

    # ---- letters to changes

    def draft(self) -> Draft | None:
        """The letters as changes; None where it was found out what they need, which is there now."""
        draft = Draft(self._table.target(), self._topics)
        with abandoning(draft.writer):
            for rows in self._dead_letters.pieces():
                for batch in rows.filter(self._dead_letters.selection.of(rows)).to_batches():
                    draft.take(batch)
            if draft.finish():
                return draft
        draft.writer.abandon()
        if draft.lost:
            self._table.unpaired |= draft.lost
        else:
            meet(self._catalog, self._schemas, self._table, draft.needs)
        return None

    def put(self, draft: Draft) -> Retried:
        """Commits what counts. Raises OldRowsGone where letters lack the rows whose values they need."""
        judge = _Judge(draft, self._only_topic(), self._later(draft), self._waiting(draft))
        for _ in range(_TRIES):
            with self._cleaning(draft):
                state = self._fresh()
                attempt = self._attempt(draft, state, judge)
                hit("replay.written")
                if not attempt.has_effect:
                    self._put_back(draft, attempt)
                    return self._retried(draft, attempt)
                taken = self._announce(attempt)
            if self._commit(draft, state, attempt, taken):
                return self._retried(draft, attempt)
        with self._cleaning(draft):
            raise ConflictError(
                "other writers change the table faster than rows can be looked up in it", where=self._table.name
            )

    def _later(self, draft: Draft) -> Later | None:
        assert draft.report is not None
        if self._witness is None or not draft.report.touched:
            return None
        files = self._catalog.files(self._dead_letters.state.name)
        dead_letters, unread = self._places(files), self._places(files, Selection(CRASHES))
        asked = Asked(draft.topics, draft.latest, draft.stamps, frozenset(dead_letters), frozenset(unread))
        return Later(self._witness, asked, draft.target, self._fetch)

    def _waiting(self, draft: Draft) -> Waiting | None:
        if self._dead_letters.selection == Selection() and not draft.truncates:
            return None
        return Waiting(self._others, draft.truncates, draft.topics, draft.target, self._fetch)

    def _others(self) -> Iterator[pa.Table]:
        """The letters that are not meant."""
        if self._dead_letters.selection == Selection():
            return
        target = plain_target(self._dead_letters.state)
        for file in self._catalog.files(self._dead_letters.state.name):
            for rows in pieces(target, file):
                others = rows.filter(pc.invert(self._dead_letters.selection.of(rows)))
                crashing = still_crashing(self._table.target(), others)
                yield others.filter(pa.array([place not in crashing for place in places_of(others)], pa.bool_()))

    def _fetch(self, ids: Iterable[str]) -> TableTarget:
        fetch_schemas(self._schemas, self._table, ids, self._topics)
        return self._table.target()

    def _only_topic(self) -> str:
        selectors = self._table.spec.topics
        return (selectors[0].literal or "") if len(selectors) == 1 else ""

    def _places(self, files: Iterable[StoredFile], selection: Selection = _ALL) -> set[Place]:
        """Where the records of letters lie."""
        target, columns = plain_target(self._dead_letters.state), ("topic", "partition", "offset", "error_class")
        found = (rows.filter(selection.of(rows)) for file in files for rows in pieces(target, file, columns))
        return {place for rows in found for place in places_of(rows)}

    # ---- changes to rows

    def _fresh(self) -> TableState:
        """The table as it is now. ConflictError where what was read of its letters may no longer hold."""
        name, before = self._table.name, self._table.state
        state = self._catalog.load(name)
        if state is None or before is None or state.uuid != before.uuid:
            raise ConflictError("the table was recreated while its dead letters were read", where=name)
        history = self._catalog.history(name, (RETRY_ID, COMMIT_ID))
        if not is_unmoved(history, self._dead_letters.since, state.progress.commit_id):
            raise ConflictError("other replays of dead letters are running", where=name)
        return state

    def _attempt(self, draft: Draft, state: TableState, judge: _Judge) -> _Attempt:
        assert draft.report is not None
        judge.progress, judge.mismatches, judge.has_effect = state.progress, draft.mismatches, False
        prepared = _NOTHING
        if draft.report.touched:
            prepared = prepare_changes(self._catalog, draft.target, state, draft.report, judge)
        try:
            added = self._write_dead_letters(judge.mismatches)
        except FrazilError:
            self._catalog.delete_files(self._table.name, prepared.paths)
            raise
        return _Attempt(prepared, added, judge.mismatches, judge.has_effect)

    def _write_dead_letters(self, mismatches: Mapping[Place, Mismatch]) -> tuple[DataFile, ...]:
        """The letters that stay, and those of the same files that were not meant."""
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
        removed = tuple(file.path for file in dead_letters.files)
        taken = RemovedDeadLetters(
            new_id(), self._table.name, dead_letters.since, dead_letters.state.head_id, removed, attempt.added
        )
        try:
            announce_removal(self._catalog, dead_letters.state.name, taken)
        except FrazilError:
            self._give_up(attempt)
            raise
        hit("replay.marked")
        return taken

    def _commit(self, draft: Draft, state: TableState, attempt: _Attempt, taken: RemovedDeadLetters) -> bool:
        """The rows, if the table is as it was looked at, and then the letters; whether that was so."""
        assert draft.report is not None
        prepared, dead_letters = attempt.prepared, self._dead_letters.state.name
        made = Replacement(self._table.name, prepared.files, prepared.delta, state.progress, taken.since, taken.id)
        try:
            self._catalog.replace_once(replace(made, words={REMOVED: taken.dump()}))
        except ConflictError:
            with self._cleaning(draft):
                self._give_up(attempt)
                withdraw_removal(self._catalog, dead_letters, taken.id)
            return False
        self._catalog.delete_files(self._table.name, prepared.unused)
        hit("replay.replaced")
        take_out(self._catalog, dead_letters, taken)
        withdraw_removal(self._catalog, dead_letters, taken.id)
        hit("replay.done")
        return True

    def _put_back(self, draft: Draft, attempt: _Attempt) -> None:
        """The table stays as it is; letters go that ask for nothing, and the others get their reasons."""
        dead_letters = self._dead_letters
        assert dead_letters.state.head_id is not None
        removed = tuple(file.path for file in dead_letters.files)
        try:
            self._catalog.rewrite(
                Rewrite(dead_letters.state.name, dead_letters.state.head_id, new_id(), removed, attempt.added)
            )
        except ConflictError:
            self._give_up(attempt)
            raise
        self._catalog.delete_files(self._table.name, [*attempt.prepared.paths, *_paths(draft)])

    def _give_up(self, attempt: _Attempt) -> None:
        """Removes files that no commit can name any more."""
        self._catalog.delete_files(self._table.name, attempt.prepared.paths)
        self._catalog.delete_files(self._dead_letters.state.name, [file.path for file in attempt.added])

    @contextmanager
    def _cleaning(self, draft: Draft) -> Iterator[None]:
        """In its block no commit has named the draft's files: what goes wrong removes them."""
        try:
            yield
        except (FrazilError, OldRowsGone):
            self._catalog.delete_files(self._table.name, _paths(draft))
            raise

    @staticmethod
    def _retried(draft: Draft, attempt: _Attempt) -> Retried:
        return Retried(len(draft.stamps) - len(attempt.mismatches), len(attempt.mismatches))


def _paths(draft: Draft) -> list[str]:
    assert draft.report is not None
    return [file.path for file in draft.report.files]
