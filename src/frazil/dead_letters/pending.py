"""Unfinished replays of dead letters: two-step commits that any process can finish (docs/decisions/0010).

The commit that removes dead letters from a dead-letter table names the files with their rows, and a second commit adds
these files to the table, once, under the replay's id. Of an upsert table the rows come first, and that commit names the
dead letters to be removed. Until both are done, the dead-letter table has a property with the replay's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from frazil.catalog.port import Catalog, NamedAppend, Rewrite, TableState
from frazil.catalog.progress import (
    LOOKUPS,
    OPEN_REPLAY,
    REMOVED,
    REPLAY,
    REPLAY_ID,
    REWRITE_ID,
    has_uncommitted_dead_letters,
    is_recorded,
)
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.dead_letters.files import abandoning, pieces, places_of, write_some
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.ingest.failures import TableStopped
from frazil.types import DataFile, Place, as_json
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_TRIES = 10
_NONE = "-"
_PLACE = ("topic", "partition", "offset")
_UNKNOWN = "the snapshots that show whether replayed dead letters are in the table were expired: replay="

Chosen = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Returns per dead letter whether it is chosen, bool `(n_rows,)`."""


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
    #: The versions of the reference tables that the rows were joined with, for the summary; empty without lookups.
    lookups: str = ""

    def dump(self) -> str:
        """Returns the JSON for the snapshot summary."""
        return as_json(asdict(self))


@dataclass(frozen=True)
class RemovedDeadLetters:
    """Dead letters to be removed: those in the files `removed` that are not in the files `added`."""

    #: The id of the replay.
    id: str
    #: The upsert table that has their rows.
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


def mark_replay(catalog: Catalog, dead_letters: TableState, pending: PendingReplay) -> None:
    """Sets the replay's property on the dead-letter table, before its commit. dead_letters: the table as it was read."""
    catalog.mark(dead_letters.name, OPEN_REPLAY + pending.id, str(dead_letters.head_id))


def mark_removal(catalog: Catalog, dead_letters: str, removal: RemovedDeadLetters) -> None:
    """Sets the replay's property on the dead-letter table, before the rows are committed."""
    since = _NONE if removal.since is None else str(removal.since)
    catalog.mark(dead_letters, OPEN_REPLAY + removal.id, f"{removal.read_at} {since} {removal.table}")


def clear_mark(catalog: Catalog, dead_letters: str, replay_id: str) -> None:
    """Removes the replay's property: both of its commits are made, or the first one never was."""
    catalog.mark(dead_letters, OPEN_REPLAY + replay_id, None)


def has_open_replays(dead_letters: TableState) -> bool:
    """Returns whether `settle_replays` has something to do."""
    return any(name.startswith(OPEN_REPLAY) for name in dead_letters.marks)


def settle_replays(catalog: Catalog, dead_letters: TableState) -> None:
    """Finishes every unfinished replay of this dead-letter table, or prevents its commit for good. dead_letters: the
    table as just loaded.

    Raises: TableStopped where it cannot be found out whether rows were added; otherwise as the catalog.
    """
    for name, mark in sorted(dead_letters.marks.items()):
        if name.startswith(OPEN_REPLAY):
            settle = _settle_removal if has_uncommitted_dead_letters(mark) else _settle_pending
            settle(catalog, dead_letters, name.removeprefix(OPEN_REPLAY), mark)


def _settle_pending(catalog: Catalog, dead_letters: TableState, replay_id: str, mark: str) -> None:
    unknown = TableStopped(
        _UNKNOWN + replay_id,
        "check whether their rows are in the table, add the files if they are not, and then remove the property that"
        f" ends in {OPEN_REPLAY}{replay_id} from the dead-letter table",
        dead_letters.name,
    )
    entry = _entry_of(catalog, dead_letters, (REWRITE_ID, REPLAY), replay_id, int(mark), unknown)
    if entry is None:
        clear_mark(catalog, dead_letters.name, replay_id)
        return
    pending = TypeAdapter(PendingReplay).validate_json(entry)
    state = catalog.load(pending.table)
    if state is None or state.uuid != pending.uuid:
        raise TableStopped(
            f"the rows of replayed dead letters belong to a table that no longer exists: replay={replay_id}",
            f"restore the table; or, to abandon these rows, remove the property that ends in {OPEN_REPLAY}{replay_id}",
            dead_letters.name,
        )
    is_committed = is_recorded(catalog.history(pending.table, (REPLAY_ID,)), REPLAY_ID, replay_id, pending.since)
    if is_committed is None:
        raise unknown
    if is_committed:
        clear_mark(catalog, dead_letters.name, replay_id)
    else:
        commit_pending(catalog, dead_letters.name, pending)


def commit_pending(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    """Adds the pending rows to their table unless they are there. Both tables have been loaded.

    Raises: ConflictError and UnavailableError as the catalog; the rows are still pending then.
    """
    summary = {LOOKUPS: pending.lookups} if pending.lookups else {}
    catalog.append_once(NamedAppend(pending.table, pending.files, REPLAY_ID, pending.id, pending.since, summary))
    hit("replay.appended")
    clear_mark(catalog, dead_letters, pending.id)
    hit("replay.done")


def _settle_removal(catalog: Catalog, dead_letters: TableState, replay_id: str, mark: str) -> None:
    _, since, table = mark.split(" ", 2)
    state, entry = catalog.load(table), None
    if state is not None:
        unknown = _removal_unknown(dead_letters.name, replay_id)
        first = None if since == _NONE else int(since)
        entry = _entry_of(catalog, state, (REPLAY_ID, REMOVED), replay_id, first, unknown)
    if entry is not None:
        remove_dead_letters(catalog, dead_letters.name, TypeAdapter(RemovedDeadLetters).validate_json(entry))
    clear_mark(catalog, dead_letters.name, replay_id)
    hit("replay.done")


def _entry_of(
    catalog: Catalog,
    table: TableState,
    names: tuple[str, str],
    replay_id: str,
    since: int | None,
    unknown: TableStopped,
) -> str | None:
    """Returns what the replay's commit to `table` has in its summary; None where that commit does not exist and never
    will. names: of the summary's entries with the replay's id and with the result. since: the snapshot before.

    Raises: `unknown` where the snapshots that would show it were expired.
    """

    def find() -> str | None:
        for snapshot in catalog.history(table.name, names):
            if snapshot.summary.get(names[0]) == replay_id:
                return snapshot.summary[names[1]]
            if snapshot.snapshot_id == since:
                return None
            if snapshot.is_cut:
                raise unknown
        return None

    entry = find()
    if entry is None:
        # The process that set the property may still be about to commit: this commit prevents it.
        catalog.append_once(NamedAppend(table.name, (), names[0], new_id(), table.head_id))
        catalog.load(table.name)
        entry = find()
    return entry


def remove_dead_letters(catalog: Catalog, dead_letters: str, removal: RemovedDeadLetters) -> None:
    """Removes the dead letters unless they are removed. Both tables have been loaded.

    Raises: TableStopped where the outcome cannot be found out; otherwise as the catalog. The removal is still unfinished
    then.
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
            leave_out(catalog, state, partial(_are_among, gone), _PLACE, removal.id)
            return
    raise ConflictError(
        "other replays of dead letters are running", remedy="replay again when they have finished", where=dead_letters
    )


def _are_among(places: set[Place], rows: pa.Table) -> pa.Array:
    return pa.array([place in places for place in places_of(rows)], pa.bool_())


def _places(dead_letters: TableTarget, removal: RemovedDeadLetters, paths: Iterable[str]) -> set[Place]:
    """Returns the places of the records of the dead letters in these files."""
    places: set[Place] = set()
    try:
        for path in paths:
            for rows in pieces(dead_letters, LiveFile(path, 0, ""), _PLACE):
                places.update(places_of(rows))
    except FileNotFoundError:
        raise _removal_unknown(dead_letters.name, removal.id) from None
    return places


def touched(catalog: Catalog, dead_letters: TableState, chosen: Chosen, columns: Sequence[str]) -> list[LiveFile]:
    """Returns the files of the dead-letter table with dead letters that `chosen`, from these columns, chooses; none where
    the table was empty when it was loaded, even if it has files by now.
    """
    if dead_letters.head_id is None:
        return []
    target = plain_target(dead_letters)
    files = catalog.scan(dead_letters.name).files
    return [file for file in files if any(pc.any(chosen(rows)).as_py() for rows in pieces(target, file, columns))]


def leave_out(
    catalog: Catalog, dead_letters: TableState, chosen: Chosen, columns: Sequence[str], replay_id: str
) -> int:
    """Deletes the chosen dead letters from the table as it was read; returns their number. chosen, columns: as of
    `touched`.

    Raises: as `replace_files`.
    """
    target, files, count = plain_target(dead_letters), touched(catalog, dead_letters, chosen, columns), 0
    writer = FileWriter(target)
    with abandoning(writer):
        for rows in (rows for file in files for rows in pieces(target, file)):
            is_gone = chosen(rows)
            count += pc.sum(is_gone).as_py() or 0
            write_some(writer, rows.filter(pc.invert(is_gone)))
        added = tuple(writer.finish())
    if files:
        replace_files(catalog, dead_letters, replay_id, tuple(file.path for file in files), added)
    return count


def replace_files(
    catalog: Catalog,
    dead_letters: TableState,
    replay_id: str,
    removed: tuple[str, ...],
    added: tuple[DataFile, ...],
    summary: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Replaces files of the dead-letter table as it was read. summary: further entries of the snapshot's summary.

    Raises: ConflictError, after `added` was deleted; otherwise as the catalog.
    """
    assert dead_letters.head_id is not None
    try:
        catalog.rewrite(Rewrite(dead_letters.name, dead_letters.head_id, replay_id, removed, added, summary))
    except ConflictError:
        catalog.delete_files(dead_letters.name, [file.path for file in added])
        raise


def _removal_unknown(dead_letters: str, replay_id: str) -> TableStopped:
    return TableStopped(
        _UNKNOWN + replay_id,
        "check whether their rows are in the table, drop the dead letters if they are, and then remove the property"
        f" that ends in {OPEN_REPLAY}{replay_id} from the dead-letter table",
        dead_letters,
    )
