"""What a table owes its readers, in numbers: small files, deletes, manifests, snapshots, metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from frazil.catalog.table_metadata import TableMetadata

SMALL_SHARE_OF_TARGET = 0.75
"""A file below this share of the target size is small; Iceberg's own measure."""
_LITTLE = 1 / 16
"""Small files of less than this share of a larger one are little beside it."""
_MOST_FILES_FOR_LITTLE = 4
"""So many files of the target size may be written anew to take in what is little beside them."""
MOST_SMALL_FILES = 10_000
MOST_DELETE_FILES = 2_000
MOST_DELETED_SHARE = 0.25
"""Of all rows: more than table care leaves in any file while records arrive, so that it works off whatever is above."""
FEWEST_DELETED_ROWS = 1_000_000
"""Fewer are no burden to anybody, whatever their share."""
MOST_METADATA_BYTES = 8_000_000
CARED_NOTE = "maintained-at"
"""The mark of a table: when a round by hand last did something for it, in milliseconds."""
_CARED = re.compile(rf"frazil\..+\.{CARED_NOTE}")


@dataclass(frozen=True)
class TableHealth:
    """A table's figures. small_files: those that lie in a partition with another small one, so that two could be one.
    p50_bytes: the median size of data files. deleted_rows: as delete files count them; deleted_share: of the rows in data
    files those that are deleted, estimated where delete files do not say which file they are about.
    last_maintenance_ms: when table care of any process last changed the table's files, or a round by hand did anything.
    """

    files: int = 0
    size_bytes: int = 0
    p50_bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    equality_deletes: int = 0
    deleted_rows: int = 0
    deleted_share: float = 0.0
    manifests: int = 0
    snapshots: int = 0
    metadata_bytes: int = 0
    last_maintenance_ms: int | None = None

    @property
    def small_share(self) -> float:
        """Small files among all, 0 to 1."""
        return self.small_files / self.files if self.files else 0.0

    @property
    def above_cap(self) -> tuple[str, ...]:
        """What is so much that readers suffer, in words."""
        words = []
        if self.small_files > MOST_SMALL_FILES:
            words.append(f"{self.small_files:,} small files")
        if self.delete_files > MOST_DELETE_FILES and self.delete_files > self.files:
            words.append(f"{self.delete_files:,} delete files")
        if self.deleted_rows > FEWEST_DELETED_ROWS and self.deleted_share > MOST_DELETED_SHARE:
            words.append(f"{self.deleted_rows:,} deleted rows, {self.deleted_share:.0%} of all")
        if self.metadata_bytes > MOST_METADATA_BYTES:
            words.append(f"{self.metadata_bytes / 1e6:.0f} MB of metadata")
        return tuple(words)


def measure(metadata: TableMetadata, target_bytes: int) -> TableHealth:
    """The figures of a table that was looked at with its files. target_bytes: the size that files should have."""
    sizes = [file.size_bytes for file in metadata.files]
    cared = [snapshot.at_ms for snapshot in metadata.ancestors() if snapshot.is_maintenance]
    cared += [int(text) for name, text in metadata.properties.items() if _CARED.fullmatch(name) and text.isdecimal()]
    small = small_files(metadata, int(target_bytes * SMALL_SHARE_OF_TARGET))
    rows = sum(file.record_count for file in metadata.files)
    return TableHealth(
        files=len(sizes),
        size_bytes=sum(sizes),
        p50_bytes=int(median(sizes)) if sizes else 0,
        small_files=sum(len(sizes) for sizes in small.values()),
        delete_files=len(metadata.deletes),
        equality_deletes=sum(file.kind == "equality" for file in metadata.deletes),
        deleted_rows=sum(file.record_count for file in metadata.deletes if file.kind != "equality"),
        deleted_share=sum(file.deleted + file.loosely_deleted for file in metadata.files) / max(1, rows),
        manifests=len(metadata.manifests),
        snapshots=len(metadata.snapshots),
        metadata_bytes=metadata.metadata_bytes,
        last_maintenance_ms=max(cared, default=None),
    )


def small_files(metadata: TableMetadata, below_bytes: int) -> Mapping[str, list[int]]:
    """The sizes of small files by partition, in the order of the table; only of partitions with more than one."""
    found: dict[str, list[int]] = {}
    for file in metadata.files:
        if file.size_bytes < below_bytes:
            found.setdefault(file.partition, []).append(file.size_bytes)
    return {partition: sizes for partition, sizes in found.items() if len(sizes) > 1}


def small_beside_larger(metadata: TableMetadata, target_bytes: int) -> Mapping[str, list[int]]:
    """Of each partition whose small files fit into one of the target size, all of them and the smallest of the larger ones:
    the sizes of these. What came while the others were put together is else a file of its own for good.

    Where many partitions have little beside much, as after a load that touched all of them, that much is not written anew
    for it: these are left out, all of them, until they have more.
    """
    below_bytes = int(target_bytes * SMALL_SHARE_OF_TARGET)
    larger: dict[str, int] = {}
    small: dict[str, list[int]] = {}
    for file in metadata.files:
        if file.size_bytes < below_bytes:
            small.setdefault(file.partition, []).append(file.size_bytes)
        else:
            larger[file.partition] = min(file.size_bytes, larger.get(file.partition, file.size_bytes))
    together = {partition: [*sizes, larger[partition]] for partition, sizes in small.items() if partition in larger}
    fitting = {partition: sizes for partition, sizes in together.items() if sum(sizes) < target_bytes}
    costly = {p: sum(sizes) for p, sizes in fitting.items() if sum(sizes) - larger[p] < larger[p] * _LITTLE}
    if sum(costly.values()) <= _MOST_FILES_FOR_LITTLE * target_bytes:
        return fitting
    return {partition: sizes for partition, sizes in fitting.items() if partition not in costly}
