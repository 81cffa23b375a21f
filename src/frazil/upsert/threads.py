"""Several files at once: what waits for a store, or lets go of the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Some = TypeVar("Some")
Other = TypeVar("Other")


def in_threads(work: Callable[[Some], Other], members: Sequence[Some], most: int | None = None) -> Iterable[Other]:
    """What `work` says of each, in their order. most: threads at a time; else as many as there are cores."""
    if len(members) <= 1:
        return map(work, members)
    with ThreadPoolExecutor(min(most or os.cpu_count() or 1, len(members))) as pool:
        return list(pool.map(work, members))
