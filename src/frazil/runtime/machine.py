"""What this machine has and lacks for Frazil: one check each, with a remedy where one fails. Changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from frazil.errors import UnavailableError
from frazil.files import NOEXEC_REMEDY
from frazil.runtime.gateway import raise_file_limit
from frazil.runtime.jars import USES, Use, are_jars_present, cache_directory
from frazil.runtime.java import find_java
from frazil.zones import regions

MINIMUM_PYTHON = (3, 11)
MINIMUM_MEMORY_BYTES = 3 * 1024**3
MINIMUM_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    #: What was checked.
    name: str
    #: Whether it is in order.
    is_ok: bool
    #: The result.
    result: str
    #: What to do; empty where it is in order.
    remedy: str = ""


def checks() -> list[Check]:
    """Returns every check, in the order in which problems should be solved."""
    return [
        check_python(),
        check_java(),
        *(check_jars(use) for use in USES),
        check_memory(),
        check_disk(),
        # What every usual machine has is listed where it fails.
        *(check for check in (check_files(), check_temporary(), check_zones()) if not check.is_ok),
    ]


def check_python(version: tuple[int, int, int] = sys.version_info[:3]) -> Check:
    """Checks the version of Python."""
    running = ".".join(map(str, version))
    if version < MINIMUM_PYTHON:
        return Check("python", False, running, "run Frazil with Python 3.11 to 3.13")
    return Check("python", True, running)


def check_java() -> Check:
    """Checks the version of Java."""
    try:
        java = find_java()
    except UnavailableError as error:
        return Check("java", False, f"{error.message} ({error.where})", error.remedy)
    return Check("java", True, f"{java.version} at {java.path}")


def check_jars(use: Use) -> Check:
    """Checks whether the jars of one use are fetched."""
    if are_jars_present(use):
        return Check(f"jars for {use}", True, f"in {cache_directory()}")
    return Check(f"jars for {use}", False, "not fetched yet", "run frazil setup")


def check_zones() -> Check:
    """Checks the time-zone database."""
    try:
        return Check("time zones", True, f"{len(regions())}")
    except UnavailableError as error:
        return Check("time zones", False, error.message, error.remedy)


def check_files() -> Check:
    """Checks the limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        raise_file_limit()
    except UnavailableError as error:
        return Check("open files", False, error.message, error.remedy)
    return Check("open files", True, "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")


def check_temporary(folder: Path | None = None) -> Check:
    """Checks that the JVM can load its libraries, such as that of zstd, from the folder of temporary files."""
    place = folder or Path(tempfile.gettempdir())
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        reason = f"{place} is mounted with noexec: Java cannot read compressed files"
        return Check("temporary files", False, reason, NOEXEC_REMEDY)
    return Check("temporary files", True, f"{place}")


def check_memory(total_bytes: int | None = None) -> Check:
    """Checks the size of the memory."""
    total = _memory_bytes() if total_bytes is None else total_bytes
    memory = f"{total / 1024**3:.1f} GiB"
    if total < MINIMUM_MEMORY_BYTES:
        return Check("memory", False, memory, f"give the machine {MINIMUM_MEMORY_BYTES // 1024**3} GiB or more")
    return Check("memory", True, memory)


def check_disk(free_bytes: int | None = None) -> Check:
    directory = _existing(cache_directory())
    free = shutil.disk_usage(directory).free if free_bytes is None else free_bytes
    space = f"{free / 1024**3:.1f} GiB free at {directory}"
    if free < MINIMUM_DISK_BYTES:
        need = f"{MINIMUM_DISK_BYTES // 1024**3} GiB"
        return Check("disk", False, space, f"free {need} there, or name another folder in FRAZIL_CACHE")
    return Check("disk", True, space)


def _memory_bytes() -> int:
    # The limit of a container takes precedence over the machine's memory.
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
