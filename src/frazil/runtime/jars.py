"""The jars of one use (`spark`, `s3`, `broker`), as ivy.xml declares them, fetched once and cached.

A folder of the cache is complete or absent: jars are fetched next to it, under a lock, and renamed into place. It is
trusted only while every jar has the size it was fetched with, so a deleted or truncated file is fetched again, and the
SHA-256 sum that `jars.sha256` lists. A warm call starts no JVM.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import IO, Literal, get_args

import structlog

from frazil.errors import UnavailableError
from frazil.runtime.java import find_java

log = structlog.get_logger("frazil")

Use = Literal["spark", "s3", "broker"]
USES: tuple[Use, ...] = get_args(Use)

SETTINGS_VARIABLE = "FRAZIL_IVY_SETTINGS"
_SIZES = "sizes.json"
_CHECKED: set[tuple[Path, int, int, int]] = set()
_FETCH_TIMEOUT_S = 1800.0
_MISSING = re.compile(r":: ([\w.\-]+#[^\s:]+): (.+)|\[(?:FAILED|NOT FOUND)\s*\] (\S+)")


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Returns the folder for everything that can be fetched again: FRAZIL_CACHE, or `frazil` in the user's cache
    folder.
    """
    variables = os.environ if environment is None else environment
    if variables.get("FRAZIL_CACHE"):
        return Path(variables["FRAZIL_CACHE"])
    return Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"


def jars(use: Use) -> list[Path]:
    """Returns the jars of `use`, fetched first where the cache lacks them.

    Raises: UnavailableError where they cannot be fetched.
    """
    return install_jars(use, partial(_fetch, use))


def install_jars(use: Use, put: Callable[[Path, IO[str]], None]) -> list[Path]:
    """Returns the jars of `use`. Where the cache lacks them, `put` is called with an empty folder to put them into, and
    the open lock of that folder.

    Raises: UnavailableError where they cannot be stored, or are not the listed ones.
    """
    directory = jars_directory(use)
    jar_files = _complete(directory)
    if jar_files is None:
        with _locked(directory) as lock:
            jar_files = _complete(directory) or _put(directory, put, lock)
    check_sums(jar_files)
    return jar_files


def known_sums() -> dict[str, str]:
    """Returns the SHA-256 sums of jars by name, from `jars.sha256` next to this module."""
    lines = (resources.files("frazil.runtime") / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def check_sums(jar_files: Sequence[Path]) -> None:
    """Checks the jars against the known sums. A file is read once in a process.

    Raises: UnavailableError for a jar that is not listed, or with another sum than the listed one.
    """
    sums = known_sums()
    for jar in jar_files:
        wanted = sums.get(jar.name)
        status = jar.stat()
        mark = (jar, status.st_size, status.st_mtime_ns, status.st_ino)
        if mark in _CHECKED:
            continue
        with jar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != wanted:
            raise UnavailableError(
                f"the jar {jar.name} is not the one that Frazil was built with: its SHA-256 sum is {digest}",
                remedy=f"remove the folder {jar.parent} and run frazil setup; if the error returns, check"
                f" what answers in place of the repository, or what {SETTINGS_VARIABLE} names",
                where=str(jar),
            )
        _CHECKED.add(mark)


def own_jars(needs_s3: bool) -> list[Path]:
    """Returns the jars besides Spark's own."""
    return [*jars("spark"), *(jars("s3") if needs_s3 else ())]


def spark_home() -> Path:
    """Returns PySpark's folder. PySpark is not imported, which takes a third of a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UnavailableError("PySpark is missing", remedy="install Frazil's requirements", where="pyspark")
    return Path(spec.origin).parent


def are_jars_present(use: Use) -> bool:
    """Returns whether `jars(use)` would return without fetching."""
    return _complete(jars_directory(use)) is not None


def _declaration() -> bytes:
    return (resources.files("frazil.runtime") / "ivy.xml").read_bytes()


def jars_directory(use: Use) -> Path:
    """Returns the folder of the jars of `use` in the cache; its name changes with ivy.xml."""
    key = hashlib.sha256(_declaration() + use.encode()).hexdigest()[:12]
    return cache_directory() / "jars" / f"{use}-{key}"


def _complete(directory: Path) -> list[Path] | None:
    try:
        sizes: dict[str, int] = json.loads((directory / _SIZES).read_bytes())
        intact = all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return None
    return [directory / name for name in sizes] if intact else None


@contextmanager
def _locked(directory: Path) -> Iterator[IO[str]]:
    """Locks the folder against other processes and yields the open lock.

    Raises: UnavailableError where the block, or the lock, meets a full disk or a folder that cannot be written.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with directory.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting_for_jars", folder=str(directory))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
    except OSError as error:
        raise UnavailableError(
            f"the jars cannot be stored: {error.strerror or error}",
            remedy="free disk space and make the folder writable, or name another in FRAZIL_CACHE",
            where=str(directory.parent),
        ) from error


def _put(directory: Path, put: Callable[[Path, IO[str]], None], lock: IO[str]) -> list[Path]:
    # Ivy's own files stay when a fetch fails, so that the next try continues there.
    work = directory.with_suffix(".fetching")
    fresh = work / "jars"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    put(fresh, lock)
    fetched = sorted(fresh.glob("*.jar"))
    try:
        check_sums(fetched)
    except UnavailableError:
        shutil.rmtree(work, ignore_errors=True)  # Ivy has kept the wrong jar too, and would not fetch it again.
        raise
    (fresh / _SIZES).write_text(json.dumps({jar.name: jar.stat().st_size for jar in fetched}))
    shutil.rmtree(directory, ignore_errors=True)
    fresh.rename(directory)
    shutil.rmtree(work, ignore_errors=True)
    return [directory / jar.name for jar in fetched]


def _fetch(use: Use, target: Path, lock: IO[str]) -> None:
    """Fetches the jars into `target` with Ivy, which holds the lock too: it may outlive this process, and no other may
    write to the folder meanwhile.
    """
    log.info("fetching_jars", use=use)
    work = target.parent
    (work / "ivy.xml").write_bytes(_declaration())
    pattern = f"{target}/[artifact](-[classifier])-[revision].[ext]"
    settings = os.environ.get(SETTINGS_VARIABLE)
    command = [str(find_java().path), "-jar", str(_ivy()), "-ivy", str(work / "ivy.xml"), "-confs", use]
    command += ["-cache", str(work / "ivy"), "-retrieve", pattern]
    command += ["-settings", settings] if settings else []
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False, pass_fds=[lock.fileno()]
        )
    except subprocess.TimeoutExpired as error:
        raise _cannot_fetch(use, [f"no answer within {_FETCH_TIMEOUT_S:.0f} s"]) from error
    if answer.returncode:
        output = answer.stdout + answer.stderr
        if os.strerror(errno.ENOSPC) in output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        named = (match[3] or f"{match[1]} {match[2]}" for match in _MISSING.finditer(output))
        last_line = [line.strip() for line in output.splitlines() if line.strip()][-1:]
        raise _cannot_fetch(use, list(dict.fromkeys(named)) or last_line)


def _ivy() -> Path:
    for jar in sorted(spark_home().glob("jars/ivy-*.jar")):
        return jar
    raise UnavailableError("PySpark's Ivy is missing", remedy="install Frazil's requirements", where="pyspark/jars")


def _cannot_fetch(use: Use, reasons: list[str]) -> UnavailableError:
    return UnavailableError(
        f"jars cannot be fetched: use={use} {', '.join(reasons)}",
        remedy=f"let this machine reach Maven Central, or name a mirror's Ivy settings in {SETTINGS_VARIABLE}, "
        "then run frazil setup; without a network run frazil setup --from a bundle",
        where=str(cache_directory()),
    )
