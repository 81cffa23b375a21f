"""A table that Kafka Connect's sink fills, which is killed in its first commit cycle: each lost record is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
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
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
TABLE, FIRST, LATER = "shop.orders", 400, 100
_LEAST_BYTES = 500


class Scene:
    """A topic, the sink that reads it, and the table in a catalog on SQLite."""

    def __init__(self, broker: EmbeddedBroker, jvm: Jvm, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.ledger = Ledger(servers, new_id())
        tables = {TABLE: {"topic": self.ledger.topic}}
        document = {"pipeline": "shop", "kafka": {"bootstrap.servers": servers}, "tables": tables}
        self.pipeline = Pipeline(folder, document, jvm=jvm)
        (folder / "frazil-data").mkdir()
        self.catalog = folder / "frazil-data" / "catalog.db"
        self.sink = IcebergSink(folder, servers, self.ledger.topic, TABLE)
        self.sink.settings["iceberg.control.commit.interval-ms"] = "4000"
        self._group = KafkaGroup({"bootstrap.servers": servers}, self.sink.group)
        control = NewTopic(self.sink.settings["iceberg.control.topic"], 1)
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([control]).values():
            made.result(20)

    def table(self) -> StaticTable | None:
        """The table; None before it exists."""
        with closing(sqlite3.connect(self.catalog)) as catalog:
            if not catalog.execute("select 1 from sqlite_master where name = 'iceberg_tables'").fetchone():
                return None
            query = "select metadata_location from iceberg_tables where table_name = 'orders'"
            location = catalog.execute(query).fetchone()
        return StaticTable.from_metadata(str(location[0])) if location is not None else None

    def numbers(self) -> set[int]:
        """The numbers of the rows."""
        table = self.table()
        return set() if table is None else set(table.scan().to_arrow().column("number").to_pylist())

    def sent(self) -> dict[tuple[str, int, int], int]:
        """The number of each record, by topic, partition and offset."""
        return {place: json.loads(value)["number"] for place, value in self.ledger.records.items() if value is not None}

    def committed(self) -> dict[tuple[str, int], int]:
        """The offsets that the sink's consumer group has committed, by topic and partition."""
        places = [(self.ledger.topic, number) for number in range(2)]
        return {place: committed.offset for place, committed in self._group.offsets(places).items()}

    def stirred(self, question: Callable[[], bool]) -> Callable[[], bool]:
        """The question, with a record before it each time: Connect hears of commits only while records arrive."""

        def ask() -> bool:
            self.ledger.produce(1)
            return question()

        return ask

    def _has_files(self) -> bool:
        """Whether a file with rows is complete: the coordinator has asked for a commit then."""
        files = self.catalog.parent.glob("warehouse/**/data/**/*.parquet")
        return any(file.stat().st_size >= _LEAST_BYTES for file in files)

    def kill_in_first_commit(self) -> None:
        """Has the sink read records, and kills it when its offsets are committed and its files are not."""
        self.sink.start()
        wait_until(self.stirred(self._has_files), "the sink has closed its first files", 60)
        with closing(sqlite3.connect(self.catalog, isolation_level=None)) as catalog:
            catalog.execute("begin immediate")  # No commit to the table gets past it.
            wait_until(self.stirred(lambda: bool(self.committed())), "the sink has committed its offsets", 60)
            self.sink.kill()
            catalog.execute("rollback")


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The sink after its kill and another start, with all later records in the table."""
    made = Scene(broker, jvm, tmp_path_factory.mktemp("foreign"))
    made.ledger.produce(FIRST)
    try:
        made.kill_in_first_commit()
        first = made.ledger.count
        made.ledger.produce(LATER)
        made.sink.start()
        later = set(range(first, first + LATER))
        wait_until(made.stirred(lambda: later <= made.numbers()), "the later records are rows", 90)
    finally:
        made.sink.kill()
    return made


def test_every_record_that_the_sink_has_lost_is_named(scene: Scene, tmp_path: Path) -> None:
    ends, rows = scene.committed(), scene.numbers()
    read = {number for place, number in scene.sent().items() if place[2] < ends[place[0], place[1]]}
    lost = read - rows
    before = scene.table()
    report = tmp_path / "report.json"
    words = ("--foreign", str(scene.pipeline.file), "--group", scene.sink.group, "--report", str(report))
    done, printed = scene.pipeline.command("verify", *words)
    table = printed["tables"][TABLE]
    assert lost, "the sink has lost nothing: its first commit got through"
    assert (done.returncode, table["counts"]) == (4, {"missing": len(lost)})
    assert {finding["expected"]["number"] for finding in table["findings"]} == lost
    assert {finding["topic"] for finding in table["findings"]} == {scene.ledger.topic}
    named = {(one["topic"], one["partition"], one["offset"]): one["expected"]["number"] for one in table["findings"]}
    assert named.items() <= scene.sent().items()
    after = scene.table()
    assert before is not None
    assert after is not None
    assert after.metadata_location == before.metadata_location
    assert report.exists()
    done, refused = scene.pipeline.command("repair", TABLE, "--from", str(report))
    assert (done.returncode, refused["error"]["remedy"]) == (2, "mend it by the tool that fills it")
