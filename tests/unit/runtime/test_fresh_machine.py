"""What setting up reports on a machine that lacks something: at once, with the remedy, before anything is made or
fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.scan import ROOT
from frazil.runtime.java import REMEDY
from tests.fixtures.forks import run_to_end
from tests.fixtures.processes import plain_environment
from tests.needs import needs

FakeJava = Callable[..., Path]
_STAMPS = (".created", ".requirements", ".project", ".jars")
_LOCKED = re.compile(r"[\w.-]+==[\w.]+( ; [^\\]+)?( +--hash=sha256:[0-9a-f]{64})+")


def run(*command: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Of the `make` that runs these tests nothing is handed on. Should pip be asked nevertheless, it finds nothing.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "MFLAGS"}
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine whose JAVA_HOME leads nowhere; what is reported of it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    return f"error: JAVA_HOME has no Java (JAVA_HOME={tmp_path}/nowhere); {REMEDY}\n"


def test_make_names_a_missing_java_before_it_makes_anything(no_java: str, tmp_path: Path) -> None:
    answer = run("make", "setup", f"VENV={tmp_path / 'venv'}")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(no_java)
    assert not (tmp_path / "venv").exists()


def test_make_names_a_java_that_spark_does_not_run_on(fake_java: FakeJava, tmp_path: Path) -> None:
    home = fake_java("11.0.2")
    answer = run("make", "setup", f"VENV={tmp_path / 'venv'}")
    assert answer.returncode == 2
    reported = f"error: Spark does not run on this Java: version=11 ({home}/bin/java); {REMEDY}\n"
    assert answer.stderr.startswith(reported)


def test_make_names_a_java_that_went_after_all_was_set_up(no_java: str, tmp_path: Path) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    for name in _STAMPS:
        (tmp_path / "venv" / name).touch()
    answer = run("make", "setup", f"VENV={tmp_path / 'venv'}", "PYTHON=/nowhere")
    assert answer.returncode == 2
    assert answer.stderr.startswith(no_java)


def test_make_names_a_python_that_will_not_do_before_it_looks_for_java(no_java: str, tmp_path: Path) -> None:
    answer = run("make", "setup", f"VENV={tmp_path / 'venv'}", "PYTHON=/bin/false")
    assert answer.returncode == 2
    assert answer.stderr.startswith("Frazil needs Python 3.11 to 3.13: ")
    assert no_java not in answer.stderr


@pytest.mark.parametrize(
    ("version", "is_supported"), [("3, 10", False), ("3, 11", True), ("3, 13", True), ("3, 14", False)]
)
def test_make_refuses_exactly_the_versions_of_python_that_frazil_cannot_be_installed_with(
    version: str, is_supported: bool, no_java: str, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = ({version}, 0); $2"\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    answer = run("make", "setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={python}")
    assert answer.stderr.startswith(no_java if is_supported else "Frazil needs Python 3.11 to 3.13: ")
    assert not (tmp_path / "venv").exists()


def test_what_fetches_names_a_missing_java_and_shows_no_stack(
    no_java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    answer = run(sys.executable, "-m", "tests.fixtures.fetching")
    assert answer.returncode == 1
    assert answer.stderr.endswith(no_java)
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("words", ["frazil.cli.main setup", "tests.fixtures.fetching"])
def test_what_cannot_be_fetched_is_named_with_the_remedy(
    words: str, fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(ending="echo '\t:: org.example#gone;1.0: not found'; exit 1")
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    answer = run(sys.executable, "-m", *words.split())
    assert answer.returncode == 1
    assert "org.example#gone;1.0" in answer.stderr
    assert "let this machine reach Maven Central" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("words", ["setup", "run", pytest.param("demo --once", marks=needs("demo")), "dev broker"])
def test_a_command_that_needs_java_reports_so_and_ends(words: str, no_java: str, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text(
        'pipeline: p\nkafka: {bootstrap.servers: "127.0.0.1:1"}\ntables: {s.a: {topic: a}}\n'
    )
    answer = run_to_end(words.split(), tmp_path, plain_environment(), 60)
    assert (answer.returncode, answer.stdout) == (1, "")
    message, place, remedy = re.split(r" \(|\); ", no_java)
    assert answer.stderr.endswith(f"{message}\nwhere: {place}\nremedy: {remedy}")
    assert "compiling" not in answer.stderr


def test_requirements_are_locked_with_hashes_and_name_no_address() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    lines = [line for file in files for line in file.read_text().replace("\\\n", "").splitlines()]
    wanted = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert len(wanted) > len(files)
    assert [line for line in wanted if not _LOCKED.fullmatch(line.rstrip())] == []
