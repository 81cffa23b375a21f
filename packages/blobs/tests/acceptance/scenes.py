"""Scenes of a car, made by a seeded generator: a picture, a film, a point cloud, their vector and metadata."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

DIMENSION = 8


@dataclass(frozen=True)
class Scene:
    """One moment of a drive; another version has other bytes."""

    number: int
    version: int = 1

    @property
    def picture(self) -> bytes:
        """A PNG with noise of a colour."""
        chance = np.random.default_rng((1, self.number, self.version))
        width, height = 24 + self.number % 9, 16
        pixels = chance.integers(0, 255, (height, 1 + width * 3), np.uint8)
        pixels[:, 0] = 0  # The filter of each line.
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels.tobytes())), (b"IEND", b""))
        chunks = (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in parts
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)

    @property
    def film(self) -> bytes | None:
        """The beginning of an MP4 and noise; every third scene has none."""
        chance = np.random.default_rng((2, self.number, self.version))
        return (
            None
            if self.number % 3 == 0
            else b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00" + chance.bytes(9000 + 17 * self.number)
        )

    @property
    def points(self) -> bytes:
        """A binary PCD with a few points; every fourth is small enough for its row."""
        chance = np.random.default_rng((3, self.number, self.version))
        count = 10 if self.number % 4 == 0 else 700
        cloud = chance.normal(size=(count, 3)).astype("<f4")
        header = (
            f"# .PCD v0.7\nVERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {count}\nHEIGHT 1\n"
        )
        return f"{header}VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA binary\n".encode() + cloud.tobytes()

    @property
    def vector(self) -> list[float]:
        """What a model would make of the picture."""
        chance = np.random.default_rng((4, self.number, self.version))
        return [round(float(value), 3) for value in chance.normal(size=DIMENSION)]

    def record(self) -> dict[str, Any]:
        """The record of the topic."""
        return {
            "id": self.number,
            "version": self.version,
            "place": f"street {self.number % 5}",
            "image": _text(self.picture),
            "clip": self.film and _text(self.film),
            "lidar": {"points": _text(self.points), "sensor": f"s{self.number % 2}"},
            "embedding": self.vector,
        }

    def row(self) -> dict[str, Any]:
        """The row of the table, with the bytes in place of what refers to them."""
        lidar = {"points": self.points, "sensor": f"s{self.number % 2}"}
        objects = {"image": self.picture, "clip": self.film, "lidar": lidar, "embedding": self.vector}
        return {"id": self.number, "version": self.version, "place": f"street {self.number % 5}", **objects}


COLUMNS = {
    "id": "long",
    "version": "int",
    "place": "string",
    "image": "binary",
    "clip": "binary",
    "lidar": "struct<points: binary, sensor: string>",
    "embedding": "list<double>",
}
"""The columns that the pipeline file declares."""


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
