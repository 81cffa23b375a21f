"""Base64 texts to bytes (RFC 4648, section 4, with padding), a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_WRONG, _PAD = 255, 64
_SIX_BITS = np.full(256, _WRONG, np.uint8)
_SIX_BITS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
_SIX_BITS[ord("=")] = _PAD


def read_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts are no base64 (null too): bool of shape
    (n_texts,).
    """
    rows = len(texts)
    texts = pa.concat_arrays([texts.cast(pa.string())])  # From the beginning of its buffer.
    there = np.asarray(texts.is_valid())
    buffer = texts.buffers()[2]
    if not rows or buffer is None or not buffer.size:
        return pa.array([b"" if one else None for one in there.tolist()], pa.binary()), np.zeros(rows, np.bool_)
    offsets = np.frombuffer(texts.buffers()[1], np.int32, rows + 1)
    codes = _SIX_BITS[np.frombuffer(buffer, np.uint8)]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    bad = there & ((ends - starts) % 4 != 0)
    pads = _count(codes >= _PAD, starts, ends)
    last = [(ends - starts > back) & (codes[np.maximum(ends - 1 - back, 0)] == _PAD) for back in (0, 1)]
    at_end = last[0].astype(np.int64) + (last[0] & last[1])
    bad |= there & (pads != at_end)  # A character of another alphabet, or padding in the middle.
    good = there & ~bad
    lengths = np.where(good, ends - starts, 0)
    kept = codes if good.all() else codes[np.repeat(good, ends - starts)]
    out, out_offsets = _join(kept, lengths, np.where(good, at_end, 0))
    mask = pa.py_buffer(np.packbits(good, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [mask, pa.py_buffer(out_offsets), pa.py_buffer(out)]), bad


def _count(flags: NDArray[np.bool_], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return np.asarray(sums[ends] - sums[starts])


def _join(
    codes: NDArray[np.uint8], lengths: NDArray[np.int64], pads: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Returns three bytes for each four characters; the padded ones are left out."""
    quads = np.where(codes == _PAD, 0, codes).astype(np.uint32).reshape(-1, 4)
    word = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    out = np.stack([word >> 16, word >> 8, word], axis=1).astype(np.uint8).reshape(-1)
    ends = np.cumsum(lengths // 4 * 3)
    surplus = np.zeros(out.size, np.bool_)
    for back in (1, 2):
        surplus[ends[pads >= back] - back] = True
    sizes = lengths // 4 * 3 - pads
    return out[~surplus], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
