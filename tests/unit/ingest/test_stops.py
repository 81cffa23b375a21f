"""Topics compared with the table's progress before a batch is read, and when the table must stop instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import new_schema
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.types import Commit, Progress, Writer
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemorySource

CLUSTER = "memory"


class Place:
    """A topic `a` with ten records, and the table that has read eight of them."""

    def __init__(self, root: Path, read_to: int = 8, **settings: object) -> None:
        self.source, self.catalog = MemorySource(), MemoryCatalog(root, "p")
        topic = self.source.create("a")
        for _ in range(10):
            self.source.produce("a", 0, b"{}")
        table = TableSpec.model_validate({"name": "n.t", "topics": (TopicSelector(literal="a"),), **settings})
        spec = PipelineSpec(
            pipeline="p", kafka={}, catalog=CatalogSpec(uri=""), tables=(table,), path=root / "f", state_dir=root
        )
        before = self.catalog.create("n.t", new_schema([]), {}, 2).progress
        progress = Progress({"a": {0: read_to}}, {"a": topic.id}, CLUSTER, "1", Writer(1, "run"))
        self.catalog.commit(Commit("n.t", (), progress, before))
        self.discovery = Discovery(spec, self.source, self.catalog)
        self.discovery.refresh_topics()
        self.table: Table = self.discovery.tables["n.t"]

    def check(self) -> None:
        """What is done before a table is read."""
        self.discovery.load(self.table, CLUSTER)
        self.discovery.check_offsets(self.table, self.source.ends([("a", 0)]))


def test_a_table_that_kafka_can_follow_continues(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.check()
    assert (place.table.position(), place.table.offsets.skipped) == ({"a": {0: 8}}, {})


def test_progress_of_another_cluster_stops_the_table(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(TableStopped, match="belongs to Kafka cluster memory, and this is other"):
        place.discovery.load(place.table, "other")


def test_a_topic_that_ends_before_the_next_offset_stops_the_table(tmp_path: Path) -> None:
    place = Place(tmp_path, read_to=12)
    with pytest.raises(TableStopped, match="ends at offset 10, before the table's next offset 12") as stopped:
        place.check()
    assert stopped.value.where == "topic a, partition 0, offset 12"


def test_a_topic_that_ends_early_because_it_was_made_again_is_told_so(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.discovery.load(place.table, CLUSTER)
    place.source.create("a")
    with pytest.raises(TableStopped, match="deleted and recreated"):
        place.discovery.check_offsets(place.table, place.source.ends([("a", 0)]))


def test_lost_records_stop_the_table_unless_they_may_be_skipped(tmp_path: Path) -> None:
    place = Place(tmp_path / "stop", read_to=2)
    place.source.trim("a", 0, 5)
    with pytest.raises(TableStopped, match="records 2 to 4 were deleted"):
        place.check()
    lenient = Place(tmp_path / "skip", read_to=2, on_data_loss="skip")
    lenient.source.trim("a", 0, 5)
    lenient.check()
    assert (lenient.table.position(), lenient.table.offsets.skipped) == ({"a": {0: 5}}, {"a": {0: (2, 5)}})


def test_a_table_in_a_batch_learns_of_new_partitions_after_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.table.schedule.in_flight = True
    place.source.by_name["a"].partitions.append([])
    place.discovery.refresh_topics()
    assert (place.discovery.is_behind(place.table), place.table.partitions()) == (True, [("a", 0)])
    place.table.schedule.in_flight = False
    place.discovery.verify(place.table)
    assert (place.discovery.is_behind(place.table), place.table.partitions()) == (False, [("a", 0), ("a", 1)])


def test_a_topic_made_again_under_a_batch_is_noticed_after_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.discovery.load(place.table, CLUSTER)
    place.table.schedule.in_flight = True
    place.source.create("a")
    place.discovery.refresh_topics()
    place.table.schedule.in_flight = False
    with pytest.raises(TableStopped, match="deleted and recreated"):
        place.discovery.verify(place.table)
