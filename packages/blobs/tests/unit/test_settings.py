"""What a pipeline file has wrong under `blobs` is named with its line, and with a remedy that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.spec import PipelineSpec, load_spec
from frazil_blobs.settings import BlobSettings

_HEAD = """pipeline: p
kafka: {bootstrap.servers: "b:1"}
tables:
  n.t:
    topic: t
    blobs:
"""
_WHOLE = {"columns": "[image]", "store": "s3://lake/objects"}


def load(folder: Path, **settings: str) -> PipelineSpec:
    path = folder / "frazil.yaml"
    path.write_text(
        _HEAD + "".join(f"      {key}: {value}\n" for key, value in {**_WHOLE, **settings}.items() if value)
    )
    return load_spec(path, {})


@pytest.mark.parametrize(
    ("key", "wrong", "message", "remedy", "right"),
    [
        ("columns", "image", "`blobs.columns` is text where a list is expected", "write a list", "[image]"),
        ("columns", "[]", "`blobs`: it names no columns with objects", "write `columns: [image]`", "[image]"),
        ("columns", "[[image]]", "`blobs.columns` is a list where text is expected", "write text after", "[image]"),
        ("store", "lake", "`blobs.store`: `lake` is not an address", "write an address, such as s3://", "s3://b/o"),
        ("store", "s4://lake/o", "`blobs.store`: tasks cannot write to `s4:`", "use one of ", "s3://lake/o"),
        ("store", "", "`blobs.store` is missing", "write `store: …` below `blobs`", "s3://lake/o"),
        ("above", "64", "`blobs.above`: the size `64` has no unit", "for example `64MiB`", "64MiB"),
        ("above", "64kb", "`blobs.above`: `64kb` is not a size", "for example `64KB`", "64KB"),
        ("above", "[64KiB]", "`blobs.above`: it is not a size", "a number and a unit, such as `64KiB`", "64KiB"),
        ("forget", "{after: 30d}", "`blobs.forget`: it is not a time", "such as `30d` or `12h`", "30d"),
        ("pack", "0", "`blobs.pack` is less than 1", "write 1 or more", "1B"),
        ("forget", "4 weeks", "`blobs.forget`: `4 weeks` is not a duration", "write it in days: `28d`", "28d"),
        (
            "types",
            "{image: picture}",
            "`blobs.types`: `picture` is not a content type",
            "such as image/png",
            "{image: image/*}",
        ),
        (
            "extract",
            "{picture: meta}",
            "`blobs`: `extract` has `picture`",
            "add `picture` to `columns`, which has: image",
            "{image: meta}",
        ),
        (
            "chunks",
            "{within: many}",
            "`blobs.chunks.within` is text where a whole number",
            "write a whole",
            "{within: 16}",
        ),
        (
            "embeddings",
            "{v: {dimension: 0}}",
            "`blobs.embeddings.v.dimension` is less than 1",
            "write 1",
            "{v: {dimension: 1}}",
        ),
        (
            "embeddings",
            "{v: {dimension: 2, distance: Cosine}}",
            "`blobs.embeddings.v.distance` cannot be `Cosine`",
            "did you mean `cosine`?",
            "{v: {dimension: 2, distance: cosine}}",
        ),
        (
            "embeddings",
            "{v: {dimension: 2, index: maybe}}",
            "`blobs.embeddings.v.index` is text where true or false is expected",
            "write true or false",
            "{v: {dimension: 2, index: true}}",
        ),
        (
            "embeddings",
            "{v: {dimension: 2, model: m.onnx}}",
            "`blobs.embeddings.v`: it has no `of`",
            "`of` with the column of its pictures",
            "{v: {dimension: 2, model: m.onnx, of: image}}",
        ),
        (
            "references",
            "{columns: [a], allow: [s3://up]}",
            "`blobs.references.allow`: `s3://up` is not the address of a folder",
            "a slash at its end, such as s3://uploads/",
            "{columns: [a], allow: [s3://up/]}",
        ),
        (
            "references",
            "{columns: [], allow: [s3://up/]}",
            "`blobs.references.columns` is empty",
            "write at least one entry",
            "{columns: [a], allow: [s3://up/]}",
        ),
        ("thumbnails", "{image: small}", "`blobs.thumbnails.image` is text where a mapping", "write `key: value`", ""),
        (
            "thumbnails",
            "{image: {column: small, size: 2000}}",
            "`blobs.thumbnails.image.size` is more than 1024",
            "write 1024 or less",
            "{image: {column: small, size: 1024}}",
        ),
    ],
)
def test_a_wrong_setting_is_named_until_its_remedy_is_done(
    tmp_path: Path, key: str, wrong: str, message: str, remedy: str, right: str
) -> None:
    with pytest.raises(SpecError) as refused:
        load(tmp_path, **{key: wrong})
    assert refused.value.message.startswith(message)
    assert remedy in refused.value.remedy
    lines = (tmp_path / "frazil.yaml").read_text().splitlines()
    line = lines[int(refused.value.where.rpartition(":")[2]) - 1].strip()
    assert line.startswith((f"{key}:", "columns:"))  # The first line of the section, where it is of the whole.
    [table] = load(tmp_path, **{key: right}).tables
    assert isinstance(dict(table.stages)["blobs"], BlobSettings)
