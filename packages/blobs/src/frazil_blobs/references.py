"""Which packs a table refers to: in every snapshot, and in one.

The first decides what may be removed: every snapshot counts that a branch, a tag or the retention keeps, and every row of
its data files, as a row that a delete file hides comes back when the table is rolled back. The second decides what is
worth copying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import TableMetadataUtil

from frazil.errors import ConflictError, UnavailableError
from frazil.schema.arrow import field_id_of
from frazil.store.file_io import store_of
from frazil_blobs.values import Path, blob_paths, member_at


def opened(name: str, metadata_json: str, io_properties: Mapping[str, str]) -> Table:
    """Returns a table for reading. metadata_json: Iceberg's. io_properties: for access to its store."""
    io = store_of(tuple(sorted(io_properties.items())))
    metadata = TableMetadataUtil.parse_raw(metadata_json)
    return StaticTable(tuple(name.split(".")), metadata, "", io, NoopCatalog(name))


def all_packs(table: Table) -> set[str]:
    """Returns every URI that a row of any snapshot of the table has.

    Raises: ConflictError where a file was removed meanwhile; UnavailableError where a file cannot be read.
    """
    uri_ids = {
        schema.find_field(f"{'.'.join(path)}.uri").field_id
        for schema in table.schemas().values()
        for path in blob_paths(schema)
    }
    uris: set[str] = set()
    for file in _data_files(table):
        if file.file_format != FileFormat.PARQUET:
            message = f"a data file is {file.file_format}, whose references to packs Frazil does not read"
            raise UnavailableError(message, where=file.file_path)
        uris.update(_uris_in(table.io, file.file_path, uri_ids))
    return uris


def _data_files(table: Table) -> Iterator[DataFile]:
    """Yields each data file of every snapshot once."""
    manifests, paths = set[str](), set[str]()
    try:
        for snapshot in table.snapshots():
            for manifest in snapshot.manifests(table.io):
                if manifest.content != ManifestContent.DATA or manifest.manifest_path in manifests:
                    continue
                manifests.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(table.io):
                    if entry.data_file.file_path not in paths:
                        paths.add(entry.data_file.file_path)
                        yield entry.data_file
    except FileNotFoundError as error:
        raise ConflictError(f"a snapshot was expired while its files were listed: {error}") from None
    except OSError as error:
        raise UnavailableError(f"the files of the snapshots cannot be listed: {error}") from None


def _uris_in(io: FileIO, path: str, uri_ids: set[int]) -> set[str]:
    """Returns the URIs in a data file. uri_ids: the ids of the columns that have some."""
    try:
        with io.new_input(path).open() as stream:
            parquet = pq.ParquetFile(stream)
            columns = list(_columns_of(parquet.schema_arrow, uri_ids))
            uris: set[str] = set()
            for batch in parquet.iter_batches(columns=columns, use_threads=False) if columns else ():
                for name in columns:
                    first, *inner = name.split(".")
                    uris.update(pc.unique(member_at(batch.column(first), inner)).drop_null().to_pylist())
            return uris
    except FileNotFoundError as error:
        raise ConflictError(f"a data file was removed while it was read: {error}", where=path) from None
    except OSError as error:
        raise UnavailableError(f"a data file cannot be read: {error}", where=path) from None


def _columns_of(fields: Iterable[pa.Field], ids: set[int], above: str = "") -> Iterator[str]:
    """Yields the paths in a file of the fields with these ids."""
    for field in fields:
        name = f"{above}{field.name}"
        if field_id_of(field) in ids:
            yield name
        elif pa.types.is_struct(field.type):
            yield from _columns_of([field.type.field(n) for n in range(field.type.num_fields)], ids, f"{name}.")


@dataclass
class PackUse:
    """What one snapshot has of a pack."""

    #: The bytes of the objects that rows refer to.
    live_bytes: int
    #: The data files with these rows.
    files: set[str]


def packs_of_snapshot(table: Table, snapshot_id: int | None) -> dict[str, PackUse]:
    """Returns by pack what the rows of a snapshot refer to, rows that were deleted left out. snapshot_id: None for the
    table's current one.

    Raises: as `all_packs`.
    """
    uses: dict[str, PackUse] = {}
    for path, _, blobs in blobs_by_file(table, snapshot_id, ("uri", "size")):
        at_pack = blobs.filter(blobs.field("uri").is_valid())
        sums = (
            pa.table({"uri": at_pack.field("uri"), "size": at_pack.field("size")})
            .group_by("uri")
            .aggregate([("size", "sum")])
        )
        for uri, size in zip(sums["uri"].to_pylist(), sums["size_sum"].to_pylist(), strict=True):
            use = uses.setdefault(uri, PackUse(0, set()))
            use.live_bytes += size or 0
            use.files.add(path)
    return uses


def blobs_by_file(
    table: Table, snapshot_id: int | None, members: tuple[str, ...]
) -> Iterator[tuple[str, Path, pa.StructArray]]:
    """Yields the objects of a snapshot: data file, path of the column, and structs with these fields, those of rows
    that are not deleted.

    Raises: as `all_packs`.
    """
    paths = blob_paths(_schema_at(table, snapshot_id))
    names = tuple(f"{'.'.join(path)}.{member}" for path in paths for member in members)
    if not paths:
        return
    scan = table.scan(snapshot_id=snapshot_id, selected_fields=names)
    try:
        for task in scan.plan_files():
            for batch in ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_record_batches(
                [task]
            ):
                for path in paths:
                    if path[0] in batch.schema.names:
                        blobs = member_at(batch.column(path[0]), path[1:])
                        values = [member_at(blobs, (member,)) for member in members]
                        yield task.file.file_path, path, pa.StructArray.from_arrays(values, list(members))
    except FileNotFoundError as error:
        raise ConflictError(f"a file was removed while it was read: {error}") from None
    except OSError as error:
        raise UnavailableError(f"the rows of a snapshot cannot be read: {error}") from None


def _schema_at(table: Table, snapshot_id: int | None) -> Schema:
    """Returns the schema that a snapshot is read with."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]
