"""Raw loads and copies for the compiled loops, and the check of UTF-8.

Positions are addresses (int64), so that a call between loops passes no array: numba counts references to arrays with
atomic instructions at each such call, which cost more than the scanning (1.4 against 0.3 s per million records of 193
bytes). The caller keeps the buffer alive and stays inside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
COMPILED = {"cache": True, "nogil": True, "error_model": "numpy"}
"""The options of every loop: compiled once, cached on disk, without the interpreter's lock, and without checks of
division.
"""

_I64 = ir.IntType(64)


def is_on_disk(function: Any) -> bool:
    """Whether a compiled function is cached on disk."""
    name = f"{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__name__}-*.nbi"
    return any(Path(function.stats.cache_path).glob(name))


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load8(typingctx: Any, address: Any) -> Any:
    """Returns the byte at `address`, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], 8), align=1), _I64)

    return types.int64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def load64(typingctx: Any, address: Any) -> Any:
    """Returns the eight bytes from `address` on, as uint64, the first one lowest (the machine is little-endian)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 64), align=1)

    return types.uint64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store8(typingctx: Any, address: Any, value: Any) -> Any:
    """Writes the low byte of `value`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[1], ir.IntType(8)), _pointer(builder, args[0], 8), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store64(typingctx: Any, address: Any, value: Any) -> Any:
    """Writes eight bytes from `address` on, the lowest one first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], 64), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copies `count` bytes; source and target do not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.raw_memcpy(
            builder, _pointer(builder, args[0], 8), _pointer(builder, args[1], 8), args[2], itemsize=1, align=1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Returns the number of zero bits below the lowest set bit of a word other than 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def high64(typingctx: Any, word: Any, other: Any) -> Any:
    """Returns the high half of the product of two words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), codegen


_HIGHS = np.uint64(0x8080808080808080)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def is_utf8(i: int, end: int) -> bool:
    """Whether the bytes are UTF-8 (RFC 3629, section 4): the shortest form, no surrogates, nothing above U+10FFFF."""
    last = end - 8
    whole = i <= last
    while i < end:
        if i <= last:
            if load64(i) & _HIGHS == 0:
                i += 8
                continue
        elif whole and load64(last) & _HIGHS == 0:  # The last eight bytes, some of which were checked already.
            return True
        c = load8(i)
        if c < 0x80:
            i += 1
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if i + more >= end:
            return False
        least = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
        most = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
        if load8(i + 1) < least or load8(i + 1) > most:
            return False
        for n in range(2, more + 1):
            if load8(i + n) & 0xC0 != 0x80:
                return False
        i += more + 1
    return True
