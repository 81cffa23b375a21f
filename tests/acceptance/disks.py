"""Disks without room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_SIZE = "96m"


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mounts one at `folder`, in memory; False when that is not permitted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "frazil-test", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # A reader of it may not be closed yet.


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No byte of room on the disk of `folder`."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            block = b"\0" * 65536
            while block:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]
        yield
    finally:
        filler.unlink()
