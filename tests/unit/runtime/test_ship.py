"""What a cluster's executors are sent, without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from frazil.ingest.task import warm_up
from frazil.runtime import ship
from frazil.runtime.jars import cache_directory


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    # The packages take seconds to pack; which they are is asked separately.
    monkeypatch.setattr(ship, "packages_archive", lambda: cache_directory() / "packages.tar.gz")
    return tmp_path / "cache"


def test_frazil_itself_runs_from_its_archive(tmp_path: Path) -> None:
    with tarfile.open(ship.code_archive()) as archive:
        archive.extractall(tmp_path / "there", filter="data")
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
    assert (tmp_path / "there" / "frazil" / "ingest" / "daemon.py").exists()


def test_an_executor_of_this_kind_of_processor_compiles_nothing(tmp_path: Path) -> None:
    warm_up()  # As in any run before.
    with tarfile.open(ship.code_archive()) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    sent = compiled(tmp_path / "there")
    words = [sys.executable, "-c", "import frazil.ingest.task as task; print(task.__file__); task.warm_up()"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(tmp_path / "there"))
    assert compiled(tmp_path / "there") == sent != {}


def compiled(folder: Path) -> dict[str, int]:
    """What numba keeps, and when it was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*.nb[ic]")}


def test_an_archive_is_made_once_for_its_content(cache: Path) -> None:
    made = ship.code_archive()
    first = made.stat().st_mtime_ns
    assert ship.code_archive().stat().st_mtime_ns == first
    assert list((cache / "shipped").iterdir()) == [made]


def test_what_tasks_need_is_sent_and_what_only_the_driver_needs_is_not() -> None:
    names = {distribution.name.lower().replace("_", "-") for distribution in ship._closure(ship._ROOTS)}
    assert {"pyarrow", "numba", "llvmlite", "pyiceberg", "pydantic-core", "zstandard"} <= names
    assert not names & {"pyspark", "py4j", "duckdb", "confluent-kafka", "typer", "rich", "moto", "pytest"}


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
