"""What is in a table, from Iceberg's own JSON of its files, and how a commit moves that on. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from frazil.types import Commit, DeleteFile

FILE_PATH_ID = 2147483546
"""The field id of the column `file_path` in files of position deletes."""


@dataclass(frozen=True)
class LiveFile:
    """A data file of one snapshot, with the delete files that apply to it. content: Iceberg's own JSON of it."""

    path: str
    record_count: int
    content: str
    deletes: tuple[DeleteFile, ...] = ()

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """The file as its JSON describes it: bounds, partition, format."""
        described: dict[str, Any] = json.loads(self.content)
        return described


@dataclass(frozen=True)
class Scan:
    """What is in a table at the snapshot `read_at`; None and nothing before the first one."""

    read_at: int | None = None
    files: tuple[LiveFile, ...] = ()


def delete_file_of(content: str) -> DeleteFile:
    """A delete file from its JSON."""
    described: dict[str, Any] = json.loads(content)
    if described["content"] == "equality-deletes":
        kind = "equality"
    else:
        kind = "vector" if described["file-format"].lower() == "puffin" else "positions"
    named = described.get("referenced-data-file") or _only_path(described)
    return DeleteFile(described["file-path"], kind, named, described["record-count"], content)


def _only_path(described: Mapping[str, Any]) -> str:
    """The data file of position deletes that speak of one alone: the bounds of the path are then equal and not cut."""
    lower, upper = (_bound(described.get(name)) for name in ("lower-bounds", "upper-bounds"))
    return bytes.fromhex(lower).decode() if lower and lower == upper else ""


def _bound(bounds: Mapping[str, Any] | None) -> str:
    found = dict(zip(bounds["keys"], bounds["values"], strict=True)) if bounds else {}
    return str(found.get(FILE_PATH_ID, ""))


def after_commit(scan: Scan, commit: Commit, snapshot_id: int) -> Scan:
    """What is in the table after a commit right on top of `scan`."""
    deletes: dict[str, list[DeleteFile]] = {}
    replaced: frozenset[DeleteFile] = frozenset()
    removed: frozenset[str] = frozenset()
    if commit.delta is not None:
        replaced = frozenset(commit.delta.replaced)
        removed = frozenset(file.path for file in commit.delta.removed)
        for delete in commit.delta.deletes:
            deletes.setdefault(delete.data_file, []).append(delete)
    files = [_moved(file, deletes.get(file.path, []), replaced) for file in scan.files if file.path not in removed]
    files += [
        LiveFile(file.path, file.record_count, file.content, tuple(deletes.get(file.path, ()))) for file in commit.files
    ]
    return Scan(snapshot_id, tuple(files))


def _moved(file: LiveFile, added: list[DeleteFile], replaced: frozenset[DeleteFile]) -> LiveFile:
    if not added and replaced.isdisjoint(file.deletes):
        return file
    left = tuple(delete for delete in file.deletes if delete not in replaced)
    return LiveFile(file.path, file.record_count, file.content, (*left, *added))
