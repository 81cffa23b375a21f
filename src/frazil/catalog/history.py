"""What the snapshots of a table's main branch say of this pipeline, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RETRY = "retry"
"""Summary key of a dead-letter table: what the retry that made this snapshot promises."""
RETRY_ID = "retry-id"
"""Summary key of a table: the retry whose rows this snapshot added."""
OPEN_RETRY = "retrying."
"""What the mark of a retry that is not finished begins with; its value is the snapshot that the retry has read."""
LETTERS_MARK = "dead-letters"
"""The mark of a table that has a dead-letter table: its name."""
REWRITE_ID = "rewrite-id"
"""Summary key of a dead-letter table: the retry or the drop that made this snapshot."""


@dataclass(frozen=True)
class Said:
    """One snapshot. words: what it says under those of this pipeline's keys that were asked for, without their prefix.
    is_cut: the snapshot before it is no longer there.
    """

    snapshot_id: int
    words: Mapping[str, str]
    is_cut: bool = False


def was_said(history: Iterable[Said], name: str, value: str, since: int | None) -> bool | None:
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


def is_undisturbed(history: Iterable[Said], name: str, since: int) -> bool:
    """Whether the snapshot `since` is there and none after it says anything under `name`."""
    for said in history:
        if said.snapshot_id == since:
            return True
        if name in said.words:
            return False
    return False
