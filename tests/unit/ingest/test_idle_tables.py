"""What an idle table costs: the catalog is asked for it once a minute, and nothing else is done while it is unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyiceberg.schema import Schema

from frazil.catalog.layout import Layout
from frazil.catalog.port import TableSize, TableState
from frazil.errors import UnavailableError
from frazil.ingest.batches.services import Services
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.ingest.loop.table_updates import pause_table, resume_table, stop_table
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicDescription
from frazil.ops.pipeline_status import status_of
from frazil_testing.twins import MemoryCatalog, MemoryJobs, StepWorkers
from tests.unit.ingest.service_scene import HandWorkers, Scene, only, turn_until
from tests.unit.ingest.test_commit_intervals import SlowSource


class RememberingCatalog(MemoryCatalog):
    """Returns an unchanged table as the object that it has returned before, as the catalog on Iceberg does, and counts what
    it is asked for. `is_broken`: columns cannot be added.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, "p")
        self.asked: Counter[str] = Counter()
        self.is_broken = False
        self._returned: dict[str, TableState] = {}

    def load(self, table: str) -> TableState | None:
        self.asked["load"] += 1
        state = super().load(table)
        if state is None:
            return None
        known = self._returned.get(table)
        if known != state:
            self._returned[table] = state
        return self._returned[table]

    def size(self, table: str) -> TableSize:
        self.asked["size"] += 1
        return super().size(table)

    def arrange(self, table: str, layout: Layout) -> TableState:
        self.asked["arrange"] += 1
        return super().arrange(table, layout)

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        self.asked["evolve"] += 1
        if self.is_broken:
            raise UnavailableError("the catalog does not answer")
        return super().evolve(table, change)


class Idle(Scene):
    """One table, or some, and what the catalog is asked for it."""

    def __init__(self, root: Path, *topics: str) -> None:
        super().__init__(root, *(topics or ("a",)))
        self.catalog: RememberingCatalog = RememberingCatalog(root)

    def idle_service(self) -> Service:
        service = self.start()
        self.feed("a", {"id": 1}, {"id": 2})
        assert turn_until(service, lambda: has_read(service, 2))
        return service

    def pass_minutes(self, service: Service, minutes: int) -> Counter[str]:
        """What the catalog was asked for meanwhile."""
        self.catalog.asked.clear()
        until_s = self.clock.monotonic_s() + minutes * RELOAD_IDLE_EVERY_S
        while self.clock.monotonic_s() < until_s:
            service.turn()
        return self.catalog.asked


def has_read(service: Service, records: int) -> bool:
    return only(service.tables).progress.offsets == {"a": {0: records}}


def test_an_unchanged_table_is_loaded_once_a_minute_and_nothing_more(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    scene.pass_minutes(service, 2)  # The first load finds the state that our own commit has made.
    asked = scene.pass_minutes(service, 5)
    assert set(asked) == {"load"}
    assert 4 <= asked["load"] <= 5


def test_a_table_that_another_writer_has_changed_is_noticed_within_a_minute(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    scene.pass_minutes(service, 2)
    before = only(service.tables).progress.commit_id
    scene.catalog.roll_back("n.a", None)
    scene.pass_minutes(service, 1)
    assert turn_until(service, lambda: has_read(service, 2) and only(service.tables).progress.commit_id != before)
    assert sorted(row["id"] for row in scene.rows("n.a")) == [1, 2]


def test_a_table_that_could_not_be_prepared_is_prepared_by_a_later_load_though_it_is_unchanged(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    scene.idle_service()
    scene.settings = {"metadata": {"offset": "_offset"}}
    scene.catalog.is_broken = True
    service = scene.start()
    assert turn_until(service, lambda: scene.catalog.asked["evolve"] > 2)
    scene.catalog.is_broken = False
    scene.clock.sleep(60)
    scene.feed("a", {"id": 3})
    assert turn_until(service, lambda: has_read(service, 3))
    assert [row["_offset"] for row in scene.rows("n.a")] == [None, None, 2]


def test_the_state_of_an_idle_table_is_published_soon_after_it_changes(tmp_path: Path) -> None:
    scene, shown = Idle(tmp_path), list[tuple[float, int]]()

    def publish(tables: Sequence[Table]) -> None:
        table = only(tables)
        shown.append((scene.clock.monotonic_s(), (table.offsets.lag_records or 0) + len(table.progress.offsets)))
        scene.clock.sleep(0.1)  # As a thousand tables take.

    services = Services(scene.source, scene.catalog, scene.jobs, scene.clock, workers=StepWorkers(scene.clock))
    service = Service(scene.spec("a"), services, "run-1", publish)
    service.connect()
    assert turn_until(service, lambda: len(shown) > 3, turns=5000)
    fed_s = scene.clock.monotonic_s()
    scene.feed("a", {"id": 1})
    assert turn_until(service, lambda: shown[-1][1] > 0, turns=2000)
    assert shown[-1][0] - fed_s <= 4.0


def test_a_record_of_an_idle_topic_makes_its_table_late_from_then_on_and_not_from_the_record_before(
    tmp_path: Path,
) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    table = only(service.tables)
    scene.pass_minutes(service, 3)
    pause_table(table)  # So that the record waits.
    scene.feed("a", {"id": 3})
    assert turn_until(service, lambda: table.offsets.lag_records == 1)
    scene.clock.sleep(20)
    now_ms = scene.clock.now_ms()
    lateness = status_of(table).lag_s(now_ms)
    assert lateness == pytest.approx(20, abs=1)
    assert status_of(table).freshness_s(now_ms) == lateness
    resume_table(table)
    assert turn_until(service, lambda: has_read(service, 3))
    assert status_of(table).recorded.behind_since_ms is None


def test_the_lag_of_a_stopped_table_grows_until_its_topic_is_another_one(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    table = only(service.tables)
    stop_table(table, TableStopped("by a test", "none"))
    scene.feed("a", {"id": 3}, {"id": 4})
    scene.pass_minutes(service, 1)
    assert table.offsets.lag_records == 2
    assert table.offsets.behind_since_ms is not None
    scene.source.create("a")
    seen: set[int | None] = {table.offsets.lag_records}
    until_s = scene.clock.monotonic_s() + 2 * TOPICS_EVERY_S
    while scene.clock.monotonic_s() < until_s:
        service.turn()
        seen.add(status_of(table).lag.lag_records)
    assert seen == {2, None}, "also before the topics are requested again it is not 0"
    scene.feed("a", *({"id": number} for number in range(5)))
    scene.pass_minutes(service, 5)
    assert status_of(table).lag.lag_records is None, "records of the other topic are counted"
    assert not has_read(service, 3)


@pytest.mark.parametrize("is_recreated", [False, True])
def test_the_lag_of_a_paused_table_is_not_known_once_its_topic_is_deleted(tmp_path: Path, is_recreated: bool) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    table = only(service.tables)
    pause_table(table)
    del scene.source.by_name["a"]
    if is_recreated:
        scene.source.create("a")
        scene.feed("a", *({"id": number} for number in range(5)))
    scene.pass_minutes(service, 1)
    assert table.offsets.lag_records is None
    assert status_of(table).freshness_s(scene.clock.now_ms()) is None


def test_a_table_without_a_topic_has_no_lag_that_is_known(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    service = scene.idle_service()
    del scene.source.by_name["a"]
    scene.pass_minutes(service, 1)
    table = only(service.tables)
    assert (table.status.run_state, table.offsets.lag_records) == (RunState.BACKING_OFF, None)


def test_a_table_that_was_late_before_this_process_is_late_since_its_watermark(tmp_path: Path) -> None:
    scene = Idle(tmp_path)
    scene.idle_service()
    scene.feed("a", {"id": 3})
    service = scene.start(workers=HandWorkers(scene.clock))
    table = only(service.tables)
    assert turn_until(service, lambda: bool(table.offsets.lag_records))
    watermark_ms = table.progress.watermark.complete_to_ms
    assert watermark_ms is not None
    now_ms = watermark_ms + 3_600_000
    assert status_of(table).freshness_s(now_ms) == 3600.0


def test_topics_that_are_as_they_were_are_not_matched_with_a_thousand_tables_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched: list[int] = []
    set_topics = Discovery.set_topics

    def set_counted(discovery: Discovery, found: dict[str, TopicDescription]) -> None:
        matched.append(len(found))
        set_topics(discovery, found)

    monkeypatch.setattr(Discovery, "set_topics", set_counted)
    scene = Idle(tmp_path)
    service = scene.idle_service()
    scene.pass_minutes(service, 2)
    assert matched == [1]
    scene.source.create("a")
    scene.pass_minutes(service, 1)
    assert matched == [1, 1]
    assert only(service.tables).status.run_state is RunState.STOPPED


def idle_turns(root: Path, tables: int) -> int:
    """The number of turns in a minute in which so many idle tables are loaded once."""
    topics = [f"t{number:02d}" for number in range(tables)]
    scene = Idle(root, *topics)
    scene.source = source = SlowSource(scene.clock)
    scene.jobs = MemoryJobs(source)
    for topic in topics:
        source.create(topic)
        scene.feed(topic, {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: all(table.progress.offsets for table in service.tables))
    scene.pass_minutes(service, 2)
    source.answer_s, turns = 0.02, 0
    scene.catalog.asked.clear()
    until_s = scene.clock.monotonic_s() + RELOAD_IDLE_EVERY_S
    while scene.clock.monotonic_s() < until_s:
        service.turn()
        turns += 1
    assert scene.catalog.asked["load"] >= tables
    return turns


def test_the_loads_of_many_idle_tables_make_the_loop_turn_no_more_often(tmp_path: Path) -> None:
    assert idle_turns(tmp_path / "many", 30) <= idle_turns(tmp_path / "one", 1) + 3


@pytest.mark.parametrize(
    ("is_idle", "took_s", "expected_s"),
    [(False, 0.0, 0.5), (False, 0.01, 1.0), (False, 1.0, 3.0), (True, 0.0, 0.5), (True, 0.01, 3.3), (True, 1.0, 10.0)],
)
def test_what_takes_long_to_publish_is_published_less_often_and_least_while_nothing_happens(
    tmp_path: Path, is_idle: bool, took_s: float, expected_s: float
) -> None:
    scene, published_s = Idle(tmp_path), list[float]()

    def publish(_: Sequence[Table]) -> None:
        published_s.append(scene.clock.monotonic_s())
        scene.clock.sleep(took_s)

    services = Services(scene.source, scene.catalog, scene.jobs, scene.clock, workers=StepWorkers(scene.clock))
    service = Service(scene.spec("a"), services, "run-1", publish)
    service.connect()

    def have_twenty() -> bool:
        if not is_idle:
            scene.feed("a", {"id": 1})
        return len(published_s) > 20

    turn_until(service, have_twenty, turns=5000)
    gaps_s = [later - before for before, later in pairwise(published_s)]
    assert sum(gaps_s) / len(gaps_s) == pytest.approx(expected_s, abs=0.3)
