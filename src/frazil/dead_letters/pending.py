"""What a retry of dead letters promises, and how it is kept by whoever finds it (docs/decisions/0010).

The commit that takes letters out of a dead-letter table names the files with their rows. They are added to the table
afterwards, under the retry's id and only once. While that is to do, the dead-letter table has a mark with the id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from frazil.catalog.history import OPEN_RETRY, RETRY, RETRY_ID, REWRITE_ID, has_letters_to_come, was_said
from frazil.catalog.port import Catalog, TableState
from frazil.clock import new_id
from frazil.dead_letters.removal import settle_taken
from frazil.failpoints import hit
from frazil.ingest.discovery import TableStopped
from frazil.types import DataFile, as_json


@dataclass(frozen=True)
class Promise:
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
    def load(text: str) -> Promise:
        """What `dump` wrote."""
        fields = json.loads(text)
        return Promise(**{**fields, "files": tuple(DataFile(**file) for file in fields["files"])})


def announce(catalog: Catalog, letters: TableState, promise: Promise) -> None:
    """Marks the dead-letter table before the promise is made. letters: as it was read."""
    catalog.mark(letters.name, OPEN_RETRY + promise.id, str(letters.head_id))


def has_open_retries(letters: TableState) -> bool:
    """Whether `settle_retries` has something to do."""
    return any(name.startswith(OPEN_RETRY) for name in letters.marks)


def withdraw(catalog: Catalog, letters: str, promise: Promise) -> None:
    """Takes the mark away: the promise is kept, or was never made."""
    catalog.mark(letters, OPEN_RETRY + promise.id, None)


def keep(catalog: Catalog, letters: str, promise: Promise) -> None:
    """Adds the promised rows to their table, unless they are there. Both tables have been loaded.

    ConflictError and UnavailableError as the catalog says; the promise is then still to be kept.
    """
    catalog.append_once(promise.table, promise.files, RETRY_ID, promise.id, promise.since)
    hit("retry.appended")
    withdraw(catalog, letters, promise)
    hit("retry.done")


def settle_retries(catalog: Catalog, letters: TableState) -> None:
    """Keeps every promise of this dead-letter table that is still to be kept: a retry died half-way.

    letters: as loaded just now. Raises TableStopped where nobody can tell whether a promise has been kept.
    """
    for retry_id, mark in _open_retries(letters):
        if has_letters_to_come(mark):
            settle_taken(catalog, letters.name, retry_id, mark)
            continue
        read_at = int(mark)
        promise = _find(catalog, letters.name, retry_id, read_at)
        if promise is None:
            # Whoever announced it may still be about to make it: not after this commit, which stands in its way.
            catalog.append_once(letters.name, (), REWRITE_ID, new_id(), letters.head_id)
            catalog.load(letters.name)
            promise = _find(catalog, letters.name, retry_id, read_at)
        if promise is None:
            catalog.mark(letters.name, OPEN_RETRY + retry_id, None)
            continue
        _keep_found(catalog, letters.name, promise)


def _open_retries(letters: TableState) -> Iterator[tuple[str, str]]:
    for name, value in sorted(letters.marks.items()):
        if name.startswith(OPEN_RETRY):
            yield name.removeprefix(OPEN_RETRY), value


def _find(catalog: Catalog, letters: str, retry_id: str, read_at: int) -> Promise | None:
    """The promise of this id, made after the snapshot `read_at`; None when it was not made."""
    for said in catalog.history(letters, (RETRY, REWRITE_ID)):
        if said.words.get(REWRITE_ID) == retry_id:
            return Promise.load(said.words[RETRY])
        if said.snapshot_id == read_at:
            return None
        if said.is_cut:
            raise _untold(letters, retry_id)
    return None


def _keep_found(catalog: Catalog, letters: str, promise: Promise) -> None:
    state = catalog.load(promise.table)
    if state is None or state.uuid != promise.uuid:
        raise TableStopped(
            f"the rows of retried dead letters are for a table that is no longer there: retry={promise.id}",
            f"restore the table; or, to do without these rows, remove the property that ends in {OPEN_RETRY}{promise.id}",
            letters,
        )
    there = was_said(catalog.history(promise.table, (RETRY_ID,)), RETRY_ID, promise.id, promise.since)
    if there is None:
        raise _untold(letters, promise.id)
    if there:
        withdraw(catalog, letters, promise)
    else:
        keep(catalog, letters, promise)


def _untold(letters: str, retry_id: str) -> TableStopped:
    return TableStopped(
        f"snapshots were expired that say whether retried dead letters are in the table: retry={retry_id}",
        "look whether their rows are in the table, add the files if they are not, and then remove the property that ends"
        f" in {OPEN_RETRY}{retry_id} from the dead-letter table",
        letters,
    )
