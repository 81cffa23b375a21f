"""What is made of pictures while they are read: thumbnails, and vectors by a model in a file of ONNX."""

from __future__ import annotations

import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from frazil.errors import SpecError
from frazil_blobs import extract, models
from frazil_blobs.extract import info_of
from frazil_blobs.models import vectors_of
from frazil_blobs.pictures import pixels_of, thumbnail_of
from frazil_blobs.signatures import content_type_of
from packages.blobs.tests.unit.test_packs import read_rows, rows_of, table, text

COLUMNS = {"id": "long", "image": "binary"}


def picture(colour: str | int | tuple[int, ...], form: str = "PNG", mode: str = "RGB") -> bytes:
    """A picture of 300 by 200 of one colour."""
    stream = BytesIO()
    Image.new(mode, (300, 200), colour).save(stream, form)
    return stream.getvalue()


def field(number: int, content: bytes | str | int) -> bytes:
    """A field of a message in Protobuf: a text, a message, or a small number."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    content_bytes = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(content_bytes)]) + content_bytes


def mean_colour(
    folder: Path, *, planar: bool = True, rank: int = 4, count: int | str = "n", height: int | str = 8
) -> str:
    """The file of a model whose vector is the mean of red, of green and of blue. ONNX is Protobuf."""

    def value(name: str, *axes: int | str) -> bytes:
        dims = b"".join(field(1, field(1, axis) if isinstance(axis, int) else field(2, axis)) for axis in axes)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

    pool = field(1, "x") + field(2, "p") + field(4, "GlobalAveragePool")
    flatten = field(1, "p") + field(2, "y") + field(4, "Flatten")
    sizes: list[int | str] = [count, 3, height, 8] if planar else [count, height, 8, 3]
    graph = (
        field(1, pool)
        + field(1, flatten)
        + field(2, "g")
        + field(11, value("x", *sizes[:rank]))
        + field(12, value("y", "n", 3))
    )
    file = folder / f"mean-{rank}-{planar}-{count}-{height}.onnx"
    file.write_bytes(field(1, 8) + field(8, field(2, 13)) + bytes([7 << 3 | 2]) + _length(graph) + graph)
    return str(file)


def _length(content: bytes) -> bytes:
    return bytes([len(content) & 0x7F | 0x80, len(content) >> 7])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_thumbnail_has_the_proportions_of_its_picture(form: str) -> None:
    thumbnail = thumbnail_of(picture("red", form), 64)
    assert thumbnail is not None
    with Image.open(BytesIO(thumbnail)) as small:
        assert small.size in ((64, 43), (64, 42))
        red, green, blue = small.convert("RGB").getpixel((5, 5))  # type: ignore[misc]
    assert red > 240
    assert max(green, blue) < 15


def test_a_transparent_picture_stays_so_and_what_is_none_has_no_thumbnail() -> None:
    transparent = thumbnail_of(picture((255, 0, 0, 0), mode="RGBA"), 64)
    assert transparent is not None
    assert content_type_of(transparent) == "image/png"
    bomb = picture("red", "BMP").replace((300).to_bytes(4, "little"), (300_000).to_bytes(4, "little"), 1)
    for content in (b"%PDF-1.7", picture("red")[:100], b"", bomb):
        assert thumbnail_of(content, 64) is None
        assert pixels_of(content, 8, 8) is None


@pytest.mark.parametrize(("mode", "form"), [("I;16", "PNG"), ("I;16", "TIFF"), ("I;16B", "TIFF")])
def test_a_picture_of_16_bits_such_as_a_depth_map_keeps_its_brightness(mode: str, form: str) -> None:
    content = picture(0x80FF, form, mode)
    thumbnail = thumbnail_of(content, 64)
    assert thumbnail is not None
    with Image.open(BytesIO(thumbnail)) as small:
        assert small.size in ((64, 43), (64, 42))
        assert small.convert("RGB").getpixel((5, 5)) == (0x80, 0x80, 0x80)
    pixels = pixels_of(content, 8, 8)
    assert pixels is not None
    assert np.allclose(pixels, 0x80 / 0xFF)


@pytest.mark.parametrize(("mode", "colour"), [("L", 9), ("RGB", (9, 9, 9)), ("1", 1)])
def test_a_picture_with_one_transparent_colour_stays_so(mode: str, colour: int | tuple[int, ...]) -> None:
    stream = BytesIO()
    Image.new(mode, (300, 200), colour).save(stream, "PNG", transparency=colour)
    thumbnail = thumbnail_of(stream.getvalue(), 64)
    assert thumbnail is not None
    with Image.open(BytesIO(thumbnail)) as small:
        assert small.convert("RGBA").getpixel((5, 5))[3] == 0  # type: ignore[index]


def test_a_thumbnail_has_no_comment_or_profile_of_its_picture() -> None:
    stream = BytesIO()
    Image.new("RGB", (300, 200)).save(stream, "GIF", comment=bytes(100_000))
    with_profile = BytesIO()
    Image.new("RGBA", (300, 200), (9, 9, 9, 9)).save(
        with_profile, "PNG", icc_profile=np.random.default_rng(0).bytes(50_000)
    )
    for content in (stream.getvalue(), with_profile.getvalue()):
        assert len(thumbnail_of(content, 64) or content) < 2_000


def test_thumbnails_and_vectors_of_a_model_are_columns_of_the_table(tmp_path: Path) -> None:
    settings = {
        "thumbnails": {"image": {"column": "thumb", "size": 32}},
        "embeddings": {"colour": {"dimension": 3, "model": mean_colour(tmp_path), "of": "image"}},
    }
    target = table(tmp_path, COLUMNS, ["image"], **settings)
    contents = [picture("red"), None, b"%PDF-1.7", picture((0, 255, 255))]
    rows = rows_of(read_rows(target, *({"id": n, "image": c and text(c)} for n, c in enumerate(contents))))
    assert rows.column("colour").to_pylist() == [pytest.approx([1, 0, 0]), None, None, pytest.approx([0, 1, 1])]
    assert [thumb and content_type_of(thumb) for thumb in rows.column("thumb").to_pylist()] == [
        "image/jpeg", None, None, "image/jpeg",
    ]  # fmt: skip


def test_many_pictures_are_given_to_a_model_some_at_a_time(tmp_path: Path) -> None:
    shades = [picture((shade, 0, 0)) for shade in range(0, 250, 5)]
    for count in ("n", 1):  # A model may take one picture at a time alone.
        vectors = list(vectors_of(mean_colour(tmp_path, count=count), 3, shades))
        assert np.array(vectors)[:, 0] == pytest.approx(np.arange(0, 250, 5) / 255)


def test_a_model_that_is_none_stops_the_table_until_another_is_named(tmp_path: Path) -> None:
    remedy = "write the path of a model that all tasks can read, as `model` of `blobs.embeddings`"
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"no model")
    for file, dimension, words in (
        (str(tmp_path / "none.onnx"), 3, "No such file or directory"),
        (str(wrong), 3, "it cannot be loaded"),
        (mean_colour(tmp_path, rank=3), 3, "its input is not pictures of one size"),
        (mean_colour(tmp_path, height="h", count=1), 3, "its input is not pictures of one size"),
        (mean_colour(tmp_path, count=2), 3, "its input is not pictures of one size"),
        (mean_colour(tmp_path), 4, r"its output is \[1, 3\], and `dimension` is 4"),
    ):
        with pytest.raises(SpecError, match=f"the model cannot be used: {words}") as caught:
            list(vectors_of(file, dimension, [picture("red")]))
        assert caught.value.remedy == remedy
        embeddings = {"colour": {"dimension": dimension, "model": file, "of": "image"}}
        target = table(tmp_path, COLUMNS, ["image"], embeddings=embeddings)
        _, checked = target.stages[0].check_table(None)
        assert (checked.is_ok, checked.remedy) == (False, remedy)
        assert checked.result in str(caught.value)
    assert list(vectors_of(mean_colour(tmp_path), 3, [None])) == [None]


def test_a_machine_that_cannot_read_pictures_is_told_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = table(tmp_path, COLUMNS, ["image"], thumbnails={"image": {"column": "thumb"}})
    assert [checked.is_ok for checked in target.stages[0].check_table(None)] == [True, True]
    monkeypatch.setattr(extract, "find_spec", lambda _: None)
    _, checked = target.stages[0].check_table(None)
    assert (checked.is_ok, "install `frazil-blobs[media]` with pip" in checked.remedy) == (False, True)


@pytest.mark.parametrize(("module", "name"), [("onnxruntime", "onnxruntime"), ("PIL", "Pillow")])
def test_a_machine_that_cannot_run_models_is_told_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    embeddings = {"colour": {"dimension": 3, "model": mean_colour(tmp_path), "of": "image"}}
    target = table(tmp_path, COLUMNS, ["image"], embeddings=embeddings)
    monkeypatch.setattr(models, "find_spec", lambda wanted: None if wanted == module else True)
    _, checked = target.stages[0].check_table(None)
    assert (checked.is_ok, f"needs {name}, which is not installed" in checked.result) == (False, True)
    assert "install `frazil-blobs[models]` with pip" in checked.remedy
    monkeypatch.undo()
    assert [check.is_ok for check in target.stages[0].check_table(None)] == [True, True]


def test_a_sound_has_its_duration() -> None:
    stream = BytesIO()
    with wave.open(stream, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(2 * 8000 * 3))
    content = stream.getvalue()
    assert info_of(content, content_type_of(content[:64])) == {"duration": 3.0}
    assert info_of(content[:20], "audio/wav") is None
    assert info_of(film(2500), "video/mp4") == {"duration": 2.5}
    assert info_of(b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00" + bytes(range(256)) * 9, "video/mp4") is None


def film(duration_ms: int) -> bytes:
    """An MP4 with its header alone."""

    def box(name: bytes, content: bytes) -> bytes:
        return (8 + len(content)).to_bytes(4, "big") + name + content

    times = bytes(12) + (1000).to_bytes(4, "big") + duration_ms.to_bytes(4, "big")
    return box(b"ftyp", b"isom" + bytes(4) + b"isom") + box(b"moov", box(b"mvhd", times + bytes(80)))
