"""A table of scenes: how it is declared, what its rows and packs are, and whether these are what the scenes are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

from frazil.runtime.jvm import Jvm
from frazil_blobs import BlobDataset
from frazil_blobs.references import all_packs
from packages.blobs.tests.acceptance.scenes import COLUMNS, DIMENSION, Scene
from tests.acceptance.pipelines import Pipeline


class SceneTable:
    """An upsert table of scenes, the topic that feeds it, and the packs of its objects."""

    def __init__(self, pipeline: Pipeline, jvm: Jvm) -> None:
        """jvm: of commands; runs are processes of their own."""
        self.pipeline, self._jvm = pipeline, jvm
        self.objects = pipeline.folder / "objects"
        self.name, self.topic = pipeline.add_fed_table(
            "scenes",
            partitions=1,
            mode="upsert",
            key_columns=["id"],
            key={"format": "json"},
            columns=COLUMNS,
            blobs={
                "columns": ["image", "clip", "lidar.points"],
                "above": "2KiB",
                "pack": "64KiB",
                "extract": {"image": "picture", "lidar.points": "cloud"},
                "embeddings": {"embedding": {"dimension": DIMENSION, "index": True}},
                "types": {"image": "image/png", "clip": "video/*"},
                "store": self.objects.as_uri(),
            },
        )
        pipeline.document["maintenance"] = {"orphans": {"age": "1ms"}}

    def produce(self, scenes: Iterable[Scene], deleted: Iterable[int] = ()) -> None:
        """Sends scenes, and deletes those with these numbers."""
        self.pipeline.feed.produce(self.topic, [scene.record() for scene in scenes], partition=0)
        for number in deleted:
            self.pipeline.feed.send(self.topic, [None], 0, json.dumps({"id": number}).encode())
        self.pipeline.feed.flush()

    def opened(self) -> StaticTable:
        """The table as another reader has it."""
        return StaticTable.from_metadata(str(self.pipeline.metadata(self.name)))

    def samples(self, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """The rows of a snapshot with the bytes of their objects."""
        columns = ("id", "version", "place", "image", "clip", "lidar", "embedding")
        dataset = BlobDataset(self.opened(), columns, snapshot_id=snapshot_id, shuffle=False)
        return sorted(dataset, key=lambda sample: sample["id"])

    def packs(self) -> list[Path]:
        """The packs that are in the store."""
        return sorted(self.objects.rglob("*.pack"))

    def unreferenced(self) -> list[Path]:
        """The packs that no snapshot refers to."""
        live = {uri.removeprefix("file://") for uri in all_packs(self.opened())}
        return [path for path in self.packs() if str(path) not in live]

    def size_bytes(self) -> int:
        """The size of all packs."""
        return sum(path.stat().st_size for path in self.packs())

    def live_bytes(self) -> int:
        """The bytes in packs that rows of the newest snapshot refer to."""
        rows = self.opened().scan().to_arrow().to_pylist()
        blobs = [blob for row in rows for blob in (row["image"], row["clip"], row["lidar"]["points"])]
        return sum(blob["size"] for blob in blobs if blob is not None and blob["uri"] is not None)

    def maintain(self) -> None:
        """Does what is due."""
        self.pipeline.command_on(self._jvm, "maintain", "--table", self.name)

    def catch_up(self) -> None:
        """Runs until all that was sent is in the table."""
        self.pipeline.command_on(self._jvm, "run", "--until-caught-up")

    def verify(self, *words: str) -> list[dict[str, Any]]:
        """What `frazil blobs verify` finds, which is that all is well."""
        done = self.pipeline.command_on(self._jvm, "blobs", "verify", self.name, *words)
        snapshots: list[dict[str, Any]] = done["snapshots"]
        assert all(not snapshot["missing"] and not snapshot["damaged"] for snapshot in snapshots), snapshots
        return snapshots


def rows_of(scenes: Sequence[Scene]) -> list[dict[str, Any]]:
    """The rows of scenes."""
    return [scene.row() for scene in sorted(scenes, key=lambda scene: scene.number)]
