"""XXH64 with seed 0 of many values at once: the hash of Parquet's Bloom filters.

Values of one length are hashed together. Source: the xxHash specification, XXH64 algorithm description.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of

Words = NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_STARTS = tuple(np.uint64(start % 2**64) for start in (int(_P1) + int(_P2), int(_P2), 0, -int(_P1)))
_TURNS = (1, 7, 12, 18)
_STRIPE, _WORD = 32, 8
_AT_ONCE = 16_384
"""How many values are hashed at a time: places of their bytes take eight times as much as the bytes."""


def hash_values(values: pa.Array) -> Words:
    """Returns the hash of each value, `(n_values,)`. values: binary, without nulls."""
    hashes = np.empty(len(values), np.uint64)
    for begin in range(0, len(values), _AT_ONCE):
        part = values[begin : begin + _AT_ONCE]
        raw, offsets = part.buffers()[2], offsets_of(part)
        base = np.frombuffer(raw, np.uint8) if raw else np.zeros(0, np.uint8)
        lengths = np.diff(offsets)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            places = offsets[rows].astype(np.int64)[:, None] + np.arange(length)
            hashes[begin + rows] = hash_rows(base[places])
    return hashes


def hash_rows(values: NDArray[np.uint8]) -> Words:
    """Returns the hash of each row of bytes, `(n_values,)`. values: `(n_values, length)`."""
    count, size = values.shape
    end = size // _WORD * _WORD
    words = np.ascontiguousarray(values[:, :end]).view("<u8").reshape(count, -1).astype(np.uint64)
    striped = size // _STRIPE * _STRIPE // _WORD
    hashes = np.full(count, _P5)
    if striped:
        states = [np.full(count, state) for state in _STARTS]
        for place in range(striped):
            states[place % 4] = _round(states[place % 4], words[:, place])
        hashes = np.sum(
            [_turned(state, turn) for state, turn in zip(states, _TURNS, strict=True)], axis=0, dtype=np.uint64
        )
        for state in states:
            hashes = (hashes ^ _round(np.zeros_like(state), state)) * _P1 + _P4
    hashes = hashes + np.uint64(size)
    for place in range(striped, words.shape[1]):
        mixed = _round(np.zeros(count, np.uint64), words[:, place])
        hashes = _turned(hashes ^ mixed, 27) * _P1 + _P4
    if size - end >= 4:
        half = np.ascontiguousarray(values[:, end : end + 4]).view("<u4").reshape(count).astype(np.uint64)
        hashes = _turned(hashes ^ (half * _P1), 23) * _P2 + _P3
        end += 4
    for place in range(end, size):
        hashes = _turned(hashes ^ (values[:, place].astype(np.uint64) * _P5), 11) * _P1
    for shift, factor in ((33, _P2), (29, _P3)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * factor
    return hashes ^ (hashes >> np.uint64(32))


def _round(state: Words, words: Words) -> Words:
    return _turned(state + words * _P2, 31) * _P1


def _turned(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
