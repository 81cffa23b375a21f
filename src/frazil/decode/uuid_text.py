"""UUID texts to their 16 bytes and back, a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]
"""The positions of the digits in a text."""


def read_uuids(texts: pa.StringArray) -> tuple[pa.FixedSizeBinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts are no UUID in the form 8-4-4-4-12 (null too):
    bool of shape (n_texts,).
    """
    good = pc.fill_null(pc.match_substring_regex(texts, _UUID), False)
    found = np.asarray(good)
    digits = pa.concat_arrays([pc.replace_substring(texts.filter(good), "-", "")])  # From the beginning of its buffer.
    raw = bytes.fromhex(digits.buffers()[2].to_pybytes().decode("ascii")) if len(digits) else b""
    every = pa.Array.from_buffers(pa.binary(16), len(digits), [None, pa.py_buffer(raw)])
    return every.take(pa.array(np.cumsum(found) - 1, mask=~found)), np.asarray(texts.is_valid()) & ~found


def format_uuids(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Returns the texts of UUIDs, in lower case and the form 8-4-4-4-12; null where there is no UUID."""
    rows = len(array)
    there = np.asarray(array.is_valid())
    raw = pa.concat_arrays([array.drop_null()]).buffers()[1]  # From the beginning of its buffer.
    digits = np.frombuffer(raw.to_pybytes().hex().encode() if raw is not None else b"", np.uint8)
    out = np.full((digits.size // 32, 36), ord("-"), np.uint8)
    out[:, _DIGITS] = digits.reshape(-1, 32)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.where(there, 36, 0), out=offsets[1:])
    mask = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), rows, [mask, pa.py_buffer(offsets), pa.py_buffer(out.tobytes())])
