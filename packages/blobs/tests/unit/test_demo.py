"""The demo's pictures, and the page of those that are alike."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import BinaryType, FloatType, ListType, LongType, NestedField

from frazil_blobs import write_gallery
from frazil_blobs.demo import Picture, vector_of
from frazil_blobs.pictures import thumbnail_of
from frazil_blobs.signatures import content_type_of
from packages.blobs.tests.unit.test_vectors import OneTable


def test_pictures_of_a_number_are_the_same_and_have_several_formats() -> None:
    pictures = [Picture(number) for number in range(40)]
    contents = [picture.content() for picture in pictures]
    assert contents == [Picture(number).content() for number in range(40)]
    assert {content_type_of(content[:64]) for content in contents} == {
        f"image/{name}" for name in ("png", "jpeg", "webp", "gif", "bmp")
    }
    assert Picture(3, 1).content() != contents[3]
    assert len(Picture(3).record()["embedding"]) == 192


def test_a_page_has_the_nearest_pictures_of_each_day_and_no_script(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "thumbnail", BinaryType(), required=False),
        NestedField(3, "embedding", ListType(4, FloatType(), element_required=False), required=False),
    )
    location = (tmp_path / "pictures").as_uri()
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location)
    table = Table(("demo", "pictures"), metadata, "", load_file_io({}, location), OneTable("one"))
    small: dict[tuple[int, int], bytes | None] = {}
    for day in (0, 1):
        contents = [Picture(number, day).content() for number in range(5)]
        small |= {(day, number): thumbnail_of(content, 32) for number, content in enumerate(contents)}
        columns = {
            "id": pa.array(range(5)),
            "thumbnail": pa.array([small[day, number] for number in range(5)], pa.binary()),
            "embedding": pa.array([vector_of(content) for content in contents], pa.list_(pa.float32())),
        }
        table.append(pa.table(columns))
    page, first = tmp_path / "page.html", table.snapshots()[0].snapshot_id
    vectors = {"<like 2>": vector_of(Picture(2, 1).content())}
    write_gallery(table, vectors, page, image="thumbnail", k=2, snapshots={"today": None, "yesterday": first})
    text = page.read_text()
    shown = [b64decode(picture) for picture in re.findall(r"data:image/jpeg;base64,([^\"]+)", text)]
    assert shown[0] == small[1, 2]
    assert set(shown[2:]) <= {small[0, number] for number in range(5)}
    assert (len(shown), "&lt;like 2&gt;" in text, "<script" in text, "http" in text) == (4, True, False, False)
