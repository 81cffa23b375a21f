"""Returns freed memory of this process to the system."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa


def release_memory() -> None:
    """Returns to the system what Arrow and the C library keep of freed memory. Tasks, Spark and the driver work on a
    batch in turn: memory that one of them kept would add to what the next one needs.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Other C libraries than glibc have none.
        if trim is not None:
            trim(0)
