"""A snapshot as samples for training: shuffled, read as few large ranges, and continued where it stopped.

The order of an epoch is a function of the snapshot, the seed and the epoch alone. Objects that lie together in a pack
are read together: blocks of neighbouring objects are shuffled, and then the samples of each block. Nothing of PyTorch
is imported; its loaders take any object with these methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from frazil.errors import SpecError
from frazil.schema.arrow import children_of, replace_children, unsliced
from frazil.store.file_io import store_of
from frazil_blobs.reading import Reader, read_with
from frazil_blobs.settings import MiB
from frazil_blobs.values import Ints, Path, member_at, object_paths

BLOCK_BYTES = 64 * MiB
"""The bytes of objects that are read, and shuffled, together."""
_AHEAD = 2
"""So many blocks are read while the samples of one before them are used: while one waits for the store, another has come."""
Sample = dict[str, Any]
_Read = TypeVar("_Read")


class BlobDataset:
    """The rows of one snapshot, each with the bytes of its objects in place of the structs. Iterating is one epoch."""

    def __init__(
        self,
        table: Table,
        columns: Sequence[str] = (),
        *,
        snapshot_id: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """table: as PyIceberg loads it. columns: empty for all. snapshot_id: None for the newest; a tag should hold it
        while training runs.

        Raises: SpecError where the table has no snapshot.
        """
        current = table.current_snapshot()
        if snapshot_id is None and current is None:
            raise SpecError(
                "the table has no snapshot yet", remedy="wait until a batch is committed", where=".".join(table.name())
            )
        self._table = table
        self._columns = tuple(columns) or ("*",)
        self._snapshot_id = (
            snapshot_id if snapshot_id is not None else current.snapshot_id if current is not None else 0
        )
        self._seed = seed
        self._is_shuffled = shuffle
        self._block_bytes = block_bytes
        self._io = store_of(tuple(sorted((name, str(value)) for name, value in table.io.properties.items())))
        self._epoch = self._position = 0
        self._rows: pa.Table | None = None

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def rows(self) -> pa.Table:
        """The rows of the snapshot as the table has them, in the order in which their objects lie in the store."""
        if self._rows is None:
            rows = self._table.scan(snapshot_id=self._snapshot_id, selected_fields=self._columns).to_arrow()
            self._paths = [path for path in object_paths(self._table) if path[0] in rows.column_names]
            self._rows = rows.take(pa.array(self._order(rows)))
        return self._rows

    def state_dict(self) -> dict[str, int]:
        """Returns what `load_state_dict` continues from: the snapshot, the seed, the epoch, and the samples of it so
        far.
        """
        return {"snapshot_id": self._snapshot_id, "seed": self._seed, "epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues behind the last sample of a dataset that had this state: in its snapshot, with its order."""
        if state["snapshot_id"] != self._snapshot_id:
            self._snapshot_id, self._rows = state["snapshot_id"], None
        self._seed, self._epoch, self._position = state["seed"], state["epoch"], state["position"]

    def __iter__(self) -> Iterator[Sample]:
        """Yields the samples of this epoch that are left; the next call begins the next epoch."""
        blocks = self._blocks()
        sizes = [block.size for block in blocks]
        ends = np.cumsum(sizes)
        first = int(np.searchsorted(ends, self._position, side="right"))
        skipped = self._position - (int(ends[first - 1]) if first else 0)
        with closing(_ahead(self._read, blocks[first:])) as read_blocks:
            for samples in read_blocks:
                for sample in samples[skipped:]:
                    self._position += 1
                    yield sample
                skipped = 0
        self._epoch, self._position = self._epoch + 1, 0

    def batches(self) -> Iterator[pa.Table]:
        """Yields the rows of this epoch, from its first on, a block at a time: with the bytes of their objects, in large
        binary, in place of the structs.
        """
        yield from _ahead(self._read_columns, self._blocks())

    @property
    def snapshot_id(self) -> int:
        """The snapshot that is read."""
        return self._snapshot_id

    @property
    def table(self) -> Table:
        """The table, as PyIceberg has it."""
        return self._table

    @property
    def paths(self) -> list[Path]:
        """The columns with objects."""
        return [path for path in object_paths(self._table) if path[0] in self.rows.column_names]

    def _order(self, rows: pa.Table) -> Ints:
        """Returns the rows in the order of their first object's place in the store."""
        if not self._paths:
            return np.arange(rows.num_rows)
        blobs = _column_at(rows, self._paths[0])
        keys = pa.table({"uri": member_at(blobs, ("uri",)), "offset": member_at(blobs, ("offset",))})
        places = pa.compute.sort_indices(keys, [("uri", "ascending"), ("offset", "ascending")])
        return np.asarray(places).astype(np.int64)

    def _blocks(self) -> list[Ints]:
        """Returns the rows of each block of this epoch, in the order in which they are yielded."""
        sizes = np.zeros(self.rows.num_rows, np.int64)
        for path in self._paths:
            sizes += np.asarray(member_at(_column_at(self.rows, path), ("size",)).fill_null(0)).astype(np.int64)
        numbers = np.cumsum(sizes) // max(1, self._block_bytes)
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), sizes.size]
        blocks = [np.arange(begin, end) for begin, end in pairwise(cuts) if end > begin]
        if self._is_shuffled:
            chance = np.random.default_rng((self._seed, self._epoch))
            blocks = [chance.permutation(blocks[number]) for number in chance.permutation(len(blocks))]
        return blocks

    def _read(self, block: Ints) -> list[Sample]:
        rows = self.rows.take(pa.array(block))
        samples: list[Sample] = rows.drop_columns([path[0] for path in self._paths if len(path) == 1]).to_pylist()
        for path in self._paths:
            contents = Reader(self._io, _column_at(rows, path)).objects()
            for sample, content in zip(samples, contents, strict=True):
                _put(sample, path, content)
        return samples

    def _read_columns(self, block: Ints) -> pa.Table:
        rows = self.rows.take(pa.array(block))
        for path in self._paths:
            contents = read_with(self._io, _column_at(rows, path))
            place = rows.schema.get_field_index(path[0])
            column = _replaced(_column_at(rows, path[:1]), path[1:], contents)
            rows = rows.set_column(place, path[0], column)
        return rows


def _ahead(read: Callable[[Ints], _Read], blocks: Sequence[Ints]) -> Generator[_Read]:
    """Yields what is read of blocks, of which a few are read before they are asked for."""
    pool = ThreadPoolExecutor(_AHEAD, "blobs-ahead")
    try:
        left = iter(blocks)
        ahead = deque(pool.submit(read, block) for block in islice(left, _AHEAD))
        while ahead:
            rows = ahead.popleft().result()
            ahead.extend(pool.submit(read, block) for block in islice(left, 1))
            yield rows
    finally:
        pool.shutdown(cancel_futures=True)


def _replaced(array: pa.Array, path: Path, member: pa.Array) -> pa.Array:
    """Returns structs with another member, of any type, at a path inside them."""
    if not path:
        return member
    array = unsliced(array)
    names, children = [array.type.field(n).name for n in range(array.type.num_fields)], children_of(array)
    place = names.index(path[0])
    children[place] = _replaced(children[place], path[1:], member)
    return replace_children(array, names, children)


def _column_at(rows: pa.Table, path: Path) -> pa.Array:
    column = rows.column(path[0]).combine_chunks()
    return member_at(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column, path[1:])


def _put(sample: Sample, path: Path, content: bytes | None) -> None:
    for name in path[:-1]:
        if sample[name] is None:
            return
        sample = sample[name]
    sample[path[-1]] = content
