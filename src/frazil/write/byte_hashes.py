"""A hash of bytes that takes 64 of them at a time, in the vectors of the processor: half a clock for each 8 bytes.

Each word of 8 bytes is added to a product of its halves, which a key hides that differs from word to word (the hash NH of
UMAC, RFC 4418, section 5.2, as XXH3 has it). Whoever knows the keys can make bytes with equal hashes; accidents do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from frazil.raw_memory import COMPILED, load8, load64

STRIPE = 64
SHORT = 16
"""Bytes that two words have."""
_WORD = ir.IntType(64)
_VECTOR, _ENDS = ir.VectorType(_WORD, 8), ir.VectorType(_WORD, 4)
_PLACE = ir.IntType(32)
_KEYS = (
    0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3,
    0x1D8E4E27C47D124F, 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB,
)  # fmt: skip
KEYS = tuple(np.uint64(key) for key in _KEYS)
_HALF, _THIRD = np.uint64(32), np.uint64(17)
FIRST_MASKS = np.array([2 ** (8 * min(size, 8)) - 1 for size in range(SHORT + 1)], np.uint64)
SECOND_MASKS = np.array([2 ** (8 * max(size - 8, 0)) - 1 for size in range(SHORT + 1)], np.uint64)
"""Of the words at a value's first and ninth byte, the bits that are its own, by its size."""


def _constant(words: Any) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_WORD, word % 2**64) for word in words])


def _keyed(builder: Any, seed: Any) -> Any:
    """Returns the keys of eight words."""
    nothing, zeros = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(_PLACE, 8), [0] * 8)
    spread = builder.insert_element(nothing, seed, ir.Constant(_PLACE, 0))
    return builder.xor(builder.shuffle_vector(spread, nothing, zeros), _constant(_KEYS))


def _added(builder: Any, words: Any, keys: Any) -> Any:
    """Returns eight words, each added to the product of its halves."""
    hidden = builder.xor(words, keys)
    halves = builder.and_(hidden, _constant([2**32 - 1] * 8)), builder.lshr(hidden, _constant([32] * 8))
    return builder.add(builder.mul(*halves), words)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _sum(builder: Any, sums: Any) -> Any:
    sum_of = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [_VECTOR]), "llvm.vector.reduce.add.v8i64"
    )
    return builder.call(sum_of, [sums])


@intrinsic  # type: ignore[untyped-decorator]
def _hash_ends(typingctx: Any, start: Any, end: Any, seed: Any) -> Any:
    """Returns the hash of 32 to 64 bytes: of the first 32 and the last 32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _load(builder, args[0], _ENDS)
        last = _load(builder, builder.sub(args[1], ir.Constant(_WORD, STRIPE // 2)), _ENDS)
        both = builder.shuffle_vector(first, last, ir.Constant(ir.VectorType(_PLACE, 8), list(range(8))))
        return _sum(builder, _added(builder, both, _keyed(builder, args[2])))

    return types.uint64(types.int64, types.int64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _hash_stripes(typingctx: Any, start: Any, end: Any, seed: Any) -> Any:
    """Returns the hash of 64 bytes or more. The last 64 are taken together, whatever was taken before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, end, seed = args
        last = builder.sub(end, ir.Constant(_WORD, STRIPE))
        first_keys, entry = _keyed(builder, seed), builder.block
        head, body, done = (builder.append_basic_block(name) for name in ("stripes", "stripe", "last"))
        builder.branch(head)
        builder.position_at_end(head)
        address, keys, sums = builder.phi(_WORD), builder.phi(_VECTOR), builder.phi(_VECTOR)
        builder.cbranch(builder.icmp_signed("<", address, last), body, done)
        builder.position_at_end(body)
        more = builder.add(sums, _added(builder, _load(builder, address, _VECTOR), keys))
        next_keys = builder.add(keys, _constant([key * _KEYS[5] | 1 for key in _KEYS]))
        next_address = builder.add(address, ir.Constant(_WORD, STRIPE))
        builder.branch(head)
        begins = (start, next_address), (first_keys, next_keys), (_constant([0] * 8), more)
        for value, (begin, following) in zip((address, keys, sums), begins, strict=True):
            value.add_incoming(begin, entry)
            value.add_incoming(following, body)
        builder.position_at_end(done)
        return _sum(builder, builder.add(sums, _added(builder, _load(builder, last, _VECTOR), keys)))

    return types.uint64(types.int64, types.int64, types.uint64), codegen


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def mixed(word: np.uint64, seed: np.uint64, factor: np.uint64) -> np.uint64:
    """Returns a word for each one, another for another. factor: an odd number.

    With two shifts, few bits that differ leave no difference in the highest bit alone. No factor has an effect on that, and
    it would cancel the difference of another column.
    """
    word ^= seed
    return (word ^ (word >> _THIRD) ^ (word >> _HALF)) * factor


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def factor_of(seed: np.uint64, number: int) -> np.uint64:
    """Returns one of eight odd numbers."""
    return (seed ^ KEYS[number]) | np.uint64(1)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_middle(start: int, end: int, seed: np.uint64) -> np.uint64:
    """Returns the hash of 32 bytes or more, and less than 64."""
    words: np.uint64 = _hash_ends(start, end, seed)
    words += np.uint64(end - start) * factor_of(seed, 1)
    return words


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_bytes(start: int, end: int, limit: int, seed: np.uint64) -> np.uint64:
    """Returns a hash of the bytes from one address to another. limit: the address from which on nothing may be read."""
    size = end - start
    words: np.uint64
    if size >= STRIPE:
        words = _hash_stripes(start, end, seed)
    elif size >= STRIPE // 2:
        words = _hash_ends(start, end, seed)
    elif size > SHORT:
        words = mixed(load64(start), seed, factor_of(seed, 4)) + mixed(load64(start + 8), seed, factor_of(seed, 2))
        words += mixed(load64(end - 16), seed, factor_of(seed, 5)) + mixed(load64(end - 8), seed, factor_of(seed, 6))
    else:
        first, second = np.uint64(0), np.uint64(0)
        if start + SHORT <= limit:
            first, second = load64(start) & FIRST_MASKS[size], load64(start + 8) & SECOND_MASKS[size]
        else:
            for n in range(size):
                byte = np.uint64(load8(start + n)) << np.uint64(8 * (n & 7))
                first, second = (first | byte, second) if n < 8 else (first, second | byte)
        words = mixed(first, seed, factor_of(seed, 4)) + mixed(second, seed, factor_of(seed, 2))
    words += np.uint64(size) * factor_of(seed, 1)
    return words
