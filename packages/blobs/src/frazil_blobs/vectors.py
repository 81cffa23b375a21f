"""Search for the nearest vectors in one snapshot: exactly, or by an index that can be removed at any time.

An index knows which data files its vectors are from, and which of their rows were deleted. A search of another snapshot uses
it for the files that both have, and compares the vectors of all others one by one: an answer never has a row of
another snapshot, and lacks none of its own for the age of the index.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table

from frazil.clock import new_id
from frazil.errors import SpecError
from frazil_blobs.index_upkeep import kept_indexes
from frazil_blobs.nearest import Distance, Floats, Tuning, VectorIndex, build, nearest_of
from frazil_blobs.values import Ints

_META, _FILES, _FILE_OF, _RANK_OF = "meta.json", "files.json", "file_of.npy", "rank_of.npy"
MARK = "embedding."
"""The table property with dimension and distance of a column's vectors, behind `frazil.<pipeline>.` and before its name."""
DataFileKey = tuple[str, ...]
"""A data file and the files that delete rows of it, by their paths."""


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


class _Nearest(NamedTuple):
    """Vectors that are near: how far each is, its data file, and the number of rows before it there that are not deleted."""

    distances: Floats
    files: list[str]
    ranks: Ints


class _Part(NamedTuple):
    """Vectors of one data file: float32 of shape (n, dimension), and their rows as of `_Nearest`."""

    task: FileScanTask
    ranks: Ints
    values: Floats


class _Index:
    """The index in a folder, with the rows of its vectors."""

    def __init__(self, folder: Path) -> None:
        self.files: list[DataFileKey] = [tuple(key) for key in json.loads((folder / _FILES).read_text())]
        self._file_of, self._rank_of = (np.load(folder / name, mmap_mode="r") for name in (_FILE_OF, _RANK_OF))
        self._vectors = VectorIndex(folder)

    def nearest(self, wanted: Floats, k: int, files: Collection[DataFileKey]) -> _Nearest:
        """Returns the k nearest vectors of some data files."""
        is_here = np.array([key in files for key in self.files], np.bool_)
        among = None if is_here.all() else lambda numbers: is_here[self._file_of[numbers]]
        numbers, distances = self._vectors.nearest(wanted, k, among)
        paths = [self.files[number][0] for number in self._file_of[numbers].tolist()]
        return _Nearest(distances, paths, np.asarray(self._rank_of[numbers]))


def search(  # noqa: PLR0913  (each is a choice of the caller)
    table: Table,
    vector: Sequence[float],
    k: int = 10,
    *,
    column: str = "embedding",
    distance: Distance | None = None,
    as_of: int | None = None,
    columns: Sequence[str] = (),
    indexes: Path | None = None,
) -> pa.Table:
    """Returns the rows of a snapshot whose vectors are nearest, nearest first, with a column `_distance`: 1 minus the
    cosine, the square of the Euclidean distance, or 1 minus the product. table: as PyIceberg loads it. distance: None for
    that of `blobs.embeddings`. as_of: the snapshot; None for the newest. columns: of the result; empty for all. indexes: the
    folder of `build_index`, whose index that fits best is used; None for the one that maintenance has made, if there is one.

    Raises: SpecError where the snapshot has no such columns, or the vector another number of values.
    """
    snapshot_id, distance = _snapshot(table, as_of), distance or declared_distance(table, column)
    wanted = np.asarray(vector, np.float32)
    _check_columns(table, snapshot_id, columns)
    scan = _scan(table, snapshot_id, (column,))
    tasks = {_key_of(task): task for task in scan.plan_files()}
    near: list[_Nearest] = []
    rest = tasks
    fitting = _fitting(table, indexes or kept_indexes(table, column), column, distance, tasks)
    if fitting is not None:
        folder, meta = fitting
        _check_dimension(vector, meta.dimension, column)
        index = _opened(folder)
        near.append(index.nearest(wanted, k, tasks.keys()))
        rest = {key: task for key, task in tasks.items() if key not in set(index.files)}
    for part in _parts(table, scan, rest.values(), column):
        _check_dimension(vector, part.values.shape[1], column)
        ranks, distances = nearest_of(part.values, wanted, k, distance, part.ranks)
        near.append(_Nearest(distances, [part.task.file.file_path] * len(ranks), ranks))
    best = _best(near, k)
    rows = _rows_at(table, snapshot_id, best, columns)
    return rows.append_column("_distance", pa.array(best.distances, pa.float32()))


def build_index(
    table: Table,
    indexes: Path,
    *,
    column: str = "embedding",
    distance: Distance | None = None,
    as_of: int | None = None,
) -> IndexMeta:
    """Makes the index of a snapshot in a folder, which gets a folder for it; returns what it was made from. An
    existing index is kept.

    Raises: SpecError where the snapshot has no such column.
    """
    snapshot_id, distance = _snapshot(table, as_of), distance or declared_distance(table, column)
    folder = indexes / f"{snapshot_id}-{column}-{distance}"
    if (known := _meta_in(folder)) is not None and known.table_uuid == str(table.metadata.table_uuid):
        return known
    draft = folder.with_name(f".{folder.name}-{new_id()}")
    draft.mkdir(parents=True)
    files: dict[DataFileKey, int] = {}
    file_of, rank_of = list[Ints](), list[Ints]()

    def blocks() -> Iterator[Floats]:
        scan = _scan(table, snapshot_id, (column,))
        tasks = list(scan.plan_files())
        files.update({_key_of(task): number for number, task in enumerate(tasks)})
        for part in _parts(table, scan, tasks, column):
            file_of.append(np.full(part.ranks.size, files[_key_of(part.task)], np.int32))
            rank_of.append(part.ranks)
            yield part.values

    tuning: Tuning = build(draft, blocks(), distance)
    np.save(draft / _FILE_OF, np.concatenate(file_of) if file_of else np.zeros(0, np.int32))
    np.save(draft / _RANK_OF, np.concatenate(rank_of) if rank_of else np.zeros(0, np.int64))
    (draft / _FILES).write_text(json.dumps(list(files)))
    uuid = str(table.metadata.table_uuid)
    meta = IndexMeta(uuid, snapshot_id, column, distance, tuning.vectors, tuning.dimension, tuning.recall)
    (draft / _META).write_text(json.dumps(asdict(meta)))
    draft.rename(folder)  # Whole, or not at all.
    return meta


def declared_distance(table: Table, column: str) -> Distance:
    """Returns by which distance the table's pipeline declares the vectors of a column to be compared; the cosine where it
    declares none.
    """
    distance: Distance = _declared(table, column)[1]  # type: ignore[assignment]
    return distance


def declared_dimension(table: Table, column: str) -> int | None:
    """Returns the number of values of a column's vectors, as the table's pipeline declares it; None without one."""
    dimension, _ = _declared(table, column)
    return int(dimension) if dimension else None


def _declared(table: Table, column: str) -> tuple[str, str]:
    for name, text in table.metadata.properties.items():
        if name.startswith("frazil.") and name.endswith(f".{MARK}{column}"):
            dimension, distance = text.split()
            return dimension, distance
    return "", "cosine"


def _snapshot(table: Table, as_of: int | None) -> int:
    snapshot = table.current_snapshot() if as_of is None else table.snapshot_by_id(as_of)
    if snapshot is None:
        what = "no snapshot yet" if as_of is None else f"no snapshot {as_of}"
        raise SpecError(f"the table has {what}", remedy="name one that the table has; `<table>.snapshots` shows them")
    return int(snapshot.snapshot_id)


def _scan(table: Table, snapshot_id: int, columns: Sequence[str]) -> DataScan:
    return table.scan(snapshot_id=snapshot_id, selected_fields=tuple(columns) or ("*",))


def _key_of(task: FileScanTask) -> DataFileKey:
    return (task.file.file_path, *sorted(file.file_path for file in task.delete_files))


def _check_columns(table: Table, snapshot_id: int, columns: Sequence[str]) -> None:
    try:
        _scan(table, snapshot_id, columns).projection()
    except ValueError as error:
        message = f"`columns` has one that the snapshot does not have: {error}"
        raise SpecError(message, remedy="name columns that the snapshot has") from None


def _check_dimension(vector: Sequence[float], dimension: int, column: str) -> None:
    if len(vector) != dimension:
        message = f"the vector has {len(vector)} values, and those of `{column}` have {dimension}"
        raise SpecError(message, remedy="make it by the model that has made those of the column")


def _fitting(
    table: Table, indexes: Path | None, column: str, distance: Distance, files: Mapping[DataFileKey, FileScanTask]
) -> tuple[Path, IndexMeta] | None:
    """Returns the index that has most of the rows of some data files; None where no index of the table has any."""
    fitting: tuple[int, Path, IndexMeta] | None = None
    wanted = (str(table.metadata.table_uuid), column, distance)
    for folder in indexes.glob("[!.]*") if indexes is not None else ():
        meta = _meta_in(folder)
        if meta is None or (meta.table_uuid, meta.column, meta.distance) != wanted or not meta.vectors:
            continue
        rows = sum(files[key].file.record_count for key in _opened(folder).files if key in files)
        if rows and (fitting is None or rows > fitting[0]):
            fitting = rows, folder, meta
    return fitting[1:] if fitting is not None else None


def _meta_in(folder: Path) -> IndexMeta | None:
    file = folder / _META
    return IndexMeta(**json.loads(file.read_text())) if file.exists() else None


@lru_cache(maxsize=8)
def _opened(folder: Path) -> _Index:
    return _Index(folder)


def _parts(table: Table, scan: DataScan, tasks: Collection[FileScanTask], column: str) -> Iterator[_Part]:
    """Yields the vectors of the rows that have one, some at a time."""
    dimension = 0
    for task, first, batch in _batches(table, scan, tasks, column):
        vectors = batch.column(0)
        if not pa.types.is_list(vectors.type) and not pa.types.is_large_list(vectors.type):
            message = f"the column `{column}` is {vectors.type} and not a list of floats"
            raise SpecError(message, remedy="name a column of lists of floats")
        lengths = np.unique(np.asarray(pa.compute.list_value_length(vectors).drop_null()))
        if lengths.size > 1 or (lengths.size and lengths[0] != (dimension or lengths[0])):
            message = f"the vectors of `{column}` do not all have {dimension or lengths[0]} values"
            raise SpecError(message, remedy="declare their number under `blobs.embeddings`, and correct the rows")
        if lengths.size:
            dimension = int(lengths[0])
            ranks = first + np.flatnonzero(np.asarray(vectors.is_valid()))
            values = np.asarray(pa.compute.list_flatten(vectors), np.float32).reshape(-1, dimension)
            yield _Part(task, ranks, values)


def _batches(
    table: Table, scan: DataScan, tasks: Collection[FileScanTask], column: str = ""
) -> Iterator[tuple[FileScanTask, int, pa.RecordBatch]]:
    """Yields the rows of data files that are not deleted: file, number of its rows before, and columns.

    Raises: SpecError where the snapshot has no such column.
    """
    try:
        rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    except ValueError:
        raise SpecError(f"the snapshot has no column `{column}`", remedy="name a column of lists of floats") from None
    for task in tasks:
        first = 0
        for batch in rows.to_record_batches([task]):
            yield task, first, batch
            first += len(batch)


def _best(near: Sequence[_Nearest], k: int) -> _Nearest:
    """Returns the k nearest of all, nearest first; of equal ones those of the first file."""
    distances = np.concatenate([some.distances for some in near]) if near else np.zeros(0, np.float32)
    ranks = np.concatenate([some.ranks for some in near]) if near else np.zeros(0, np.int64)
    files = [path for some in near for path in some.files]
    order = np.lexsort((ranks, distances))[:k]
    return _Nearest(distances[order], [files[place] for place in order.tolist()], ranks[order])


def _rows_at(table: Table, snapshot_id: int, best: _Nearest, columns: Sequence[str]) -> pa.Table:
    """Returns the rows of a snapshot at these places, in their order."""
    scan = _scan(table, snapshot_id, columns)
    paths = np.array(best.files, object)
    tasks = [task for task in scan.plan_files() if task.file.file_path in set(best.files)]
    taken: list[pa.Table] = []
    order: list[Ints] = []
    for task, first, batch in _batches(table, scan, tasks):
        is_here = (paths == task.file.file_path) & (best.ranks >= first) & (best.ranks < first + len(batch))
        if is_here.any():
            taken.append(pa.Table.from_batches([batch]).take(pa.array(best.ranks[is_here] - first)))
            order.append(np.flatnonzero(is_here))
    if not taken:
        return schema_to_pyarrow(scan.projection()).empty_table()
    return pa.concat_tables(taken).take(pa.array(np.argsort(np.concatenate(order))))
