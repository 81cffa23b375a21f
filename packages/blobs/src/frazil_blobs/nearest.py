"""An index of vectors in a folder: lists of neighbours, looked through by short vectors and compared by the whole ones.

Each vector is turned into one of few dimensions, those in which a sample varies most, and belongs to the list of the
nearest centre. A search looks through the short vectors of the nearest lists, and compares the whole vectors of the best
of them. How many it takes is tuned when the index is built, until it finds nearly all of the nearest ones.

All work is products of matrices, so building takes little longer than reading the vectors. The files are mapped into memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from frazil_blobs.values import Ints

Distance = Literal["cosine", "l2", "dot"]
Floats = NDArray[np.float32]
_SHORT = 64
"""The dimensions of short vectors."""
_LEARNT = 16_384
"""So many of the first vectors decide which dimensions these are."""
_MOST_LISTS, _LIST_SAMPLE, _ROUNDS = 2048, 32, 6
_AT_ONCE = 16_384
_MEASURED = 48
"""So many vectors are searched for exactly, to tune and to measure an index."""
_ENOUGH = 0.99
_FEWEST_LISTS, _FEWEST_COMPARED = 8, 256
_VECTORS, _TUNING = "vectors", "tuning.json"


@dataclass(frozen=True)
class Tuning:
    """How an index is searched, and how well it answers."""

    distance: Distance
    vectors: int
    dimension: int
    #: The number of lists that are looked through, and of whole vectors that are compared.
    lists: int = _FEWEST_LISTS
    compared: int = _FEWEST_COMPARED
    #: The share of the ten nearest vectors that it finds, measured on vectors of its own.
    recall: float = 1.0


class VectorIndex:
    """The index in a folder, for searching."""

    def __init__(self, folder: Path) -> None:
        self.tuning = Tuning(**json.loads((folder / _TUNING).read_text()))
        kind = _stored(self.tuning.distance)
        shape = (self.tuning.vectors, self.tuning.dimension)
        self._vectors = np.memmap(folder / _VECTORS, kind, "r", shape=shape) if shape[0] else np.zeros(shape, kind)
        loaded = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("axes", "mean", "centres", "ends"))
        self._axes, self._mean, self._centres, self._ends = loaded
        self._short, self._places = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("short", "places"))

    def nearest(
        self, vector: Floats, k: int, is_wanted: Callable[[Ints], NDArray[np.bool_]] | None = None
    ) -> tuple[Ints, Floats]:
        """Returns the numbers and the distances of k vectors that are nearest, nearest first. vector: float32 of shape
        (dimension,). is_wanted: returns which of some numbers of vectors may be answered, bool of the same shape; None for
        all.
        """
        distance, compared = self.tuning.distance, max(self.tuning.compared, 4 * k)
        short = (_unit(vector[np.newaxis], distance) - (0 if distance == "dot" else self._mean)) @ self._axes
        wanted = np.append(short[0], np.float32(0 if distance == "dot" else 1))
        order = np.argsort(self._centres @ wanted)[::-1]
        numbers, scores, count = list[Ints](), list[Floats](), 0
        for rank, number in enumerate(order):
            if rank >= self.tuning.lists and count >= compared:
                break
            begin, end = (int(self._ends[number - 1]) if number else 0), int(self._ends[number])
            some, products = np.asarray(self._places[begin:end]), self._short[begin:end] @ wanted
            if is_wanted is not None:
                is_here = is_wanted(some)
                some, products = some[is_here], products[is_here]
            numbers.append(some)
            scores.append(products)
            count += some.size
        every, score = np.concatenate(numbers), np.concatenate(scores)
        if every.size > compared:
            every = every[np.argpartition(score, every.size - compared)[-compared:]]
        best = np.sort(every)
        values = _unit(vector[np.newaxis], self.tuning.distance)[0]
        return nearest_of(self._vectors[best].astype(np.float32), values, k, self.tuning.distance, best)


def build(folder: Path, blocks: Iterable[Floats], distance: Distance) -> Tuning:
    """Makes an index in an empty folder; returns how well it answers. blocks: vectors, float32 of shape (n, dimension) each,
    of which memory has one at a time.
    """
    axes, mean, shorts, count = np.zeros((1, 1), np.float32), np.zeros(1, np.float32), list[Floats](), 0
    with (folder / _VECTORS).open("wb") as stream:
        for block in _sized(blocks):
            values = _unit(block, distance)
            if not shorts:
                axes, mean = _axes_of(values[:_LEARNT])
            shorts.append(np.asarray((values - mean) @ axes, np.float32))
            values.astype(_stored(distance)).tofile(stream)
            count += len(values)
    tuning = Tuning(distance, count, axes.shape[0])
    short = np.concatenate(shorts) if shorts else np.zeros((0, axes.shape[1]), np.float32)
    shorts.clear()
    _write_lists(folder, short, axes, mean)
    (folder / _TUNING).write_text(json.dumps(asdict(tuning)))
    tuning = _tuned(VectorIndex(folder), tuning)
    (folder / _TUNING).write_text(json.dumps(asdict(tuning)))
    return tuning


def _sized(blocks: Iterable[Floats]) -> Iterable[Floats]:
    """Yields the vectors in blocks of at least `_LEARNT`, but for the last."""
    held: list[Floats] = []
    for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= _LEARNT:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _write_lists(folder: Path, short: Floats, axes: Floats, mean: Floats) -> None:
    """Divides short vectors, float32 of shape (n, _SHORT), among lists, and writes them list by list."""
    chance = np.random.default_rng(0)
    count = int(np.clip(np.sqrt(len(short)), 1, _MOST_LISTS))
    sample = short[np.sort(chance.permutation(len(short))[: count * _LIST_SAMPLE])]
    centres = (
        sample[chance.permutation(len(sample))[:count]] if len(sample) else np.zeros((1, short.shape[1]), np.float32)
    )
    for _ in range(_ROUNDS):
        lists = _lists_of(sample, centres)
        order = np.argsort(lists, kind="stable")
        numbers, starts = np.unique(lists[order], return_index=True)
        if numbers.size:
            sizes = np.diff([*starts, len(order)])[:, np.newaxis]
            centres[numbers] = np.add.reduceat(sample[order], starts) / sizes
    lists = _lists_of(short, centres)
    order = np.argsort(lists, kind="stable")
    arrays: dict[str, NDArray[Any]] = {
        "axes": axes,
        "mean": mean,
        "centres": _with_norms(centres),
        "ends": np.cumsum(np.bincount(lists, minlength=len(centres))),
        "short": _with_norms(short[order]),
        "places": order,
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _lists_of(short: Floats, centres: Floats) -> Ints:
    """Returns the nearest centre of each short vector, int64 of shape (n,)."""
    turned, half = np.ascontiguousarray(centres.T), 0.5 * (centres**2).sum(axis=1)
    lists = np.zeros(len(short), np.int64)
    for begin in range(0, len(short), _AT_ONCE):
        scores = short[begin : begin + _AT_ONCE] @ turned
        scores -= half
        lists[begin : begin + _AT_ONCE] = scores.argmax(axis=1)
    return lists


def _with_norms(short: Floats) -> Floats:
    """Returns vectors with half their square, negative, as one more value: a product with a vector that ends with 1 is the
    greater the nearer they are; with one that ends with 0 it is their product.
    """
    return np.column_stack([short, -0.5 * (short**2).sum(axis=1)]).astype(np.float32)


def _axes_of(sample: Floats) -> tuple[Floats, Floats]:
    """Returns the directions in which vectors vary most, float32 of shape (dimension, _SHORT), and their mean."""
    mean = sample.mean(axis=0)
    if sample.shape[1] <= _SHORT:
        return np.eye(sample.shape[1], dtype=np.float32), mean
    centred = sample - mean
    return np.ascontiguousarray(np.linalg.eigh(centred.T @ centred)[1][:, -_SHORT:]).astype(np.float32), mean


def _tuned(index: VectorIndex, tuning: Tuning) -> Tuning:
    """Returns how an index must be searched to find nearly all of the nearest vectors."""
    if not tuning.vectors:
        return tuning
    places = np.unique(np.linspace(0, tuning.vectors - 1, _MEASURED).astype(np.int64))
    queries = index._vectors[places].astype(np.float32)
    wanted = _exactly(index._vectors, queries, tuning.distance)
    tried = tuning
    while True:
        index.tuning = tried
        hits = sum(
            np.intersect1d(exact, index.nearest(query, 10)[0]).size
            for exact, query in zip(wanted, queries, strict=True)
        )
        tried = replace(tried, recall=hits / sum(map(len, wanted)))
        if tried.recall >= _ENOUGH or tried.compared >= tuning.vectors:
            return tried
        tried = replace(tried, lists=tried.lists * 2, compared=tried.compared * 2)


def _exactly(vectors: NDArray[np.floating], queries: Floats, distance: Distance) -> list[Ints]:
    """Returns the ten nearest vectors of each query."""
    best = [(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in queries]
    for begin in range(0, len(vectors), _AT_ONCE):
        block = vectors[begin : begin + _AT_ONCE].astype(np.float32)
        scores = block @ queries.T
        if distance != "dot":
            scores -= 0.5 * (block**2).sum(axis=1)[:, np.newaxis]
        for n, before in enumerate(best):
            column = scores[:, n]
            some = np.argpartition(column, -10)[-10:] if column.size > 10 else np.arange(column.size)
            places, known = np.append(before[0], some + begin), np.append(before[1], column[some])
            kept = np.argsort(known)[::-1][:10]
            best[n] = places[kept], known[kept]
    return [places for places, _ in best]


def nearest_of(values: Floats, vector: Floats, k: int, distance: Distance, numbers: Ints) -> tuple[Ints, Floats]:
    """Returns the numbers and the distances of the k nearest of some vectors, nearest first, by comparing all. values:
    float32 of shape (n, dimension). numbers: of these vectors.
    """
    distances = _distances(values, vector, distance)
    count = min(k, distances.size)
    places = np.argpartition(distances, count - 1)[:count] if count else np.zeros(0, np.int64)
    places = places[np.lexsort((numbers[places], distances[places]))]
    return numbers[places], distances[places]


def _distances(values: Floats, vector: Floats, distance: Distance) -> Floats:
    if distance == "l2":
        return np.asarray(((values - vector) ** 2).sum(axis=1), np.float32)
    products = values @ vector if values.shape[1] == vector.size else np.zeros(len(values), np.float32)
    if distance == "cosine":
        norms = np.linalg.norm(values, axis=1) * np.linalg.norm(vector)
        products = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.asarray(1 - products, np.float32)


def _unit(values: Floats, distance: Distance) -> Floats:
    """Returns vectors as they are compared: of length 1 for the cosine."""
    if distance != "cosine":
        return values
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(np.divide(values, norms, out=np.zeros_like(values), where=norms > 0), np.float32)


def _stored(distance: Distance) -> type[np.floating]:
    """Returns the type in which whole vectors are kept: values of at most 1 have room in two bytes."""
    return np.float16 if distance == "cosine" else np.float32
