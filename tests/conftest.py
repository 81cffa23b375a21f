"""What the tests of several tiers share in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.runtime.jvm import Jvm


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """A JVM with Spark and Iceberg in the tests' own process; its session is made when it is asked for. PySpark knows of one
    JVM at a time.
    """
    running = Jvm({}, "local[2]")
    yield running
    running.close()
