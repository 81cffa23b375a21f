"""`frazil blobs verify`: reads every object that a table refers to, and compares its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from pyiceberg.table import Table

from frazil.api.wiring import light_jvm, open_catalog_for_reading, read_spec
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.errors import SpecError, UnavailableError
from frazil.printable import plural
from frazil.store.file_io import StoreIO, store_of
from frazil_blobs.reading import Reader
from frazil_blobs.references import blobs_by_file, opened
from frazil_blobs.settings import MiB
from frazil_blobs.upkeep import pairs_of
from frazil_blobs.values import FIELDS

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as cars.scenes.", show_default=False)]
SnapshotId = Annotated[
    int | None, typer.Option("--snapshot", metavar="ID", help="A snapshot other than the newest.", show_default=False)
]
EveryOption = Annotated[bool, typer.Option("--all", help="Every snapshot that the table has.")]
DAMAGED = 4
_AT_ONCE_BYTES = 64 * MiB
_MOST_SHOWN = 20


@dataclass
class VerifiedBlobs:
    """What the objects of one snapshot are."""

    snapshot_id: int
    #: The number of objects in packs, and in rows.
    objects: int = 0
    size_bytes: int = 0
    #: The number of objects that cannot be read.
    missing: int = 0
    #: The number of objects with another checksum.
    damaged: int = 0
    #: The first of these, each with why.
    first: list[str] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether every object is there and has its checksum."""
        return not (self.missing or self.damaged)

    def note(self, where: str, reason: str) -> None:
        """Keeps one of the first objects that are not well."""
        if len(self.first) < _MOST_SHOWN:
            self.first.append(f"{where}: {reason}")


def command(
    output: Output,
    table: TableName,
    file: SpecFile = DEFAULT_FILE,
    snapshot: SnapshotId = None,
    every: EveryOption = False,
) -> int:
    """Prove that every reference of a table to an object resolves, and that the object has its checksum: reads all
    objects of the newest snapshot, of another snapshot, or of all snapshots.

    Changes nothing; the pipeline may run meanwhile.

    Exit code: 0 when every object is intact; 1 when the catalog does not answer; 2 when the pipeline file is
    wrong; 4 when an object is missing or damaged.
    """
    spec = read_spec(output, file)
    with light_jvm(spec) as jvm:
        maintenance = IcebergMaintenance(open_catalog_for_reading(jvm, spec))
        metadata_json, io_properties = maintenance.described(table)
    iceberg = opened(table, metadata_json, io_properties)
    ids = [each.snapshot_id for each in iceberg.snapshots()] if every else [snapshot or _newest(iceberg)]
    verified = []
    for snapshot_id in filter(None, ids):
        if iceberg.snapshot_by_id(snapshot_id) is None:
            remedy = "name one that the table has; `<table>.snapshots` shows them"
            raise SpecError(f"the table has no snapshot {snapshot_id}", remedy=remedy, where=table)
        output.doing(f"reading the objects of snapshot {snapshot_id}")
        verified.append(verify(iceberg, snapshot_id))
    output.result(
        {"table": table, "snapshots": [asdict(each) for each in verified]}, "\n".join(_lines(table, verified))
    )
    return 0 if all(each.is_well for each in verified) else DAMAGED


def _newest(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot is not None else None


def _lines(table: str, verified: list[VerifiedBlobs]) -> Iterator[str]:
    if not verified:
        yield f"{table}: no snapshot"
    for each in verified:
        counted = f"{table} at {each.snapshot_id}: {plural(each.objects, 'object')}, {each.size_bytes:,} bytes"
        yield (
            f"{counted}; all are well"
            if each.is_well
            else f"{counted}; {each.missing:,} missing, {each.damaged:,} damaged"
        )
        yield from (f"  {line}" for line in each.first)


def verify(table: Table, snapshot_id: int) -> VerifiedBlobs:
    """Returns what the objects of a snapshot are, after reading all of them."""
    verified, io = VerifiedBlobs(snapshot_id), store_of(tuple(sorted(table.io.properties.items())))
    for _, path, blobs in blobs_by_file(table, snapshot_id, FIELDS):
        sizes = np.asarray(blobs.field("size").fill_null(0)).tolist()
        for begin, end in pairs_of(sizes, _AT_ONCE_BYTES):
            _verify_some(io, ".".join(path), blobs.slice(begin, end - begin), verified)
    return verified


def _verify_some(io: StoreIO, column: str, blobs: pa.StructArray, verified: VerifiedBlobs) -> None:
    reader = Reader(io, blobs)
    try:
        contents = reader.contents()
    except UnavailableError as error:
        if len(blobs) > 1:  # One of them; the others are looked at all the same.
            half = len(blobs) // 2
            _verify_some(io, column, blobs.slice(0, half), verified)
            _verify_some(io, column, blobs.slice(half), verified)
            return
        verified.objects += 1
        verified.missing += 1
        verified.note(f"{column}, {error.where}", error.message)
        return
    verified.objects += len(contents) - contents.null_count
    verified.size_bytes += int(pa.compute.sum(pa.compute.binary_length(contents)).as_py() or 0)
    for row in reader.damaged(contents):
        verified.damaged += 1
        where = f"{column}, {blobs.field('uri')[row].as_py()}, offset {blobs.field('offset')[row].as_py()}"
        verified.note(where, "the bytes have another checksum")
