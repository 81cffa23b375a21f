"""Disks without room, and objects that are no longer what they were: nothing is half visible, and all of it is named."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frazil import failpoints
from frazil.errors import InvariantError, UnavailableError
from frazil_blobs import read
from frazil_blobs.verify import verify
from packages.blobs.tests.unit.test_packs import JPEG, PNG, SMALL, packs_in, read_rows, rows_of, table, text
from packages.blobs.tests.unit.test_vectors import OneTable

COLUMNS = {"id": "long", "image": "binary"}
CONTENTS = [PNG, JPEG, SMALL, JPEG[:9000]]
RECORDS = [{"id": n, "image": text(content)} for n, content in enumerate(CONTENTS)]
SMALLEST_BYTES = 20_000
"""Less than the largest object."""


def table_of(folder: Path, rows: pa.Table) -> Table:
    """A table with these rows."""
    schema = _pyarrow_to_schema_without_ids(rows.schema)
    location = (folder / "verified").as_uri()
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location)
    made = Table(("cars", "verified"), metadata, "", load_file_io({}, location), OneTable("one"))
    append(made, rows)
    return made


def append(made: Table, rows: pa.Table) -> None:
    """Appends rows of a task to another table than that of their ids."""
    made.append(rows.cast(schema_to_pyarrow(made.schema(), include_field_ids=False)))


@contextmanager
def no_room(point: str) -> Iterator[None]:
    """A disk that is full at a point, or files that may not grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if point:
            failpoints.arm({failpoints.VARIABLE: point})
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALLEST_BYTES, hard))
        yield
    finally:
        failpoints.arm({})
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("point", ["blobs.pack.write=enospc@3", "blobs.pack.finished=enospc", ""])
def test_a_disk_that_is_full_in_the_middle_leaves_no_pack_and_no_row(tmp_path: Path, point: str) -> None:
    target = table(tmp_path, COLUMNS, ["image"], pack="1MiB")
    with no_room(point), pytest.raises(OSError, match="No space left" if point else "File too large"):
        read_rows(target, *RECORDS)
    assert (packs_in(tmp_path), list(tmp_path.rglob("*.parquet"))) == ([], [])
    assert read(rows_of(read_rows(target, *RECORDS)).column("image")).to_pylist() == CONTENTS


def test_verify_names_objects_that_are_missing_damaged_or_cut_off(tmp_path: Path) -> None:
    contents = [bytes([n]) * 9000 for n in range(8)]
    records = [{"id": n, "image": text(content)} for n, content in enumerate([*contents, SMALL])]
    rows = rows_of(read_rows(table(tmp_path, COLUMNS, ["image"], pack="20KiB"), *records))
    made = table_of(tmp_path, rows)
    snapshot = made.current_snapshot()
    assert snapshot is not None
    assert verify(made, snapshot.snapshot_id).is_well
    uris = [blob["uri"] for blob in rows.column("image").to_pylist()]
    removed, damaged, short, whole = (Path(uri.removeprefix("file://")) for uri in dict.fromkeys(uris[:8]))
    removed.unlink()
    damaged.write_bytes(damaged.read_bytes()[:9000] + b"\xff" + damaged.read_bytes()[9001:])
    short.write_bytes(short.read_bytes()[:-1])
    assert whole.exists()
    verified = verify(made, snapshot.snapshot_id)
    assert (verified.objects, verified.missing, verified.damaged, verified.is_well) == (9, 3, 1, False)
    assert [line.partition(": ")[0] for line in verified.first] == [
        f"image, {uris[0]}", f"image, {uris[1]}", f"image, {uris[2]}, offset 9000", f"image, {uris[5]}",
    ]  # fmt: skip
    assert "the bytes have another checksum" in verified.first[2]
    assert "a pack ends before its objects do" in verified.first[3]
    blobs = rows.column("image")
    with pytest.raises(InvariantError, match="an object does not have its checksum") as caught:
        read(blobs.slice(2, 2))
    assert caught.value.where == f"{uris[3]}, offset 9000"
    with pytest.raises(UnavailableError, match="an object cannot be read"):
        read(blobs.slice(0, 2))
    assert read(blobs.slice(6)).to_pylist() == [*contents[6:], SMALL]
