"""The C library's heap in a Python worker."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_IN_HEAP = 32 * 1024 * 1024  # The most that glibc accepts.
_KEPT = 64 * 1024 * 1024


def keep_freed_memory() -> None:
    """Makes glibc keep freed arrays of some megabytes in the process, at most 64 MiB: every batch of records allocates
    and frees such arrays, and each would otherwise be new memory whose pages the system clears. Other C libraries are
    not changed.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
