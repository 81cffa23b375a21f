"""A table as table care sees it: snapshots, references, files and manifests, taken from Iceberg's own JSON of them.

One answer holds very many of a kind: asking file by file across py4j would take seconds for ten thousand files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.catalog.history import MAINTENANCE_ID
from frazil.catalog.progress import COMMITTED_AT, key
from frazil.types import as_json

_OFFSETS = re.compile(r"frazil\.(.+)\.offsets")
_CARRIED = ("offsets", "topic-ids", "cluster-id", "commit-id", "epoch", "run-id", "schemas", "watermarks", "watermark")
_CARRIED_IF_THERE = (
    "bad-skipped",
    "ignored-records",
    "dead-letters",
    "source-positions",
    "last-truncate",
    "last-deletes",
)
_Place = tuple[str, int | None]
_REMOVALS = ("deleted-data-files", "removed-delete-files", "removed-dvs")


@dataclass(frozen=True)
class Snapshot:
    """One snapshot. progress: per pipeline that says how far it is the commit id under which it says so. removes_files: some
    file that the snapshot before it names is no longer part of the table. is_staged: it waits to be published.
    is_maintenance: some pipeline's table care has made it.
    """

    id: int
    parent: int | None
    at_ms: int
    operation: str = "append"
    progress: Mapping[str, str] = field(default_factory=dict)
    removes_files: bool = False
    is_staged: bool = False
    is_maintenance: bool = False


@dataclass(frozen=True)
class StoredData:
    """A data file. partition: its spec and values, as text. deleted: how many of its rows delete files of its own delete, as
    far as those say which file they are about. loosely_deleted: how many position deletes that do not say it may delete, if
    they take the same share of all files that they count for. has_deletes: whether any deletes count for it.
    """

    size_bytes: int
    record_count: int
    partition: str = ""
    deleted: int = 0
    has_deletes: bool = False
    loosely_deleted: int = 0


@dataclass(frozen=True)
class StoredDeletes:
    """A delete file. kind: `position`, `vector` or `equality`. is_scoped: it is about one data file."""

    kind: str
    size_bytes: int
    record_count: int
    is_scoped: bool = False


@dataclass(frozen=True)
class TableMetadata:
    """A table at one moment.

    head: the newest snapshot of the main branch. refs: the snapshot of every branch and tag but `main`. has_own_retention:
    the branch main says itself how long its snapshots are kept. is_sorted: the table has a sort order of its own.
    statistics: snapshots that have a file of statistics. metadata_bytes: length of the metadata as JSON. manifests: their
    lengths. rewritable_manifests: those with the partition spec that the table has now, which alone Iceberg rewrites.
    promised: paths of files that the newest progress of some pipeline has promised to other tables.
    """

    name: str
    uuid: str
    location: str
    format_version: int
    metadata_bytes: int
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]
    head: int | None
    refs: Mapping[str, int] = field(default_factory=dict)
    has_own_retention: bool = False
    is_sorted: bool = False
    statistics: tuple[int, ...] = ()
    files: tuple[StoredData, ...] = ()
    deletes: tuple[StoredDeletes, ...] = ()
    manifests: tuple[int, ...] = ()
    rewritable_manifests: tuple[int, ...] = ()
    promised: frozenset[str] = frozenset()

    def ancestors(self) -> Iterator[Snapshot]:
        """The main branch, newest first, as far as it is there."""
        at = self.head
        while at is not None and at in self.snapshots:
            yield self.snapshots[at]
            at = self.snapshots[at].parent


def read_table_metadata(
    name: str, metadata_text: str, files_texts: Iterable[str] = (), manifests: Sequence[tuple[int, int]] = ()
) -> TableMetadata:
    """From the table's metadata (TableMetadataParser) and lots of its files (FetchScanTasksResponseParser), as JSON.

    manifests: length and partition spec of each.
    """
    metadata = json.loads(metadata_text)
    files, deletes = _read_files(files_texts)
    refs = metadata.get("refs", {})
    main = refs.get("main", {})
    head = metadata.get("current-snapshot-id")
    return TableMetadata(
        name=name,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        format_version=metadata["format-version"],
        metadata_bytes=len(metadata_text),
        properties=metadata.get("properties", {}),
        snapshots={s.id: s for s in map(_snapshot, metadata.get("snapshots", ()))},
        head=None if head in (None, -1) else head,
        refs={ref: held["snapshot-id"] for ref, held in refs.items() if ref != "main"},
        has_own_retention=bool(main.keys() & {"max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"}),
        is_sorted=_is_sorted(metadata),
        statistics=tuple(held["snapshot-id"] for held in metadata.get("statistics", ())),
        files=tuple(files),
        deletes=tuple(deletes),
        manifests=tuple(size for size, _ in manifests),
        rewritable_manifests=tuple(size for size, spec in manifests if spec == metadata.get("default-spec-id", 0)),
        promised=frozenset(_promised(metadata)),
    )


def _read_files(texts: Iterable[str]) -> tuple[list[StoredData], Iterable[StoredDeletes]]:
    """Each text has the delete files that count for its own data files: one of them may be in several."""
    files: list[StoredData] = []
    deletes: dict[_Place, StoredDeletes] = {}
    loose: dict[_Place, list[int]] = {}
    for text in texts:
        found = json.loads(text)
        described = found.get("delete-files", ())
        own = [_deletes(file) for file in described]
        places = [(file["file-path"], file.get("content-offset")) for file in described]
        deletes |= dict(zip(places, own, strict=True))
        for task in found.get("file-scan-tasks", ()):
            for number in task.get("delete-file-references", ()):
                if own[number].kind == "position" and not own[number].is_scoped:
                    loose.setdefault(places[number], []).append(len(files))
            files.append(_data(task, own))
    if loose:
        found_loose = _spread(files, {place: deletes[place].record_count for place in loose}, loose)
        files = [replace(file, loosely_deleted=rows) for file, rows in zip(files, found_loose, strict=True)]
    return files, deletes.values()


def _spread(
    files: Sequence[StoredData], deleted: Mapping[_Place, int], counts_for: Mapping[_Place, Sequence[int]]
) -> list[int]:
    """The deleted rows of these delete files dealt out to the files that they count for, by how many rows those have.

    counts_for: numbers of files.
    """
    found = [0] * len(files)
    for place, numbers in counts_for.items():
        rows = max(1, sum(files[number].record_count for number in numbers))
        for number in numbers:
            found[number] += deleted[place] * files[number].record_count // rows
    return found


def _is_sorted(metadata: Mapping[str, Any]) -> bool:
    own = metadata.get("default-sort-order-id", 0)
    return any(order["order-id"] == own and order["fields"] for order in metadata.get("sort-orders", ()))


def carried_progress(metadata_text: str) -> dict[str, str]:
    """The newest progress of every pipeline on the main branch, as summary keys that say the same in another snapshot; none
    where the newest snapshot has all of it.
    """
    carried: dict[str, str] = {}
    seen: set[str] = set()
    line = list(_line(json.loads(metadata_text)))
    for snapshot in line:
        summary = snapshot.get("summary", {})
        for pipeline in _pipelines(summary) - seen:
            seen.add(pipeline)
            names = (key(pipeline, part) for part in (*_CARRIED, *_CARRIED_IF_THERE))
            carried |= {name: summary[name] for name in names if name in summary}
            first = key(pipeline, COMMITTED_AT)
            carried[first] = summary.get(first, str(snapshot["timestamp-ms"]))
    return carried if line and seen - _pipelines(line[0].get("summary", {})) else {}


def _line(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The snapshots of the main branch, newest first."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    at = metadata.get("current-snapshot-id")
    while at in by_id:
        yield by_id[at]
        at = by_id[at].get("parent-snapshot-id")


def _pipelines(summary: Mapping[str, str]) -> set[str]:
    return {match[1] for name in summary if (match := _OFFSETS.fullmatch(name)) is not None}


def _promised(metadata: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for snapshot in _line(metadata):
        summary = snapshot.get("summary", {})
        for pipeline in _pipelines(summary) - seen:
            seen.add(pipeline)
            dead_letters = json.loads(summary.get(key(pipeline, "dead-letters"), "{}"))
            yield from (file["path"] for file in dead_letters.get("files", ()))


def _snapshot(document: Mapping[str, Any]) -> Snapshot:
    summary = document.get("summary", {})
    return Snapshot(
        id=document["snapshot-id"],
        parent=document.get("parent-snapshot-id"),
        at_ms=document["timestamp-ms"],
        operation=summary.get("operation", ""),
        progress={p: summary.get(f"frazil.{p}.commit-id", "") for p in _pipelines(summary)},
        removes_files=any(int(summary.get(name, 0)) for name in _REMOVALS),
        is_staged="wap.id" in summary,
        is_maintenance=any(name.startswith("frazil.") and name.endswith(f".{MAINTENANCE_ID}") for name in summary),
    )


def partition_text(file: Mapping[str, Any]) -> str:
    """A file's partition spec and values, from Iceberg's JSON of it."""
    return as_json([file["spec-id"], file.get("partition", [])])


def _data(task: Mapping[str, Any], deletes: list[StoredDeletes]) -> StoredData:
    file = task["data-file"]
    applied = [deletes[number] for number in task.get("delete-file-references", ())]
    return StoredData(
        size_bytes=file["file-size-in-bytes"],
        record_count=file["record-count"],
        partition=partition_text(file),
        deleted=sum(file.record_count for file in applied if file.is_scoped),
        has_deletes=bool(applied),
    )


def _deletes(file: Mapping[str, Any]) -> StoredDeletes:
    kind = "equality" if file["content"] == "equality-deletes" else "position"
    if file.get("file-format", "").lower() == "puffin":
        kind = "vector"
    size = file.get("content-size-in-bytes") or file["file-size-in-bytes"]
    return StoredDeletes(kind, size, file["record-count"], kind == "vector" or "referenced-data-file" in file)
