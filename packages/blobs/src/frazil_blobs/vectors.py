"""Search for the nearest vectors in one snapshot: exactly, or by an index that can be removed at any time.

An index is a folder with the id of its snapshot: it is used for that snapshot alone, so a result never has a row of
another. The vectors of a snapshot without an index are compared one by one, which is exact, and quick for 100,000.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Table

from frazil.clock import new_id
from frazil.errors import SpecError
from frazil_blobs.values import Ints

Distance = Literal["cosine", "l2", "dot"]
Floats = NDArray[np.float32]
_METRICS: Mapping[Distance, str] = {"cosine": "cos", "l2": "l2sq", "dot": "ip"}
_INDEX, _META, _PLACES_FILE = "vectors.usearch", "meta.json", "places.parquet"
_PLACES = pa.schema([("file", pa.string()), ("rank", pa.int64())])
"""The place of a row in a snapshot: its data file, and the number of rows before it there that are not deleted."""
_MEASURED = 100
"""So many vectors are searched for exactly, to measure an index."""
_AT_ONCE = 65_536
NEEDED = "install it with `pip install 'frazil-blobs[vectors]'`; without it vectors are searched for exactly"


@dataclass(frozen=True)
class IndexMeta:
    """What an index was made from, and how well it answers."""

    table_uuid: str
    snapshot_id: int
    column: str
    distance: Distance
    vectors: int
    dimension: int
    #: The share of the ten nearest vectors that it finds, measured on vectors of its own.
    recall: float


@dataclass(frozen=True)
class _Vectors:
    """The vectors of a snapshot: float32 of shape (n_vectors, dimension), and the place of the row that each is from."""

    values: Floats
    places: pa.Table


def search(  # noqa: PLR0913  (each is a choice of the caller)
    table: Table,
    vector: Sequence[float],
    k: int = 10,
    *,
    column: str = "embedding",
    distance: Distance = "cosine",
    as_of: int | None = None,
    columns: Sequence[str] = (),
    indexes: Path | None = None,
) -> pa.Table:
    """Returns the rows of a snapshot whose vectors are nearest, nearest first, with a column `_distance`: 1 minus the
    cosine, the square of the Euclidean distance, or 1 minus the product. table: as PyIceberg loads it. as_of: the
    snapshot; None for the newest. columns: of the result; empty for all. indexes: the folder of `build_index`; the
    snapshot's index is used where it has one.

    Raises: SpecError where the snapshot has no such column, or the vector another number of values.
    """
    snapshot_id = _snapshot(table, as_of)
    wanted = np.asarray(vector, np.float32)
    meta = _meta_of(indexes, table, snapshot_id, column, distance)
    if meta is not None and indexes is not None:
        _check_dimension(vector, meta.dimension, column)
        index, places = _opened(_folder(indexes, snapshot_id, column, distance), meta.dimension, distance)
        matches = index.search(wanted, k)
        nearest, distances = np.asarray(matches.keys, np.int64), np.asarray(matches.distances, np.float32)
    else:
        vectors = _vectors(table, snapshot_id, column)
        if len(vectors.values):
            _check_dimension(vector, vectors.values.shape[1], column)
        nearest, distances = _nearest(vectors.values, wanted, k, distance)
        places = vectors.places
    rows = _rows_at(table, snapshot_id, places.take(pa.array(nearest)), columns)
    return rows.append_column("_distance", pa.array(distances, pa.float32()))


def build_index(
    table: Table,
    indexes: Path,
    *,
    column: str = "embedding",
    distance: Distance = "cosine",
    as_of: int | None = None,
) -> IndexMeta:
    """Makes the index of a snapshot in a folder, which gets a folder for it; returns what it was made from. An
    existing index is kept.

    Raises: SpecError where usearch is not installed, or the snapshot has no such column.
    """
    snapshot_id = _snapshot(table, as_of)
    known = _meta_of(indexes, table, snapshot_id, column, distance)
    if known is not None:
        return known
    vectors = _vectors(table, snapshot_id, column)
    index = _new_index(vectors.values.shape[1], distance)
    for begin in range(0, len(vectors.values), _AT_ONCE):
        some = vectors.values[begin : begin + _AT_ONCE]
        index.add(np.arange(begin, begin + len(some), dtype=np.uint64), some)
    recall = _recall(index, vectors.values, distance)
    count, dimension = vectors.values.shape
    meta = IndexMeta(str(table.metadata.table_uuid), snapshot_id, column, distance, count, dimension, recall)
    folder = _folder(indexes, snapshot_id, column, distance)
    draft = folder.with_name(f".{folder.name}-{new_id()}")
    draft.mkdir(parents=True)
    index.save(str(draft / _INDEX))
    pq.write_table(vectors.places, draft / _PLACES_FILE)
    (draft / _META).write_text(json.dumps(asdict(meta)))
    draft.rename(folder)  # Whole, or not at all.
    return meta


def _snapshot(table: Table, as_of: int | None) -> int:
    snapshot = table.current_snapshot() if as_of is None else table.snapshot_by_id(as_of)
    if snapshot is None:
        what = "no snapshot yet" if as_of is None else f"no snapshot {as_of}"
        raise SpecError(f"the table has {what}", remedy="name one that the table has; `<table>.snapshots` shows them")
    return int(snapshot.snapshot_id)


def _check_dimension(vector: Sequence[float], dimension: int, column: str) -> None:
    if len(vector) != dimension:
        message = f"the vector has {len(vector)} values, and those of `{column}` have {dimension}"
        raise SpecError(message, remedy="make it by the model that has made those of the column")


def _vectors(table: Table, snapshot_id: int, column: str) -> _Vectors:
    """Returns the vectors of the rows that have one."""
    try:
        parts = list(_batches(table, snapshot_id, (column,)))
    except ValueError:
        remedy = "name a column of lists of floats"
        raise SpecError(f"the snapshot has no column `{column}`", remedy=remedy) from None
    places, values = list[pa.Table](), list[Floats]()
    dimension = 0
    for path, first, batch in parts:
        vectors = batch.column(0)
        lengths = np.unique(np.asarray(pa.compute.list_value_length(vectors).drop_null()))
        if lengths.size > 1 or (lengths.size and lengths[0] != (dimension or lengths[0])):
            message = f"the vectors of `{column}` do not all have {dimension or lengths[0]} values"
            raise SpecError(message, remedy="declare their number under `blobs.embeddings`, and correct the rows")
        if lengths.size:
            dimension = int(lengths[0])
            ranks = first + np.flatnonzero(np.asarray(vectors.is_valid()))
            places.append(pa.table({"file": pa.repeat(pa.scalar(path), ranks.size), "rank": ranks}, schema=_PLACES))
            values.append(np.asarray(pa.compute.list_flatten(vectors), np.float32).reshape(-1, dimension))
    if not values:
        return _Vectors(np.zeros((0, 1), np.float32), _PLACES.empty_table())
    return _Vectors(np.concatenate(values), pa.concat_tables(places))


def _batches(
    table: Table, snapshot_id: int, columns: Sequence[str], files: Collection[str] | None = None
) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yields the rows of a snapshot that are not deleted: data file, number of its rows before, and columns. files: of
    which rows are wanted; None for all.
    """
    scan = table.scan(snapshot_id=snapshot_id, selected_fields=tuple(columns) or ("*",))
    for task in scan.plan_files():
        path = task.file.file_path
        if files is not None and path not in files:
            continue
        first = 0
        for batch in ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_record_batches([task]):
            yield path, first, batch
            first += len(batch)


def _nearest(values: Floats, vector: Floats, k: int, distance: Distance) -> tuple[Ints, Floats]:
    """Returns the places and the distances of the k nearest vectors, nearest first, by comparing all."""
    distances = _distances(values, vector, distance)
    count = min(k, distances.size)
    places = np.argpartition(distances, count - 1)[:count] if count else np.zeros(0, np.int64)
    places = places[np.lexsort((places, distances[places]))]
    return places, distances[places]


def _distances(values: Floats, vector: Floats, distance: Distance) -> Floats:
    if distance == "l2":
        return np.asarray(((values - vector) ** 2).sum(axis=1), np.float32)
    products = values @ vector if values.shape[1] == vector.size else np.zeros(len(values), np.float32)
    if distance == "cosine":
        norms = np.linalg.norm(values, axis=1) * np.linalg.norm(vector)
        products = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.asarray(1 - products, np.float32)


def _rows_at(table: Table, snapshot_id: int, places: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Returns the rows of a snapshot at these places, in their order."""
    files, ranks = places.column("file").to_pylist(), np.asarray(places.column("rank"))
    taken: list[pa.Table] = []
    order: list[Ints] = []
    for path, first, batch in _batches(table, snapshot_id, columns, set(files)):
        is_here = np.array([file == path for file in files]) & (ranks >= first) & (ranks < first + len(batch))
        if is_here.any():
            taken.append(pa.Table.from_batches([batch]).take(pa.array(ranks[is_here] - first)))
            order.append(np.flatnonzero(is_here))
    if not taken:
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=tuple(columns) or ("*",))
        return schema_to_pyarrow(scan.projection()).empty_table()
    return pa.concat_tables(taken).take(pa.array(np.argsort(np.concatenate(order))))


def _folder(indexes: Path, snapshot_id: int, column: str, distance: Distance) -> Path:
    return indexes / f"{snapshot_id}-{column}-{distance}"


def _meta_of(indexes: Path | None, table: Table, snapshot_id: int, column: str, distance: Distance) -> IndexMeta | None:
    """Returns what the index of a snapshot was made from; None where there is none of this table."""
    if indexes is None:
        return None
    file = _folder(indexes, snapshot_id, column, distance) / _META
    if not file.exists():
        return None
    meta = IndexMeta(**json.loads(file.read_text()))
    return meta if meta.table_uuid == str(table.metadata.table_uuid) else None


def _new_index(dimension: int, distance: Distance) -> Any:
    try:
        from usearch.index import Index  # noqa: PLC0415  (an extra)
    except ImportError:
        raise SpecError("an index of vectors needs usearch, which is not installed", remedy=NEEDED) from None
    return Index(
        ndim=dimension, metric=_METRICS[distance], dtype="f16", connectivity=16, expansion_add=128, expansion_search=128
    )


@lru_cache(maxsize=8)
def _opened(folder: Path, dimension: int, distance: Distance) -> tuple[Any, pa.Table]:
    """Returns an index, whose file is mapped into memory, and the places of its vectors."""
    index = _new_index(dimension, distance)
    index.view(str(folder / _INDEX))
    return index, pq.read_table(folder / _PLACES_FILE)


def _recall(index: Any, values: Floats, distance: Distance) -> float:
    """Returns the share of the ten nearest vectors that an index finds, for some of the vectors themselves."""
    count = min(_MEASURED, len(values))
    if not count:
        return 1.0
    places = np.linspace(0, len(values) - 1, count).astype(np.int64)
    hits = total = 0
    for place in places:
        wanted, _ = _nearest(values, values[place], 10, distance)
        hits += np.intersect1d(wanted, np.asarray(index.search(values[place], 10).keys, np.int64)).size
        total += wanted.size
    return hits / total
