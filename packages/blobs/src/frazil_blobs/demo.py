"""`frazil blobs demo`: pictures through Kafka into a table, and a page of those that are alike, today's and yesterday's."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from frazil.cli.output import Output
from frazil.errors import SpecError, UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil_blobs.extract import require_readers
from frazil_blobs.gallery import write_gallery
from frazil_blobs.pictures import pixels_of

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="A folder that does not exist yet.")]
Pictures = Annotated[int, typer.Option(min=8, max=10_000, help="How many pictures are sent.")]
_TABLE = "demo.pictures"
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_SHAPES = ("circle", "square", "triangle", "stripes", "rings")
_COLOURS = ("crimson", "darkorange", "gold", "seagreen", "steelblue", "rebeccapurple", "hotpink", "saddlebrown")
_GROUNDS = ("white", "black", "lightgrey", "midnightblue", "honeydew")
_SIDE, _GRID = 160, 8
_RUN_TIMEOUT_S, _FLUSH_TIMEOUT_S = 300, 30.0
_PIPELINE_FILE = """\
# Written by `frazil blobs demo`: pictures leave the rows for packs next to the table, and their vectors are searched.
pipeline: demo
kafka: {{bootstrap.servers: "{servers}"}}
http: false
tables:
  {table}:
    topic: pictures
    mode: upsert
    key_columns: [id]
    key: {{format: json}}
    columns: {{id: long, name: string, image: binary, embedding: list<float>}}
    blobs:
      columns: [image]
      store: {store}
      above: 1KiB
      types: {{image: image/*}}
      extract: {{image: header}}
      thumbnails: {{image: {{column: thumbnail, size: 96}}}}
      embeddings: {{embedding: {{dimension: {dimension}}}}}
"""


@dataclass(frozen=True)
class Picture:
    """A drawing; another day has another one of the same number."""

    number: int
    day: int = 0

    @property
    def traits(self) -> tuple[str, str, str, str]:
        """Its format, shape, colour and ground."""
        chance = np.random.default_rng((self.number, self.day))
        return tuple(str(chance.choice(some)) for some in (_FORMATS, _SHAPES, _COLOURS, _GROUNDS))  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The drawing in words."""
        form, shape, colour, ground = self.traits
        return f"{shape} in {colour} on {ground}, {form}"

    def content(self) -> bytes:
        """Returns the bytes of its file."""
        from PIL import Image, ImageDraw  # noqa: PLC0415  (an extra)

        form, shape, colour, ground = self.traits
        chance = np.random.default_rng((self.number, self.day, 1))
        picture = Image.new("RGB", (_SIDE, int(_SIDE * chance.uniform(0.7, 1.1))), ground)
        draw, (x, y), size = ImageDraw.Draw(picture), chance.integers(10, 60, 2).tolist(), int(chance.integers(50, 90))
        box = (x, y, x + size, y + size)
        if shape == "circle":
            draw.ellipse(box, fill=colour)
        elif shape == "square":
            draw.rectangle(box, fill=colour)
        elif shape == "triangle":
            draw.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill=colour)
        elif shape == "stripes":
            for begin in range(0, _SIDE, 24):
                draw.rectangle((begin, 0, begin + 10, _SIDE * 2), fill=colour)
        else:
            for inset in range(0, size // 2, 14):
                draw.ellipse((x + inset, y + inset, x + size - inset, y + size - inset), outline=colour, width=6)
        stream = BytesIO()
        picture.save(stream, form)
        return stream.getvalue()

    def record(self) -> dict[str, Any]:
        """Returns its record. Its vector is the picture in few pixels: what looks alike is near."""
        content = self.content()
        return {
            "id": self.number,
            "name": self.name,
            "image": b64encode(content).decode(),
            "embedding": vector_of(content),
        }


def vector_of(content: bytes) -> list[float]:
    """Returns the vector of a picture."""
    pixels = pixels_of(content, _GRID, _GRID)
    assert pixels is not None
    return [round(float(value), 4) for value in (pixels - 0.5).ravel()]


def command(output: Output, directory: Directory = Path("frazil-data/blobs-demo"), pictures: Pictures = 150) -> int:
    """Send pictures of several formats through a Kafka broker on this machine into a table, change some of them, and
    write a page with similar pictures of the newest and of an older snapshot.

    The folder keeps the pipeline file, the table, the packs and the page, which needs no network and no script.

    Exit code: 0 when the page is written; 1 when a process failed.
    """
    require_readers()
    if directory.exists():
        raise SpecError(
            "the folder exists: nothing in it was changed", remedy="name another with --dir", where=str(directory)
        )
    directory.mkdir(parents=True)
    folder = directory.absolute()
    broker = EmbeddedBroker(folder / "broker")
    try:
        output.doing("starting a Kafka broker")
        broker.start()
        text = _PIPELINE_FILE.format(
            servers=broker.bootstrap_servers, table=_TABLE, store=(folder / "objects").as_uri(), dimension=3 * _GRID**2
        )
        (folder / "frazil.yaml").write_text(text)
        _make_topic(broker.bootstrap_servers)
        snapshots: dict[str, int | None] = {}
        for day, title in enumerate(("yesterday", "today")):
            output.doing(f"pictures of {title}: sending {pictures}, and running the pipeline")
            _send(broker.bootstrap_servers, _of_day(pictures, day))
            _run(folder)
            snapshot = _table(folder).current_snapshot()
            snapshots[title] = snapshot.snapshot_id if snapshot is not None else None
    finally:
        broker.stop()
    table, page = _table(folder), folder / "alike.html"
    chosen = list(_of_day(pictures, 1))[:8]
    vectors = {f"like: {picture.name}": vector_of(picture.content()) for picture in chosen}
    titles = dict(reversed(snapshots.items()))
    write_gallery(table, vectors, page, title="Pictures that are alike", image="thumbnail", k=9, snapshots=titles)
    rows = table.scan(selected_fields=("id",)).to_arrow().num_rows
    packs = sorted((folder / "objects").rglob("*.pack"))
    document = {"rows": rows, "packs": len(packs), "page": str(page), "snapshots": snapshots}
    lines = (
        f"{_TABLE} has {rows} pictures in {len(packs)} packs, and two days of them",
        f"the page: {page.as_uri()}",
        f"every reference: cd {directory} && frazil blobs verify {_TABLE} --all",
    )
    output.result(document, "\n".join(lines))
    return 0


def _of_day(count: int, day: int) -> Iterator[Picture]:
    """Yields the pictures that are sent on a day: all, or every third with another drawing and a fourth more."""
    yield from (Picture(number, day) for number in range(0, count, 3 if day else 1))
    if day:
        yield from (Picture(number, day) for number in range(count, count + count // 4))


def _make_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("pictures", 1)])["pictures"].result(_FLUSH_TIMEOUT_S)


def _send(servers: str, pictures: Iterator[Picture]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for picture in pictures:
        key = json.dumps({"id": picture.number})
        producer.produce("pictures", json.dumps(picture.record()).encode(), key.encode())
        producer.poll(0)
    if producer.flush(_FLUSH_TIMEOUT_S):
        raise UnavailableError(
            "the broker has not taken all pictures in time", remedy="read the broker's log", where=servers
        )


def _run(folder: Path) -> None:
    log = folder / "pipeline.log"
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "frazil.cli.main", "run", "--until-caught-up"]
        done = subprocess.run(command, cwd=folder, stdout=stream, stderr=stream, timeout=_RUN_TIMEOUT_S, check=False)
    if done.returncode:
        raise UnavailableError(
            f"the pipeline ended with code {done.returncode}", remedy="read the pipeline's log", where=str(log)
        )


def _table(folder: Path) -> StaticTable:
    namespace, name = _TABLE.split(".")
    catalog = folder / "frazil-data" / "catalog.db"
    with closing(sqlite3.connect(catalog)) as connection:
        [(metadata,)] = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            (namespace, name),
        )
    return StaticTable.from_metadata(metadata)
