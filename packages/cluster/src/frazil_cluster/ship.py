"""The Python packages that a cluster's executors need for tasks, as archives that Spark distributes.

The workers need Spark and a Python of the driver's version, and no package. There are two archives: the packages
(large, built again only when one of them changes) and Frazil itself, with its compiled loops. Spark unpacks both into
the executor's working directory, where the Python worker finds them. PySpark is the cluster's own.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

import structlog

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.plugins.catalogs import STORES
from frazil.plugins.extras import EXTRAS, Extra, installed_extras
from frazil.plugins.formats import ENVELOPES, FORMATS, MESSAGES
from frazil.plugins.stages import STAGES, TABLE_STAGES
from frazil.plugins.tables import TABLE_KINDS
from frazil.runtime.jars import cache_directory
from frazil.runtime.setup import check_recorded, closure
from frazil.runtime.tether import tethered

log = structlog.get_logger("frazil")

PYTHON_VARIABLE = "FRAZIL_PYTHON"
"""Environment variable of executors: the Python version that the packages are for."""
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

_ROOTS = (
    "cramjam",
    "cryptography",
    "google-crc32c",
    "kafka-python",
    "numba",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyiceberg-core",
    "pyyaml",
)
_OF_EXTRAS = ("fastavro",)
"""What tasks import where it is installed here."""
# Only PyIceberg's command line needs click and rich. Frazil itself, which packages with formats require, is the other
# archive.
_NOT_SHIPPED = {"click", "frazil", "rich"}
_LEFT_OUT_FOLDERS = {"__pycache__", "tests", "include", "bin"}
_LEFT_OUT_FILES = re.compile(r".*\.(pyx|pxd|pyi|hpp|h|a)$|(libarrow)?_flight\b")
_PACKAGES, _CODE = "frazil-packages", "frazil-code"
_METADATA = ("METADATA", "entry_points.txt")
_FASTEST = 1
_WARM_UP = "from frazil.ingest.tasks.warm_up import warm_up; warm_up(compiles_all=True)"
_COMPILE_TIMEOUT_S = 900.0
_ASK_FOR_LOCK_EVERY_S = 0.2
_KEPT_S = 7 * 24 * 3600.0
"""How long an archive stays that no process uses."""
_PARTIAL = ".partial"
_LOCKS: dict[Path, IO[str]] = {}
"""The archives that this process uses, each with its lock: shared, once it is built."""
_LOOPBACK = re.compile(r"^\w+://(127\.[\d.]+|localhost|\[::1\])[:/]")


class Deadline:
    """Until when archives must be built."""

    def __init__(self, limit_s: float | None = None) -> None:
        """limit_s: from now on; None for no limit."""
        self._clock = SystemClock()
        self._limit_s = limit_s
        self._began_s = self._clock.monotonic_s()

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        passed_s = self._clock.monotonic_s() - self._began_s
        return float("inf") if self._limit_s is None else max(0.0, self._limit_s - passed_s)

    def check(self) -> None:
        """Raises UnavailableError when no time is left."""
        if not self.left_s:
            raise UnavailableError(
                f"the archives for executors were not built within {self._limit_s:g} s",
                remedy="run the command again, with a longer --timeout",
                where=str(_folder()),
            )

    def pause(self) -> None:
        """Lets a moment pass."""
        self._clock.sleep(min(_ASK_FOR_LOCK_EVERY_S, self.left_s))


def ship_settings(conf: Mapping[str, str], master: str, limit_s: float | None = None) -> dict[str, str]:
    """Returns Spark's properties for a cluster: the archives, and an environment in which executors find them. conf:
    the properties so far; the user's own archives and paths stay. Builds archives that the cache lacks. limit_s: how long
    that may take.

    Raises: UnavailableError where an archive is not built within this time, or cannot be.
    """
    deadline = Deadline(limit_s)
    archives = [f"{packages_archive(deadline)}#{_PACKAGES}", f"{code_archive(deadline)}#{_CODE}"]
    paths = [f"./{_CODE}", f"./{_PACKAGES}"]
    settings = {
        "spark.archives": ",".join([*archives, *filter(None, [conf.get("spark.archives")])]),
        "spark.executorEnv.PYTHONPATH": ":".join([*paths, *filter(None, [conf.get("spark.executorEnv.PYTHONPATH")])]),
        f"spark.executorEnv.{PYTHON_VARIABLE}": PYTHON_VERSION,
    }
    if _LOOPBACK.match(master):
        settings["spark.driver.host"] = conf.get("spark.driver.host", "127.0.0.1")
        settings["spark.driver.bindAddress"] = conf.get("spark.driver.bindAddress", "127.0.0.1")
    return settings


def executor_python(conf: Mapping[str, str]) -> str:
    """Returns the Python that executors run: the user's choice, or one of the driver's version on their PATH."""
    return conf.get("spark.pyspark.python") or f"python{PYTHON_VERSION}"


def packages_archive(deadline: Deadline | None = None) -> Path:
    """Returns the archive of the packages that tasks import, with everything these need. Among them are the packages
    whose formats, envelopes and stages this process has used.

    Raises: UnavailableError for a package whose files are not recorded, as of an editable installation.
    """
    distributions = task_distributions()
    key = hashlib.sha256(f"{PYTHON_VERSION} {platform.platform()} {_LEFT_OUT_FILES.pattern}".encode())
    for distribution in distributions:
        # RECORD has the hash of every file.
        key.update((distribution.read_text("RECORD") or distribution.version).encode())
    return _cached(_PACKAGES, key.hexdigest(), lambda: _files_of(distributions), deadline or Deadline())


def task_distributions() -> list[importlib.metadata.Distribution]:
    """Returns the packages that tasks import, but for Frazil itself and its extras, which are in the other archive.

    Raises: UnavailableError for one whose files are not recorded, or that is not installed.
    """
    used, own = FORMATS.packages | ENVELOPES.packages | STAGES.packages, {extra.distribution for extra in EXTRAS}
    added = sorted(used - own)
    required = [name for extra in _extras_of_tasks() for name in extra.task_requirements]
    optional = [*_OF_EXTRAS, *(name for extra in EXTRAS if extra.distribution in used for name in extra.task_options)]
    installed = filter(_is_installed, optional)
    distributions = closure((*_ROOTS, *required, *installed, *added), _NOT_SHIPPED | own)
    check_recorded(distribution for distribution in distributions if distribution.name in added)
    return distributions


def _is_installed(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def code_archive(deadline: Deadline | None = None) -> Path:
    """Returns the archive of Frazil itself and of its extras that tasks use, also where they run from a checkout. Its loops
    are compiled for processors like this one.

    Compiled loops are stored where numba looks for them, next to their source, under a hash of the source and the name
    and features of the processor: an executor on another kind of processor does not find them, and compiles.
    """
    files = sorted(_own_files())
    key = hashlib.sha256()
    for name, path in files:
        content = path.read_bytes()
        key.update(f"{name} {len(content)}\n".encode() + content)
    plain, deadline = key.hexdigest(), deadline or Deadline()
    key.update(_compiled_for().encode())
    try:
        return _cached(_CODE, key.hexdigest(), lambda: _with_compiled(files, deadline), deadline)
    except subprocess.SubprocessError as error:
        output = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
        log.warning("decoder_not_compiled", reason=(output or str(error)).splitlines()[-1])
        return _cached(_CODE, plain, lambda: files, deadline)


def _extras_of_tasks() -> list[Extra]:
    """Returns the installed extras whose code tasks run."""
    registered = (FORMATS, MESSAGES, ENVELOPES, STAGES, STORES, TABLE_KINDS, TABLE_STAGES)
    groups = {table.group for table in registered}
    return [extra for extra in installed_extras() if groups.intersection(extra.added)]


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yields the modules of Frazil and of its installed extras that tasks use, with the entry points of the latter."""
    extras = _extras_of_tasks()
    for module in ("frazil", *(extra.module for extra in extras)):
        root = Path(str(importlib.import_module(module).__file__)).parent
        yield from ((f"{module}/{path.relative_to(root).as_posix()}", path) for path in root.rglob("*.py"))
    for extra in extras:
        for file in importlib.metadata.distribution(extra.distribution).files or ():
            if file.parent.suffix == ".dist-info" and file.name in _METADATA:
                yield file.as_posix(), Path(str(file.locate()))


def _compiled_for() -> str:
    """Returns what compiled loops depend on besides their source."""
    from llvmlite import binding  # noqa: PLC0415  (the compiler: commands that ship nothing need not load it)

    made_by = [f"{name} {importlib.metadata.version(name)}" for name in ("numba", "llvmlite")]
    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    return "\n".join([PYTHON_VERSION, *made_by, processor])


def _with_compiled(files: list[tuple[str, Path]], deadline: Deadline) -> Iterator[tuple[str, Path]]:
    """Yields the files, and compiled loops of copies of them: never loops once compiled from other files of the same
    names.
    """
    yield from files
    with temporary_folder("frazil-compiled-") as folder:
        for name, path in files:
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        # As on any executor: without this process's settings of the compiler, such as its folder, and without Intel's
        # library of functions, which other machines may lack.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        paths = filter(None, [str(folder), environment.get("PYTHONPATH")])
        environment |= {"NUMBA_DISABLE_INTEL_SVML": "1", "PYTHONPATH": os.pathsep.join(paths)}
        try:
            subprocess.run(
                tethered([sys.executable, "-c", _WARM_UP]),
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=min(_COMPILE_TIMEOUT_S, deadline.left_s),
                check=True,
            )
        except subprocess.TimeoutExpired:
            deadline.check()
            raise
        for compiled in sorted(folder.rglob("*.nb[ic]")):
            yield compiled.relative_to(folder).as_posix(), compiled


def _files_of(distributions: Iterable[importlib.metadata.Distribution]) -> list[tuple[str, Path]]:
    return [
        (path.as_posix(), Path(str(path.locate())))
        for distribution in distributions
        for path in distribution.files or ()
        if _is_shipped(path)
    ]


def _is_shipped(path: PurePosixPath) -> bool:
    return not (_LEFT_OUT_FOLDERS.intersection(path.parts) or ".." in path.parts or _LEFT_OUT_FILES.match(path.name))


def _folder() -> Path:
    return cache_directory() / "shipped"


def _cached(name: str, key: str, files: Callable[[], Iterable[tuple[str, Path]]], deadline: Deadline) -> Path:
    """Returns the archive with this content, built where it does not exist. Of several processes one builds it. None
    removes it while this process runs: executors that start later download it.
    """
    archive = _folder() / f"{name}-{key[:16]}.tar.gz"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if archive not in _LOCKS:
            _LOCKS[archive] = _lock_of(archive).open("a")
        os.utime(_lock_of(archive))
        has_waited = False
        while not (_locked(_LOCKS[archive], fcntl.LOCK_SH) and archive.exists()):
            # A process that is killed frees its lock. A shared lock becomes exclusive only by way of none at all.
            if _locked(_LOCKS[archive], fcntl.LOCK_EX):
                if not archive.exists():
                    _build(archive, files, deadline)
                    _remove_unused(name)
                continue
            if not has_waited:
                log.info("waiting_for_archive", archive=str(archive))
            has_waited = True
            deadline.check()
            deadline.pause()
    except BaseException as error:
        if lock := _LOCKS.pop(archive, None):
            lock.close()
        if not isinstance(error, OSError):
            raise
        raise UnavailableError(
            f"the packages for the cluster cannot be packed: {error.strerror or error}",
            remedy="free disk space and make the folder writable, or name another in FRAZIL_CACHE",
            where=str(archive.parent),
        ) from error
    return archive


def _lock_of(archive: Path) -> Path:
    return archive.with_suffix(".lock")


def _locked(lock: IO[str], how: int) -> bool:
    """Locks the file; returns False if another process prevents it."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(archive: Path, files: Callable[[], Iterable[tuple[str, Path]]], deadline: Deadline) -> None:
    partial, clock = archive.with_suffix(_PARTIAL), SystemClock()
    began_s = clock.monotonic_s()
    log.info("packing_archive", archive=str(archive))
    try:
        _pack(files(), partial, deadline)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    took_s = round(clock.monotonic_s() - began_s, 1)
    log.info("archive_packed", archive=str(archive), size_bytes=archive.stat().st_size, took_s=took_s)


def _remove_unused(name: str) -> None:
    """Removes what upgrades and killed builders have left. Locks stay, as another process may be about to take one."""
    for lock in _folder().glob(f"{name}-*.lock"):
        left = [file for file in (lock.with_suffix(".gz"), lock.with_suffix(_PARTIAL)) if file.exists()]
        if not left or SystemClock().now_ms() / 1000 - lock.stat().st_mtime < _KEPT_S:
            continue
        # The folder may belong to somebody else.
        with suppress(OSError), lock.open("a") as opened:
            if _locked(opened, fcntl.LOCK_EX):
                for file in left:
                    file.unlink()
                log.info("archive_removed", archive=str(left[0]))


def _pack(files: Iterable[tuple[str, Path]], target: Path, deadline: Deadline) -> None:
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", _FASTEST, raw, 0) as packed,
        tarfile.open(fileobj=packed, mode="w|", dereference=True) as archive,
    ):
        for name, path in files:
            deadline.check()
            if path.is_file():
                archive.add(path, name, recursive=False)
