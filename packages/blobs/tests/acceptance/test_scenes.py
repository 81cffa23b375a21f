"""Pictures, films, point clouds, their vectors and metadata: one table, versioned and retrieved together."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from frazil.runtime.jvm import Jvm
from frazil_blobs import BlobDataset, export_webdataset, search, write_gallery
from frazil_blobs.index_upkeep import kept_indexes
from packages.blobs.tests.acceptance.scene_tables import SceneTable, rows_of
from packages.blobs.tests.acceptance.scenes import Scene
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
FIRST = [Scene(number) for number in range(40)]
CHANGED = [Scene(number, 2) for number in range(25)]
LEFT = [*CHANGED, *FIRST[30:]]


def test_scenes_are_versioned_and_retrieved_with_all_that_belongs_to_them(
    pipeline: Pipeline, jvm: Jvm, operator: Operator, tmp_path: Path
) -> None:
    table = SceneTable(pipeline, jvm)
    table.produce(FIRST)
    pipeline.command_on(jvm, "run", "--until-caught-up")
    yesterday = table.opened().current_snapshot()
    assert yesterday is not None
    assert table.samples() == rows_of(FIRST)

    table.produce(CHANGED, deleted=range(25, 30))
    pipeline.command_on(jvm, "run", "--until-caught-up")
    assert table.samples() == rows_of(LEFT)
    assert table.samples(yesterday.snapshot_id) == rows_of(FIRST)
    assert table.verify("--all")[-1]["objects"] == sum(3 if scene.film else 2 for scene in LEFT)

    rows = {row["id"]: row for row in table.opened().scan().to_arrow().to_pylist()}
    assert [(rows[n]["picture"]["width"], rows[n]["cloud"]["points"]) for n in (1, 4)] == [(25, 700), (28, 10)]
    nearest = search(table.opened(), LEFT[3].vector, 1, as_of=yesterday.snapshot_id)
    assert nearest.column("version").to_pylist() == [1]
    assert search(table.opened(), LEFT[3].vector, 1).column("id").to_pylist() == [3]

    page, both = tmp_path / "page.html", {"yesterday": yesterday.snapshot_id, "today": None}
    write_gallery(table.opened(), {"<b>": LEFT[3].vector}, page, k=1, snapshots=both)
    older = search(table.opened(), LEFT[3].vector, 1, as_of=yesterday.snapshot_id).column("id")[0].as_py()
    shown = re.findall(r"data:image/png;base64,([^\"]+)", page.read_text())
    assert [base64.b64decode(picture) for picture in shown] == [FIRST[older].picture, LEFT[3].picture]

    dataset = BlobDataset(table.opened(), seed=7)
    assert len(dataset) == len(LEFT)
    iterator = iter(dataset)
    seen = [next(iterator)["id"] for _ in range(11)]
    resumed = BlobDataset(table.opened())
    resumed.load_state_dict(dataset.state_dict())
    assert sorted([*seen, *(sample["id"] for sample in resumed)]) == sorted(scene.number for scene in LEFT)
    assert [path.name for path in export_webdataset(BlobDataset(table.opened()), tmp_path / "shards")] == ["000000.tar"]

    # What was replaced and deleted is freed once its snapshots are gone, and what is left is copied together.
    before = table.size_bytes()
    table.maintain()
    assert table.samples() == rows_of(LEFT)
    assert table.samples(yesterday.snapshot_id) == rows_of(FIRST)
    by_hand = operator.open(pipeline.folder, table.name)
    by_hand.expire_all_but_newest()
    by_hand.remove_property(f"frazil.{pipeline.name}.blobs-swept-at")
    table.maintain()
    assert table.unreferenced() == []
    assert table.live_bytes() <= table.size_bytes() < before
    assert table.size_bytes() - table.live_bytes() <= 0.05 * table.size_bytes()
    assert table.samples() == rows_of(LEFT)
    table.verify("--all")

    # Maintenance has made an index, which is used for the snapshot that it is of and for others.
    assert kept_indexes(table.opened(), "embedding") is not None
    for as_of in (snapshot.snapshot_id for snapshot in table.opened().snapshots()):
        exact = search(table.opened(), LEFT[3].vector, 5, as_of=as_of, indexes=tmp_path)
        assert search(table.opened(), LEFT[3].vector, 5, as_of=as_of)["id"] == exact["id"]
