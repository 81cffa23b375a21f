"""Catalogs whose answers to commits are wrong or get lost, chosen by a seed: data, dead letters, changes of keys, columns
and table maintenance are committed all the time, and at the end the topics are what the tables have. `make test-all` has a
slice of it on each catalog. In time: a run whose commits get no answer in test_lost_answers.py, wrong answers to every kind
of commit in integration/test_lost_answers.py, and what the answers of each catalog mean in unit/catalog/test_answers.py.

`make soak-answers` runs a quarter of an hour of each catalog; FRAZIL_SOAK_SECONDS for another time.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from frazil.clock import SystemClock
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.catalogs import GlueLake, HiveLake, LocalLake, PostgresLake, running_lake
from tests.acceptance.lakes import Lake, RemoteLake
from tests.acceptance.ledger import Feed, Ledger, events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.proxy import LossyRelay, Proxy, Way
from tests.acceptance.running import Run
from tests.acceptance.soaking import soak_s
from tests.acceptance.upsert_tables import UpsertTable
from tests.acceptance.verifier import metadata_locations, open_table
from tests.fixtures.background import repeated
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.glue_proxy import GlueProxy
from tests.fixtures.store_proxy import StoreProxy
from tests.fixtures.waiting import PATIENCE_S
from tests.integration.servers import HOST, RestCatalogServer

pytestmark = pytest.mark.timeout(3600)

SOAK_S = 900.0
ENOUGH = 8
"""Faults that a slice ends with."""
MAINTENANCE = {"min_input_files": 4, "snapshots": {"count": 12}, "orphans": {"age": "60s"}}
BAD_EVERY = 20
"""Turns of the producer between two bad records."""
STARTED_WITHIN_S = 600.0
"""The first commit may meet several faults."""
ATTEMPT_S = 2
"""As long as a client waits for an answer."""
SEED = 34
STORE_SHARE = 0.05
FRESH_S = 5.0

Section = dict[str, Any]


class RestLake(LocalLake):
    """Iceberg's REST catalog."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = RestCatalogServer(folder / "catalog", str(self.warehouse))

    def section(self) -> Section:
        """As a user writes it."""
        return {"type": "rest", "uri": self.server.url}

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database of the catalog has them."""
        return metadata_locations(self.server.directory / "rest.db", " where table_namespace = ?", namespace)


@contextmanager
def rest(folder: Path) -> Iterator[tuple[Lake, Way, Section]]:
    """Over HTTP."""
    lake = RestLake(folder)
    lake.server.start()
    way = Proxy(lake.server.port)
    waits = {"rest.client.socket-timeout-ms": str(1000 * ATTEMPT_S)}
    yield lake, way, {"catalog": {**lake.section(), "uri": way.url, "properties": waits}}
    way.close()
    lake.server.kill()


@contextmanager
def jdbc(folder: Path) -> Iterator[tuple[Lake, Way, Section]]:
    """PostgreSQL. Without server-side statements each request has its SQL."""
    with running_lake("jdbc on PostgreSQL", folder) as lake:
        assert isinstance(lake, PostgresLake)
        way, section = LossyRelay(lake.server.port, rb"(UPDATE|INSERT INTO) iceberg_tables"), lake.section()
        section["uri"] = section["uri"].replace(str(lake.server.port), str(way.port))
        section["properties"] |= {"jdbc.socketTimeout": str(ATTEMPT_S), "jdbc.prepareThreshold": "0"}
        yield lake, way, {"catalog": section}
        way.close()


@contextmanager
def hive(folder: Path) -> Iterator[tuple[Lake, Way, Section]]:
    """Hive's metastore over Thrift."""
    with running_lake("hive", folder) as lake:
        assert isinstance(lake, HiveLake)
        way = LossyRelay(lake.server.port, rb"alter_table|create_table")
        waits = {"spark.hadoop.hive.metastore.client.socket.timeout": f"{ATTEMPT_S}s"}
        section = {**lake.section(), "uri": f"thrift://{HOST}:{way.port}"}
        yield lake, way, {"catalog": section, "spark": {"conf": {**lake.conf, **waits}}}
        way.close()


@contextmanager
def glue(folder: Path) -> Iterator[tuple[Lake, Way, Section]]:
    """Amazon's Glue; its store is reached directly."""
    with running_lake("glue", folder) as lake:
        assert isinstance(lake, GlueLake)
        way, section = GlueProxy(lake.server.port), lake.section()
        waits = {"http-client.apache.socket-timeout-ms": str(1000 * ATTEMPT_S)}
        section["properties"] |= {"glue.endpoint": way.url, **waits}
        yield lake, way, {"catalog": section}
        way.close()


CATALOGS: Mapping[str, Callable[[Path], Any]] = {"rest": rest, "jdbc": jdbc, "hive": hive, "glue": glue}


@contextmanager
def rest_and_store(lake: RemoteLake) -> Iterator[tuple[Lake, Way, Section]]:
    """Iceberg's REST catalog over HTTP, and an S3 store that fails one request in twenty."""
    way, store = Proxy(lake.port), StoreProxy(lake.store_port, STORE_SHARE, SEED)
    section = {**lake.section(), "uri": way.url}
    section["properties"] |= {"rest.client.socket-timeout-ms": str(1000 * ATTEMPT_S), "s3.endpoint": store.url}
    yield lake, way, {"catalog": section}
    assert store.faults.total(), "no request to the store failed"
    store.close()
    way.close()


@pytest.fixture(
    scope="module",
    params=list(CATALOGS),
)
def unreliable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake, the way to its catalog, and what a pipeline file has of that."""
    if request.param == "rest and store":
        making = rest_and_store(request.getfixturevalue("remote_lake"))
    else:
        making = CATALOGS[request.param](tmp_path_factory.mktemp("lake"))
    with making as made:
        yield made


@pytest.fixture
def pipeline(
    unreliable: tuple[Lake, Way, Section], broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline that goes by this way."""
    lake, _, section = unreliable
    with opened(tmp_path, broker.bootstrap_servers, spark, lake) as made:
        made.document["catalog"] = section["catalog"]
        made.document["spark"]["conf"] |= section.get("spark", {}).get("conf", {})
        made.document["maintenance"] = MAINTENANCE
        yield made


class Stream:
    """Records for a table whose columns grow and that has dead letters, and for an upsert table."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("events", 2)
        self.changes = UpsertTable(pipeline, "changes")
        self.ages_s: list[float] = []
        """How long it took until each turn's records were in the table."""
        self._feed, self._bad = Feed(pipeline.servers, pipeline.ledger), Feed(pipeline.servers, Ledger())
        self._bad_places: list[tuple[int, int]] = []
        self._sent = [0, 0]
        self._due: deque[tuple[float, int, int]] = deque()
        self._clock = SystemClock()

    def produce(self, turn: int) -> None:
        """Some records more, in one partition; new fields come often at first, and then more seldom."""
        partition = turn % 2
        more = {f"field{number}": turn for number in range(turn.bit_length())}
        self._feed.produce(self.topic, events(10, 10 * turn, **more), partition)
        self._sent[partition] += 10
        if turn % BAD_EVERY == 0:
            self._bad.produce(self.topic, [b"not JSON"], partition)
            self._bad_places.append((partition, self._sent[partition]))
            self._sent[partition] += 1
        self._due.append((self._clock.monotonic_s(), partition, self._sent[partition]))
        self.changes.change(5)

    def forget(self) -> None:
        """Leaves out what waits already: it waited for the start."""
        self._due.clear()

    def look(self) -> None:
        """Notes which records are in the table by now."""
        offsets = self.pipeline.progress(self.table).get(self.topic, {})
        now_s = self._clock.monotonic_s()
        while self._due and offsets.get(self._due[0][1], 0) >= self._due[0][2]:
            self.ages_s.append(now_s - self._due.popleft()[0])

    def check(self, run: Run) -> None:
        """The tables have the topics: nothing is lost, nothing is there twice, at every snapshot and for every reader."""
        goal = {self.topic: dict(enumerate(self._sent))}
        self.pipeline.wait_for_offsets(self.table, goal, run)
        self.changes.wait(run)
        assert run.stop() == 0, run.tail()
        assert not run.seen("table_stopped")
        self.pipeline.check(self.table)
        self.changes.check_all()
        metadata = self.pipeline.current(f"{self.table}__dead_letters")
        assert metadata is not None
        dead_letters = open_table(metadata).scan().to_arrow().to_pylist()
        places = sorted((row["partition"], row["offset"]) for row in dead_letters if row["topic"] == self.topic)
        assert places == sorted(self._bad_places)


def share(ages_s: list[float], part: float) -> float:
    """A quantile; not a number where there is none."""
    return sorted(ages_s)[int(part * (len(ages_s) - 1))] if ages_s else math.nan


def stream_for(pipeline: Pipeline, way: Way, seconds: float, per_mille: int, enough: int = sys.maxsize) -> Stream:
    """Runs the pipeline while commits meet faults, for so long or until enough have; then the tables are what the topics
    have. What commits met and how fresh the table was is written before that: reading every snapshot takes long.
    """
    stream, clock = Stream(pipeline), SystemClock()
    run = pipeline.run()
    with way.unlucky(SEED, per_mille), repeated(stream.produce, 0.2):
        run.wait_for("batch_committed", within_s=STARTED_WITHIN_S)
        stream.forget()
        until_s = clock.monotonic_s() + seconds

        def is_over() -> bool:
            stream.look()
            return clock.monotonic_s() >= until_s or faults_of(way) >= enough

        run.wait_while_running(is_over, "the time is over", seconds + 60)
    p50, p99 = (round(share(stream.ages_s, part), 1) for part in (0.5, 0.99))
    sys.stderr.write(f"\n{way.met.total()} commits, {dict(way.met)}, freshness in seconds: p50 {p50}, p99 {p99}\n")
    stream.check(run)
    return stream


def faults_of(way: Way) -> int:
    """How many commits have met a fault."""
    return sum(count for fault, count in way.met.items() if fault)


@pytest.mark.slow
def test_a_slice_of_bad_luck_loses_and_doubles_nothing(
    pipeline: Pipeline, unreliable: tuple[Lake, Way, Section]
) -> None:
    """Two commits of five meet a fault."""
    _, way, _ = unreliable
    stream_for(pipeline, way, PATIENCE_S, 400 // len(way.faults), ENOUGH)
    assert faults_of(way) >= ENOUGH, way.met


@pytest.mark.soak
def test_a_quarter_of_an_hour_of_bad_luck_loses_and_doubles_nothing(
    pipeline: Pipeline, unreliable: tuple[Lake, Way, Section]
) -> None:
    """Each answer at 2 %: half of them in place of the commit, half of them after it."""
    _, way, _ = unreliable
    soak(pipeline, way, 10)
    assert set(way.met) >= set(way.faults), set(way.faults) - set(way.met)


@pytest.mark.soak
@pytest.mark.parametrize("unreliable", ["rest and store"], indirect=True)
def test_catalog_and_store_that_fail_at_once_leave_the_table_fresh(
    pipeline: Pipeline, unreliable: tuple[Lake, Way, Section]
) -> None:
    """One request in twenty to the store, and one commit in fifty."""
    assert soak(pipeline, unreliable[1], 1) <= FRESH_S


def soak(pipeline: Pipeline, way: Way, per_mille: int) -> float:
    """As `stream_for`, for long; the freshness that 99 % reach, in seconds."""
    way.met.clear()
    return share(stream_for(pipeline, way, soak_s(SOAK_S), per_mille).ages_s, 0.99)
