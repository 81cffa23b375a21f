"""What a retry of dead letters promises, and how it is kept by whoever finds it (docs/decisions/0010).

The commit that takes letters out of a dead-letter table names the files with their rows. They are added to the table
afterwards, under the retry's id and only once. While that is to do, the dead-letter table has a mark with the id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from frazil.catalog.history import OPEN_RETRY, RETRY, RETRY_ID, REWRITE_ID, has_uncommitted_dead_letters, is_recorded
from frazil.catalog.port import Catalog, TableState
from frazil.clock import new_id
from frazil.dead_letters.removal import settle_removal
from frazil.failpoints import hit
from frazil.ingest.discovery import TableStopped
from frazil.types import DataFile, as_json


@dataclass(frozen=True)
class PendingReplay:
    """Rows of retried letters, in `files`, for the table `table`. uuid: of that table. since: its newest snapshot before
    the promise; None when it had none.
    """

    id: str
    table: str
    uuid: str
    since: int | None
    files: tuple[DataFile, ...]

    def dump(self) -> str:
        """As JSON, for the summary."""
        return as_json(asdict(self))

    @staticmethod
    def load(text: str) -> PendingReplay:
        """What `dump` wrote."""
        fields = json.loads(text)
        return PendingReplay(**{**fields, "files": tuple(DataFile(**file) for file in fields["files"])})


def announce(catalog: Catalog, dead_letters: TableState, pending: PendingReplay) -> None:
    """Marks the dead-letter table before the promise is made. dead_letters: as it was read."""
    catalog.mark(dead_letters.name, OPEN_RETRY + pending.id, str(dead_letters.head_id))


def has_open_retries(dead_letters: TableState) -> bool:
    """Whether `settle_retries` has something to do."""
    return any(name.startswith(OPEN_RETRY) for name in dead_letters.marks)


def withdraw(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    """Takes the mark away: the promise is kept, or was never made."""
    catalog.mark(dead_letters, OPEN_RETRY + pending.id, None)


def keep(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    """Adds the promised rows to their table, unless they are there. Both tables have been loaded.

    ConflictError and UnavailableError as the catalog says; the promise is then still to be kept.
    """
    catalog.append_once(pending.table, pending.files, RETRY_ID, pending.id, pending.since)
    hit("replay.appended")
    withdraw(catalog, dead_letters, pending)
    hit("replay.done")


def settle_retries(catalog: Catalog, dead_letters: TableState) -> None:
    """Keeps every promise of this dead-letter table that is still to be kept: a retry died half-way.

    dead_letters: as loaded just now. Raises TableStopped where nobody can tell whether a promise has been kept.
    """
    for retry_id, mark in _open_retries(dead_letters):
        if has_uncommitted_dead_letters(mark):
            settle_removal(catalog, dead_letters.name, retry_id, mark)
            continue
        read_at = int(mark)
        pending = _find(catalog, dead_letters.name, retry_id, read_at)
        if pending is None:
            # Whoever announced it may still be about to make it: not after this commit, which stands in its way.
            catalog.append_once(dead_letters.name, (), REWRITE_ID, new_id(), dead_letters.head_id)
            catalog.load(dead_letters.name)
            pending = _find(catalog, dead_letters.name, retry_id, read_at)
        if pending is None:
            catalog.mark(dead_letters.name, OPEN_RETRY + retry_id, None)
            continue
        _keep_found(catalog, dead_letters.name, pending)


def _open_retries(dead_letters: TableState) -> Iterator[tuple[str, str]]:
    for name, value in sorted(dead_letters.marks.items()):
        if name.startswith(OPEN_RETRY):
            yield name.removeprefix(OPEN_RETRY), value


def _find(catalog: Catalog, dead_letters: str, retry_id: str, read_at: int) -> PendingReplay | None:
    """The promise of this id, made after the snapshot `read_at`; None when it was not made."""
    for said in catalog.history(dead_letters, (RETRY, REWRITE_ID)):
        if said.words.get(REWRITE_ID) == retry_id:
            return PendingReplay.load(said.words[RETRY])
        if said.snapshot_id == read_at:
            return None
        if said.is_cut:
            raise _untold(dead_letters, retry_id)
    return None


def _keep_found(catalog: Catalog, dead_letters: str, pending: PendingReplay) -> None:
    state = catalog.load(pending.table)
    if state is None or state.uuid != pending.uuid:
        raise TableStopped(
            f"the rows of replayed dead letters belong to a table that no longer exists: replay={pending.id}",
            f"restore the table; or, to abandon these rows, remove the property that ends in {OPEN_RETRY}{pending.id}",
            dead_letters,
        )
    there = is_recorded(catalog.history(pending.table, (RETRY_ID,)), RETRY_ID, pending.id, pending.since)
    if there is None:
        raise _untold(dead_letters, pending.id)
    if there:
        withdraw(catalog, dead_letters, pending)
    else:
        keep(catalog, dead_letters, pending)


def _untold(dead_letters: str, retry_id: str) -> TableStopped:
    return TableStopped(
        f"the snapshots that show whether replayed dead letters are in the table were expired: replay={retry_id}",
        "check whether their rows are in the table, add the files if they are not, and then remove the property that"
        f" ends in {OPEN_RETRY}{retry_id} from the dead-letter table",
        dead_letters,
    )
