"""Pending rows of replayed dead letters: a two-step commit that any process can finish (docs/decisions/0010).

The commit that removes dead letters from a dead-letter table names the files with their rows. A second commit adds
these files to the table, once, under the replay's id. Until then the dead-letter table has a property with that id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import pyarrow as pa

from frazil.catalog.port import Catalog, Rewrite, StoredFile, TableState
from frazil.catalog.progress import (
    OPEN_REPLAY,
    REMOVED,
    REPLAY,
    REPLAY_ID,
    REWRITE_ID,
    has_uncommitted_dead_letters,
    is_recorded,
)
from frazil.clock import new_id
from frazil.dead_letters.files import Place, abandoning, pieces, places_of, write_some
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.ingest.failures import TableStopped
from frazil.types import DataFile, as_json
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_TRIES = 10
_NONE = "-"


@dataclass(frozen=True)
class RemovedDeadLetters:
    """Dead letters to be removed: those in the files `removed` that are not in the files `added`."""

    #: The id of the replay.
    id: str
    #: The table that has their rows.
    table: str
    #: The newest snapshot of that table before the rows were added; None without one.
    since: int | None
    #: The snapshot of the dead-letter table that was read.
    read_at: int
    #: Paths of files of the dead-letter table to be removed.
    removed: tuple[str, ...]
    #: Files to be added, with the dead letters that remain.
    added: tuple[DataFile, ...]

    def dump(self) -> str:
        """Returns the JSON for the snapshot summary."""
        return as_json(asdict(self))

    @staticmethod
    def load(text: str) -> RemovedDeadLetters:
        """Returns the dead letters that `dump` wrote."""
        fields = json.loads(text)
        added = tuple(DataFile(**file) for file in fields["added"])
        return RemovedDeadLetters(**{**fields, "removed": tuple(fields["removed"]), "added": added})


def mark_removal(catalog: Catalog, dead_letters: str, removal: RemovedDeadLetters) -> None:
    """Sets the replay's property on the dead-letter table, before the rows are committed."""
    since = _NONE if removal.since is None else str(removal.since)
    catalog.mark(dead_letters, OPEN_REPLAY + removal.id, f"{removal.read_at} {since} {removal.table}")


def clear_removal_mark(catalog: Catalog, dead_letters: str, replay_id: str) -> None:
    """Removes the replay's property: the dead letters are removed, or the rows were never committed."""
    catalog.mark(dead_letters, OPEN_REPLAY + replay_id, None)


def settle_removal(catalog: Catalog, dead_letters: str, replay_id: str, mark: str) -> None:
    """Finishes an unfinished replay, or prevents its commit for good. dead_letters: a table that has been loaded.

    Raises: TableStopped where the outcome cannot be found out; otherwise as the catalog.
    """
    _, since, table = mark.split(" ", 2)
    removal = _find_removal(catalog, dead_letters, table, replay_id, None if since == _NONE else int(since))
    if removal is not None:
        remove_dead_letters(catalog, dead_letters, removal)
    clear_removal_mark(catalog, dead_letters, replay_id)
    hit("replay.done")


def remove_dead_letters(catalog: Catalog, dead_letters: str, removal: RemovedDeadLetters) -> None:
    """Removes the dead letters unless they are removed. Both tables have been loaded.

    Raises: as `settle_removal`; the removal is still unfinished then.
    """
    is_done = is_recorded(catalog.history(dead_letters, (REWRITE_ID,)), REWRITE_ID, removal.id, removal.read_at)
    if is_done:
        return
    if is_done is False:
        with suppress(ConflictError):
            catalog.rewrite(Rewrite(dead_letters, removal.read_at, removal.id, removal.removed, removal.added))
            return
    _remove_one_by_one(catalog, dead_letters, removal)
    if is_done is False:
        catalog.delete_files(dead_letters, [file.path for file in removal.added])


def _find_removal(
    catalog: Catalog, dead_letters: str, table: str, replay_id: str, since: int | None
) -> RemovedDeadLetters | None:
    """Returns the dead letters that the table's history names for this replay; None where its rows are not in the table
    and never will be.
    """
    state = catalog.load(table)
    if state is None:
        return None
    removal = _removal_in_history(catalog, dead_letters, table, replay_id, since)
    if removal is None:
        # The process that set the property may still be about to commit the rows: this commit prevents it.
        catalog.append_once(table, (), REPLAY_ID, new_id(), state.head_id)
        catalog.load(table)
        removal = _removal_in_history(catalog, dead_letters, table, replay_id, since)
    return removal


def _removal_in_history(
    catalog: Catalog, dead_letters: str, table: str, replay_id: str, since: int | None
) -> RemovedDeadLetters | None:
    for snapshot in catalog.history(table, (REPLAY_ID, REMOVED)):
        if snapshot.summary.get(REPLAY_ID) == replay_id:
            return RemovedDeadLetters.load(snapshot.summary[REMOVED])
        if snapshot.snapshot_id == since:
            return None
        if snapshot.is_cut:
            raise _removal_unknown(dead_letters, replay_id)
    return None


def _remove_one_by_one(catalog: Catalog, dead_letters: str, removal: RemovedDeadLetters) -> None:
    """Removes the dead letters by place, where the files are no longer those that were read: they were compacted, or
    dead letters were dropped.
    """
    for _ in range(_TRIES):
        state = catalog.load(dead_letters)
        if state is None:
            return
        target = plain_target(state)
        gone = _places(target, removal, removal.removed) - _places(
            target, removal, (file.path for file in removal.added)
        )
        with suppress(ConflictError):
            _leave_out(catalog, state, gone, removal.id)
            return
    raise ConflictError(
        "other replays of dead letters are running", remedy="replay again when they have finished", where=dead_letters
    )


def _places(dead_letters: TableTarget, removal: RemovedDeadLetters, paths: Iterable[str]) -> set[Place]:
    """Returns the places of the records of the dead letters in these files."""
    found: set[Place] = set()
    try:
        for path in paths:
            for rows in pieces(dead_letters, StoredFile(path, 0, 0), ("topic", "partition", "offset")):
                found.update(places_of(rows))
    except FileNotFoundError:
        raise _removal_unknown(dead_letters.name, removal.id) from None
    return found


def _leave_out(catalog: Catalog, state: TableState, gone: set[Place], replay_id: str) -> None:
    target, removed = plain_target(state), []
    writer = FileWriter(target)
    with abandoning(writer):
        for file in catalog.files(state.name):
            batches = list(pieces(target, file))
            masks = [pa.array([place in gone for place in places_of(rows)], pa.bool_()) for rows in batches]
            if any(mask.true_count for mask in masks):
                removed.append(file.path)
                for rows, mask in zip(batches, masks, strict=True):
                    write_some(writer, rows.filter(pa.compute.invert(mask)))
        added = tuple(writer.finish())
    if not removed:
        return
    assert state.head_id is not None
    try:
        catalog.rewrite(Rewrite(state.name, state.head_id, replay_id, tuple(removed), added))
    except ConflictError:
        catalog.delete_files(state.name, [file.path for file in added])
        raise


def _removal_unknown(dead_letters: str, replay_id: str) -> TableStopped:
    return TableStopped(
        f"the snapshots that show whether replayed dead letters are in the table were expired: replay={replay_id}",
        "check whether their rows are in the table, drop the dead letters if they are, and then remove the property"
        f" that ends in {OPEN_REPLAY}{replay_id} from the dead-letter table",
        dead_letters,
    )


@dataclass(frozen=True)
class PendingReplay:
    """Rows of replayed dead letters that are not in their table yet."""

    #: The id of the replay.
    id: str
    #: The name of the table that the rows belong to.
    table: str
    #: The UUID of that table.
    uuid: str
    #: The newest snapshot of the table before the dead letters were removed; None without one.
    since: int | None
    #: The data files with the rows.
    files: tuple[DataFile, ...]

    def dump(self) -> str:
        """Returns the JSON for the snapshot summary."""
        return as_json(asdict(self))

    @staticmethod
    def load(text: str) -> PendingReplay:
        """Returns the pending replay that `dump` wrote."""
        fields = json.loads(text)
        return PendingReplay(**{**fields, "files": tuple(DataFile(**file) for file in fields["files"])})


def mark_replay(catalog: Catalog, dead_letters: TableState, pending: PendingReplay) -> None:
    """Sets the replay's property on the dead-letter table, before its commit. dead_letters: the table as it was read."""
    catalog.mark(dead_letters.name, OPEN_REPLAY + pending.id, str(dead_letters.head_id))


def has_open_replays(dead_letters: TableState) -> bool:
    """Returns whether `settle_replays` has something to do."""
    return any(name.startswith(OPEN_REPLAY) for name in dead_letters.marks)


def clear_mark(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    """Removes the replay's property: its rows are in the table, or its commit was never made."""
    catalog.mark(dead_letters, OPEN_REPLAY + pending.id, None)


def commit_pending(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    """Adds the pending rows to their table unless they are there. Both tables have been loaded.

    Raises: ConflictError and UnavailableError as the catalog; the rows are still pending then.
    """
    catalog.append_once(pending.table, pending.files, REPLAY_ID, pending.id, pending.since)
    hit("replay.appended")
    clear_mark(catalog, dead_letters, pending)
    hit("replay.done")


def settle_replays(catalog: Catalog, dead_letters: TableState) -> None:
    """Finishes every unfinished replay of this dead-letter table. dead_letters: the table as just loaded.

    Raises: TableStopped where it cannot be found out whether rows were added.
    """
    for replay_id, mark in _open_replays(dead_letters):
        if has_uncommitted_dead_letters(mark):
            settle_removal(catalog, dead_letters.name, replay_id, mark)
            continue
        read_at = int(mark)
        pending = _find(catalog, dead_letters.name, replay_id, read_at)
        if pending is None:
            # The process that set the property may still be about to commit the replay: this commit prevents it.
            catalog.append_once(dead_letters.name, (), REWRITE_ID, new_id(), dead_letters.head_id)
            catalog.load(dead_letters.name)
            pending = _find(catalog, dead_letters.name, replay_id, read_at)
        if pending is None:
            catalog.mark(dead_letters.name, OPEN_REPLAY + replay_id, None)
            continue
        _commit_found(catalog, dead_letters.name, pending)


def _open_replays(dead_letters: TableState) -> Iterator[tuple[str, str]]:
    for name, value in sorted(dead_letters.marks.items()):
        if name.startswith(OPEN_REPLAY):
            yield name.removeprefix(OPEN_REPLAY), value


def _find(catalog: Catalog, dead_letters: str, replay_id: str, read_at: int) -> PendingReplay | None:
    """Returns the pending rows of this replay, committed after the snapshot `read_at`; None where they were not
    committed.
    """
    for snapshot in catalog.history(dead_letters, (REPLAY, REWRITE_ID)):
        if snapshot.summary.get(REWRITE_ID) == replay_id:
            return PendingReplay.load(snapshot.summary[REPLAY])
        if snapshot.snapshot_id == read_at:
            return None
        if snapshot.is_cut:
            raise _outcome_unknown(dead_letters, replay_id)
    return None


def _commit_found(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    state = catalog.load(pending.table)
    if state is None or state.uuid != pending.uuid:
        raise TableStopped(
            f"the rows of replayed dead letters belong to a table that no longer exists: replay={pending.id}",
            f"restore the table; or, to abandon these rows, remove the property that ends in {OPEN_REPLAY}{pending.id}",
            dead_letters,
        )
    there = is_recorded(catalog.history(pending.table, (REPLAY_ID,)), REPLAY_ID, pending.id, pending.since)
    if there is None:
        raise _outcome_unknown(dead_letters, pending.id)
    if there:
        clear_mark(catalog, dead_letters, pending)
    else:
        commit_pending(catalog, dead_letters, pending)


def _outcome_unknown(dead_letters: str, replay_id: str) -> TableStopped:
    return TableStopped(
        f"the snapshots that show whether replayed dead letters are in the table were expired: replay={replay_id}",
        "check whether their rows are in the table, add the files if they are not, and then remove the property that"
        f" ends in {OPEN_REPLAY}{replay_id} from the dead-letter table",
        dead_letters,
    )
