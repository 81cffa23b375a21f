"""Which Java is found, and what is reported about one that will not do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.errors import UnavailableError
from frazil.runtime.java import REMEDY, Java, find_java, why_unrecorded


@pytest.mark.parametrize(("told", "version"), [("17.0.15", 17), ("21", 21), ("21.0.2-ea", 21)])
def test_a_supported_java_of_java_home_is_found(fake_java: Callable[..., Path], told: str, version: int) -> None:
    home = fake_java(told)
    assert find_java() == Java(home / "bin" / "java", version)


def test_a_java_on_the_path_is_found_when_java_home_is_not_set(fake_java: Callable[..., Path]) -> None:
    home = fake_java()
    assert find_java({"PATH": f"{home / 'bin'}:/bin:/usr/bin"}) == Java(home / "bin" / "java", 17)


@pytest.mark.parametrize(("told", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("25", 25)])
def test_a_java_that_spark_does_not_run_on_is_refused(fake_java: Callable[..., Path], told: str, version: int) -> None:
    fake_java(told)
    with pytest.raises(UnavailableError, match=f"version={version}") as caught:
        find_java()
    assert caught.value.remedy == REMEDY


def test_a_java_home_without_java_is_an_error_even_where_the_path_has_one(
    fake_java: Callable[..., Path], tmp_path: Path
) -> None:
    home = fake_java()
    with pytest.raises(UnavailableError, match="JAVA_HOME has no Java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(home / "bin")})


def test_no_java_anywhere_names_the_package_to_install(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no Java on this machine") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "openjdk-17-jre-headless" in caught.value.remedy


def test_a_java_that_fails_is_named(fake_java: Callable[..., Path]) -> None:
    program = fake_java() / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(UnavailableError, match="does not report its version") as caught:
        find_java()
    assert caught.value.where == str(program)


def test_a_java_is_started_once_to_learn_its_version(fake_java: Callable[..., Path]) -> None:
    program = fake_java() / "bin" / "java"
    found = find_java()
    program.write_text("#!/bin/sh\nexit 3\n")
    assert find_java() == found


def test_a_java_without_an_archive_of_its_own_classes_is_named_with_what_makes_one(
    fake_java: Callable[..., Path],
) -> None:
    program = fake_java() / "bin" / "java"
    # As java does: it ends with 1 where `-Xshare:on` finds none.
    program.write_text(
        f"#!/bin/sh\n[ $1 = -Xshare:dump ] && touch {program.parent}/made\n[ -e {program.parent}/made ]\n"
    )
    java = Java(program, 21)
    told = why_unrecorded(java)
    assert "has no archive of its own classes" in told
    command = told.split("`")[1].split()
    assert subprocess.run(command, check=False).returncode == 0
    assert why_unrecorded(java) == ""
