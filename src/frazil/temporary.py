"""Temporary folders that do not outlive their process: what a killed one leaves, a later one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frazil.clock import SystemClock

_NEW_S = 60.0
"""The age up to which a folder may belong to a process that has yet to lock it."""
NOEXEC_REMEDY = "set TMPDIR to a folder from which libraries may be loaded; for a container mount /tmp with exec"
"""What to do where a file system is mounted with noexec: Java unpacks native libraries into temporary files."""


@contextmanager
def temporary_folder(prefix: str, where: Path | None = None) -> Iterator[Path]:
    """Creates a temporary folder, which is removed after the block, or, where the process is killed, by the next one that
    creates a folder with this prefix there. where: the folder around it; None: the system's for temporary files.
    """
    _remove_abandoned(prefix, where or Path(tempfile.gettempdir()))
    # It is removed at the end of the process too, which does not wait for the block of a daemon thread.
    with tempfile.TemporaryDirectory(prefix=prefix, dir=where, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            with suppress(OSError):  # A file system without locks: then no process can remove it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_abandoned(prefix: str, where: Path) -> None:
    """Removes temporary folders of this user that no process has locked."""
    oldest_s = SystemClock().now_ms() / 1000 - _NEW_S
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and status.st_mtime < oldest_s:
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
