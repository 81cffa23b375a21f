"""What a cluster's executors are sent, without a cluster."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil.plugins.formats import ENVELOPES, FORMATS
from frazil.plugins.stages import STAGES
from frazil.runtime.jars import cache_directory
from frazil.runtime.setup import closure
from frazil_cluster import ship
from tests.fixtures.processes import marked
from tests.fixtures.slices import sliced
from tests.fixtures.waiting import wait_until

A_WHILE_S = 60.0

ONE_LOOP = """
import numpy as np
from frazil.decode.json.slices import group_equal
from frazil.decode.json.slices import Slices
nothing = np.zeros(1, np.int32)
group_equal(0, Slices(nothing, nothing, np.zeros(1, np.uint8), nothing))
"""
COUNTED = f"""
{ONE_LOOP}
from frazil.decode.json.slices import mark_equal
print(mark_equal.py_func.__code__.co_filename, *(sum(counts.values()) for counts in mark_equal.stats[1:]))
"""
LOADED_IN_TASKS = """
import frazil.ingest.tasks.warm_up, frazil_blobs.chunks, frazil_blobs.incoming, frazil_blobs.packs
from frazil.plugins.formats import ENVELOPES
from frazil.plugins.formats import MESSAGES
from frazil.plugins.registration import function_of
from frazil.plugins.stages import STAGES, TABLE_STAGES
from frazil.plugins.tables import TABLE_KINDS
for kinds in (STAGES, TABLE_STAGES):
    for kind in map(kinds.get, kinds.added()):
        kind.load("stage"), kind.load("kernels")
for kind in map(ENVELOPES.get, ENVELOPES.added()):
    list(map(function_of, filter(None, (kind.open_rows, kind.open_events, kind.flat_keys))))
print([kind.in_task for kind in map(TABLE_KINDS.get, TABLE_KINDS.added())])
print([kind.schemas for kind in map(MESSAGES.get, MESSAGES.added())])
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    # The packages take seconds to pack, and the decoder to compile; what comes of it is asked separately.
    monkeypatch.setattr(ship, "packages_archive", lambda _: cache_directory() / "packages.tar.gz")
    monkeypatch.setattr(ship, "_WARM_UP", "import frazil")
    yield tmp_path / "cache"
    let_go()


def let_go() -> None:
    """Frees the archives of this process, as its end does."""
    while ship._LOCKS:
        ship._LOCKS.popitem()[1].close()


@pytest.fixture(scope="module")
def with_one_loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive as an executor unpacks it, but for one loop nothing in it is compiled."""
    folder = tmp_path_factory.mktemp("shipped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAZIL_CACHE", str(folder / "cache"))
        patch.setattr(ship, "_WARM_UP", ONE_LOOP)
        return unpack(ship.code_archive(), folder / "code")


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def compiled_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.nb?")}


def run_loop(executor: Path, **environment: str) -> list[str]:
    """How often a process that has the code in a folder of `executor` found the loop compiled, and how often not."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    own = {"PYTHONPATH": "./code", "HOME": str(executor / "home"), **environment}
    words = [sys.executable, "-c", COUNTED]
    done = subprocess.run(words, cwd=executor, env={**kept, **own}, capture_output=True, text=True, check=True)
    file, *counts = done.stdout.split()
    assert (executor / file).is_relative_to(executor / "code")
    return counts


def test_frazil_itself_runs_from_its_archive(tmp_path: Path) -> None:
    unpack(ship.code_archive(), tmp_path / "there")
    # Without site-packages: only what was unpacked can be found.
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import sys; sys.path.insert(0, sys.argv[1]); import frazil; print(frazil)",
    ]
    found = subprocess.run([*words, str(tmp_path / "there")], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path / "there" / "frazil") in found
    assert (tmp_path / "there" / "frazil" / "ingest" / "tasks" / "daemon.py").exists()


def test_an_extra_that_tasks_use_is_found_by_its_entry_points_in_the_archive(tmp_path: Path) -> None:
    unpack(ship.code_archive(), tmp_path / "there")
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]; from importlib.metadata import distributions;"
        "own = {one.name: one.entry_points for one in distributions(path=[sys.argv[1]])};"
        "print(*sorted(own), *(point.load().open_rows for point in own['frazil-cdc'] if point.name == 'canal'))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "there")]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert {"frazil-cdc", "frazil-protobuf", "frazil_cdc.canal.messages:open_canal"} <= set(shown.split())
    assert not (tmp_path / "there" / "frazil_demo").exists()


def test_an_archive_is_made_once_for_its_content(cache: Path) -> None:
    made = ship.code_archive()
    first = made.stat().st_mtime_ns
    assert ship.code_archive().stat().st_mtime_ns == first
    assert [file for file in (cache / "shipped").iterdir() if file.suffix != ".lock"] == [made]


def test_what_is_built_is_said_with_its_size() -> None:
    with capture_logs() as logged:
        made = ship.code_archive()
        ship.code_archive()
    assert [(event["event"], event["archive"]) for event in logged] == [
        ("packing_archive", str(made)),
        ("archive_packed", str(made)),
    ]
    assert logged[1]["size_bytes"] == made.stat().st_size


def test_of_two_that_start_at_once_one_builds_and_the_other_waits(cache: Path) -> None:
    made = ship.code_archive()
    let_go()
    kept = made.rename(cache / "kept")
    with capture_logs() as logged, ThreadPoolExecutor() as threads, made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threads.submit(ship.code_archive)
        wait_until(lambda: [event for event in logged if event["event"] == "waiting_for_archive"], "it waits")
        kept.rename(made)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.result(A_WHILE_S) == made
    assert [event["event"] for event in logged] == ["waiting_for_archive"]


def test_what_upgrades_have_left_is_removed_but_for_what_a_process_uses(
    cache: Path,
) -> None:
    old, used, recent = (cache / "shipped" / f"frazil-code-{name}.tar.gz" for name in ("old", "used", "recent"))
    of_another_kind, cut = old.with_name("frazil-packages-old.tar.gz"), old.with_name("frazil-code-cut.tar.partial")
    old.parent.mkdir(parents=True)
    for file in (old, used, recent, of_another_kind, cut):
        file.touch()
        file.with_suffix(".lock").touch()
        if file != recent:
            os.utime(file.with_suffix(".lock"), (0, 0))
    with used.with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with capture_logs() as logged:
            made = ship.code_archive()
    assert {event["archive"] for event in logged if event["event"] == "archive_removed"} == {str(old), str(cut)}
    assert {file for file in old.parent.iterdir() if file.suffix != ".lock"} == {made, used, recent, of_another_kind}
    # Its own stays, however old: executors that start later download it.
    os.utime(made.with_suffix(".lock"), (0, 0))
    script = "from frazil_cluster import ship; ship._WARM_UP = 'import frazil'; ship._compiled_for = lambda: 'another'"
    subprocess.run([sys.executable, "-c", f"{script}; ship.code_archive()"], stderr=subprocess.DEVNULL, check=True)
    assert made.exists()
    assert not used.exists()


def test_an_archive_that_was_removed_is_built_again() -> None:
    made = ship.code_archive()
    made.unlink()
    assert ship.code_archive() == made
    assert made.exists()


def test_a_builder_that_is_killed_leaves_nothing_that_others_wait_for(cache: Path) -> None:
    script = "from frazil_cluster import ship; ship._WARM_UP = 'import signal; signal.pause()'; ship.code_archive()"
    mark = f"FRAZIL_BUILDER={cache}"
    environment = {**os.environ, "FRAZIL_BUILDER": str(cache)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL) as builder:
        wait_until(lambda: len(marked(mark)) == 2, "it compiles")
        builder.kill()
    wait_until(lambda: not marked(mark), "what compiles ends with it")
    with capture_logs() as logged:
        made = ship.code_archive()
    assert [event["event"] for event in logged] == ["packing_archive", "archive_packed"]
    assert sorted(file.suffix for file in (cache / "shipped").iterdir()) == [".gz", ".lock"]
    assert made.exists()


def test_a_limit_ends_what_is_built_and_the_wait_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ship.code_archive()
    let_go()
    made.unlink()
    told = "the archives for executors were not built within 0.5 s"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match=told) as raised:
            ship.ship_settings({}, "yarn", 0.5)
    assert raised.value.remedy == "run the command again, with a longer --timeout"
    monkeypatch.setattr(ship, "_WARM_UP", "import signal; signal.pause()")
    with capture_logs() as logged, pytest.raises(UnavailableError, match=told):
        ship.ship_settings({}, "yarn", 0.5)
    assert [event["event"] for event in logged] == ["packing_archive"]
    assert not made.exists()
    monkeypatch.setattr(ship, "_WARM_UP", "import frazil")
    assert str(made) in ship.ship_settings({}, "yarn", A_WHILE_S)["spark.archives"]


def test_an_executor_on_such_a_processor_compiles_nothing(with_one_loop: Path, tmp_path: Path) -> None:
    code = Path(shutil.copytree(with_one_loop, tmp_path / "code"))
    before = compiled_in(code)
    assert len(before) == 2, "an index, and the code of the loop"
    assert run_loop(tmp_path) == ["1", "0"]
    assert compiled_in(tmp_path) == before


@pytest.mark.parametrize("other", sliced([{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": "+sse2"}], 1))
def test_an_executor_on_another_processor_compiles_for_its_own(
    with_one_loop: Path, tmp_path: Path, other: dict[str, str]
) -> None:
    code = Path(shutil.copytree(with_one_loop, tmp_path / "code"))
    assert run_loop(tmp_path, **other) == ["0", "1"]
    assert len(compiled_in(code)) == 3
    assert run_loop(tmp_path, **other) == ["1", "0"]
    assert run_loop(tmp_path) == ["1", "0"]


def test_an_archive_is_of_a_processor_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ship.code_archive()
    monkeypatch.setattr(ship, "_compiled_for", lambda: "another")
    assert ship.code_archive() != made


def test_code_that_cannot_be_compiled_here_is_sent_as_source_until_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ship, "_WARM_UP", "raise SystemExit('no memory')")
    with capture_logs() as logged:
        plain = ship.code_archive()
    failed = [event for event in logged if event["event"] == "decoder_not_compiled"]
    assert [event["reason"] for event in failed] == ["no memory"]
    code = unpack(plain, tmp_path / "code")
    assert (code / "frazil" / "ingest" / "tasks" / "daemon.py").exists()
    monkeypatch.setattr(ship, "_WARM_UP", "import frazil")
    assert ship.code_archive() != plain


def test_what_tasks_need_is_sent_and_what_only_the_driver_needs_is_not() -> None:
    names = {distribution.name.lower().replace("_", "-") for distribution in closure(ship._ROOTS, ship._NOT_SHIPPED)}
    assert {"pyarrow", "numba", "llvmlite", "pyiceberg", "pydantic-core", "zstandard"} <= names
    assert not names & {"pyspark", "py4j", "duckdb", "confluent-kafka", "typer", "rich", "moto", "pytest"}


def test_what_a_package_imports_in_tasks_only_at_a_users_wish_is_sent_to_those_who_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = {"pillow", "tinytag", "onnxruntime"}
    # What an earlier test of this process declared is in use for as long as it runs.
    for registry in (FORMATS, ENVELOPES, STAGES):
        monkeypatch.setattr(registry, "packages", set())
    assert not readers & {distribution.name.lower() for distribution in ship.task_distributions()}
    monkeypatch.setattr(STAGES, "packages", {"frazil-blobs"})
    sent = {distribution.name.lower() for distribution in ship.task_distributions()}
    assert (readers - sent, "frazil-blobs" in sent) == (set(), False)


def test_a_worker_that_has_only_what_is_sent_starts() -> None:
    sent = tops(ship.task_distributions())
    missing = tops(importlib.metadata.distributions()) - sent - {"frazil", "pyspark", "py4j"}
    assert "structlog" in missing
    asked = f"import sys; sys.modules.update(dict.fromkeys({missing!r})); {LOADED_IN_TASKS}"
    started = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr


def tops(distributions: Iterable[importlib.metadata.Distribution]) -> set[str]:
    """Modules and packages that distributions install at the top."""
    files = [PurePosixPath(str(file)) for distribution in distributions for file in distribution.files or ()]
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("pyarrow/libarrow.so.2600", True),
        ("pyarrow/libarrow_flight.so.2600", False),
        ("pyarrow/tests/test_array.py", False),
        ("pyarrow/include/arrow/api.h", False),
        ("../../bin/f2py", False),
        ("numpy/__init__.py", True),
    ],
)
def test_only_what_is_used_of_a_package_is_sent(path: str, sent: bool) -> None:
    assert ship._is_shipped(PurePosixPath(path)) is sent


def test_what_the_user_sends_along_stays() -> None:
    conf = {"spark.archives": "model.zip#model", "spark.executorEnv.PYTHONPATH": "./model"}
    settings = ship.ship_settings(conf, "yarn")
    assert settings["spark.archives"].endswith("#frazil-code,model.zip#model")
    assert settings["spark.executorEnv.PYTHONPATH"] == "./frazil-code:./frazil-packages:./model"


@pytest.mark.parametrize(
    ("master", "host"),
    [
        ("spark://127.0.0.1:7077", "127.0.0.1"),
        ("spark://localhost:7077", "127.0.0.1"),
        ("spark://master:7077", None),
        ("yarn", None),
        ("k8s://https://kubernetes.default.svc", None),
    ],
)
def test_the_driver_hides_on_the_loopback_only_with_its_master(master: str, host: str | None) -> None:
    assert ship.ship_settings({}, master).get("spark.driver.host") == host


def test_executors_run_the_python_that_is_named_or_one_of_this_version() -> None:
    assert ship.executor_python({"spark.pyspark.python": "/opt/python"}) == "/opt/python"
    assert ship.executor_python({}) == f"python{sys.version_info.major}.{sys.version_info.minor}"
