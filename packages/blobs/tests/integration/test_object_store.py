"""Packs, listings and references on an object store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.clock import new_id
from frazil.ingest.tasks.task_job import Job
from frazil.store.file_io import store_of
from frazil_blobs import read
from frazil_blobs.reading import Reader
from frazil_blobs.values import FIELDS
from packages.blobs.tests.unit.test_packs import JPEG, PNG, SMALL, read_rows, rows_of, table, text
from tests.fixtures.store_proxy import Fault, Request, StoreProxy
from tests.integration.servers import ObjectStore
from tests.unit.ingest.targets import changed, records_of, run

COLUMNS = {"id": "long", "image": "binary"}


def properties(store: ObjectStore) -> tuple[tuple[str, str], ...]:
    """What leads a task to the store."""
    return tuple(sorted(store.properties().items()))


def test_objects_are_read_from_packs_of_an_object_store(store: ObjectStore, tmp_path: Path) -> None:
    place = f"s3://lake/objects-{new_id()}"
    target = changed(table(tmp_path, COLUMNS, ["image"], store=place, pack="64KiB"), io_properties=properties(store))
    contents = [PNG, JPEG, SMALL, None, PNG[:5000], JPEG[:4000]] * 5
    rows = rows_of(read_rows(target, *({"id": n, "image": c and text(c)} for n, c in enumerate(contents))))
    assert read(rows.column("image"), store.properties()).to_pylist() == contents
    listed = list(store_of(properties(store)).files(place))
    assert sorted(file.location for file in listed) == sorted(
        {blob["uri"] for blob in rows.column("image").to_pylist() if blob and blob["uri"]}
    )
    assert sum(file.size_bytes for file in listed) == sum(len(c) for c in contents if c and len(c) > 1024)
    assert min(file.written_ms for file in listed) > 1_700_000_000_000
    assert list(store_of(properties(store)).files(f"{place}-none")) == []


def test_a_batch_that_is_not_committed_leaves_no_pack_in_an_object_store(store: ObjectStore, tmp_path: Path) -> None:
    place = f"s3://lake/objects-{new_id()}"
    target = changed(table(tmp_path, COLUMNS, ["image"], store=place), io_properties=properties(store))
    records = records_of(
        {"offset": n, "value": value} for n, value in enumerate([b'{"image": "%s"}' % text(PNG).encode(), b"{"])
    )
    report = run(Job({"t": target}), records)["lake.t"]
    assert (report.bad_records.count, report.written.data) == (1, ())
    assert list(store_of(properties(store)).files(place)) == []


@pytest.mark.parametrize("copies", [False, True])
def test_addresses_of_an_object_store_are_looked_at(store: ObjectStore, tmp_path: Path, copies: bool) -> None:
    uploads = f"uploads-{new_id()}"
    for name, content in (("a.png", PNG), ("empty", b"")):
        store.client().put_object(Bucket="lake", Key=f"{uploads}/{name}", Body=content)
    references = {"columns": ["file"], "allow": [f"s3://lake/{uploads}/"], "copy": copies}
    plain = table(tmp_path, {"id": "long", "file": "string"}, [], store="s3://lake/objects", references=references)
    target = changed(plain, io_properties=properties(store))
    names = ("a.png", "empty")
    rows = rows_of(
        read_rows(target, *({"id": n, "file": f"s3://lake/{uploads}/{name}"} for n, name in enumerate(names)))
    )
    assert [blob["size"] for blob in rows.column("file").to_pylist()] == [len(PNG), 0]
    assert read(rows.column("file"), store.properties()).to_pylist() == [PNG, b""]
    [bad] = read_rows(target, {"id": 1, "file": f"s3://lake/{uploads}/none"}).bad_records.first
    assert bad.reason == "blobs: no object is at the address"


def test_objects_that_are_close_are_read_by_one_request(store: ObjectStore, tmp_path: Path) -> None:
    place = f"s3://lake/objects-{new_id()}"
    target = changed(table(tmp_path, COLUMNS, ["image"], store=place, pack="64MiB"), io_properties=properties(store))
    contents = [bytes([n]) * 20_000 for n in range(200)]
    rows = rows_of(read_rows(target, *({"id": n, "image": text(content)} for n, content in enumerate(contents))))
    io, asked = store_of(properties(store)), list[tuple[int, int]]()

    class Counting:
        """Notes what is asked for."""

        def read_range(self, location: str, start: int, end: int) -> pa.Buffer:
            asked.append((start, end))
            return io.read_range(location, start, end)

    reader = Reader(Counting(), rows.column("image"))  # type: ignore[arg-type]
    assert reader.contents().to_pylist() == contents
    assert asked == [(0, 4_000_000)]
    assert rows.column("image").type.num_fields == len(FIELDS)


class FailsInTheMiddle(StoreProxy):
    """A store that fails from its second part of a pack on."""

    def note(self, request: Request) -> Fault | None:
        if "partNumber=2" in request.path:
            self.always = "500"
        return super().note(request)


def test_a_store_that_fails_in_the_middle_of_a_pack_has_none_of_it_until_it_works_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    place = f"s3://lake/objects-{new_id()}"
    contents = [bytes([n]) * 4_000_000 for n in range(3)]
    records = [{"id": n, "image": text(content)} for n, content in enumerate(contents)]
    plain = table(tmp_path, COLUMNS, ["image"], store=place, pack="64MiB")
    with closing(FailsInTheMiddle(store.port)) as proxy:
        access = {**store.properties(), "s3.endpoint": proxy.url, "s3.retry.num-retries": "0"}
        with pytest.raises(OSError, match=r"InternalError|500"):
            read_rows(changed(plain, io_properties=tuple(sorted(access.items()))), *records)
        assert proxy.faults["500"] > 0
    assert list(store_of(properties(store)).files(place)) == []
    assert list(tmp_path.rglob("*.parquet")) == []
    rows = rows_of(read_rows(changed(plain, io_properties=properties(store)), *records))
    assert read(rows.column("image"), store.properties()).to_pylist() == contents
