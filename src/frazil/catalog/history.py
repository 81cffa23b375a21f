"""Frazil's entries in the snapshot summaries of a table's main branch, and its table properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

REPLAY = "replay"
"""Summary key of a dead-letter table: the pending rows of the replay that made this snapshot."""
REPLAY_ID = "replay-id"
"""Summary key of a table: the replay whose rows this snapshot added."""
REMOVED = "replayed-dead-letters"
"""Summary key of an upsert table: the dead letters to be removed, whose rows this snapshot added."""
COMMIT_ID = "commit-id"
"""Summary key of a table: the commit that advanced its progress."""
OPEN_REPLAY = "replaying."
"""Prefix of the table property of an unfinished replay; its value begins with the snapshot that the replay has read."""
DEAD_LETTERS_MARK = "dead-letters"
"""Property of a table that has a dead-letter table: the name of that table."""
SENT_MARK = "dead-letters-published"
"""Property of a dead-letter table whose dead letters are also sent to a Kafka topic: the commit whose dead letters are
known to be there.
"""
REWRITE_ID = "rewrite-id"
"""Summary key of a dead-letter table: the replay or the drop that made this snapshot."""
MAINTENANCE_ID = "maintenance-id"
"""Summary key of a table: the commit of table maintenance that made this snapshot."""


@dataclass(frozen=True)
class LoggedSnapshot:
    """One snapshot of the main branch."""

    #: Its id.
    snapshot_id: int
    #: The values of the requested summary keys of this pipeline, by key without the prefix.
    summary: Mapping[str, str]
    #: Whether the snapshot before it has been expired.
    is_cut: bool = False


def is_recorded(history: Iterable[LoggedSnapshot], name: str, value: str, since: int | None) -> bool | None:
    """Returns whether a snapshot after `since` has this value under `name`; None where the remaining history does not
    reach back so far. since: None for the creation of the table.
    """
    for snapshot in history:
        if snapshot.summary.get(name) == value:
            return True
        if snapshot.snapshot_id == since:
            return False
        if snapshot.is_cut:
            return None
    return False


def is_undisturbed(history: Iterable[LoggedSnapshot], name: str, since: int) -> bool:
    """Returns whether the snapshot `since` exists and no snapshot after it has a value under `name`."""
    for snapshot in history:
        if snapshot.snapshot_id == since:
            return True
        if name in snapshot.summary:
            return False
    return False


def read_by_replay(name: str, value: str) -> int | None:
    """Returns the snapshot of the dead-letter table that an unfinished replay has read; None for another property."""
    return int(value.split(" ", 1)[0]) if name.startswith(OPEN_REPLAY) else None


def is_unmoved(history: Iterable[LoggedSnapshot], since: int | None, commit_id: str) -> bool:
    """Returns whether the newest progress is that of `commit_id` (empty: none), and no snapshot after `since` has rows
    of a replay. since: None for the creation of the table.
    """
    newest: str | None = None
    is_after = True
    for snapshot in history:
        is_after = is_after and snapshot.snapshot_id != since
        newest = snapshot.summary.get(COMMIT_ID) if newest is None else newest
        if is_after and (REPLAY_ID in snapshot.summary or snapshot.is_cut):
            return False
        if not is_after and newest is not None:
            break
    return (newest or "") == commit_id and (not is_after or since is None)


def has_uncommitted_dead_letters(mark: str) -> bool:
    """Returns whether an unfinished replay, by the value of its property, has files of the dead-letter table that no
    snapshot of that table names yet: they are in the upsert table's summary, under REMOVED.
    """
    return " " in mark
