"""Finds the Java that Spark, Ivy and the embedded broker run on; starts a JVM only for `-version`, once.

`python -m frazil.runtime.java` reports what is wrong with it; any Python runs that, before anything is installed.

JAVA_HOME wins over PATH, as in Spark: a JAVA_HOME that does not exist is an error and no reason to search further, or
Spark would start another Java than the checked one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from frazil.errors import UnavailableError

SUPPORTED_VERSIONS = (17, 21)
REMEDY = "install openjdk-17-jre-headless or set JAVA_HOME to a Java 17 or 21"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_VERSION_TIMEOUT_S = 20.0
_COLLECTOR = re.compile(r"-XX:\+Use\w+(?<!System)GC")
_OF_COLLECTOR = ("-XX:NewSize=", "-XX:NewRatio=")
_FOR_EVERY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@dataclass(frozen=True)
class Java:
    """A Java that Spark 4.1 runs on."""

    #: The path of the program.
    path: Path
    #: The major version.
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Returns the Java of `environment` (default: the process's own).

    Raises: UnavailableError where there is none that can be used.
    """
    path = _locate(os.environ if environment is None else environment)
    version = _read_version(path)
    if version not in SUPPORTED_VERSIONS:
        raise UnavailableError(f"Spark does not run on this Java: version={version}", remedy=REMEDY, where=str(path))
    return Java(path, version)


def why_unrecorded(java: Java) -> str:
    """Returns why this Java records no classes; empty where it does. Those that `jlink` makes have none of their own, and
    others are recorded only on top of them.
    """
    command = [str(java.path), "-Xshare:on", "-version"]
    if subprocess.run(command, capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False).returncode == 0:
        return ""
    return (
        f"this Java has no archive of its own classes; run `{java.path} -Xshare:dump` once, then `frazil setup` again"
    )


def with_one_collector(options: Sequence[str], user_options: Sequence[str] = ()) -> list[str]:
    """Returns JVM options, without a garbage collector and its young generation where the user's options, or the
    environment's for every Java, choose another collector: Java accepts one, and G1 does not adapt a generation of a
    given size.
    """
    named = [*user_options, *(word for name in _FOR_EVERY_JAVA for word in os.environ.get(name, "").split())]
    if not any(map(_COLLECTOR.fullmatch, named)):
        return list(options)
    return [option for option in options if not (_COLLECTOR.fullmatch(option) or option.startswith(_OF_COLLECTOR))]


def _locate(environment: Mapping[str, str]) -> Path:
    home = environment.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise UnavailableError("JAVA_HOME has no Java", remedy=REMEDY, where=f"JAVA_HOME={home}")
        return path
    java = shutil.which("java", path=environment.get("PATH", os.defpath))
    if not java:
        raise UnavailableError("there is no Java on this machine", remedy=REMEDY, where="PATH")
    return Path(java)


@cache
def _read_version(path: Path) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError("this Java does not start", remedy=REMEDY, where=str(path)) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or not match:
        raise UnavailableError("this Java does not report its version", remedy=REMEDY, where=str(path))
    return int(match[1])


if __name__ == "__main__":
    try:
        find_java()
    except UnavailableError as missing:
        sys.exit(f"error: {missing}")
