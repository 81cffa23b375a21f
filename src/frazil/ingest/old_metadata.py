"""Tables that keep the metadata file of every commit: one commit a second fills a disk."""

from __future__ import annotations

from frazil.catalog.port import TableState

DELETES_OLD = "write.metadata.delete-after-commit.enabled"
"""Iceberg's property; nothing removes the old metadata files of a table without it."""


def keeps_old_metadata(state: TableState | None) -> str:
    """Returns a warning for a table without Iceberg's property about old metadata files; empty for other tables."""
    if state is None or DELETES_OLD in state.properties:
        return ""
    return (
        "every commit leaves a metadata file behind, 86,400 a day with a commit a second, until table maintenance"
        f" removes it as an orphan. `ALTER TABLE {state.name} SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`: then each"
        " commit removes the oldest one"
    )
