"""Offsets of tables published as those of a consumer group: which ones, when, and when no longer."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.errors import UnavailableError
from frazil.ingest.loop.published_offsets import OffsetPublisher, Published, next_offsets
from frazil.ingest.tables.state import ColumnSearch, OffsetState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import GroupOffset, Partition, TopicDescription
from frazil.spec import TableSpec
from frazil.types import Progress
from frazil_testing.memory_kafka import MemoryGroup
from frazil_testing.twins import FakeClock

PLACE = ("a", 0)


def _table(name: str, *offsets: int, topic_id: str = "id-a") -> Table:
    """A table that has committed these next offsets of the partitions of topic `a`."""
    progress = Progress({"a": dict(enumerate(offsets))}, {"a": topic_id}, snapshot_id=1)
    state = TableState(name, "u", Schema(), "/t", {}, 2, progress)
    topics = {"a": TopicDescription("a", "id-a", len(offsets))}
    table = Table(TableSpec(name=name, topics=()), state=state, offsets=OffsetState(topics=topics))
    table.catalog.loaded_at_s = 1.0
    return table


class Runs:
    """Runs of one pipeline that publish to one group."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.group = MemoryGroup()

    def start(self, run_id: str) -> OffsetPublisher:
        return OffsetPublisher(self.group, run_id, self.clock)

    def publish(self, run: OffsetPublisher, *tables: Table) -> float:
        """What the run publishes of these tables a second later; the pause after it."""
        self.clock.sleep(1)
        run.note(tables)
        return run.publish()

    @property
    def offsets(self) -> dict[Partition, int]:
        return {place: held.offset for place, held in self.group.committed.items()}


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_of_several_tables_of_a_topic_the_least_offset_counts() -> None:
    assert next_offsets([_table("n.x", 5, 9), _table("n.y", 7, 8)]) == {("a", 0): 5, ("a", 1): 8}


def test_records_that_change_no_row_are_no_lag_though_no_table_is_made_for_them() -> None:
    topics = {"a": TopicDescription("a", "id-a", 1)}
    offsets = OffsetState(topics=topics, first={"a": {0: 2}}, search=ColumnSearch({"a": {0: 5}}, is_without_rows=True))
    table = Table(TableSpec(name="n.x", topics=()), offsets=offsets)
    table.catalog.loaded_at_s, table.catalog.is_loaded = 1.0, True
    assert next_offsets([table]) == {("a", 0): 5}
    offsets.search.is_without_rows = False
    assert next_offsets([table]) == {("a", 0): 2}


def test_nothing_is_published_of_a_partition_that_a_table_is_not_known_to_have_read() -> None:
    unloaded = _table("n.y", 7)
    unloaded.state = None
    assert next_offsets([_table("n.x", 5), unloaded]) == {}
    assert next_offsets([_table("n.x", 5), _table("n.z", 3, topic_id="of a topic that was deleted")]) == {}


def test_a_process_publishes_no_partition_of_which_it_only_watches_tables() -> None:
    own, watched = _table("n.x", 5, 9), _table("n.y", 3)
    watched.schedule.is_owned = False
    assert next_offsets([watched]) == {}
    assert next_offsets([own, watched]) == {("a", 0): 3, ("a", 1): 9}


def test_offsets_are_published_once_and_go_back_with_the_table(runs: Runs) -> None:
    run = runs.start("one")
    for offset in (5, 5, 8, 8):
        runs.publish(run, _table("n.x", offset, 1))
    assert runs.group.commits == [
        {("a", 0): GroupOffset(5, "frazil one"), ("a", 1): GroupOffset(1, "frazil one")},
        {("a", 0): GroupOffset(8, "frazil one")},
    ]
    runs.publish(run, _table("n.x", 2, 1))
    assert runs.offsets == {("a", 0): 2, ("a", 1): 1}


def test_idle_offsets_are_repeated_before_kafka_forgets_them(runs: Runs) -> None:
    run = runs.start("one")
    for offset in range(650):
        runs.publish(run, _table("n.x", offset, 5))
    assert sum(("a", 1) in commit for commit in runs.group.commits) == 2


def test_a_later_run_continues_and_the_earlier_one_takes_nothing_back(runs: Runs) -> None:
    earlier, later = runs.start("earlier"), runs.start("later")
    runs.publish(earlier, _table("n.x", 5))
    runs.publish(later, _table("n.x", 5))
    runs.publish(later, _table("n.x", 9))
    for _ in range(30):
        runs.publish(earlier, _table("n.x", 7))
    assert runs.offsets == {PLACE: 9}


def test_a_run_does_not_lower_what_the_run_before_it_has_just_committed(runs: Runs) -> None:
    earlier, later = runs.start("earlier"), runs.start("later")
    runs.publish(earlier, _table("n.x", 8))
    runs.publish(later, _table("n.x", 5))
    runs.publish(earlier, _table("n.x", 9))
    for _ in range(30):
        runs.publish(later, _table("n.x", 5))
    assert runs.offsets == {PLACE: 9}
    runs.publish(later, _table("n.x", 12))
    assert runs.offsets == {PLACE: 12}


def test_a_table_that_was_rolled_back_between_two_runs_is_published_as_it_is(runs: Runs) -> None:
    runs.publish(runs.start("earlier"), _table("n.x", 8))
    later = runs.start("later")
    for _ in range(20):
        runs.publish(later, _table("n.x", 3))
    assert runs.offsets == {PLACE: 3}


@pytest.mark.parametrize("cause", ["a member", "offsets of another client"])
def test_a_group_of_others_is_refused_and_left_alone(runs: Runs, cause: str) -> None:
    if cause == "a member":
        runs.group.has_members = True
    else:
        runs.group.committed[PLACE] = GroupOffset(3, "")
    before, run = dict(runs.group.committed), runs.start("one")
    with capture_logs() as logs:
        for offset in (5, 6, 7):
            runs.publish(run, _table("n.x", offset))
    [refused] = logs
    assert refused["event"] == "offsets_refused"
    assert refused["remedy"].startswith("end that consumer, or write `publish_offsets: false`")
    assert runs.group.committed == before


def test_a_failure_is_logged_once_and_retried_until_it_is_over(runs: Runs) -> None:
    run = runs.start("one")
    runs.group.failure = UnavailableError("Group authorization failed", remedy="allow it", where="group frazil-p")
    with capture_logs() as logs:
        pauses = [runs.publish(run, _table("n.x", 5)) for _ in range(4)]
        runs.group.failure = None
        runs.publish(run, _table("n.x", 5))
    assert [(one["event"], one["remedy"]) for one in logs] == [("offsets_not_published", "allow it")]
    assert pauses == [1.0, 10.0, 10.0, 10.0]
    assert runs.offsets == {PLACE: 5}


def test_the_status_has_when_the_group_was_up_to_date_and_why_it_is_not(runs: Runs) -> None:
    run = runs.start("one")
    assert run.status == Published("memory")
    runs.publish(run, _table("n.x", 5))
    first_ms = run.status.last_ms
    assert first_ms == runs.clock.now_ms()
    runs.publish(run, _table("n.x", 5))
    assert run.status == Published("memory", first_ms + 1000)
    runs.group.failure = UnavailableError("the broker is gone")
    runs.publish(run, _table("n.x", 6))
    assert run.status == Published("memory", first_ms + 1000, "the broker is gone")
    runs.group.failure = None
    runs.publish(run, _table("n.x", 6))
    assert run.status == Published("memory", runs.clock.now_ms())


def test_the_last_offsets_are_published_before_the_thread_ends(runs: Runs) -> None:
    run = runs.start("one")
    run.start()
    run.stop([_table("n.x", 5)], 5)
    assert runs.offsets == {PLACE: 5}
