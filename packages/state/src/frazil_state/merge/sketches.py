"""Sketches of distinct values: theta sketches of Apache DataSketches, in the form that Spark 4.1 and Trino read.

A sketch keeps the smallest hashes of its values, at most `_MOST` of them, and the bound below which it has all of them. The
union of two is a sketch again, and values that are repeated change nothing. Values are bytes: those of a text are hashed as
Spark's `theta_sketch_agg` hashes a string. In the table a sketch is the compact, ordered image of serial version 3
(datasketches-java, `theta/PreambleUtil`), because Trino's library does not read the compressed images that Spark writes.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of
from frazil.errors import SpecError
from frazil.raw_memory import COMPILED, load8, load64
from frazil.schema.arrow import Bools, Ints

SKETCH, ESTIMATE = "distinct_sketch", "distinct"
"""The function of a column of sketches, and of a column whose values are the estimates of the sketches in another one."""
SUFFIX = "_sketch"
"""What the name of the column of sketches has behind that of its estimates."""
_MOST = 4096
_ALL = np.uint64(2**63 - 1)
"""The bound of a sketch that has all of its values."""
_SEED, _SEED_HASH = np.uint64(9001), 0x93CC
_SERIAL_VERSION, _COMPACT_FAMILY = 3, 3
_EMPTY_FLAG, _FLAGS = 4, 2 | 8 | 16  # Read only, compact, ordered.
_HEAD = struct.Struct("<BBBBBBHIf")
Hashes = NDArray[np.uint64]


def sketches_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns a sketch of each value, as lists of hashes in order and bounds; null for null and for empty bytes."""
    values = pa.concat_arrays([values])
    hashes = np.zeros(len(values), np.uint64)
    raw = values.buffers()[2]
    if len(values) and raw is not None:
        _hash_all(offsets_of(values), raw.address, hashes)
    is_there = hashes != 0
    if values.null_count:
        is_there &= np.asarray(values.is_valid())
    return _lists(hashes[is_there], is_there.astype(np.int64), is_there), pa.array(np.full(len(values), _ALL))


def sketches_in(images: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the sketches of images.

    Raises: SpecError for an image in another form.
    """
    hashes, sizes, bounds = list[Hashes](), np.zeros(len(images), np.int64), np.full(len(images), _ALL)
    for n, image in enumerate(images.to_pylist()):
        if image is None or image[5] & _EMPTY_FLAG:
            continue
        longs = image[0] & 0x3F
        if image[1] != _SERIAL_VERSION or image[2] != _COMPACT_FAMILY or longs not in (2, 3):
            raise SpecError(
                f"a sketch in the table has serial version {image[1]}, and not {_SERIAL_VERSION}",
                remedy="let no other writer change the table's sketches, or create the table again from its topic",
            )
        sizes[n] = struct.unpack_from("<I", image, 8)[0]
        bounds[n] = struct.unpack_from("<Q", image, 16)[0] if longs == 3 else _ALL
        hashes.append(np.frombuffer(image, "<u8", int(sizes[n]), 8 * longs))
    every = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    return _lists(every, sizes, np.asarray(images.is_valid())), pa.array(bounds)


def united(lists: pa.Array, bounds: pa.Array, codes: Ints, counted: Bools, count: int) -> tuple[pa.Array, pa.Array]:
    """Returns the union of the sketches of each group; null for a group without one. codes: the group of each sketch.
    counted: which sketches count.
    """
    rows = np.flatnonzero(counted & np.asarray(lists.is_valid()))
    least = np.full(count, _ALL)
    np.minimum.at(least, codes[rows], np.asarray(bounds)[rows])
    taken = lists.take(pa.array(rows))
    hashes = np.asarray(taken.flatten())
    owners = np.repeat(codes[rows], np.asarray(taken.value_lengths()).astype(np.int64))
    is_below = hashes < least[owners]
    hashes, owners = hashes[is_below], owners[is_below]
    order = np.lexsort((hashes, owners))
    hashes, owners = hashes[order], owners[order]
    is_new = np.ones(hashes.size, np.bool_)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    hashes, owners = hashes[is_new], owners[is_new]
    sizes = np.bincount(owners, minlength=count)
    begins = np.cumsum(sizes) - sizes
    ranks = np.arange(owners.size) - begins[owners]
    full = np.flatnonzero(sizes > _MOST)
    least[full] = hashes[begins[full] + _MOST]
    has_sketch = np.zeros(count, np.bool_)
    has_sketch[codes[rows]] = True
    return _lists(hashes[ranks < _MOST], np.minimum(sizes, _MOST), has_sketch), pa.array(least)


def images_of(lists: pa.Array, bounds: pa.Array) -> pa.Array:
    """Returns the images of sketches; null for null."""
    hashes, offsets, images = np.asarray(lists.values), np.asarray(lists.offsets), list[bytes | None]()
    is_there, least = np.asarray(lists.is_valid()), np.asarray(bounds)
    for n in range(len(lists)):
        kept = hashes[offsets[n] : offsets[n + 1]]
        if not is_there[n]:
            images.append(None)
            continue
        longs = 2 if least[n] == _ALL else 3
        head = _HEAD.pack(longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, _FLAGS, _SEED_HASH, kept.size, 1.0)
        bound = struct.pack("<Q", least[n]) if longs == 3 else b""
        images.append(head + bound + kept.astype("<u8").tobytes())
    return pa.array(images, pa.binary())


def estimates_of(lists: pa.Array, bounds: pa.Array) -> pa.Array:
    """Returns the estimated numbers of distinct values, int64; 0 for null."""
    sizes = np.asarray(lists.value_lengths().fill_null(0)).astype(np.float64)
    shares = np.asarray(bounds).astype(np.float64) / 2.0**63
    return pa.array(np.rint(sizes / shares).astype(np.int64))


def _lists(hashes: Hashes, sizes: Ints, is_there: Bools) -> pa.Array:
    offsets = pa.array(np.r_[0, np.cumsum(sizes)].astype(np.int32))
    mask = None if is_there.all() else pa.array(~is_there)
    return pa.ListArray.from_arrays(offsets, pa.array(hashes, pa.uint64()), mask=mask)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _rotated(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def spread(value: np.uint64) -> np.uint64:
    """Returns a number whose bits each depend on all bits of the value: the end of MurmurHash3_x64_128."""
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _first(value: np.uint64) -> np.uint64:
    mixed: np.uint64 = _rotated(value * np.uint64(0x87C37B91114253D5), 31) * np.uint64(0x4CF5AD432745937F)
    return mixed


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _second(value: np.uint64) -> np.uint64:
    mixed: np.uint64 = _rotated(value * np.uint64(0x4CF5AD432745937F), 33) * np.uint64(0x87C37B91114253D5)
    return mixed


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _tail(i: int, end: int) -> np.uint64:
    """Returns up to eight bytes, the first one lowest."""
    value = np.uint64(0)
    for n in range(min(end - i, 8)):
        value |= np.uint64(load8(i + n)) << np.uint64(8 * n)
    return value


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash_all(offsets: NDArray[np.int32], start: int, hashes: Hashes) -> None:
    """Writes the hash of each value that is not empty: the upper 63 bits of the first half of MurmurHash3_x64_128."""
    for n in range(hashes.size):
        i, end = start + offsets[n], start + offsets[n + 1]
        size = np.uint64(end - i)
        if size == 0:
            continue
        a, b = _SEED, _SEED
        while i + 16 <= end:
            a = (_rotated(a ^ _first(load64(i)), 27) + b) * np.uint64(5) + np.uint64(0x52DCE729)
            b = (_rotated(b ^ _second(load64(i + 8)), 31) + a) * np.uint64(5) + np.uint64(0x38495AB5)
            i += 16
        if i + 8 < end:
            b ^= _second(_tail(i + 8, end))
        if i < end:
            a ^= _first(_tail(i, end))
        a ^= size
        b ^= size
        a += b
        b += a
        a = spread(a)
        b = spread(b)
        hashes[n] = (a + b) >> np.uint64(1)
