"""Pictures, films, point clouds, their vectors and metadata: one table, versioned and retrieved together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from frazil_blobs import BlobDataset, export_webdataset
from packages.blobs.tests.acceptance.scenes import COLUMNS, Scene
from tests.acceptance.pipelines import Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
BLOBS = {"columns": ["image", "clip", "lidar.points"], "above": "2KiB", "pack": "64KiB"}
FIRST = [Scene(number) for number in range(40)]
CHANGED = [Scene(number, 2) for number in range(25)]
LEFT = [*CHANGED, *FIRST[30:]]


@pytest.fixture
def scenes(pipeline: Pipeline) -> tuple[Pipeline, str, str]:
    """A pipeline with a table of scenes: its name, and the topic."""
    table, topic = pipeline.add_fed_table(
        "scenes",
        partitions=1,
        mode="upsert",
        key_columns=["id"],
        key={"format": "json"},
        columns=COLUMNS,
        blobs={**BLOBS, "store": store_of(pipeline)},
    )
    return pipeline, table, topic


def store_of(pipeline: Pipeline) -> str:
    """The folder with the packs."""
    return (pipeline.folder / "objects").as_uri()


def packs_in(pipeline: Pipeline) -> list[Path]:
    """The packs that are in the store."""
    return sorted((pipeline.folder / "objects").rglob("*.pack"))


def opened(pipeline: Pipeline, table: str) -> StaticTable:
    """The table as another reader has it."""
    return StaticTable.from_metadata(str(pipeline.metadata(table)))


def samples(table: StaticTable, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """The rows of a snapshot with the bytes of their objects."""
    columns = ("id", "version", "place", "image", "clip", "lidar", "embedding")
    dataset = BlobDataset(table, columns, snapshot_id=snapshot_id, shuffle=False)
    return sorted(dataset, key=lambda sample: sample["id"])


def rows(some: Sequence[Scene]) -> list[dict[str, Any]]:
    return [scene.row() for scene in sorted(some, key=lambda scene: scene.number)]


def test_scenes_are_versioned_and_retrieved_with_all_that_belongs_to_them(
    scenes: tuple[Pipeline, str, str], tmp_path: Path
) -> None:
    pipeline, name, topic = scenes
    pipeline.feed.produce(topic, [scene.record() for scene in FIRST], partition=0)
    pipeline.catch_up()
    yesterday = opened(pipeline, name).current_snapshot()
    assert yesterday is not None
    assert samples(opened(pipeline, name)) == rows(FIRST)

    pipeline.feed.produce(topic, [scene.record() for scene in CHANGED], partition=0)
    for number in range(25, 30):
        pipeline.feed.send(topic, [None], 0, json.dumps({"id": number}).encode())
    pipeline.feed.flush()
    pipeline.catch_up()
    table = opened(pipeline, name)
    assert samples(table) == rows(LEFT)
    assert samples(table, yesterday.snapshot_id) == rows(FIRST)
    assert sum(path.stat().st_size for path in packs_in(pipeline)) > 100_000

    verified = pipeline.command("blobs", "verify", name, "--all")
    assert all(not each["missing"] and not each["damaged"] for each in verified["snapshots"])
    assert verified["snapshots"][-1]["objects"] == sum(3 if scene.film else 2 for scene in LEFT)

    dataset = BlobDataset(table, seed=7)
    assert len(dataset) == len(LEFT)
    iterator = iter(dataset)
    seen = [next(iterator)["id"] for _ in range(11)]
    resumed = BlobDataset(table)
    resumed.load_state_dict(dataset.state_dict())
    assert sorted([*seen, *(sample["id"] for sample in resumed)]) == sorted(scene.number for scene in LEFT)
    assert [path.name for path in export_webdataset(BlobDataset(table), tmp_path / "shards")] == ["000000.tar"]
