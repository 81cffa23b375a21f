"""The C library's heap in a Python worker."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_IN_HEAP = 32 * 1024 * 1024  # The most that glibc accepts.
_KEPT = 64 * 1024 * 1024


def keep_freed_memory() -> None:
    """Arrays of some megabytes, which every batch of records makes and frees, stay in the process: else each of them is new
    memory from the system, which clears every page of it. At most 64 MiB are kept; other C libraries than glibc stay as
    they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
