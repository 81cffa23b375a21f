"""The live files of a table at one snapshot, from Iceberg's JSON of files, and how a commit changes them. Pure."""

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
    """A data file of one snapshot, with the delete files that apply to it."""

    path: str
    #: The number of its rows.
    record_count: int
    #: Iceberg's JSON of the file.
    content: str
    #: The delete files.
    deletes: tuple[DeleteFile, ...] = ()

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """The file's JSON without the metrics of columns, such as its partition and format."""
        return {name: value for name, value in json.loads(self.content).items() if name not in _OF_COLUMNS}

    @property
    def file_format(self) -> str:
        """The format of the file: `parquet`, `orc` or `avro`."""
        return str(self.description["file-format"]).lower()

    def column_metrics(self, field_id: int) -> Mapping[str, Any]:
        """Returns the metrics of one column in the file's JSON, such as `lower-bounds`. Metrics of other columns are
        not kept in memory: a table may have hundreds of columns and thousands of files.
        """
        if field_id not in self._column_metrics:
            described = json.loads(self.content)
            maps = {name: described[name] for name in _OF_COLUMNS if described.get(name)}
            metrics = {name: dict(zip(held["keys"], held["values"], strict=True)) for name, held in maps.items()}
            self._column_metrics[field_id] = {
                name: held[field_id] for name, held in metrics.items() if field_id in held
            }
        return self._column_metrics[field_id]

    @cached_property
    def _column_metrics(self) -> dict[int, Mapping[str, Any]]:
        return {}

    def with_deletes(self, deletes: tuple[DeleteFile, ...]) -> LiveFile:
        """Returns the file with these delete files; JSON that was parsed is not parsed again."""
        other = LiveFile(self.path, self.record_count, self.content, deletes)
        cached = {name: held for name, held in vars(self).items() if name in ("description", "_column_metrics")}
        vars(other).update(cached)
        return other

    @property
    def first_row_id(self) -> int | None:
        """The row id of the file's first row; the other ids follow by position. None before format version 3, and
        before the file's commit.
        """
        return self.description.get(_FIRST_ROW_ID)


@dataclass(frozen=True)
class Scan:
    """The files of a table at one snapshot."""

    #: The id of the snapshot; None without a snapshot.
    read_at: int | None = None
    #: The live files.
    files: tuple[LiveFile, ...] = ()


def delete_file_of(content: str) -> DeleteFile:
    """Returns the delete file that this JSON describes."""
    described: dict[str, Any] = json.loads(content)
    if described["content"] == "equality-deletes":
        kind = "equality"
    else:
        kind = "vector" if described["file-format"].lower() == "puffin" else "positions"
    named = described.get("referenced-data-file") or _only_path(described)
    return DeleteFile(described["file-path"], kind, named, described["record-count"], content)


def _only_path(described: Mapping[str, Any]) -> str:
    """Returns the data file of position deletes that delete from one file only: the bounds of the path are then equal
    and not truncated.
    """
    lower, upper = (_bound(described.get(name)) for name in ("lower-bounds", "upper-bounds"))
    return bytes.fromhex(lower).decode() if lower and lower == upper else ""


def _bound(bounds: Mapping[str, Any] | None) -> str:
    path_bounds = dict(zip(bounds["keys"], bounds["values"], strict=True)) if bounds else {}
    return str(path_bounds.get(FILE_PATH_ID, ""))


def is_numbered(content: str) -> bool:
    """Returns whether a file's JSON has the row id of its first row."""
    return f'"{_FIRST_ROW_ID}"' in content


def numbered(content: str, first_row_id: int | None) -> str:
    """Returns the file's JSON with the row id of its first row, if the commit assigned one."""
    return content if first_row_id is None else json.dumps({**json.loads(content), _FIRST_ROW_ID: first_row_id})


def after_commit(scan: Scan, commit: Commit, snapshot_id: int, first_row_ids: Mapping[str, int]) -> Scan:
    """Returns the files of the table after a commit directly on top of `scan`. first_row_ids: by path of the commit's
    files, in format version 3.
    """
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
