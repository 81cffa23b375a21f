"""Equal texts found in place: compiled, as a message's schema is often longer than the message."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.json.slices import Slices
from frazil.decode.memory import COMPILED, load8, load64


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def mark_equal(
    base: int, start: NDArray[np.int32], end: NDArray[np.int32], like: int, code: int, codes: NDArray[np.int32]
) -> None:
    """Sets `code` for the texts without one (-1) that equal the one numbered `like`."""
    length = end[like] - start[like]
    first = base + start[like]
    for n in range(codes.size):
        if codes[n] != -1 or end[n] - start[n] != length:
            continue
        at, i = base + start[n], 0
        while i + 8 <= length and load64(at + i) == load64(first + i):
            i += 8
        if i + 8 > length:
            while i < length and load8(at + i) == load8(first + i):
                i += 1
        if i == length:
            codes[n] = code


def group_equal(base: int, texts: Slices) -> tuple[NDArray[np.int32], list[int]]:
    """Returns the number of the distinct text that each text is, int32 of shape (n_texts,), and the first occurrence of
    each distinct text.
    """
    codes = np.full(len(texts), -1, np.int32)
    firsts: list[int] = []
    place = 0
    while place < len(texts):
        mark_equal(base, texts.start, texts.end, place, len(firsts), codes)
        firsts.append(place)
        left = np.flatnonzero(codes[place:] == -1)
        place = place + int(left[0]) if left.size else len(texts)
    return codes, firsts
