"""What the snapshots of a table's main branch say of this pipeline, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RETRY = "replay"
"""Summary key of a dead-letter table: what the retry that made this snapshot promises."""
RETRY_ID = "replay-id"
"""Summary key of a table: the retry whose rows this snapshot added."""
REMOVED = "replayed-dead-letters"
"""Summary key of a table whose records replace rows: the letters that go, as their rows came with this snapshot."""
COMMIT_ID = "commit-id"
"""Summary key of a table: the commit that moved its progress."""
OPEN_RETRY = "replaying."
"""What the mark of a retry that is not finished begins with; its value begins with the snapshot that the retry has read."""
DEAD_LETTERS_MARK = "dead-letters"
"""The mark of a table that has a dead-letter table: its name."""
SENT_MARK = "dead-letters-published"
"""The mark of a dead-letter table whose letters go to a Kafka topic too: the commit whose letters are known to be there."""
REWRITE_ID = "rewrite-id"
"""Summary key of a dead-letter table: the retry or the drop that made this snapshot."""
MAINTENANCE_ID = "maintenance-id"
"""Summary key of a table: the commit of table care that made this snapshot."""


@dataclass(frozen=True)
class LoggedSnapshot:
    """One snapshot. words: what it says under those of this pipeline's keys that were asked for, without their prefix.
    is_cut: the snapshot before it is no longer there.
    """

    snapshot_id: int
    words: Mapping[str, str]
    is_cut: bool = False


def is_recorded(history: Iterable[LoggedSnapshot], name: str, value: str, since: int | None) -> bool | None:
    """Whether a snapshot after `since` says so; None where the history that is left does not reach back so far.

    since: None for the beginning of the table.
    """
    for said in history:
        if said.words.get(name) == value:
            return True
        if said.snapshot_id == since:
            return False
        if said.is_cut:
            return None
    return False


def is_undisturbed(history: Iterable[LoggedSnapshot], name: str, since: int) -> bool:
    """Whether the snapshot `since` is there and none after it says anything under `name`."""
    for said in history:
        if said.snapshot_id == since:
            return True
        if name in said.words:
            return False
    return False


def read_by_retry(name: str, value: str) -> int | None:
    """The snapshot of its dead-letter table that an open retry has read; None where the mark is another one."""
    return int(value.split(" ", 1)[0]) if name.startswith(OPEN_RETRY) else None


def is_unmoved(history: Iterable[LoggedSnapshot], since: int | None, commit_id: str) -> bool:
    """Whether the newest progress is that of `commit_id` (empty: none), and no snapshot after `since` has rows of a retry.

    since: None for the beginning of the table.
    """
    newest: str | None = None
    is_after = True
    for said in history:
        is_after = is_after and said.snapshot_id != since
        newest = said.words.get(COMMIT_ID) if newest is None else newest
        if is_after and (RETRY_ID in said.words or said.is_cut):
            return False
        if not is_after and newest is not None:
            break
    return (newest or "") == commit_id and (not is_after or since is None)


def has_uncommitted_dead_letters(mark: str) -> bool:
    """Whether an open retry, by the value of its mark, has files of the dead-letter table that no snapshot of it names yet:
    those that stand in the summary under TAKEN.
    """
    return " " in mark
