"""Objects, their sweep and the index of their vectors where table and packs are in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.store.file_io import StoreIO
from frazil_blobs import BlobDataset, search
from frazil_blobs.index_upkeep import kept_indexes
from frazil_blobs.references import all_packs
from packages.blobs.tests.acceptance.scene_tables import rows_of
from packages.blobs.tests.acceptance.scenes import COLUMNS, DIMENSION, Scene
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.verifier import open_table
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def pipeline(
    broker: EmbeddedBroker, spark: ForeignSpark, remote_lake: RemoteLake, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline whose tables are in the lake."""
    with opened(tmp_path, broker.bootstrap_servers, spark, remote_lake) as made:
        yield made


# In time: unit/test_packs.py and integration/test_object_store.py have the parts, test_scenes.py all of it on this disk.
def test_packs_in_an_object_store_are_swept_and_an_index_is_copied_from_there(
    pipeline: Pipeline, remote_lake: RemoteLake
) -> None:
    place = f"s3://lake/objects-{new_id()}"
    table, topic = pipeline.add_fed_table(
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
            "embeddings": {"embedding": {"dimension": DIMENSION, "index": True}},
            "store": place,
        },
    )
    pipeline.document["maintenance"] = {"orphans": {"age": "1ms"}, "snapshots": {"age": "1ms", "count": 1}}
    for version in (1, 2, 3):
        for number in range(20):
            scene = Scene(number, version)
            pipeline.feed.send(topic, [scene.record()], 0, json.dumps({"id": number}).encode())
        pipeline.feed.flush()
        pipeline.catch_up()
    io = StoreIO(remote_lake.properties())
    before = {file.location for file in io.files(place)}
    pipeline.command("maintain", "--table", table)
    metadata = pipeline.current(table)
    assert metadata is not None
    scenes = open_table(metadata)
    packs = {file.location for file in io.files(place) if file.location.endswith(".pack")}
    assert packs == {uri for uri in all_packs(scenes) if uri is not None}
    assert not before <= packs
    columns = ("id", "version", "place", "image", "clip", "lidar", "embedding")
    samples = sorted(BlobDataset(scenes, columns, shuffle=False), key=lambda sample: sample["id"])
    assert samples == rows_of([Scene(number, 3) for number in range(20)])
    indexes = kept_indexes(scenes, "embedding")
    assert indexes is not None
    assert kept_indexes(scenes, "embedding") == indexes
    assert search(scenes, Scene(7, 3).vector, 1, indexes=indexes)["id"].to_pylist() == [7]
    [snapshot] = pipeline.command("blobs", "verify", table)["snapshots"]
    assert (snapshot["missing"], snapshot["damaged"]) == (0, 0)
