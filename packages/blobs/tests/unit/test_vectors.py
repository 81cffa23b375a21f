"""The nearest vectors of a snapshot, exactly and by an index."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.types import FloatType, ListType, LongType, NestedField

from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.store.file_io import StoredFile
from frazil_blobs import build_index, index_upkeep, search
from frazil_blobs.index_upkeep import _fetch, _has_column, kept_indexes
from frazil_blobs.nearest import VectorIndex, build, nearest_of

DIMENSION = 16


def vectors(first: int, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The same for the same numbers."""
    return np.random.default_rng(first).normal(size=(count, DIMENSION)).astype(np.float32)


def rows(first: int, values: Sequence[Sequence[float] | None]) -> pa.Table:
    """Rows with these vectors."""
    columns = {"id": range(first, first + len(values)), "embedding": list(values)}
    return pa.table(columns, schema=pa.schema([("id", pa.int64()), ("embedding", pa.list_(pa.float32()))]))


class OneTable(NoopCatalog):
    """A catalog that keeps nothing: the table in hand is the only one."""

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],  # noqa: ARG002
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        return CommitTableResponse(metadata=update_table_metadata(table.metadata, updates), metadata_location="")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with two snapshots, of 300 vectors and of 600, some rows of the second without one."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "embedding", ListType(3, FloatType(), element_required=False), required=False),
    )
    location = (tmp_path / "scenes").as_uri()
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location)
    table = Table(("cars", "scenes"), metadata, "", load_file_io({}, location), OneTable("one"))
    table.append(rows(0, vectors(1, 300).tolist()))
    table.append(rows(300, [*vectors(2, 300).tolist(), None, None]))
    return table


def ids(found: pa.Table) -> list[int]:
    """The rows of an answer."""
    nearest: list[int] = found.column("id").to_pylist()
    return nearest


@pytest.mark.parametrize("distance", ["cosine", "l2", "dot"])
def test_an_index_answers_as_a_comparison_of_all_vectors_does(table: Table, tmp_path: Path, distance: str) -> None:
    meta = build_index(table, tmp_path / "indexes", distance=distance)  # type: ignore[arg-type]
    assert (meta.vectors, meta.dimension) == (600, DIMENSION)
    assert meta.recall >= 0.95
    assert build_index(table, tmp_path / "indexes", distance=distance) == meta  # type: ignore[arg-type]
    wanted = vectors(2, 300)[7].tolist()
    exact = search(table, wanted, 5, distance=distance)  # type: ignore[arg-type]
    by_index = search(table, wanted, 5, distance=distance, indexes=tmp_path / "indexes")  # type: ignore[arg-type]
    assert ids(exact)[0] == 307 or distance == "dot"
    assert ids(by_index) == ids(exact)
    assert by_index.column("_distance").to_pylist() == pytest.approx(exact.column("_distance").to_pylist(), abs=0.02)


def test_a_search_as_of_a_snapshot_has_rows_of_that_one_alone(table: Table, tmp_path: Path) -> None:
    first = table.snapshots()[0].snapshot_id
    build_index(table, tmp_path / "indexes")
    wanted = vectors(2, 300)[7].tolist()
    for indexes in (None, tmp_path / "indexes"):  # The index has rows of the second snapshot too.
        nearest = search(table, wanted, 600, as_of=first, indexes=indexes, columns=["id"])
        assert sorted(ids(nearest)) == [*range(300)]
        assert nearest.column_names == ["id", "_distance"]


def test_an_older_index_is_used_for_the_files_that_are_still_there(table: Table, tmp_path: Path) -> None:
    build_index(table, tmp_path / "indexes", as_of=table.snapshots()[0].snapshot_id)
    wanted = vectors(2, 300)[7].tolist()
    newest = search(table, wanted, 600, indexes=tmp_path / "indexes")
    exact = ids(search(table, wanted, 600))
    assert (ids(newest)[:30], sorted(ids(newest))) == (exact[:30], sorted(exact))
    table.delete("id = 307 or id = 3")
    after = search(table, wanted, 600, indexes=tmp_path / "indexes")
    assert ids(after)[:30] == [number for number in exact if number not in (3, 307)][:30]
    assert sorted(ids(after)) == sorted({*exact} - {3, 307})


def test_an_index_of_many_vectors_finds_nearly_all_of_the_nearest(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    values = (chance.normal(size=(40, 96))[chance.integers(0, 40, 20_000)] + chance.normal(size=(20_000, 96))).astype(
        np.float32
    )
    tuning = build(tmp_path, (values[begin : begin + 999] for begin in range(0, 20_000, 999)), "cosine")
    assert (tuning.vectors, tuning.dimension) == (20_000, 96)
    assert tuning.recall >= 0.95
    index, hits = VectorIndex(tmp_path), 0
    for query in values[::1000] + 0.2 * chance.normal(size=(20, 96)).astype(np.float32):
        exact, _ = nearest_of(values, query, 10, "cosine", np.arange(20_000))
        hits += np.intersect1d(exact, index.nearest(query, 10)[0]).size
        numbers, _ = index.nearest(query, 10, lambda some: some % 2 == 0)  # As rows of another snapshot are left out.
        assert (numbers % 2 == 0).all()
        assert numbers.size == 10
    assert hits >= 0.95 * 200


def test_maintenance_makes_no_index_of_a_column_that_is_yet_to_come(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert [_has_column(table, snapshot.snapshot_id, name) for name in ("embedding", "look")] == [True, False]


def test_rows_that_were_deleted_are_not_found(table: Table) -> None:
    wanted = vectors(2, 300)[7].tolist()
    table.delete("id = 307")
    assert 307 not in ids(search(table, wanted, 602))
    assert ids(search(table, wanted, 1, as_of=table.snapshots()[1].snapshot_id)) == [307]


def test_a_vector_of_another_model_is_refused_until_it_is_one_of_the_columns(table: Table) -> None:
    with pytest.raises(SpecError, match="the vector has 3 values, and those of `embedding` have 16") as caught:
        search(table, [1, 2, 3])
    assert caught.value.remedy == "make it by the model that has made those of the column"
    with pytest.raises(SpecError, match="the snapshot has no column `vector`"):
        search(table, [1, 2, 3], column="vector")
    assert search(table, vectors(1, 300)[0].tolist()).num_rows == 10


def test_columns_that_are_not_vectors_and_columns_that_do_not_exist_are_named(table: Table) -> None:
    with pytest.raises(SpecError, match="the column `id` is int64 and not a list of floats"):
        search(table, [1, 2, 3], column="id")
    with pytest.raises(SpecError, match=r"`columns` has one that the snapshot does not have: .*'idd'") as caught:
        search(table, vectors(1, 300)[0].tolist(), columns=["idd"])
    assert caught.value.remedy == "name columns that the snapshot has"


def test_an_index_of_a_column_whose_name_ends_alike_is_not_used(table: Table, tmp_path: Path) -> None:
    indexes = tmp_path / "indexes"
    build_index(table, indexes)
    [folder] = indexes.iterdir()
    meta = folder / "meta.json"
    meta.write_text(meta.read_text().replace('"embedding"', '"other-embedding"'))
    other = folder.rename(indexes / folder.name.replace("embedding", "other-embedding"))
    (other / "files.json").unlink()  # To be read is to fail.
    wanted = vectors(2, 300)[7].tolist()
    assert ids(search(table, wanted, 5, indexes=indexes)) == ids(search(table, wanted, 5))


class Held:
    """Files of an index in a store, one of which another process has removed."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def files(self, uri: str) -> list[StoredFile]:
        return [StoredFile(f"{uri}/{name}", 3, 0) for name in self._names]

    def read_range(self, location: str, start: int, end: int) -> bytes:
        if location.endswith("removed"):
            raise FileNotFoundError(location)
        return b"abc"[start:end]


def test_a_copy_of_an_index_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "indexes"
    for _ in range(2):  # The second is not the quicker one.
        _fetch(Held("a"), "s3://lake/indexes/1/1-embedding-l2", folder)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        _fetch(Held("a", "removed"), "s3://lake/indexes/2/2-embedding-l2", tmp_path / "others")  # type: ignore[arg-type]
    assert [*tmp_path.iterdir()] == [folder]
    assert (folder / "1-embedding-l2" / "a").read_bytes() == b"abc"


def test_an_index_that_was_removed_from_its_store_is_not_missed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"frazil.shop.blobs-index.embedding": f"s3://lake/{new_id()}/1-embedding-cosine"})
    monkeypatch.setattr(index_upkeep, "store_of", lambda _: Held("removed"))
    wanted = vectors(2, 300)[7].tolist()
    assert ids(search(table, wanted, 1)) == [307]


def test_a_copy_of_an_index_is_removed_when_nobody_has_used_it_for_a_day(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(index_upkeep, "store_of", lambda _: Held("a"))
    copies: list[Path] = []
    for number in range(3):
        with table.transaction() as transaction:
            address = f"s3://lake/{number}/1-embedding-cosine"
            transaction.set_properties({"frazil.shop.blobs-index.embedding": address})
        copy = kept_indexes(table, "embedding")
        assert copy is not None
        assert kept_indexes(table, "embedding") == copy
        copies.append(copy)
        if number == 0:
            (tmp_path / "frazil-indexes-killed").mkdir()
            for folder in (copy, tmp_path / "frazil-indexes-killed"):
                os.utime(folder, (1, 1))
        elif number == 1:
            assert sorted(tmp_path.glob("frazil-indexes-*")) == [copy]
    assert sorted(tmp_path.glob("frazil-indexes-*")) == sorted(copies[1:])
