"""Files and folders that are for this user alone: they hold what records say, or how services are reached."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Makes a folder with the mode 0700, those above it as well; one that is there and is Frazil's own gets that mode.

    Raises OSError where it cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not missing and path.name in _OWN:
        _tighten(path, 0o700)


def make_private_file(path: Path) -> None:
    """Makes an empty file with the mode 0600, unless it is there: then it gets that mode. Raises OSError."""
    path.touch(mode=0o600)
    _tighten(path, 0o600)


def _tighten(path: Path, mode: int) -> None:
    """Takes rights away from others; adds none. A file of another user stays as it is."""
    with suppress(OSError):
        found = path.stat().st_mode & 0o777
        if found & ~mode:
            path.chmod(found & mode)


_OWN = ("frazil-data", "state", "frazil-demo", "broker")
"""Names of the folders that Frazil makes, whose rights it may take away."""
