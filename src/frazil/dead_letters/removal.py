"""How letters go whose rows have come to a table where records replace rows (docs/decisions/0010).

Whether a row may come is true of one moment of the table alone, so its commit comes first, and names in its summary what the
dead-letter table has to lose by it. That is done afterwards, once, by whoever finds it undone. While it is to do, the
dead-letter table has a mark with the retry's id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

import pyarrow as pa

from frazil.catalog.history import OPEN_RETRY, REMOVED, RETRY_ID, REWRITE_ID, is_recorded
from frazil.catalog.port import Catalog, Rewrite, StoredFile, TableState
from frazil.clock import new_id
from frazil.dead_letters.files import Place, pieces, places_of
from frazil.dead_letters.rewriting import abandoning, write_some
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.ingest.discovery import TableStopped
from frazil.types import DataFile, as_json
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_TRIES = 10
_NONE = "-"


@dataclass(frozen=True)
class RemovedDeadLetters:
    """Letters that go: those in files `removed` of the dead-letter table, as it was at the snapshot `read_at`, which are not
    in the files `added` that come in their place. id: of the retry. table: that has their rows, in a snapshot after `since`;
    None: it had none.
    """

    id: str
    table: str
    since: int | None
    read_at: int
    removed: tuple[str, ...]
    added: tuple[DataFile, ...]

    def dump(self) -> str:
        """As JSON, for the summary."""
        return as_json(asdict(self))

    @staticmethod
    def load(text: str) -> RemovedDeadLetters:
        """What `dump` wrote."""
        fields = json.loads(text)
        added = tuple(DataFile(**file) for file in fields["added"])
        return RemovedDeadLetters(**{**fields, "removed": tuple(fields["removed"]), "added": added})


def announce_removal(catalog: Catalog, dead_letters: str, taken: RemovedDeadLetters) -> None:
    """Marks the dead-letter table before the rows are committed."""
    since = _NONE if taken.since is None else str(taken.since)
    catalog.mark(dead_letters, OPEN_RETRY + taken.id, f"{taken.read_at} {since} {taken.table}")


def withdraw_removal(catalog: Catalog, dead_letters: str, retry_id: str) -> None:
    """Takes the mark away: the letters are gone, or the rows were never committed."""
    catalog.mark(dead_letters, OPEN_RETRY + retry_id, None)


def settle_removal(catalog: Catalog, dead_letters: str, retry_id: str, mark: str) -> None:
    """Finishes a retry that died half-way, or stands in its way for good. dead_letters: has been loaded.

    Raises TableStopped where nobody can tell what it has done, else as the catalog does.
    """
    _, since, table = mark.split(" ", 2)
    taken = _find(catalog, dead_letters, table, retry_id, None if since == _NONE else int(since))
    if taken is not None:
        take_out(catalog, dead_letters, taken)
    withdraw_removal(catalog, dead_letters, retry_id)
    hit("replay.done")


def take_out(catalog: Catalog, dead_letters: str, taken: RemovedDeadLetters) -> None:
    """Takes the letters away, unless they are gone. Both tables have been loaded.

    Raises as `settle_removal`; it is then still to be done.
    """
    is_done = is_recorded(catalog.history(dead_letters, (REWRITE_ID,)), REWRITE_ID, taken.id, taken.read_at)
    if is_done:
        return
    if is_done is False:
        with suppress(ConflictError):
            catalog.rewrite(Rewrite(dead_letters, taken.read_at, taken.id, taken.removed, taken.added))
            return
    _take_out_one_by_one(catalog, dead_letters, taken)
    if is_done is False:
        catalog.delete_files(dead_letters, [file.path for file in taken.added])


def _find(
    catalog: Catalog, dead_letters: str, table: str, retry_id: str, since: int | None
) -> RemovedDeadLetters | None:
    """What the table says of this retry; None where it has not got its rows, and never will."""
    state = catalog.load(table)
    if state is None:
        return None
    taken = _said(catalog, dead_letters, table, retry_id, since)
    if taken is None:
        # Whoever announced it may still be about to commit the rows: not after this commit, which stands in its way.
        catalog.append_once(table, (), RETRY_ID, new_id(), state.head_id)
        catalog.load(table)
        taken = _said(catalog, dead_letters, table, retry_id, since)
    return taken


def _said(
    catalog: Catalog, dead_letters: str, table: str, retry_id: str, since: int | None
) -> RemovedDeadLetters | None:
    for said in catalog.history(table, (RETRY_ID, REMOVED)):
        if said.words.get(RETRY_ID) == retry_id:
            return RemovedDeadLetters.load(said.words[REMOVED])
        if said.snapshot_id == since:
            return None
        if said.is_cut:
            raise _untold(dead_letters, retry_id)
    return None


def _take_out_one_by_one(catalog: Catalog, dead_letters: str, taken: RemovedDeadLetters) -> None:
    """The files are no longer those that were read: others have compacted them, or dropped letters."""
    for _ in range(_TRIES):
        state = catalog.load(dead_letters)
        if state is None:
            return
        target = plain_target(state)
        gone = _places(target, taken, taken.removed) - _places(target, taken, (file.path for file in taken.added))
        with suppress(ConflictError):
            _leave_out(catalog, state, gone, taken.id)
            return
    raise ConflictError(
        "other replays of dead letters are running", remedy="replay again when they have finished", where=dead_letters
    )


def _places(dead_letters: TableTarget, taken: RemovedDeadLetters, paths: Iterable[str]) -> set[Place]:
    """Where the records of the letters in these files lie."""
    found: set[Place] = set()
    try:
        for path in paths:
            for rows in pieces(dead_letters, StoredFile(path, 0, 0), ("topic", "partition", "offset")):
                found.update(places_of(rows))
    except FileNotFoundError:
        raise _untold(dead_letters.name, taken.id) from None
    return found


def _leave_out(catalog: Catalog, state: TableState, gone: set[Place], retry_id: str) -> None:
    target, removed = plain_target(state), []
    writer = FileWriter(target)
    with abandoning(writer):
        for file in catalog.files(state.name):
            lots = list(pieces(target, file))
            masks = [pa.array([place in gone for place in places_of(rows)], pa.bool_()) for rows in lots]
            if any(mask.true_count for mask in masks):
                removed.append(file.path)
                for rows, mask in zip(lots, masks, strict=True):
                    write_some(writer, rows.filter(pa.compute.invert(mask)))
        added = tuple(writer.finish())
    if not removed:
        return
    assert state.head_id is not None
    try:
        catalog.rewrite(Rewrite(state.name, state.head_id, retry_id, tuple(removed), added))
    except ConflictError:
        catalog.delete_files(state.name, [file.path for file in added])
        raise


def _untold(dead_letters: str, retry_id: str) -> TableStopped:
    return TableStopped(
        f"the snapshots that show whether replayed dead letters are in the table were expired: replay={retry_id}",
        "check whether their rows are in the table, drop the dead letters if they are, and then remove the property"
        f" that ends in {OPEN_RETRY}{retry_id} from the dead-letter table",
        dead_letters,
    )
