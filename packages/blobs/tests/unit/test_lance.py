"""Snapshots as versions of a Lance dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

from frazil.errors import InvariantError, SpecError
from frazil_blobs import BlobDataset, export_lance, lance_export
from packages.blobs.tests.unit.test_faults import append, table_of
from packages.blobs.tests.unit.test_packs import JPEG, PNG, SMALL, packs_in, read_rows, rows_of, table, text

COLUMNS = {"id": "long", "image": "binary", "lidar": "struct<points: binary, n: int>", "embedding": "list<double>"}
FIRST: list[dict[str, Any]] = [
    {"id": 1, "image": text(PNG), "lidar": {"points": text(JPEG), "n": 7}, "embedding": [1, 2, 3]},
    {"id": 2, "image": None, "lidar": None, "embedding": None},
    {"id": 3, "image": text(SMALL), "lidar": {"points": None, "n": 8}, "embedding": [4, 5, 6]},
]
SECOND: list[dict[str, Any]] = [
    {"id": 4, "image": text(JPEG), "lidar": {"points": text(SMALL), "n": 9}, "embedding": [7, 8, 9]}
]


def bytes_of(dataset: lance.LanceDataset, column: str, rows: list[int]) -> list[bytes | None]:
    """What Lance reads of its blobs."""
    return [None if blob is None else blob.readall() for blob in dataset.take_blobs(column, indices=rows)]


def test_each_snapshot_is_a_version_with_its_objects_and_vectors(tmp_path: Path) -> None:
    target = table(tmp_path, COLUMNS, ["image", "lidar.points"], embeddings={"embedding": {"dimension": 3}})
    made = table_of(tmp_path, rows_of(read_rows(target, *FIRST)))
    with made.transaction() as transaction:
        transaction.set_properties({"frazil.cars.embedding.embedding": "3 l2"})
    older = made.current_snapshot()
    append(made, rows_of(read_rows(target, *SECOND)))
    newest = made.current_snapshot()
    assert older is not None
    assert newest is not None
    uri = str(tmp_path / "scenes.lance")
    exported = BlobDataset(made, snapshot_id=older.snapshot_id, shuffle=False)
    assert export_lance(exported, uri) == 1
    assert export_lance(BlobDataset(made, shuffle=False), uri) == 2
    for pack in packs_in(tmp_path):  # Lance has the bytes.
        pack.unlink()

    dataset = lance.dataset(uri, version=f"iceberg-{newest.snapshot_id}")
    rows = dataset.to_table(columns=["id", "embedding"]).to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2, 3, 4]
    place = {row["id"]: n for n, row in enumerate(rows)}
    assert bytes_of(dataset, "image", [place[1], place[3], place[4]]) == [PNG, SMALL, JPEG]
    nearest = dataset.to_table(columns=["id"], nearest={"column": "embedding", "q": [7.0, 8.0, 9.0], "k": 1})
    assert nearest["id"].to_pylist() == [4]
    first = lance.dataset(uri, version=f"iceberg-{older.snapshot_id}")
    assert sorted(first.to_table(columns=["id"])["id"].to_pylist()) == [1, 2, 3]


def test_an_object_that_is_damaged_makes_no_version(tmp_path: Path) -> None:
    made = table_of(tmp_path, rows_of(read_rows(table(tmp_path, COLUMNS, ["image", "lidar.points"]), *FIRST)))
    uri = str(tmp_path / "scenes.lance")
    dataset = BlobDataset(made, shuffle=False)
    assert export_lance(dataset, uri) == 1
    for pack in packs_in(tmp_path):
        pack.write_bytes(bytes(pack.stat().st_size))
    with pytest.raises(InvariantError, match="an object does not have its checksum"):
        export_lance(BlobDataset(made, shuffle=False), uri)
    assert [version["version"] for version in lance.dataset(uri).versions()] == [1]


def test_lance_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table_of(tmp_path, rows_of(read_rows(table(tmp_path, COLUMNS, ["image"]), *FIRST)))
    monkeypatch.setattr(lance_export, "find_spec", lambda _: None)
    with pytest.raises(SpecError, match="`export_lance` needs pylance, which is not installed") as caught:
        export_lance(BlobDataset(made), str(tmp_path / "scenes.lance"))
    assert caught.value.remedy == "install `frazil-blobs[lance]` with pip from where Frazil was installed"
