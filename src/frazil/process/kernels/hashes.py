"""Hashes and encodings of bytes."""

from __future__ import annotations

import base64
import hashlib
import itertools
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.decode.columns import offsets_of
from frazil.process.kernels.sha256 import sha256
from frazil.process.kernels.values import Kernel
from frazil.process.program import Call

_SHA2 = {224: hashlib.sha224, 384: hashlib.sha384, 512: hashlib.sha512}
_LINE = 76
"""The length of a line of base64 in MIME (RFC 2045, section 6.8)."""


def _each(array: pa.Array, kind: pa.DataType, function: Callable[[Any], Any]) -> pa.Array:
    """Returns a function of each value's bytes; null for null."""
    raw = array.buffers()[2]
    view = raw.to_pybytes() if raw is not None else b""
    offsets = offsets_of(array).tolist()
    pairs = itertools.pairwise(offsets)
    if not array.null_count:
        return pa.array([function(view[start:end]) for start, end in pairs], kind)
    there = np.asarray(array.is_valid()).tolist()
    found = [function(view[a:b]) if is_there else None for (a, b), is_there in zip(pairs, there, strict=True)]
    return pa.array(found, kind)


def _digest(algorithm: Callable[..., Any]) -> Callable[..., pa.Array]:
    def run(_: Call, values: pa.Array, *__: Any) -> pa.Array:
        return _each(values, pa.string(), lambda value: algorithm(value).hexdigest())

    return run


def _sha2(call: Call, values: pa.Array, bits: pa.Scalar) -> pa.Array:
    if bits.as_py() in (0, 256):
        return sha256(values)
    algorithm = _SHA2.get(bits.as_py())
    return pa.nulls(len(values), pa.string()) if algorithm is None else _digest(algorithm)(call, values)


def _hex(_: Call, values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        found = [None if value is None else f"{value & (2**64 - 1):X}" for value in values.to_pylist()]
        return pa.array(found, pa.string())
    return _each(values, pa.string(), lambda value: value.hex().upper())


def _base64(_: Call, values: pa.Array) -> pa.Array:
    """Lines of 76 characters, as MIME has them."""

    def encoded(value: Any) -> str:
        text = base64.b64encode(value).decode()
        return "\r\n".join(text[n : n + _LINE] for n in range(0, len(text), _LINE)) if len(text) > _LINE else text

    return _each(values, pa.string(), encoded)


KERNELS = {
    "Md5": Kernel(("binary",), _digest(partial(hashlib.md5, usedforsecurity=False))),
    "Sha1": Kernel(("binary",), _digest(partial(hashlib.sha1, usedforsecurity=False))),
    "Sha2": Kernel(("binary, int!",), _sha2),
    "Crc32": Kernel(("binary",), lambda _, values: _each(values, pa.int64(), zlib.crc32)),
    "Hex": Kernel(("binary", "text", "long"), _hex),
    "Base64": Kernel(("binary",), _base64),
}
