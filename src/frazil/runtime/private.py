"""What this process leaves to others: files for this user alone, and memory that it returns.

Files and folders contain records or credentials of services.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

_OWN = ("frazil-data", "state", "frazil-demo", "broker")
"""Names of the folders that Frazil creates and whose rights it may remove."""


def make_private_directory(path: Path) -> None:
    """Creates a folder with the mode 0700, and its parents; an existing folder of Frazil's own gets that mode.

    Raises: OSError where it cannot be created.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not missing and path.name in _OWN:
        _tighten(path, 0o700)


def make_private_file(path: Path) -> None:
    """Creates an empty file with the mode 0600; an existing file gets that mode.

    Raises: OSError where that is impossible.
    """
    path.touch(mode=0o600)
    _tighten(path, 0o600)


def _tighten(path: Path, mode: int) -> None:
    """Removes rights of other users and adds none. Another user's file stays unchanged."""
    with suppress(OSError):
        rights = path.stat().st_mode & 0o777
        if rights & ~mode:
            path.chmod(rights & mode)


def release_memory() -> None:
    """Returns to the system what Arrow and the C library keep of freed memory. Tasks, Spark and the driver work on a
    batch in turn: memory that one of them kept would add to what the next one needs.
    """
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Other C libraries than glibc have none.
        if trim is not None:
            trim(0)
