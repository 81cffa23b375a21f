"""Files and folders for this user alone, and temporary folders that do not outlive the processes that use them.

They contain records or credentials of services. What a killed process leaves, a later one removes. Memory that this process
has freed is returned to others here too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frazil.clock import SystemClock

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
    import pyarrow as pa  # noqa: PLC0415  (the JVM starts before most imports)

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Other C libraries than glibc have none.
        if trim is not None:
            trim(0)


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
    with tempfile.TemporaryDirectory(prefix=prefix, dir=where, ignore_cleanup_errors=True) as name, _used(Path(name)):
        yield Path(name)


@contextmanager
def handed_on_folder(prefix: str) -> Iterator[Path]:
    """Creates a temporary folder for files that another process of this user takes (`taken_folder`), which removes it. After
    the block it is removed here where it is empty, and where no process takes it, by the next one that creates a folder
    with this prefix.
    """
    _remove_abandoned(prefix, Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with _used(folder):
            yield folder
    finally:
        with suppress(OSError):  # It has files, or the other process has removed it.
            folder.rmdir()


@contextmanager
def taken_folder(folder: Path) -> Iterator[None]:
    """Removes a folder that another process has handed on, after the block."""
    try:
        with _used(folder):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _used(folder: Path) -> Iterator[None]:
    """Keeps other processes from removing a folder in the block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # A file system without locks: then no process can remove it.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(prefix: str, where: Path) -> None:
    """Removes temporary folders of this user that no process has locked."""
    oldest_s = SystemClock().now_ms() / 1000 - _NEW_S
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and status.st_mtime < oldest_s:
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(descriptor)
