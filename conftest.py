"""What the tests of several tiers, and of the packages beside the core, share in one process."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from frazil.ingest.tables.queries import SparkQueries
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jars import jars
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.loggers import kept_loggers, quick_logs
from tests.integration.servers import ObjectStore, RestCatalogServer

_BUCKET = "lake"
quick_logs()
# A script's shell lets what it starts in the background ignore Ctrl-C, and what that starts, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """A JVM with Spark and Iceberg in the tests' own process; its session is made when it is asked for. PySpark knows of one
    JVM at a time.
    """
    running = Jvm({"spark.driver.extraJavaOptions": QUICK_JVM}, "local[2]")
    yield running
    running.close()


@pytest.fixture(scope="session")
def queries() -> Iterator[SparkQueries]:
    """Spark's classes that analyse queries, in a JVM without a session: its start costs more than what is asked of it."""
    running = LightJvm({}, needs_spark_jars=True)
    gateway = running.gateway
    yield SparkQueries(lambda: gateway.jvm)
    running.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog of the file's own, whose tables are local files; nobody has to log in to it."""
    folder = tmp_path_factory.mktemp("catalog")
    running = RestCatalogServer(folder, str(folder / "warehouse"))
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker for all tiers: give every test topics of its own. It compacts at once what it is to compact."""
    # Tests write records with times of long ago, which the broker would remove whenever it looks for old ones. While nothing
    # happens it takes half as much of the processor with fewer heartbeats to itself, and fewer records for itself, and a
    # fifth less with fewer threads, each of which looks for work three times a second.
    properties = {
        "log.cleaner.backoff.ms": "200",
        "log.retention.ms": "-1",
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "9000",
        "metadata.max.idle.interval.ms": "5000",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), properties=properties) as running:
        yield running


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A running S3 store with a bucket, for all tiers."""
    server = ObjectStore(tmp_path_factory.mktemp("store"), "AKFRAZILTESTKEY", "s3cr3t/with+signs=and-more")
    server.start()
    server.make_bucket(_BUCKET)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def catalog(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A running REST catalog whose tables are in the store, for all tiers."""
    server = RestCatalogServer(tmp_path_factory.mktemp("catalog"), f"s3://{_BUCKET}/warehouse", store.properties())
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def spark() -> Iterator[ForeignSpark]:
    """Another team's Spark for all tiers. What needs a catalog of a name that others may have taken starts it again."""
    made = ForeignSpark([*jars("spark"), *jars("s3")])
    yield made
    made.close()


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """See kept_loggers."""
    with kept_loggers():
        yield
