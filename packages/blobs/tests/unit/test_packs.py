"""Objects from records to packs and back, by a task without Spark."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tasks.task_job import Job
from frazil.queries.program import Field, Program, Project
from frazil.report import TaskReport
from frazil.schema.arrow import arrow_type, iceberg_type
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil.types import FIRST_PLACEHOLDER_ID
from frazil.write.target import TableQuery, TableTarget
from frazil_blobs import read
from frazil_blobs.incoming import may_ask
from frazil_blobs.settings import BlobSettings
from frazil_blobs.stage import BlobStage, reshape
from frazil_blobs.values import checksum_of
from tests.unit.ingest.targets import changed, records_of, run, target_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
JPEG = b"\xff\xd8\xff\xe0" + b"j" * 30_000
SMALL = b"%PDF-1.7 small"


def table(folder: Path, columns: dict[str, str], blobs: Sequence[str], **settings: Any) -> TableTarget:
    """A table as the driver describes it to tasks, with the key `blobs`."""
    chosen = BlobSettings.model_validate(
        {"columns": blobs, "store": (folder / "objects").as_uri(), "above": "1KiB", "pack": "32KiB", **settings}
    )
    source = target_of(folder, columns)
    types = {name: arrow_type(parse_type(word)) for name, word in columns.items()}
    reshaped = reshape(chosen, types)
    expressions = {**{name: Field(name, kind) for name, kind in types.items()}, **reshaped}
    output = tuple(Field(name, expression.type) for name, expression in expressions.items())
    program = Program((Project(tuple(expressions.items())),), output)
    ids = iter(range(FIRST_PLACEHOLDER_ID, FIRST_PLACEHOLDER_ID + 1000))
    schema = new_schema((field.name, iceberg_type(field.type, ids)) for field in output)
    stages = (BlobStage.make("blobs", chosen),)
    return target_of(folder, {}, query=TableQuery(source, program), stages=stages).with_schema(schema)


def read_rows(target: TableTarget, *rows: dict[str, Any]) -> TaskReport:
    """The report of a task that reads these records."""
    batch = records_of({"offset": n, "value": json.dumps(row).encode()} for n, row in enumerate(rows))
    return run(Job({"t": target}), batch)["lake.t"]


def rows_of(report: TaskReport) -> pa.Table:
    """The rows of the files that a task has written."""
    return pa.concat_tables(pq.read_table(file.path) for file in report.written.data)


def packs_in(folder: Path) -> list[Path]:
    """The packs of all tables."""
    return sorted((folder / "objects").rglob("*.pack"))


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_large_object_leaves_its_row_and_comes_back_with_its_bytes(tmp_path: Path) -> None:
    target = table(tmp_path, {"id": "long", "image": "binary"}, ["image"])
    contents = [PNG, None, SMALL, JPEG]
    report = read_rows(target, *({"id": n, "image": c and text(c)} for n, c in enumerate(contents)))
    rows = rows_of(report)
    blobs = rows.column("image").to_pylist()
    assert [blob and blob["content_type"] for blob in blobs] == ["image/png", None, "application/pdf", "image/jpeg"]
    assert [blob and blob["size"] for blob in blobs] == [len(PNG), None, len(SMALL), len(JPEG)]
    assert [blob and blob["checksum"] for blob in blobs] == [c and checksum_of(c) for c in contents]
    assert blobs[1] is None
    assert (blobs[2]["uri"], blobs[2]["offset"], blobs[2]["inline"]) == (None, None, SMALL)
    assert (blobs[0]["inline"], blobs[0]["offset"]) == (None, 0)
    # Together they are larger than a pack may be.
    assert [path.read_bytes() for path in map(Path, (blobs[n]["uri"].removeprefix("file:") for n in (0, 3)))] == [
        PNG,
        JPEG,
    ]
    assert read(rows.column("image")).to_pylist() == contents


def test_objects_inside_of_structs_leave_their_row(tmp_path: Path) -> None:
    target = table(tmp_path, {"id": "long", "lidar": "struct<points: binary, n: int>"}, ["lidar.points"])
    report = read_rows(
        target, {"id": 1, "lidar": {"points": text(PNG), "n": 7}}, {"id": 2}, {"id": 3, "lidar": {"n": 8}}
    )
    lidar = rows_of(report).column("lidar")
    values = lidar.to_pylist()
    assert (values[0]["n"], values[1], values[2]) == (7, None, {"points": None, "n": 8})
    assert read(pa.compute.struct_field(lidar, "points")).to_pylist() == [PNG, None, None]


def test_objects_of_one_pack_are_side_by_side(tmp_path: Path) -> None:
    target = table(tmp_path, {"id": "long", "image": "binary"}, ["image"], pack="1MiB")
    contents = [bytes([n]) * (2000 + n) for n in range(50)]
    rows = rows_of(read_rows(target, *({"id": n, "image": text(content)} for n, content in enumerate(contents))))
    [pack] = packs_in(tmp_path)
    assert pack.read_bytes() == b"".join(contents)
    assert read(rows.column("image").take(pa.array([49, 3, 3, 20]))).to_pylist() == [
        contents[n] for n in (49, 3, 3, 20)
    ]


def test_a_task_that_cannot_commit_leaves_no_pack(tmp_path: Path) -> None:
    target = table(tmp_path, {"id": "long", "image": "binary"}, ["image"])
    report = read_rows(target, {"id": 1, "image": text(PNG)}, {"id": "one", "image": text(PNG)})
    assert (report.bad_records.count, report.written.data, packs_in(tmp_path)) == (1, (), [])


def test_text_that_is_not_base64_is_a_bad_record(tmp_path: Path) -> None:
    report = read_rows(table(tmp_path, {"id": "long", "image": "binary"}, ["image"]), {"id": 1, "image": "/9j/4AAQ*"})
    [bad] = report.bad_records.first
    assert (bad.kind, bad.path) == ("type_mismatch", "image")


def test_an_object_over_the_limit_and_a_type_that_lies_are_bad_records(tmp_path: Path) -> None:
    settings = {"limit": "20kB", "types": {"image": "image/*"}}
    target = table(tmp_path, {"id": "long", "image": "binary"}, ["image"], **settings)
    report = read_rows(
        target, {"id": 1, "image": text(JPEG)}, {"id": 2, "image": text(SMALL)}, {"id": 3, "image": text(PNG)}
    )
    assert [(bad.offset, bad.kind, bad.path, bad.reason) for bad in report.bad_records.first] == [
        (0, "refused_by_stage", "image", "blobs: the object is larger than `blobs.limit`, 20,000 bytes"),
        (1, "refused_by_stage", "image", "blobs: the bytes are application/pdf, and `blobs.types` has image/*"),
    ]
    assert packs_in(tmp_path) == []


def test_packs_inside_of_the_table_are_refused_until_they_are_elsewhere(tmp_path: Path) -> None:
    inside, columns = tmp_path / "lake.t" / "objects", {"id": "long", "image": "binary"}
    target = table(tmp_path, columns, ["image"], store=inside.as_uri())
    with pytest.raises(SpecError, match="the packs are in the table's own folder") as caught:
        read_rows(target, {"id": 1, "image": text(PNG)})
    assert caught.value.remedy == f"write another folder as `blobs.store`, outside {tmp_path / 'lake.t'}"
    [check] = target.stages[0].check_table(target.files.location)
    assert (check.is_ok, check.remedy) == (False, caught.value.remedy)
    outside = table(tmp_path, columns, ["image"])
    assert [check.is_ok for check in outside.stages[0].check_table(outside.files.location)] == [True]
    assert read(rows_of(read_rows(outside, {"id": 1, "image": text(PNG)})).column("image")).to_pylist() == [PNG]


def test_a_column_without_bytes_is_refused_until_it_is_declared(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="`blobs` has the column `image`, which is string and not bytes") as caught:
        table(tmp_path, {"id": "long", "image": "string"}, ["image"])
    assert caught.value.remedy == "declare it, `columns: {image: binary}`, or take it out of `blobs`"
    table(tmp_path, {"id": "long", "image": "binary"}, ["image"])
    _, references = uploads(tmp_path)
    with pytest.raises(SpecError, match="`blobs` has the column `file`, which is binary and not text") as caught:
        table(tmp_path, {"id": "long", "file": "binary"}, [], references=references)
    assert caught.value.remedy == "declare it, `columns: {file: string}`, or take it out of `blobs`"
    with pytest.raises(SpecError, match="what is around it is list<element: binary> and not a struct") as caught:
        table(tmp_path, {"id": "long", "images": "list<binary>"}, ["images.element"])
    assert caught.value.remedy == "name a column of bytes, or one in structs alone"


def test_vectors_that_are_not_those_of_the_model_are_bad_records(tmp_path: Path) -> None:
    columns, settings = {"id": "long", "image": "binary", "v": "list<double>"}, {"embeddings": {"v": {"dimension": 3}}}
    target = table(tmp_path, columns, ["image"], **settings)
    values: list[Any] = [[1, 2, 3], [1, 2], None, [1, None, 3], [4.5, 5, 6]]
    bad = read_rows(target, *({"id": n, "v": value} for n, value in enumerate(values))).bad_records.first
    assert [(record.offset, record.path, record.reason) for record in bad] == [
        (1, "v", "blobs: the vector does not have 3 values, as `blobs.embeddings` has it"),
        (3, "v", "blobs: the vector has a value that is null, infinite or not a number"),
    ]
    with pytest.raises(SpecError, match="has the column `v`, which is string") as caught:
        read_rows(table(tmp_path, {**columns, "v": "string"}, ["image"], **settings), {"id": 1, "v": "1, 2, 3"})
    assert caught.value.remedy == "declare it, `columns: {v: list<float>}`"


def uploads(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A folder that others store objects in, and the settings that allow it."""
    place = folder / "uploads"
    place.mkdir()
    (place / "a.png").write_bytes(PNG)
    (place / "small.pdf").write_bytes(SMALL)
    (folder / "secret.png").write_bytes(PNG)
    return place, {"columns": ["file"], "allow": [f"{place.as_uri()}/"]}


@pytest.mark.parametrize("copies", [False, True])
def test_an_address_leads_to_an_object_or_its_record_is_bad(tmp_path: Path, copies: bool) -> None:
    place, references = uploads(tmp_path)
    (place / "link.png").symlink_to(tmp_path / "secret.png")
    columns = {"id": "long", "file": "string"}
    target = table(tmp_path, columns, [], references={**references, "copy": copies})
    good = [{"id": n, "file": (place / name).as_uri()} for n, name in enumerate(("a.png", "small.pdf"))]
    rows = rows_of(read_rows(target, *good, {"id": 2}))
    blobs = rows.column("file").to_pylist()
    assert [blob and (blob["content_type"], blob["size"]) for blob in blobs] == [
        ("image/png", len(PNG)),
        ("application/pdf", len(SMALL)),
        None,
    ]
    assert blobs[0]["checksum"].partition(":")[0] == ("CRC32C" if copies else "ETAG")
    assert len(packs_in(tmp_path)) == copies
    if copies:
        (place / "a.png").unlink()
    assert read(rows.column("file")).to_pylist() == [PNG, SMALL, None]

    tricks = (
        f"{place.as_uri()}/../secret.png",
        (place / "link.png").as_uri(),
        (tmp_path / "secret.png").as_uri(),
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "s3://other/a.png",
        f"{place.as_uri()}/{'a/' * 600}a.png",
    )
    bad = read_rows(target, *({"id": n, "file": uri} for n, uri in enumerate(tricks))).bad_records
    reason = "blobs: the address is not below a folder of `blobs.references.allow`"
    assert [(record.offset, record.path, record.reason) for record in bad.first] == [
        (n, "file", reason) for n in range(len(tricks))
    ]
    [missing] = read_rows(target, {"id": 1, "file": (place / "none.png").as_uri()}).bad_records.first
    assert missing.reason == "blobs: no object is at the address"
    [long] = read_rows(target, {"id": 1, "file": f"{place.as_uri()}/{'a' * 300}"}).bad_records.first
    assert long.reason == "blobs: no object can be at the address"


@pytest.mark.parametrize("above", ["1KiB", "1MiB"])
def test_an_object_that_is_replaced_after_it_was_looked_at_is_never_copied_in_part(tmp_path: Path, above: str) -> None:
    place, references = uploads(tmp_path)
    references = {**references, "copy": True}
    target = table(tmp_path, {"id": "long", "file": "string"}, [], references=references, above=above)
    record = {"id": 1, "file": (place / "a.png").as_uri()}
    read_rows(target, record)
    (place / "a.png").write_bytes(PNG + PNG)  # What was known of it is still remembered.
    with pytest.raises(OSError, match="the object was replaced while it was copied"):
        read_rows(target, record)
    assert read(rows_of(read_rows(target, record)).column("file")).to_pylist() == [PNG + PNG]


def test_an_address_that_stores_read_differently_is_not_allowed() -> None:
    assert may_ask("s3://uploads/a/b.png", ["s3://uploads/"])
    assert not may_ask("s3://uploads/a//b.png", ["s3://uploads/"])


def test_a_table_waits_for_an_object_where_it_is_told_to(tmp_path: Path) -> None:
    place, references = uploads(tmp_path)
    target = table(tmp_path, {"id": "long", "file": "string"}, [], references={**references, "missing": "wait"})
    with pytest.raises(UnavailableError, match="the object of a record does not exist yet, column=file"):
        read_rows(target, {"id": 1, "file": (place / "later.png").as_uri()})


def test_what_an_address_leads_to_is_judged_as_bytes_of_a_record_are(tmp_path: Path) -> None:
    place, references = uploads(tmp_path)
    settings = {"references": references, "types": {"file": "image/*"}, "limit": "1kB"}
    target = table(tmp_path, {"id": "long", "file": "string"}, [], **settings)
    rows = [{"id": n, "file": (place / name).as_uri()} for n, name in enumerate(("a.png", "small.pdf"))]
    assert [record.reason for record in read_rows(target, *rows).bad_records.first] == [
        "blobs: the object is larger than `blobs.limit`, 1,000 bytes",
        "blobs: the bytes are application/pdf, and `blobs.types` has image/*",
    ]


def test_a_record_that_is_a_struct_of_an_object_cannot_name_a_place(tmp_path: Path) -> None:
    kind = "struct<uri: string, offset: long, size: long, content_type: string, checksum: string, inline: binary>"
    target = table(tmp_path, {"id": "long", "image": kind}, ["image"])
    place = {"uri": "file:///etc/passwd", "offset": 0, "size": 9, "content_type": "image/png", "checksum": None}
    [bad] = read_rows(target, {"id": 1, "image": place}, {"id": 2, "image": {"inline": text(SMALL)}}).bad_records.first
    assert (bad.offset, bad.reason) == (0, "blobs: the record has an address in place of an object")


def test_another_dimension_of_vectors_is_refused_until_it_is_the_old_one(tmp_path: Path) -> None:
    def marks(dimension: int, known: dict[str, str]) -> Mapping[str, str]:
        embeddings = {"vector": {"dimension": dimension, "distance": "l2"}}
        target = table(tmp_path, {"image": "binary", "vector": "list<float>"}, ["image"], embeddings=embeddings)
        return target.stages[0].new_marks(None, known, tuple)  # type: ignore[arg-type]

    assert marks(3, {}) == {"embedding.vector": "3 l2", "blob-columns": "image"}
    assert marks(3, {"embedding.vector": "3 cosine", "blob-columns": "image"}) == {"embedding.vector": "3 l2"}
    with pytest.raises(SpecError, match=r"the vectors of `vector` have 4 values, and `blobs\.embeddings` has 3"):
        marks(3, {"embedding.vector": "4 l2"})
    assert marks(4, {"embedding.vector": "4 l2", "blob-columns": "clip"}) == {"blob-columns": "clip,image"}


def test_a_pack_has_objects_of_one_partition_where_there_are_few(tmp_path: Path) -> None:
    plain = table(tmp_path, {"day": "int", "image": "binary"}, ["image"], pack="1MiB")
    day = plain.schema.find_field("day").field_id
    spec = PartitionSpec(PartitionField(day, 1000, IdentityTransform(), "day"))
    target = changed(plain, partition_spec=spec.model_dump_json())
    rows = rows_of(read_rows(target, *({"day": n % 3, "image": text(PNG)} for n in range(12))))
    of_days = {(row["day"], row["image"]["uri"]) for row in rows.to_pylist()}
    assert (len(of_days), len({uri for _, uri in of_days}), len(packs_in(tmp_path))) == (3, 3, 3)
    many = rows_of(read_rows(target, *({"day": n, "image": text(PNG)} for n in range(12))))
    assert len({row["image"]["uri"] for row in many.to_pylist()}) == 1
    assert read(many.column("image")).to_pylist() == [PNG] * 12
