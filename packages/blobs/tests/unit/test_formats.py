"""Objects in every format that has bytes, through a running service."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from frazil.decode.settings import WriterSchema
from frazil.ingest.batches.services import Services
from frazil.ingest.tables.schemas import Schemas
from frazil.spec import PipelineSpec, load_spec
from frazil_blobs import read
from frazil_blobs.values import BLOB
from frazil_testing.memory_registry import MemoryRegistry
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import Scene
from tests.unit.rows.test_writer_schemas import framed

_AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "image", "type": ["null", "bytes"], "default": None}],
    }
)
_PROTOBUF = 'syntax = "proto3"; message R { int64 n = 1; optional bytes image = 2; }'
LARGE, SMALL = b"\x89PNG\r\n\x1a\n" + bytes(range(250)) * 9, b"\xff\xd8\xff small"


def avro(registry: MemoryRegistry, n: int, image: bytes | None) -> bytes:
    number = registry.register("avro", _AVRO)
    return framed(number, WriterSchema("avro", _AVRO), {"n": n, "image": image})[0]


def protobuf(registry: MemoryRegistry, n: int, image: bytes | None) -> bytes:
    header = b"\x00" + struct.pack(">i", registry.register("protobuf", _PROTOBUF)) + b"\x00" + bytes([8, n])
    if image is None:
        return header
    return header + bytes([18, len(image) & 0x7F | 0x80, len(image) >> 7]) + image


def as_json(_: MemoryRegistry, n: int, image: bytes | None) -> bytes:
    return json.dumps({"n": n, "image": image and base64.b64encode(image).decode()}).encode()


def raw(_: MemoryRegistry, n: int, image: bytes | None) -> bytes:  # noqa: ARG001
    return image or b""


FORMATS: dict[str, tuple[Callable[[MemoryRegistry, int, bytes | None], bytes], str, str]] = {
    "avro": (avro, "value: {format: avro}", "image"),
    "protobuf": (protobuf, "value: {format: protobuf}", "image"),
    "json": (as_json, "columns: {image: binary}", "image"),
    "raw": (raw, "value: {format: raw}", "value"),
}


class Objects(Scene):
    """A table with objects."""

    def __init__(self, root: Path, lines: str) -> None:
        super().__init__(root, "t")
        self.lines = lines

    def spec(self, *topics: str) -> PipelineSpec:  # noqa: ARG002
        path = self.root / "frazil.yaml"
        head = 'pipeline: p\nkafka: {bootstrap.servers: "b:9092"}\nregistry: {url: "http://r"}\n'
        path.write_text(f"{head}tables:\n  n.t:\n    topic: t\n    {self.lines}\n")
        return load_spec(path)


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_of_a_format_leave_the_row_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    encode, lines, column = FORMATS[name]
    registry = MemoryRegistry()

    def services(**parts: Any) -> Services:
        return Services(schemas=Schemas(registry, clock=parts["clock"]), **parts)

    monkeypatch.setattr(service_scene, "Services", services)
    store = (tmp_path / "objects").as_uri()
    scene = Objects(tmp_path, f'{lines}\n    blobs: {{columns: [{column}], above: 1KiB, store: "{store}"}}')
    contents = [LARGE, SMALL] if name == "raw" else [LARGE, None, SMALL]
    for n, content in enumerate(contents):
        scene.source.produce("t", 0, encode(registry, n, content), scene.clock.now_ms())
    scene.catch_up()
    blobs = pa.array([row[column] for row in scene.rows("n.t")], BLOB)
    assert read(blobs).to_pylist() == contents
    assert [uri is not None for uri in pc.struct_field(blobs, "uri").to_pylist()] == [
        content == LARGE for content in contents
    ]
