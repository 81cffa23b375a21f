"""UUID texts to their 16 bytes, a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def read_uuids(texts: pa.StringArray) -> tuple[pa.FixedSizeBinaryArray, NDArray[np.bool_]]:
    """The bytes, null where there is no text, and which texts are no UUID in the form 8-4-4-4-12 (null too)."""
    good = pc.fill_null(pc.match_substring_regex(texts, _UUID), False)
    found = np.asarray(good)
    digits = pa.concat_arrays([pc.replace_substring(texts.filter(good), "-", "")])  # From its buffer's beginning.
    raw = bytes.fromhex(digits.buffers()[2].to_pybytes().decode("ascii")) if len(digits) else b""
    every = pa.Array.from_buffers(pa.binary(16), len(digits), [None, pa.py_buffer(raw)])
    return every.take(pa.array(np.cumsum(found) - 1, mask=~found)), np.asarray(texts.is_valid()) & ~found
