"""What several rooms of unit tests share in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.java_gateway import JavaGateway

from frazil.ingest.tables.queries import SparkQueries
from frazil.runtime.light_jvm import LightJvm


@pytest.fixture(scope="session")
def queries() -> Iterator[SparkQueries]:
    """Spark's classes that analyse queries, in a JVM without a session: its start costs more than what is asked of it."""
    jvm = LightJvm({}, needs_spark_jars=True)
    gateway: JavaGateway = jvm.gateway
    yield SparkQueries(lambda: gateway.jvm)
    jvm.close()
