"""Hashes of bytes.

SHA-256 of every value of a column, in hexadecimal digits (FIPS 180-4, sections 5.1.1, 5.3.3 and 6.2.2), is a compiled loop:
`hashlib` takes 0.75 microseconds for a short value, most of it for Python's objects; the loop takes less than half.
"""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of
from frazil.queries.kernels.values import Kernel
from frazil.queries.program import Call
from frazil.raw_memory import COMPILED, I32, U8, is_on_disk, load8

U32 = NDArray[np.uint32]
_DIGITS = 64
_BLOCK = 64
"""The number of bytes that are mixed at a time."""
_LONG = 128
"""From this mean length on `hashlib` is faster, which uses the processor's own instructions."""


def _first_bits(root: int, count: int) -> U32:
    """Returns the first 32 bits of the fractional parts of the square (2) or cube (3) roots of the first primes."""
    primes = [n for n in range(2, 312) if all(n % p for p in range(2, int(n**0.5) + 1))][:count]
    return np.array([_floor_root(n << (32 * root), root) & 0xFFFFFFFF for n in primes], np.uint32)


def _floor_root(number: int, root: int) -> int:
    low, high = 0, 1 << (number.bit_length() // root + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= number else (low, middle)
    return low


_INITIAL, _ROUNDS = _first_bits(2, 8), _first_bits(3, 64)


def sha256(values: pa.Array) -> pa.Array:
    """Returns the digest of each value, as text of 64 digits; null for null. values: binary or string."""
    offsets, raw = offsets_of(values), values.buffers()[2]
    if len(values) == 0 or raw is None or (offsets[-1] - offsets[0]) > _LONG * len(values):
        digests = [
            None if value is None else hashlib.sha256(value).hexdigest() for value in values.cast("binary").to_pylist()
        ]
        return pa.array(digests, pa.string())
    digits = np.empty(_DIGITS * len(values), np.uint8)
    _digest_all(raw.address, offsets, _INITIAL, _ROUNDS, digits)
    ends = np.arange(len(values) + 1, dtype=np.int32) * np.int32(_DIGITS)
    texts = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
    return pc.if_else(values.is_valid(), texts, None) if values.null_count else texts


@njit(inline="always")  # type: ignore[untyped-decorator]
def _turned(x: np.uint32, bits: int) -> np.uint32:
    return np.uint32((x >> np.uint32(bits)) | np.uint32(x << np.uint32(32 - bits)))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _mix(state: U32, words: U32, rounds: U32) -> None:
    """Mixes a block into the state. words: the 16 words of the block, and room for 48 that are made of them."""
    for i in range(16, 64):
        x, y = words[i - 15], words[i - 2]
        s0 = _turned(x, 7) ^ _turned(x, 18) ^ (x >> np.uint32(3))
        s1 = _turned(y, 17) ^ _turned(y, 19) ^ (y >> np.uint32(10))
        words[i] = np.uint32(words[i - 16] + s0 + words[i - 7] + s1)
    a, b, c, d, e, f, g, h = state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
    for i in range(64):
        chosen = (e & f) ^ (~e & g)
        t1 = np.uint32(h + (_turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)) + chosen + rounds[i] + words[i])
        t2 = np.uint32((_turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f, e = g, f, e, np.uint32(d + t1)
        d, c, b, a = c, b, a, np.uint32(t1 + t2)
    mixed = (a, b, c, d, e, f, g, h)
    for i in range(8):
        state[i] = np.uint32(state[i] + mixed[i])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _load_block(words: U32, start: int, size: int, block: int) -> None:
    """Writes the words of a block of a value: its bytes, then a bit, zeros, and in the last block the length in bits."""
    for i in range(16):
        word = np.uint32(0)
        for place in range(block * _BLOCK + 4 * i, block * _BLOCK + 4 * i + 4):
            byte = np.uint32(0)
            if place < size:
                byte = np.uint32(load8(start + place))
            elif place == size:
                byte = np.uint32(0x80)
            word = np.uint32(np.uint32(word << np.uint32(8)) | byte)
        words[i] = word
    if size + 9 <= (block + 1) * _BLOCK:
        words[14], words[15] = np.uint32(size >> 29), np.uint32((size << 3) & 0xFFFFFFFF)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _digest_all(raw: int, offsets: I32, initial: U32, rounds: U32, digits: U8) -> None:
    words, state = np.empty(64, np.uint32), np.empty(8, np.uint32)
    for row in range(offsets.size - 1):
        start, size = raw + np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
        state[:] = initial
        for block in range((size + 9 + _BLOCK - 1) // _BLOCK):
            _load_block(words, start, size, block)
            _mix(state, words, rounds)
        for i in range(_DIGITS):
            digit = (state[i >> 3] >> np.uint32(28 - 4 * (i & 7))) & np.uint32(15)
            digits[row * _DIGITS + i] = np.uint8(digit + 48) if digit < 10 else np.uint8(digit + 87)


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled loops, for a process that others are forked from; compiles them only with `compiles_all`."""
    if compiles_all or is_on_disk(_digest_all):
        sha256(pa.array([b"a"]))


def _md5(_: Call, values: pa.Array) -> pa.Array:
    digest = partial(hashlib.md5, usedforsecurity=False)
    texts = [None if value is None else digest(value).hexdigest() for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _has_256_bits(call: Call) -> str:
    return "" if getattr(call.arguments[1], "value", None) in (0, 256) else "it is not SHA-256"


KERNELS = {
    "Md5": Kernel(("binary",), _md5),
    "Sha2": Kernel(("binary, int!",), lambda _, values, __: sha256(values), objection=_has_256_bits),
}
