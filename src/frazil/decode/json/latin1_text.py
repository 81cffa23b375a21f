"""Texts whose characters represent bytes (ISO 8859-1) to those bytes, a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_CONTINUES, _BEYOND = 0x80, 0xC4  # UTF-8: continuation bytes; first bytes of characters after U+00FF.


def read_latin1(texts: pa.StringArray) -> tuple[pa.BinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts have a character that represents no byte (null
    too): bool of shape (n_texts,).
    """
    rows = len(texts)
    texts = pa.concat_arrays([texts.cast(pa.string())])  # From the beginning of its buffer.
    there, bad = np.asarray(texts.is_valid()), np.zeros(rows, np.bool_)
    buffer = texts.buffers()[2]
    if not rows or buffer is None or not buffer.size:
        return texts.cast(pa.binary()), bad
    offsets = np.frombuffer(texts.buffers()[1], np.int32, rows + 1)
    raw_texts = np.frombuffer(buffer, np.uint8)[: offsets[-1]]
    sums = np.concatenate([[0], np.cumsum(raw_texts >= _BEYOND, dtype=np.int64)])
    bad = (sums[offsets[1:]] > sums[offsets[:-1]]) & there
    is_first = (raw_texts & 0xC0) != _CONTINUES
    following = np.append(raw_texts[1:], np.uint8(0))
    joined = ((raw_texts & 0x03) << 6) | (following & 0x3F)
    raw = np.where(raw_texts < _CONTINUES, raw_texts, joined)[is_first]
    places = np.concatenate([[0], np.cumsum(is_first, dtype=np.int32)])[offsets].astype(np.int32)
    nulls = pa.array(there & ~bad)
    found = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(places), pa.py_buffer(raw)])
    return (found if nulls.true_count == rows else found.take(pa.array(np.arange(rows), mask=~np.asarray(nulls)))), bad
