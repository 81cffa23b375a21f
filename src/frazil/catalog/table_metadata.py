"""The metadata of a table from Iceberg's JSON: schema, snapshots, references, files and manifests.

For maintenance it has the metadata files of other tables in the table's folder too; the schema only if Frazil can write
it.

One JSON text describes very many files: fetching ten thousand files one by one through py4j would take seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.schema import Schema

from frazil.catalog.progress import CARRIED, COMMITTED_AT, MAINTENANCE_ID, key
from frazil.errors import SpecError
from frazil.spec.syntax.types import parse_type
from frazil.types import MAIN, as_json

_OFFSETS = re.compile(r"frazil\.(.+)\.offsets")
_Place = tuple[str, int | None]
_REMOVALS = ("deleted-data-files", "removed-delete-files", "removed-dvs")
MAX_REF_AGE = "history.expire.max-ref-age-ms"
"""Table property: the greatest age of branches and tags without one of their own."""
_VERSION = re.compile(r"v?(\d+)[^/]*$")


@dataclass(frozen=True)
class Snapshot:
    """One snapshot."""

    id: int
    #: The id of its parent; None without one.
    parent: int | None
    #: When it was committed.
    at_ms: int
    #: Iceberg's operation: append, replace, overwrite or delete.
    operation: str = "append"
    #: By pipeline with progress in this snapshot, the commit id of that progress.
    progress: Mapping[str, str] = field(default_factory=dict)
    #: Whether it removes files that its parent names.
    removes_files: bool = False
    #: Whether it waits to be published (write-audit-publish).
    is_staged: bool = False
    #: Whether table maintenance of some pipeline made it.
    is_maintenance: bool = False
    #: Iceberg's summary.
    summary: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The id of the table's schema at the commit; None where it is not recorded.
    schema_id: int | None = None


@dataclass(frozen=True)
class Ref:
    """A branch or a tag (Iceberg spec "Snapshot Retention Policy")."""

    #: The id of the snapshot that it names.
    snapshot: int
    is_branch: bool = False
    #: The age of that snapshot at which every expiry removes the branch or tag; None: never.
    max_age_ms: int | None = None
    #: The age up to which the snapshots of a branch are kept, if it has one of its own.
    max_snapshot_age_ms: int | None = None
    #: The number of the newest snapshots of a branch that are kept in any case.
    min_snapshots: int = 1


@dataclass(frozen=True)
class StoredData:
    """A data file."""

    size_bytes: int
    #: The number of its rows.
    record_count: int
    #: Its partition spec and values, as text.
    partition: str = ""
    #: The number of its rows deleted by delete files that name it.
    deleted: int = 0
    #: Whether any delete file applies to it.
    has_deletes: bool = False
    #: An estimate of its rows deleted by position deletes that name no data file, if these delete the same share of all
    #: files they apply to.
    loosely_deleted: int = 0


@dataclass(frozen=True)
class StoredDeletes:
    """A delete file."""

    #: `position`, `vector` or `equality`.
    kind: str
    size_bytes: int
    #: The number of its deletes.
    record_count: int
    #: Whether it deletes from one data file only.
    is_scoped: bool = False


@dataclass(frozen=True)
class MetadataSizes:
    """The sizes of the files that describe a table, in bytes."""

    #: The size of the metadata as JSON.
    metadata: int
    #: Each manifest.
    manifests: tuple[int, ...] = ()
    #: Each manifest with the current partition spec: Iceberg rewrites no others.
    rewritable_manifests: tuple[int, ...] = ()


@dataclass(frozen=True)
class TableShape:
    """What the rows of a table look like."""

    #: Every schema that the table had, as Iceberg's JSON, the oldest first.
    schemas: tuple[Mapping[str, Any], ...] = ()
    #: Whether the table has a sort order.
    is_sorted: bool = False


@dataclass(frozen=True)
class OwnBranch:
    """The branch that the pipeline commits to."""

    name: str = MAIN
    #: Whether the branch has a retention of its own.
    has_own_retention: bool = False


@dataclass(frozen=True)
class TableMetadata:
    """The metadata of a table at one moment."""

    name: str
    uuid: str
    #: Its root folder.
    location: str
    format_version: int
    #: The sizes of its metadata file and its manifests.
    sizes: MetadataSizes
    properties: Mapping[str, str]
    #: The snapshots, by id.
    snapshots: Mapping[int, Snapshot]
    #: The newest snapshot of the branch that the pipeline commits to; None without one.
    head: int | None
    #: All other branches, and tags.
    refs: Mapping[str, Ref] = field(default_factory=dict)
    #: The branch that the pipeline commits to.
    branch: OwnBranch = OwnBranch()
    #: Its schemas, and whether it has a sort order.
    shape: TableShape = TableShape()
    #: The snapshots with statistics files.
    statistics: tuple[int, ...] = ()
    #: The data files.
    files: tuple[StoredData, ...] = ()
    #: The delete files.
    deletes: tuple[StoredDeletes, ...] = ()
    #: Paths of files that the newest progress of some pipeline names for other tables.
    pending_files: frozenset[str] = frozenset()

    def ancestors(self) -> Iterator[Snapshot]:
        """Yields the snapshots of the branch, the newest first, as far as they exist."""
        return self.line(self.head)

    def line(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """Yields the snapshot and its ancestors, the newest first, as far as they exist."""
        while snapshot_id is not None and snapshot_id in self.snapshots:
            yield self.snapshots[snapshot_id]
            snapshot_id = self.snapshots[snapshot_id].parent


def read_table_metadata(
    name: str,
    metadata_text: str,
    files_texts: Iterable[str] = (),
    manifests: Sequence[tuple[int, int]] = (),
    branch: str = MAIN,
) -> TableMetadata:
    """Returns the metadata from the JSON of Iceberg's TableMetadataParser and, for files, of
    FetchScanTasksResponseParser. manifests: size and partition spec of each. branch: the one that the pipeline commits to.
    """
    metadata = json.loads(metadata_text)
    files, deletes = _read_files(files_texts)
    refs = metadata.get("refs", {})
    own_ref = refs.get(branch, {})
    return TableMetadata(
        name=name,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        format_version=metadata["format-version"],
        sizes=MetadataSizes(
            len(metadata_text),
            manifests=tuple(size for size, _ in manifests),
            rewritable_manifests=tuple(size for size, spec in manifests if spec == metadata.get("default-spec-id", 0)),
        ),
        properties=metadata.get("properties", {}),
        snapshots={s.id: s for s in map(_snapshot, metadata.get("snapshots", ()))},
        head=_head(metadata, branch),
        refs={
            ref: _ref(held, metadata.get("properties", {}) if ref != MAIN else {})  # Main never grows too old.
            for ref, held in refs.items()
            if ref != branch
        },
        branch=OwnBranch(
            branch, bool(own_ref.keys() & {"max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"})
        ),
        shape=TableShape(
            tuple(sorted(metadata.get("schemas", ()), key=lambda schema: int(schema["schema-id"]))),
            any(
                order["order-id"] == metadata.get("default-sort-order-id", 0) and order["fields"]
                for order in metadata.get("sort-orders", ())
            ),
        ),
        statistics=tuple(held["snapshot-id"] for held in metadata.get("statistics", ())),
        files=tuple(files),
        deletes=tuple(deletes),
        pending_files=frozenset(_pending_files(metadata, _head(metadata, branch))),
    )


def _read_files(texts: Iterable[str]) -> tuple[list[StoredData], Iterable[StoredDeletes]]:
    """Returns the data files and delete files. Each text has the delete files that apply to its own data files; a
    delete file may be in several texts.
    """
    files: list[StoredData] = []
    deletes: dict[_Place, StoredDeletes] = {}
    loose: dict[_Place, list[int]] = {}
    for text in texts:
        batch = json.loads(text)
        described = batch.get("delete-files", ())
        batch_deletes = [_deletes(file) for file in described]
        places = [(file["file-path"], file.get("content-offset")) for file in described]
        deletes |= dict(zip(places, batch_deletes, strict=True))
        for task in batch.get("file-scan-tasks", ()):
            for number in task.get("delete-file-references", ()):
                if batch_deletes[number].kind == "position" and not batch_deletes[number].is_scoped:
                    loose.setdefault(places[number], []).append(len(files))
            files.append(_data(task, batch_deletes))
    if loose:
        found_loose = _spread(files, {place: deletes[place].record_count for place in loose}, loose)
        files = [replace(file, loosely_deleted=rows) for file, rows in zip(files, found_loose, strict=True)]
    return files, deletes.values()


def _spread(
    files: Sequence[StoredData], deleted: Mapping[_Place, int], counts_for: Mapping[_Place, Sequence[int]]
) -> list[int]:
    """Returns per data file its share of these delete files' deletes, in proportion to its rows. counts_for: indexes of
    data files by delete file.
    """
    shares = [0] * len(files)
    for place, numbers in counts_for.items():
        rows = max(1, sum(files[number].record_count for number in numbers))
        for number in numbers:
            shares[number] += deleted[place] * files[number].record_count // rows
    return shares


def _head(metadata: Mapping[str, Any], branch: str) -> int | None:
    """Returns the newest snapshot of the branch, which begins at the main branch; None without one."""
    ref = None if branch == MAIN else metadata.get("refs", {}).get(branch)
    head = metadata.get("current-snapshot-id") if ref is None else ref["snapshot-id"]
    return None if head in (None, -1) else int(head)


def carried_progress(metadata_text: str, branch: str = MAIN) -> dict[str, str]:
    """Returns the newest progress of every pipeline on the branch as summary entries to be repeated in another
    snapshot; empty where the newest snapshot contains all of it.
    """
    metadata = json.loads(metadata_text)
    head = _head(metadata, branch)
    carried: dict[str, str] = {}
    is_behind = False
    for pipeline, snapshot in _newest_progress(metadata, head):
        summary, committed_at = snapshot["summary"], key(pipeline, COMMITTED_AT)
        names = (key(pipeline, part) for part in CARRIED)
        carried |= {name: summary[name] for name in names if name in summary}
        carried[committed_at] = summary.get(committed_at, str(snapshot["timestamp-ms"]))
        is_behind = is_behind or snapshot["snapshot-id"] != head
    return carried if is_behind else {}


def _newest_progress(metadata: Mapping[str, Any], head: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields every pipeline with progress up to the snapshot `head`, and the snapshot with its newest progress."""
    seen = set[str]()
    for snapshot in _line(metadata, head):
        for pipeline in _pipelines(snapshot.get("summary", {})) - seen:
            seen.add(pipeline)
            yield pipeline, snapshot


def _line(metadata: Mapping[str, Any], snapshot_id: int | None) -> Iterator[Mapping[str, Any]]:
    """Yields the snapshot and its ancestors, the newest first."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", ())}
    while snapshot_id in by_id:
        yield by_id[snapshot_id]
        snapshot_id = by_id[snapshot_id].get("parent-snapshot-id")


def _pipelines(summary: Mapping[str, str]) -> set[str]:
    return {match[1] for name in summary if (match := _OFFSETS.fullmatch(name)) is not None}


def _pending_files(metadata: Mapping[str, Any], head: int | None) -> Iterator[str]:
    for pipeline, snapshot in _newest_progress(metadata, head):
        dead_letters = json.loads(snapshot["summary"].get(key(pipeline, "dead-letters"), "{}"))
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
        summary=summary,
        schema_id=document.get("schema-id"),
    )


def _ref(held: Mapping[str, Any], properties: Mapping[str, str]) -> Ref:
    usual = properties.get(MAX_REF_AGE, "")
    return Ref(
        held["snapshot-id"],
        held["type"] == "branch",
        held.get("max-ref-age-ms", int(usual) if usual.isdecimal() else None),
        held.get("max-snapshot-age-ms"),
        held.get("min-snapshots-to-keep", 1),
    )


def partition_text(file: Mapping[str, Any]) -> str:
    """Returns a file's partition spec and values as text, from Iceberg's JSON of the file."""
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


def read_schema(text: str, table: str) -> Schema:
    """Returns the schema from Iceberg's JSON. Iceberg's Java library has types that Frazil cannot write, some of which
    PyIceberg does not know; a table with one is refused when it is loaded.

    Raises: SpecError that names the first column whose type cannot be written.
    """
    for path, kind in _primitives(json.loads(text), ()):
        if not _is_writable(kind):
            raise SpecError(
                f"the column {'.'.join(path)} has the type {kind}, which this version cannot write",
                remedy="drop the column, or name another table in the pipeline file",
                where=table,
            )
    return Schema.model_validate_json(text)


def _primitives(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the path of every primitive type, and the type."""
    if isinstance(kind, str):
        yield path, kind
        return
    for member in kind.get("fields", ()):
        yield from _primitives(member["type"], (*path, member["name"]))
    for part in ("element", "key", "value"):
        if part in kind:
            yield from _primitives(kind[part], (*path, part))


def _is_writable(kind: str) -> bool:
    try:
        parse_type(kind)
    except SpecError:
        return False
    return True


def find_foreign_metadata(paths: Iterable[str], uuid: str, read: Callable[[str], str | None]) -> str | None:
    """Returns the first of these metadata files that belongs to another table than the one with this UUID; None without
    one.

    read: returns the text of a metadata file; None where it is deleted or not metadata. Few files are read of a table
    with hundreds of thousands: a metadata file lists those before it, which belong to the same table.
    """
    table_files = set[str]()
    for path in sorted(paths, key=_version, reverse=True):
        text = read(path) if normalize_path(path) not in table_files else None
        if text is None:
            continue
        metadata = json.loads(text)
        if metadata.get("table-uuid") != uuid:
            return path
        table_files.update(normalize_path(entry["metadata-file"]) for entry in metadata.get("metadata-log", ()))
    return None


def normalize_path(path: str) -> str:
    """Returns the path without the variants of `file:` and its slashes in which listings and locations differ."""
    return re.sub(r"^(file:)?/+", "/", path)


def is_own(path: str, location: str) -> bool:
    """Returns whether a path is in the folders that this table writes to: the folder of `a.b` also contains that of a
    table `a.b.c`.
    """
    table_folder = normalize_path(location).rstrip("/") + "/"
    inside = normalize_path(path).removeprefix(table_folder) if normalize_path(path).startswith(table_folder) else ""
    folder, _, rest = inside.partition("/")
    return (folder == "data" and bool(rest)) or (folder == "metadata" and bool(rest) and "/" not in rest)


def _version(path: str) -> int:
    """Returns the version of a metadata file; the newest one lists most of the others and is read first."""
    match = _VERSION.match(path.rpartition("/")[2])
    return int(match[1]) if match is not None else 0
