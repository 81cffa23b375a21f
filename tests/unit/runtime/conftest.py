"""A Java that is a shell script: tells a version, and plays Ivy when it is asked to retrieve jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.runtime import jars as jars_module

_SCRIPT = """#!/bin/sh
if [ "$1" = "-version" ]; then
  echo 'openjdk version "{version}" 2025-04-15' >&2
  exit 0
fi
echo run >> "{home}/runs"
while [ "$1" != "-retrieve" ]; do shift; done
folder=$(dirname "$2")
{beginning}
printf 'one' > "$folder/first-1.jar"
printf 'three' > "$folder/second-2.jar"
{ending}
"""
_SUMS = {
    "first-1.jar": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    "second-2.jar": "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f",
}

FakeJava = Callable[..., Path]


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Makes the fake and points JAVA_HOME at it; `beginning` is what its Ivy does first, `ending` last. Answers its home."""
    monkeypatch.setattr(jars_module, "known_sums", lambda: _SUMS)

    def make(version: str = "17.0.15", ending: str = "exit 0", beginning: str = "") -> Path:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        program = home / "bin" / "java"
        program.write_text(_SCRIPT.format(version=version, home=home, beginning=beginning, ending=ending))
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make
