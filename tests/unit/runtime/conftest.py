"""A Java that is a shell script: tells a version, and plays Ivy when it is asked to retrieve jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_SCRIPT = """#!/bin/sh
if [ "$1" = "-version" ]; then
  echo 'openjdk version "{version}" 2025-04-15' >&2
  exit 0
fi
echo run >> "{home}/runs"
while [ "$1" != "-retrieve" ]; do shift; done
folder=$(dirname "$2")
printf 'one' > "$folder/first-1.jar"
printf 'three' > "$folder/second-2.jar"
{ending}
"""

FakeJava = Callable[..., Path]


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Makes the fake and points JAVA_HOME at it; `ending` is what its Ivy does last. Answers its home."""

    def make(version: str = "17.0.15", ending: str = "exit 0") -> Path:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        program = home / "bin" / "java"
        program.write_text(_SCRIPT.format(version=version, home=home, ending=ending))
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make
