"""Sketches of quantiles: KLL sketches of doubles of Apache DataSketches, in the form that Spark 4.1 and Databricks read.

A sketch keeps values in levels: one of level `n` stands for 2**n values. A level that is too long gives every second of its
values, in order, to the next one. The union of two sketches has the values of both, level by level. Which of two
neighbours is kept depends on how many values there are so far, and so on the batches of records; the error does not.

Values are numbers as text in bytes. The image in the table is the compact one (datasketches-java, `kll/KllPreambleUtil`).
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import read_utf8
from frazil.decode.epochs import strict_cast
from frazil.errors import SpecError
from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Bools, Ints
from frazil_state.merge.sketches import spread

QUANTILES = "quantile_sketch"
"""The function of a column of sketches."""
_K, _M, _MOST_LEVELS = 200, 8, 60
"""The width of the highest level and the least width, as Spark's sketches have them."""
_SERIAL_VERSION, _OF_ONE, _FAMILY = 1, 2, 15
_EMPTY_FLAG, _IN_ORDER, _ONE_FLAG = 1, 2, 4
_HEAD, _REST = struct.Struct("<BBBBHBx"), struct.Struct("<qHBx")
_FULL_LONGS, _SHORT_LONGS = 5, 2
Floats = NDArray[np.float64]
Levels = NDArray[np.uint8]
Sketches = tuple[pa.Array, pa.Array, pa.Array, pa.Array]


def _capacities() -> Ints:
    """Returns the widths of levels by the number of levels, int64 `(_MOST_LEVELS + 1, _MOST_LEVELS)`."""
    widths = np.zeros((_MOST_LEVELS + 1, _MOST_LEVELS), np.int64)
    for count in range(1, _MOST_LEVELS + 1):
        for level in range(count):
            depth = count - level - 1
            widths[count, level] = max(_M, (2 * _K * 2**depth // 3**depth + 1) // 2)
    return widths


_CAPACITIES = _capacities()
_TOTALS = _CAPACITIES.sum(axis=1)


def sketches_of(values: pa.Array) -> Sketches:
    """Returns a sketch of each value, as lists of values and of their levels, and the least and the greatest value; null for
    null, for NaN and for empty bytes.

    Raises: pa.ArrowInvalid where `lack_number` is true.
    """
    numbers = _without_empty(values).cast(pa.string()).cast(pa.float64())
    is_there = np.asarray(pc.fill_null(pc.invert(pc.is_nan(numbers)), False))
    kept, sizes = np.asarray(numbers.fill_null(0.0))[is_there], is_there.astype(np.int64)
    bounds = pc.if_else(pa.array(is_there), numbers, None)
    return (*_lists(kept, np.zeros(kept.size, np.uint8), sizes, is_there), bounds, bounds)


def lack_number(values: pa.Array) -> Bools:
    """Returns which values are bytes that are not a number as text, bool `(n_values,)`."""
    values = _without_empty(values)
    numbers = strict_cast(read_utf8(values), pa.float64())
    is_bad: Bools = np.asarray(values.is_valid()) & np.asarray(numbers.is_null())
    return is_bad


def _without_empty(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, values.type), values)


def sketches_in(images: pa.Array) -> Sketches:
    """Returns the sketches of images.

    Raises: SpecError for an image in another form.
    """
    items, levels, sizes = list[Floats](), list[Levels](), np.zeros(len(images), np.int64)
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(images)
    for n, image in enumerate(images.to_pylist()):
        if image is None:
            continue
        version, family, flags, width = image[1], image[2], image[3], struct.unpack_from("<H", image, 4)[0]
        if family != _FAMILY or width != _K or version not in (_SERIAL_VERSION, _OF_ONE):
            raise SpecError(
                f"a sketch of quantiles in the table has family {family}, serial version {version} and k {width}",
                remedy="let no other writer change the table's sketches, or create the table again from its topic",
            )
        if flags & _EMPTY_FLAG:
            continue
        if flags & _ONE_FLAG:
            values, of_values = np.frombuffer(image, "<f8", 1, 8), np.zeros(1, np.uint8)
            bounds[n] = float(values[0]), float(values[0])
        else:
            _, _, count = _REST.unpack_from(image, 8)
            ends = np.r_[np.frombuffer(image, "<i4", count, 20), _TOTALS[count]]
            begin = 20 + 4 * count
            bounds[n] = struct.unpack_from("<dd", image, begin)
            values = np.frombuffer(image, "<f8", int(ends[-1] - ends[0]), begin + 16)
            of_values = np.repeat(np.arange(count), np.diff(ends)).astype(np.uint8)
        items.append(values)
        levels.append(of_values)
        sizes[n] = values.size
    every = np.concatenate(items) if items else np.zeros(0)
    of_every = np.concatenate(levels) if levels else np.zeros(0, np.uint8)
    least, most = (pa.array([pair[side] for pair in bounds], pa.float64()) for side in (0, 1))
    return (*_lists(every, of_every, sizes, np.asarray(images.is_valid())), least, most)


def united(
    items: pa.Array, levels: pa.Array, least: pa.Array, most: pa.Array, codes: Ints, counted: Bools, count: int
) -> Sketches:
    """Returns the union of the sketches of each group; null for a group without one. codes: the group of each sketch.
    counted: which sketches count.
    """
    rows = np.flatnonzero(counted & np.asarray(items.is_valid()))
    at, groups = pa.array(rows), codes[rows]
    values, ranks = (np.asarray(lists.take(at).flatten()) for lists in (items, levels))
    owners = np.repeat(groups, np.asarray(items.take(at).value_lengths()).astype(np.int64))
    order = np.lexsort((values, ranks, owners))
    values, ranks = values[order], ranks[order]
    sizes = np.bincount(owners, minlength=count).astype(np.int64)
    begins = np.cumsum(sizes) - sizes
    # Sketches with too many values are shortened in their place, and `sizes` is changed.
    _compact(values, ranks, begins, sizes, _CAPACITIES, _TOTALS)
    places = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    has_sketch = np.zeros(count, np.bool_)
    has_sketch[groups] = True
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, groups, np.asarray(least.take(at).fill_null(np.inf)))
    np.maximum.at(high, groups, np.asarray(most.take(at).fill_null(-np.inf)))
    lowest, highest = (pa.array(bound, mask=sizes == 0) for bound in (low, high))
    return (*_lists(values[places], ranks[places], sizes, has_sketch), lowest, highest)


def images_of(items: pa.Array, levels: pa.Array, least: pa.Array, most: pa.Array) -> pa.Array:
    """Returns the images of sketches; null for null."""
    values, ranks, offsets = np.asarray(items.values), np.asarray(levels.values), np.asarray(items.offsets)
    is_there, images = np.asarray(items.is_valid()), list[bytes | None]()
    for n, (low, high) in enumerate(zip(least.to_pylist(), most.to_pylist(), strict=True)):
        kept, of_kept = (array[offsets[n] : offsets[n + 1]] for array in (values, ranks))
        if not is_there[n]:
            images.append(None)
        elif not kept.size:
            images.append(_HEAD.pack(_SHORT_LONGS, _SERIAL_VERSION, _FAMILY, _EMPTY_FLAG, _K, _M))
        elif kept.size == 1 and not of_kept[0]:
            head = _HEAD.pack(_SHORT_LONGS, _OF_ONE, _FAMILY, _ONE_FLAG, _K, _M)
            images.append(head + kept.astype("<f8").tobytes())
        else:
            images.append(_image_of(kept, of_kept, low, high))
    return pa.array(images, pa.binary())


def _image_of(values: Floats, ranks: Levels, low: float, high: float) -> bytes:
    """Returns the image of a sketch with several values, in the order of their levels."""
    count = int(ranks.max()) + 1
    sizes = np.bincount(ranks, minlength=count)
    begins = _TOTALS[count] - values.size + np.cumsum(sizes) - sizes
    total = int((sizes << np.arange(count)).sum())
    head = _HEAD.pack(_FULL_LONGS, _SERIAL_VERSION, _FAMILY, _IN_ORDER, _K, _M)
    bounds = struct.pack("<dd", low, high)
    levels = _REST.pack(total, _K, count) + begins.astype("<i4").tobytes()
    image: bytes = head + levels + bounds + values.astype("<f8").tobytes()
    return image


def _lists(values: Floats, levels: Levels, sizes: Ints, is_there: Bools) -> tuple[pa.Array, pa.Array]:
    offsets = pa.array(np.r_[0, np.cumsum(sizes)].astype(np.int32))
    mask = None if is_there.all() else pa.array(~is_there)
    arrays = pa.array(values, pa.float64()), pa.array(levels, pa.uint8())
    lists = [pa.ListArray.from_arrays(offsets, array, mask=mask) for array in arrays]
    return lists[0], lists[1]


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _compact(values: Floats, levels: Levels, begins: Ints, sizes: Ints, capacities: Ints, totals: Ints) -> None:
    for n in range(sizes.size):
        if sizes[n] == 0:
            continue
        first, end = begins[n], begins[n] + sizes[n]
        top = int(levels[end - 1]) + 1
        while end - first > totals[top]:
            begin, level = first, 0
            while True:  # The first level that is too long; one is, because all of them are.
                behind = begin
                while behind < end and levels[behind] == level:
                    behind += 1
                if behind - begin > capacities[top, level]:
                    break
                begin, level = behind, level + 1
            weight = np.uint64(0)
            for i in range(first, end):
                weight += np.uint64(1) << np.uint64(levels[i])
            half = (behind - begin) // 2
            start = begin + (behind - begin) % 2
            start_at = start + int(spread(weight * np.uint64(64) + np.uint64(level)) & np.uint64(1))
            for i in range(half):
                values[start + i] = values[start_at + 2 * i]
            next_end = behind
            while next_end < end and levels[next_end] == level + 1:
                next_end += 1
            kept = start + half
            for i in range(behind, end):
                values[i - half], levels[i - half] = values[i], levels[i]
            levels[start:kept] = level + 1
            values[start : next_end - half] = np.sort(values[start : next_end - half])
            end -= half
            top = max(top, level + 2)
        sizes[n] = end - first
