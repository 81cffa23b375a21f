"""How the JVM is started, as far as it takes no JVM to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime import gateway
from frazil.runtime.jvm import JVM_OPTIONS


@pytest.mark.parametrize(
    ("own", "collectors"),
    [("-Dx=1", ["-XX:+UseParallelGC"]), ("-XX:+UseG1GC -Dx=1", ["-XX:+UseG1GC"])],
)
def test_the_garbage_collector_that_the_file_names_is_the_only_one(own: str, collectors: list[str]) -> None:
    settings = {"spark.driver.extraJavaOptions": own}
    command = gateway._command(Path("/spark"), settings, (), JVM_OPTIONS, ())
    assert [word for word in command if word.startswith("-XX:+Use") and word.endswith("GC")] == collectors
    assert {"-XX:NewRatio=1", "-Dx=1"} <= set(command)
