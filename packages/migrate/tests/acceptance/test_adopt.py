"""Tables change hands while records arrive: from Kafka Connect's sink or Spark Structured Streaming to Frazil and back, with
kills in between. Every record is a row once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.kafka.group import KafkaGroup
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.iceberg_sink import IcebergSink
from tests.fixtures.streaming import Streaming
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline, Running

TABLE = "shop.orders"
pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

_SHORT, _SLICE, _SOAK = 2_000, 20_000, 1_000_000


class Scene:
    """A topic into which records are written all the time, and the pipeline whose table has them."""

    def __init__(self, folder: Path, servers: str, jvm: Jvm | None = None) -> None:
        """jvm: as of Pipeline."""
        self.folder = folder
        self.ledger = Ledger(servers, new_id())
        document = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": servers},
            "tables": {TABLE: {"topic": self.ledger.topic}},
        }
        self.pipeline = Pipeline(folder, document, jvm=jvm)
        (folder / "frazil-data").mkdir()

    @contextmanager
    def writing(self, count: int) -> Iterator[None]:
        """Has `count` records written meanwhile; at the end they all are."""

        def write() -> None:
            for _ in range(100):
                self.ledger.produce(count // 100)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def table(self) -> StaticTable | None:
        """The table; None before it exists."""
        with closing(sqlite3.connect(self.folder / "frazil-data" / "catalog.db")) as catalog:
            if not catalog.execute("select 1 from sqlite_master where name = 'iceberg_tables'").fetchone():
                return None
            query = "select metadata_location from iceberg_tables where table_name = 'orders'"
            location = catalog.execute(query).fetchone()
        return StaticTable.from_metadata(str(location[0])) if location is not None else None

    def numbers(self) -> list[int]:
        """What the table has, as far as it exists."""
        table = self.table()
        found: list[int] = table.scan().to_arrow().column("number").to_pylist() if table is not None else []
        return found

    def wait_for(self, count: int) -> None:
        """Until the table has as many rows, by its snapshot: the rows themselves are not read again and again."""
        wait_until(lambda: self._row_count() >= count, f"{count} rows")

    def _row_count(self) -> int:
        table = self.table()
        snapshot = table.current_snapshot() if table is not None else None
        summary = snapshot.summary if snapshot is not None else None
        return int(summary["total-records"] or 0) if summary is not None else 0

    def adopt(self, *words: str, code: int = 0) -> dict[str, str]:
        """What the command says of the table."""
        return self._changed_hands("adopt", TABLE, *words, code=code)

    def release(self, *words: str, code: int = 0) -> dict[str, str]:
        """What the command says of the table."""
        return self._changed_hands("release", TABLE, *words, code=code)

    def _changed_hands(self, *words: str, code: int) -> dict[str, str]:
        done, document = self.pipeline.command(*words)
        assert done.returncode == code, done.stdout + done.stderr
        assert "tables" in document, document
        found: dict[str, str] = document["tables"][TABLE]
        return found

    def run_and_die(self, records: int) -> None:
        """One run that is killed after it has committed some records."""
        with self.pipeline.start() as running:
            running.wait_until_committed(records)

    def wait_until_stopped(self, running: Running) -> None:
        """Until the pipeline knows that the table was released: of a refused batch at once, else within a minute."""
        self.ledger.produce(10)
        wait_until(lambda: running.events_named("table_stopped"), "the pipeline stops the table")

    def assert_exact(self) -> None:
        counted = Counter(self.numbers())
        assert {number: count for number, count in counted.items() if count > 1} == {}
        assert counted.keys() ^ set(range(self.ledger.count)) == set()


def create_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 1)]).values():
        made.result(20)


def there_and_back_with_kafka_connect(scene: Scene, records: int) -> None:
    part, servers = records // 5, scene.ledger.servers
    sink = IcebergSink(scene.folder, servers, scene.ledger.topic, TABLE)
    group = KafkaGroup({"bootstrap.servers": servers}, sink.group)
    places = [(scene.ledger.topic, number) for number in range(2)]
    create_topic(servers, sink.settings["iceberg.control.topic"])

    def has_all_that_was_read() -> bool:
        return sum(one.offset for one in group.offsets(places).values()) == len(scene.numbers())

    try:
        with scene.writing(part):
            sink.start()
            scene.wait_for(1)
            assert "stop it" in scene.adopt("--from", "kafka-connect", code=1)["remedy"]
            sink.kill()
        with scene.writing(part):
            sink.start()
            scene.wait_for(part)
            sink.ask("pause")
            wait_until(has_all_that_was_read, "the sink has committed what it has read")
            sink.ask("stop")
            wait_until(lambda: not group.is_live(), "the group is empty")
            sink.kill()
            assert scene.adopt("--from", "kafka-connect", code=4)["action"] == "adopt"
            scene.adopt("--from", "kafka-connect", "--apply")
        with scene.writing(part):
            scene.run_and_die(part // 4)
        with scene.writing(part), scene.pipeline.start() as running:
            running.wait_until_committed(1)
            assert scene.release("--to", "kafka-connect", code=4)["action"] == "release"
            scene.release("--to", "kafka-connect", "--apply")
            scene.wait_until_stopped(running)
        with scene.writing(part):
            sink.start()
        scene.wait_for(scene.ledger.count)
    finally:
        sink.kill()
    scene.assert_exact()
    table = scene.table()
    assert table is not None
    assert {task.file.partition[0] for task in table.scan().plan_files()} == {0, 1, 2, 3}
    assert {task.file.spec_id for task in table.scan().plan_files()} == {0}


def there_and_back_with_spark(scene: Scene, records: int) -> None:
    part, servers = records // 5, scene.ledger.servers
    query = Streaming(scene.folder, servers, scene.ledger.topic, TABLE)
    checkpoint = str(query.checkpoint)
    try:
        with scene.writing(part):
            query.start()
            scene.wait_for(part // 4)
            query.kill()
        with scene.writing(part):
            assert scene.adopt("--from", "spark", "--checkpoint", checkpoint, code=4)["action"] == "adopt"
            scene.adopt("--from", "spark", "--checkpoint", checkpoint, "--apply")
        with scene.writing(part):
            scene.run_and_die(part // 4)
        query.checkpoint = scene.folder / "next"
        with scene.writing(part), scene.pipeline.start() as running:
            running.wait_until_committed(1)
            scene.release("--to", "spark", "--checkpoint", str(query.checkpoint), "--apply")
            scene.wait_until_stopped(running)
        with scene.writing(part):
            query.start()
        scene.wait_for(scene.ledger.count)
    finally:
        query.kill()
    scene.assert_exact()


def test_every_record_is_a_row_once_when_the_table_of_a_killed_query_is_adopted(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, broker.bootstrap_servers, jvm)
    query = Streaming(tmp_path, broker.bootstrap_servers, scene.ledger.topic, TABLE)
    try:
        with scene.writing(_SHORT):
            query.start()
            scene.wait_for(_SHORT // 4)
            query.kill()
    finally:
        query.kill()
    scene.adopt("--from", "spark", "--checkpoint", str(query.checkpoint), "--apply")
    scene.pipeline.run()
    scene.assert_exact()


@pytest.mark.slow  # In time: one way, above; the offsets that another tool gets in unit/adopt/test_release.py.
@pytest.mark.parametrize("there_and_back", [there_and_back_with_kafka_connect, there_and_back_with_spark])
def test_every_record_is_a_row_once_when_a_table_changes_hands(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path, there_and_back: Callable[[Scene, int], None]
) -> None:
    there_and_back(Scene(tmp_path, broker.bootstrap_servers, jvm), _SLICE)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("there_and_back", [there_and_back_with_kafka_connect, there_and_back_with_spark])
def test_every_one_of_a_million_records_is_a_row_once(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path, there_and_back: Callable[[Scene, int], None]
) -> None:
    there_and_back(Scene(tmp_path, broker.bootstrap_servers, jvm), _SOAK)
