"""The health of a table in figures: small files, deletes, manifests, snapshots and metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from frazil.catalog.table_metadata import TableMetadata

SMALL_SHARE_OF_TARGET = 0.75
"""A file below this share of the target size is small; Iceberg's own threshold."""
_LITTLE = 1 / 16
"""Small files below this share of a larger file are little compared with it."""
_MOST_FILES_FOR_LITTLE = 4
"""The number of files of the target size that may be rewritten to absorb little small files."""
MOST_SMALL_FILES = 10_000
MOST_DELETE_FILES = 2_000
MOST_DELETED_SHARE = 0.25
"""Share of all rows: more than maintenance leaves in any file while records arrive, so maintenance works off whatever
is above.
"""
FEWEST_DELETED_ROWS = 1_000_000
"""Fewer deleted rows burden no reader, whatever their share."""
MOST_METADATA_BYTES = 8_000_000
MAINTAINED_NOTE = "maintained-at"
"""Table property, behind `frazil.<pipeline>.`: when `frazil maintain` last changed the table, in milliseconds."""
_MAINTAINED = re.compile(rf"frazil\..+\.{MAINTAINED_NOTE}")


@dataclass(frozen=True)
class TableHealth:
    """The figures of a table."""

    #: The number of data files.
    files: int = 0
    #: The total size of the data files.
    size_bytes: int = 0
    #: The median size of the data files.
    p50_bytes: int = 0
    #: Small files that are in the same partition as another small file, so that the two could be one.
    small_files: int = 0
    #: The number of delete files.
    delete_files: int = 0
    #: Delete files with equality deletes, which only other writers add.
    equality_deletes: int = 0
    #: Rows that delete files delete.
    deleted_rows: int = 0
    #: The fraction of deleted rows, 0 to 1; estimated where delete files do not name their data file.
    deleted_share: float = 0.0
    #: Manifests of the newest snapshot.
    manifests: int = 0
    #: The number of snapshots.
    snapshots: int = 0
    #: The size of the metadata file.
    metadata_bytes: int = 0
    #: When maintenance of any process last changed the table's files, or `frazil maintain` did anything; null if never.
    last_maintenance_ms: Annotated[int, "milliseconds since the epoch"] | None = None

    @property
    def small_share(self) -> float:
        """The share of small files among all files, 0 to 1."""
        return self.small_files / self.files if self.files else 0.0

    @property
    def above_cap(self) -> tuple[str, ...]:
        """Descriptions of the figures that are so high that readers suffer."""
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
    """Returns the figures of a table whose metadata includes its files. target_bytes: the target size of data files."""
    sizes = [file.size_bytes for file in metadata.files]
    maintained = [snapshot.at_ms for snapshot in metadata.ancestors() if snapshot.is_maintenance]
    maintained += [
        int(text) for name, text in metadata.properties.items() if _MAINTAINED.fullmatch(name) and text.isdecimal()
    ]
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
        manifests=len(metadata.sizes.manifests),
        snapshots=len(metadata.snapshots),
        metadata_bytes=metadata.sizes.metadata,
        last_maintenance_ms=max(maintained, default=None),
    )


def small_files(metadata: TableMetadata, below_bytes: int) -> Mapping[str, list[int]]:
    """Returns the sizes of small files by partition, in the order of the table, for partitions with several of them."""
    small_sizes: dict[str, list[int]] = {}
    for file in metadata.files:
        if file.size_bytes < below_bytes:
            small_sizes.setdefault(file.partition, []).append(file.size_bytes)
    return {partition: sizes for partition, sizes in small_sizes.items() if len(sizes) > 1}


def small_and_larger_files(metadata: TableMetadata, target_bytes: int) -> Mapping[str, list[int]]:
    """Returns, for each partition whose small files and smallest larger file fit into one file of the target size, the
    sizes of these files. A file that arrived while others were compacted would otherwise stay small for good.

    Where many partitions have little small data beside a large file, as after a load that touched all of them, they are
    left out until they have more: the large files are not rewritten for it.
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
