"""Memory that is free in this process, and another one needs next."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa


def release_memory() -> None:
    """Gives the system what Arrow and the C library keep of freed memory. Tasks, Spark and the driver have their turns at a
    batch: what one of them kept would lie beside what the next one takes.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Other C libraries than glibc have none.
        if trim is not None:
            trim(0)
