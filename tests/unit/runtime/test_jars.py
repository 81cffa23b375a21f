"""The cache of jars: complete or absent, fetched once, also by two at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil.runtime import jars as jars_module
from frazil.runtime.jars import USES, are_jars_present, cache_directory, jars
from tests.fixtures.waiting import wait_until

FakeJava = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def runs(home: Path) -> int:
    return len((home / "runs").read_text().splitlines())


def test_jars_are_fetched_once_and_then_only_looked_up(fake_java: FakeJava) -> None:
    home = fake_java()
    assert not are_jars_present("spark")
    fetched = jars("spark")
    assert [jar.name for jar in fetched] == ["first-1.jar", "second-2.jar"]
    assert jars("spark") == fetched
    assert are_jars_present("spark")
    assert runs(home) == 1


def test_each_use_has_a_folder_of_its_own(fake_java: FakeJava) -> None:
    fake_java()
    assert len({jars(use)[0].parent for use in USES}) == len(USES)


def test_a_jar_cut_short_is_fetched_again(fake_java: FakeJava) -> None:
    home = fake_java()
    jars("spark")[1].write_text("t")
    assert not are_jars_present("spark")
    assert jars("spark")[1].read_text() == "three"
    assert runs(home) == 2


def test_a_missing_jar_is_fetched_again(fake_java: FakeJava) -> None:
    fake_java()
    jars("spark")[0].unlink()
    assert jars("spark")[0].read_text() == "one"


def test_a_fetch_that_fails_half_way_leaves_nothing_to_be_trusted(fake_java: FakeJava) -> None:
    fake_java(ending="echo '\t:: org.example#gone;1.0: not found'; exit 1")
    with pytest.raises(UnavailableError, match=r"use=spark org\.example#gone;1\.0 not found") as caught:
        jars("spark")
    assert "then run frazil setup" in caught.value.remedy
    assert not are_jars_present("spark")
    fake_java()
    assert [jar.read_text() for jar in jars("spark")] == ["one", "three"]


def test_a_failure_without_a_named_module_shows_the_last_words(fake_java: FakeJava) -> None:
    fake_java(ending="echo 'no space left'; exit 1")
    with pytest.raises(UnavailableError, match="no space left"):
        jars("broker")


def test_a_full_disk_is_named(fake_java: FakeJava) -> None:
    fake_java(beginning="echo 'java.io.IOException: No space left on device' >&2; exit 1")
    with pytest.raises(UnavailableError, match="the jars cannot be stored: No space left on device") as caught:
        jars("spark")
    assert caught.value.remedy.startswith("free disk space")


def test_a_killed_fetch_is_waited_for_and_its_files_are_not_trusted(fake_java: FakeJava) -> None:
    # Ivy outlives the killed process, and writes to the folder that the next process needs empty.
    home = fake_java(
        beginning='printf half > "$folder/first-1.jar"; while [ ! -e "$(dirname $0)/go" ]; do sleep 0.05; done'
    )
    killed = subprocess.Popen([sys.executable, "-c", "from frazil.runtime.jars import jars; jars('spark')"])
    wait_until((home / "runs").exists, "the fetch has begun", 30)
    killed.kill()
    killed.wait()
    second = threading.Thread(target=jars, args=("spark",))
    with capture_logs() as events:
        second.start()
        wait_until(lambda: bool(events), "the second process waits", 10)
        assert (events[0]["event"], runs(home)) == ("waiting_for_jars", 1)
        (home / "bin/go").touch()
        second.join()
    assert [jar.read_text() for jar in jars("spark")] == ["one", "three"]
    assert runs(home) == 2


def test_two_at_once_fetch_once(fake_java: FakeJava) -> None:
    home = fake_java(ending="sleep 0.3")
    threads = [threading.Thread(target=jars, args=("spark",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs(home) == 1
    assert are_jars_present("spark")


def test_a_cache_that_cannot_be_written_is_named(fake_java: FakeJava, cache: Path) -> None:
    fake_java()
    cache.write_text("a file where the folder should be")
    with pytest.raises(UnavailableError, match="the jars cannot be stored") as caught:
        jars("spark")
    assert caught.value.where == str(cache / "jars")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FRAZIL_CACHE": "/a"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/frazil")),
        ({}, Path.home() / ".cache" / "frazil"),
    ],
)
def test_the_cache_is_where_the_environment_reports(environment: dict[str, str], expected: Path) -> None:
    assert cache_directory(environment) == expected


def test_ivy_declares_every_use_and_pins_every_version() -> None:
    declaration = ET.fromstring((resources.files("frazil.runtime") / "ivy.xml").read_text())
    assert tuple(conf.get("name") for conf in declaration.iter("conf")) == USES
    versions = [dependency.get("rev", "") for dependency in declaration.iter("dependency")]
    assert versions
    assert not [version for version in versions if not version[:1].isdigit() or version.endswith("+")]


def test_a_jar_that_is_another_than_the_listed_one_is_refused(tmp_path: Path) -> None:
    name, digest = next(iter(jars_module.known_sums().items()))
    jar = tmp_path / name
    jar.write_bytes(b"another")
    with pytest.raises(UnavailableError, match="is not the one that Frazil was built with") as caught:
        jars_module.check_sums([jar])
    assert (caught.value.where, "run frazil setup" in caught.value.remedy) == (str(jar), True)
    assert len(digest) == 64


def test_a_wrong_jar_from_the_repository_is_not_kept(fake_java: FakeJava, cache: Path) -> None:
    fake_java(ending='printf other > "$folder/first-1.jar"; exit 0')
    with pytest.raises(UnavailableError, match=r"the jar first-1\.jar is not the one"):
        jars("spark")
    assert [path.suffix for path in (cache / "jars").iterdir()] == [".lock"]
    fake_java()
    assert [jar.read_text() for jar in jars("spark")] == ["one", "three"]


def test_a_jar_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "stranger-1.jar"
    jar.write_bytes(b"another")
    with pytest.raises(UnavailableError, match=r"the jar stranger-1\.jar is not the one that Frazil was built with"):
        jars_module.check_sums([jar])


def test_every_jar_of_a_run_is_listed() -> None:
    names = jars_module.known_sums().keys()
    for word in ("iceberg-spark-runtime", "iceberg-aws-bundle", "kafka-clients", "sqlite-jdbc", "kafka_2.13"):
        assert any(name.startswith(word) for name in names)
