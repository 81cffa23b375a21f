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
_FIRST_ROW_ID = "first-row-id"
_OF_COLUMNS = (
    "column-sizes",
    "value-counts",
    "null-value-counts",
    "nan-value-counts",
    "lower-bounds",
    "upper-bounds",
)


@dataclass(frozen=True)
class LiveFile:
    """A data file of one snapshot, with the delete files that apply to it. content: Iceberg's own JSON of it."""

    path: str
    record_count: int
    content: str
    deletes: tuple[DeleteFile, ...] = ()

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """The file as its JSON describes it, such as its partition and format, but for what that says of columns."""
        return {name: said for name, said in json.loads(self.content).items() if name not in _OF_COLUMNS}

    def column_metrics(self, field_id: int) -> Mapping[str, Any]:
        """What the JSON says of one column, such as its `lower-bounds`. Of the others nothing is kept: a table may have
        hundreds, and be of thousands of files.
        """
        if field_id not in self._column_metrics:
            described = json.loads(self.content)
            maps = {name: described[name] for name in _OF_COLUMNS if described.get(name)}
            said = {name: dict(zip(held["keys"], held["values"], strict=True)) for name, held in maps.items()}
            self._column_metrics[field_id] = {name: held[field_id] for name, held in said.items() if field_id in held}
        return self._column_metrics[field_id]

    @cached_property
    def _column_metrics(self) -> dict[int, Mapping[str, Any]]:
        return {}

    def with_deletes(self, deletes: tuple[DeleteFile, ...]) -> LiveFile:
        """The file with these delete files; what has been read of its JSON need not be read again."""
        other = LiveFile(self.path, self.record_count, self.content, deletes)
        known = {name: held for name, held in vars(self).items() if name in ("description", "_column_metrics")}
        vars(other).update(known)
        return other

    @property
    def first_row_id(self) -> int | None:
        """The id of its first row; the others follow by their places. None before format 3, and before its commit."""
        return self.description.get(_FIRST_ROW_ID)


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


def is_numbered(content: str) -> bool:
    """Whether a file's JSON says which ids its rows have."""
    return f'"{_FIRST_ROW_ID}"' in content


def numbered(content: str, first_row_id: int | None) -> str:
    """A file's JSON with the id that the commit gave its first row, if it gave one."""
    return content if first_row_id is None else json.dumps({**json.loads(content), _FIRST_ROW_ID: first_row_id})


def after_commit(scan: Scan, commit: Commit, snapshot_id: int, first_row_ids: Mapping[str, int]) -> Scan:
    """What is in the table after a commit right on top of `scan`. first_row_ids: of its files, in format 3."""
    deletes: dict[str, list[DeleteFile]] = {}
    replaced: frozenset[DeleteFile] = frozenset()
    removed: frozenset[str] = frozenset()
    if commit.delta is not None:
        replaced = frozenset(commit.delta.replaced)
        removed = frozenset(file.path for file in commit.delta.removed)
        for delete in commit.delta.deletes:
            deletes.setdefault(delete.data_file, []).append(delete)
    files = [_moved(file, deletes.get(file.path, []), replaced) for file in scan.files if file.path not in removed]
    for file in commit.files:
        content = numbered(file.content, first_row_ids.get(file.path))
        files.append(LiveFile(file.path, file.record_count, content, tuple(deletes.get(file.path, ()))))
    return Scan(snapshot_id, tuple(files))


def _moved(file: LiveFile, added: list[DeleteFile], replaced: frozenset[DeleteFile]) -> LiveFile:
    if not added and replaced.isdisjoint(file.deletes):
        return file
    left = tuple(delete for delete in file.deletes if delete not in replaced)
    return file.with_deletes((*left, *added))
