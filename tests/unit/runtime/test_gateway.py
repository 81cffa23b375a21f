"""How the JVM is started, as far as it takes no JVM to tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime import gateway
from frazil.runtime.jvm import JVM_OPTIONS
from tests.fixtures.waiting import wait_until


@pytest.mark.parametrize(
    ("own", "of_every_java", "collectors"),
    [
        ("-Dx=1", "-Dy=1", ["-XX:+UseParallelGC"]),
        ("-XX:+UseG1GC -Dx=1", "", ["-XX:+UseG1GC"]),
        ("-Dx=1", "-Dy=1 -XX:+UseG1GC", []),
        ("-Dx=1 -XX:+UseAdaptiveSizePolicyWithSystemGC", "", ["-XX:+UseParallelGC"]),
    ],
)
@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_the_garbage_collector_that_the_user_names_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, own: str, of_every_java: str, collectors: list[str], variable: str
) -> None:
    monkeypatch.setenv(variable, of_every_java)
    settings = {"spark.driver.extraJavaOptions": own}
    command = gateway._command(Path("/spark"), settings, (), JVM_OPTIONS, (), Path("/tmp/frazil-jvm-1"))
    assert [word for word in command if re.fullmatch(r"-XX:\+Use[A-Z][A-Za-z0-9]{0,9}GC", word)] == collectors
    assert "-Dx=1" in command
    for generation in ("-XX:NewRatio=1", "-XX:NewSize=192m"):
        assert (generation in command) is (JVM_OPTIONS[0] in command), "G1 does not adapt it"


def test_a_jvm_uses_an_existing_class_archive_and_makes_one_only_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "classes" / "one.jsa"
    monkeypatch.delenv(gateway.RECORD_VARIABLE, raising=False)
    assert gateway.sharing_options(archive) == []
    with monkeypatch.context() as patch:
        patch.setenv(gateway.RECORD_VARIABLE, "1")
        assert recorded_by(gateway.sharing_options(archive)).parent == archive.parent
    archive.touch()
    assert gateway.sharing_options(archive)[0] == f"-XX:SharedArchiveFile={archive}"


@pytest.mark.parametrize(("end", "is_kept"), [("0", True), ("1", False), ("os.kill(os.getpid(), 9)", False)])
def test_an_archive_gets_its_name_only_once_its_jvm_has_ended_well(tmp_path: Path, end: str, is_kept: bool) -> None:
    archive = tmp_path / "classes" / "one-state.jsa"
    begun = recorded_by(gateway.recording_options(archive))
    program = f"import os, sys; open(sys.argv[1], 'w').close(); sys.stdin.read(); sys.exit({end})"
    jvm = subprocess.Popen([sys.executable, "-c", program, str(begun)], stdin=subprocess.PIPE)
    wait_until(begun.exists, "the archive is begun", 30)
    assert not archive.exists()
    assert jvm.stdin is not None
    jvm.stdin.close()
    gateway.wait_for_end(jvm)
    assert list(archive.parent.iterdir()) == ([archive] if is_kept else [])


def test_what_a_killed_set_up_has_begun_is_recorded_again(tmp_path: Path) -> None:
    archive = tmp_path / "classes" / "one-state.jsa"
    recorded_by(gateway.recording_options(archive)).touch()
    begun = recorded_by(gateway.recording_options(archive))
    assert list(archive.parent.iterdir()) == []
    begun.touch()
    gateway.keep_recorded(is_whole=True)
    assert list(archive.parent.iterdir()) == [archive]


def recorded_by(options: Sequence[str]) -> Path:
    """The file that a JVM with these options writes."""
    return Path(options[0].removeprefix("-XX:ArchiveClassesAtExit="))


def test_reinstalled_jars_get_a_class_archive_in_place_of_the_former(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    jar = tmp_path / "one.jar"
    jar.touch()
    former = gateway.class_archive([jar], ["-Xmx1g"])
    other = gateway.class_archive([jar], ["-Xmx2g"])
    gateway.recording_options(former)
    former.touch()
    other.touch()
    os.utime(jar, (1, 1))
    gateway.recording_options(gateway.class_archive([jar], ["-Xmx1g"]))
    assert (former.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize(
    ("master", "home", "name"),
    [("local[*]", None, "localhost"), ("local", None, "localhost"), ("spark://host:7077", "/spark", None)],
)
def test_only_executors_elsewhere_are_led_to_the_home_of_spark_and_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, master: str, home: str | None, name: str | None
) -> None:
    """Java ends where it looks up the name of a machine that has no address, as some have."""
    monkeypatch.setenv("SPARK_HOME", "/another")
    monkeypatch.delenv("SPARK_LOCAL_HOSTNAME", raising=False)
    found = gateway._environment(Path("/spark"), {"spark.master": master})
    assert (found.get("SPARK_HOME"), found.get("SPARK_LOCAL_HOSTNAME")) == (home, name)


def test_a_jvm_ends_whose_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it never would: the folder for its answer is gone."""
    begun: list[subprocess.Popen[bytes]] = []
    really = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(really(*arguments, **options))
        return begun[-1]

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        gateway.start_jvm({"spark.master": "local"}, [], [], tmp_path, meanwhile=interrupt)
    assert begun[-1].poll() is not None


_ENDING = """
import subprocess, sys, threading, time
from pathlib import Path
from frazil.runtime.gateway import start_jvm

begun, really = [], subprocess.Popen
def start(*arguments, **options):
    begun.append(really(*arguments, **options))
    return begun[-1]

subprocess.Popen = start
arguments = {"spark.master": "local"}, [], [], Path(sys.argv[1])
threading.Thread(target=start_jvm, args=arguments, daemon=True).start()
while not begun:
    time.sleep(0.01)
time.sleep(0.3)
"""


def test_a_process_that_ends_while_a_jvm_starts_ends_it_too_without_a_word(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _ENDING, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)  # Until the JVM's end.
    assert (ended.returncode, ended.stderr) == (0, "")
