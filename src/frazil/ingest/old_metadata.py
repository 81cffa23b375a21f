"""Tables that keep the metadata file of every commit: with a commit a second these fill a disk."""

from __future__ import annotations

from frazil.catalog.port import TableState

DELETES_OLD = "write.metadata.delete-after-commit.enabled"
"""Iceberg's property; where a table does not have it, nothing removes its old metadata files."""


def keeps_old_metadata(state: TableState | None) -> str:
    """What to mind where a table that is there does not say what becomes of them; empty where it does, whatever it says."""
    if state is None or DELETES_OLD in state.properties:
        return ""
    return (
        "every commit leaves a metadata file behind, 86,400 a day with a commit a second, until table maintenance"
        f" removes it as an orphan. `ALTER TABLE {state.name} SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`: then each"
        " commit removes the oldest one"
    )
