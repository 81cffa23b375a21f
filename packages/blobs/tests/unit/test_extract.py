"""What the headers of pictures and point clouds contain, as Pillow and the writers of these formats make them."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from frazil.errors import SpecError
from frazil_blobs.extract import info_of
from frazil_blobs.signatures import content_type_of
from packages.blobs.tests.unit.test_packs import read_rows, rows_of, table, text

CLOUD = np.array([(1, 2, 3), (-4, 5, 0.5), (2, -2, 9)], np.float32)
CORNERS = {"points": 3, "lower": [-4.0, -2.0, 0.5], "upper": [2.0, 5.0, 9.0]}


def picture(form: str) -> bytes:
    """A picture of 40 by 30."""
    stream, exif = BytesIO(), Image.Exif()
    exif[271] = "Frazil"
    Image.new("RGB", (40, 30), "red").save(stream, form, exif=exif)
    return stream.getvalue()


def las() -> bytes:
    """The header of LAS 1.2 without points."""
    header = bytearray(b"LASF" + bytes(223))
    header[24:26] = b"\x01\x02"
    struct.pack_into("<I", header, 107, 3)
    struct.pack_into("<6d", header, 179, 2, -4, 5, -2, 9, 0.5)
    return bytes(header)


PCD = (
    b"# .PCD v0.7\nVERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 3\nHEIGHT 1\nPOINTS 3\n"
    b"DATA binary\n" + CLOUD.tobytes()
)
PLY = (
    b"ply\nformat binary_little_endian 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    b"end_header\n" + CLOUD.tobytes()
)
OBJECTS = {"las": las(), "pcd": PCD, "ply": PLY, "png": picture("PNG"), "jpeg": picture("JPEG")}


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_a_picture_has_its_size(form: str) -> None:
    content = picture(form)
    info = info_of(content, content_type_of(content[:64]))
    assert info is not None
    assert (info["width"], info["height"]) == (40, 30)
    assert form in ("GIF", "BMP") or json.loads(info["exif"])["Make"] == "Frazil"


@pytest.mark.parametrize("name", ["las", "pcd", "ply"])
def test_a_point_cloud_has_the_number_and_the_bounds_of_its_points(name: str) -> None:
    assert info_of(OBJECTS[name], content_type_of(OBJECTS[name][:64])) == CORNERS


@pytest.mark.parametrize("name", OBJECTS)
def test_damaged_objects_raise_nothing(name: str) -> None:
    content = OBJECTS[name]
    for seed in range(200):
        chance = np.random.default_rng(seed)
        damaged = bytearray(content[: int(chance.integers(8, len(content) + 1))])
        for place in chance.integers(8, len(damaged), 3) if len(damaged) > 8 else ():
            damaged[place] = int(chance.integers(0, 256))
        info_of(bytes(damaged), content_type_of(content[:64]))


def test_a_header_with_more_points_than_the_column_can_count_or_without_an_end_has_null() -> None:
    many = bytearray(375)
    many[:227] = OBJECTS["las"]
    many[25] = 4
    struct.pack_into("<Q", many, 247, 2**64 - 1)
    endless = b"# .PCD v0.7\n" + b"\n" * 100_000 + PCD
    for content in (bytes(many), PCD.replace(b"POINTS 3", b"POINTS -1"), endless):
        assert info_of(content, content_type_of(content[:64])) is None


def test_what_headers_contain_is_a_column_of_the_table(tmp_path: Path) -> None:
    columns, extract = {"id": "long", "image": "binary"}, {"extract": {"image": "image_info"}}
    target = table(tmp_path, columns, ["image"], **extract)
    records: list[dict[str, Any]] = [{"id": 1, "image": text(OBJECTS["png"])}, {"id": 2}, {"id": 3, "image": text(PCD)}]
    infos = rows_of(read_rows(target, *records)).column("image_info").to_pylist()
    assert (infos[0]["width"], infos[0]["height"], infos[1]) == (40, 30, None)
    assert {name: infos[2][name] for name in CORNERS} == CORNERS
    with pytest.raises(SpecError, match="the records have a field `image_info`") as caught:
        table(tmp_path, {**columns, "image_info": "string"}, ["image"], **extract)
    assert caught.value.remedy == "choose another name under `extract`"
