"""Pending rows of replayed dead letters: a two-step commit that any process can finish (docs/decisions/0010).

The commit that removes dead letters from a dead-letter table names the files with their rows. A second commit adds
these files to the table, once, under the replay's id. Until then the dead-letter table has a property with that id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from frazil.catalog.history import OPEN_REPLAY, REPLAY, REPLAY_ID, REWRITE_ID, has_uncommitted_dead_letters, is_recorded
from frazil.catalog.port import Catalog, TableState
from frazil.clock import new_id
from frazil.dead_letters.removal import settle_removal
from frazil.failpoints import hit
from frazil.ingest.failures import TableStopped
from frazil.types import DataFile, as_json


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
