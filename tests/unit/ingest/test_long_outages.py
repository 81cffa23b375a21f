"""Outages that last, and many tables to ask for: no number grows out of its type, and one table's wait is no other's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.errors import UnavailableError
from frazil.ingest.batches.services import RunTimeouts
from frazil.ingest.batches.workers import Done
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.ingest.loop.table_updates import LONGEST_BACKOFF_S, backoff_s
from frazil.ingest.tables.state import RunState
from frazil_testing.twins import FakeClock, MemoryCatalog, StepWorkers
from tests.unit.ingest.service_scene import Scene, turn_until

ASKED_S = 0.05
SILENT_S = 60.0


class AskedCatalog(MemoryCatalog):
    """Each load takes `takes_s`, and begins with what a test wants."""

    def __init__(self, root: Path, clock: FakeClock) -> None:
        super().__init__(root, "p")
        self._clock = clock
        self.takes_s = 0.0
        self.loads: dict[str, float] = {}
        self.begin: Callable[[str], None] = lambda _: None

    def load(self, table: str) -> TableState | None:
        self._clock.sleep(self.takes_s)
        self.begin(table)
        self.loads[table] = self._clock.monotonic_s()
        return super().load(table)


class Asked(Scene):
    """A scene with such a catalog."""

    def __init__(self, root: Path, *topics: str, **settings: Any) -> None:
        super().__init__(root, *topics, **settings)
        self.catalog: AskedCatalog = AskedCatalog(root, self.clock)


def test_the_pause_grows_to_its_longest_and_no_further() -> None:
    for failures, pause_s in {1: 0.5, 2: 1.0, 3: 2.0, 7: 30.0, 100: 30.0, 1025: 30.0, 100_000: 30.0}.items():
        assert backoff_s(failures) == pytest.approx(pause_s, rel=0.2)


@pytest.mark.parametrize("away", ["kafka", "catalog"])
def test_an_outage_may_last_for_a_day(tmp_path: Path, away: str) -> None:
    scene = Asked(tmp_path, "a")
    scene.feed("a", {"x": 1})
    service = scene.start()

    def fail(table: str) -> None:
        raise UnavailableError("the catalog is away", where=table)

    scene.source.is_down = away == "kafka"
    scene.catalog.begin = fail if away == "catalog" else lambda _: None
    scene.clock.sleep(RELOAD_IDLE_EVERY_S)
    until_s = scene.clock.monotonic_s() + 86_400
    while scene.clock.monotonic_s() < until_s:
        service.turn()
        scene.clock.sleep(LONGEST_BACKOFF_S if away == "catalog" else 0.0)
    assert service.tables[0].status.run_state is RunState.BACKING_OFF
    scene.source.is_down, scene.catalog.begin = False, lambda _: None
    scene.clock.sleep(2 * LONGEST_BACKOFF_S)
    assert turn_until(service, lambda: scene.catalog.load("n.a") and scene.rows("n.a") == [{"x": 1}])


def test_a_process_that_is_stopped_before_kafka_answers_does_not_report_a_connection(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    service = scene.unconnected()
    scene.source.is_down = True
    answer = scene.source.cluster_id

    def answer_twice() -> str:
        outages.append(1)
        if len(outages) == 2:
            service.stop()
        return answer()

    outages: list[int] = []
    scene.source.cluster_id = answer_twice  # type: ignore[method-assign]
    with capture_logs() as logged:
        service.run()
    assert [entry["event"] for entry in logged if entry["event"] in ("service_unavailable", "connected")] == [
        "service_unavailable",
        "service_unavailable",
    ]


class StuckWorkers(StepWorkers):
    """Nothing ends before a time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._own_clock = clock
        self.until_s = 0.0

    def wait(self, timeout_s: float) -> list[Done]:
        if self._own_clock.monotonic_s() >= self.until_s:
            return super().wait(timeout_s)
        self._own_clock.sleep(timeout_s)
        return []


def test_a_load_that_nobody_answers_is_reported_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    workers = StuckWorkers(scene.clock)
    service = scene.unconnected(workers=workers)
    workers.until_s = scene.clock.monotonic_s() + 80
    with capture_logs() as logged:
        service.connect()
    (slow,) = [entry for entry in logged if entry["event"] == "table_load_slow"]
    assert (slow["table"], slow["waited_s"], slow["log_level"]) == ("n.a", 15, "warning")
    assert slow["remedy"].startswith("check that the catalog and the store answer this machine")
    workers.until_s = 0.0
    with capture_logs() as logged:
        scene.clock.sleep(2 * RELOAD_IDLE_EVERY_S)
        for _ in range(5):
            service.turn()
    assert "table_load_slow" not in {entry["event"] for entry in logged}


def test_a_run_that_is_to_catch_up_ends_in_time_though_no_load_does(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    workers, began_s = StuckWorkers(scene.clock), scene.clock.monotonic_s()
    workers.until_s = began_s + 3_600
    with pytest.raises(UnavailableError) as ended:
        scene.unconnected(workers=workers).run(until_caught_up=True, timeouts=RunTimeouts(scene.clock, 20.0))
    assert ended.value.message == (
        "not caught up after waiting for 20s: table n.a: the catalog or the store has not answered its load"
    )
    assert ended.value.remedy.startswith("check that both answer this machine")
    assert scene.clock.monotonic_s() - began_s == pytest.approx(20, abs=2)


def test_a_run_that_is_to_catch_up_ends_in_time_with_the_reason_of_refused_loads(tmp_path: Path) -> None:
    scene = Asked(tmp_path, "a", "b")

    def refuse(table: str) -> None:
        raise UnavailableError("the store refuses the signature", where=table)

    scene.catalog.begin, scene.catalog.takes_s = refuse, 3.0
    began_s = scene.clock.monotonic_s()
    with pytest.raises(UnavailableError, match=r"not caught up after waiting for 20s: .*refuses the signature"):
        scene.unconnected().run(until_caught_up=True, timeouts=RunTimeouts(scene.clock, 20.0))
    assert scene.clock.monotonic_s() - began_s == pytest.approx(20, abs=8)


def test_slow_loads_that_end_are_no_wait_of_a_run_that_is_to_catch_up(tmp_path: Path) -> None:
    scene = Asked(tmp_path, "a", "b", "c", "d")
    for topic in scene.topics:
        scene.feed(topic, {"x": 1})
    scene.catalog.takes_s = 15.0
    scene.unconnected().run(until_caught_up=True, timeouts=RunTimeouts(scene.clock, 20.0))
    assert [scene.rows(f"n.{topic}") for topic in scene.topics] == [[{"x": 1}]] * 4


def test_many_idle_tables_are_asked_for_beside_the_others(tmp_path: Path) -> None:
    topics = [f"t{number:03d}" for number in range(100)]
    scene = Asked(tmp_path, *topics)
    service = scene.start()
    scene.catalog.takes_s = ASKED_S
    scene.catalog.loads.clear()
    scene.clock.sleep(RELOAD_IDLE_EVERY_S)
    longest_s, turns = 0.0, 0
    while len(scene.catalog.loads) < len(topics) and turns < 2 * len(topics):
        now_s, turns = scene.clock.monotonic_s(), turns + 1
        service.turn()
        longest_s = max(longest_s, scene.clock.monotonic_s() - now_s)
    assert len(scene.catalog.loads) == len(topics)
    assert longest_s < 1.0, "a table with records would wait for all of them"


def test_a_run_that_is_told_to_stop_asks_a_silent_catalog_for_no_further_table(tmp_path: Path) -> None:
    scene = Asked(tmp_path, *"abcdefgh")
    service = scene.start()
    asked: list[str] = []

    def be_silent(table: str) -> None:
        asked.append(table)
        service.stop()
        scene.clock.sleep(SILENT_S)
        raise UnavailableError("no answer", where=table)

    scene.catalog.begin = be_silent
    scene.clock.sleep(RELOAD_IDLE_EVERY_S)
    assert turn_until(service, service.is_over)
    assert len(asked) == 1


def test_a_run_that_has_just_begun_asks_a_silent_catalog_for_no_further_table(tmp_path: Path) -> None:
    scene = Asked(tmp_path, *"abcdefgh")
    service = scene.unconnected()
    asked: list[str] = []

    def be_silent(table: str) -> None:
        asked.append(table)
        service.stop()
        raise UnavailableError("no answer", where=table)

    scene.catalog.begin = be_silent
    service.run()
    assert len(asked) == 1


def test_a_table_that_waits_to_be_loaded_is_asked_for_before_those_that_are_idle(tmp_path: Path) -> None:
    scene = Asked(tmp_path, *"abcdefgh")
    service = scene.start()
    scene.catalog.takes_s = 1.0
    scene.clock.sleep(RELOAD_IDLE_EVERY_S)
    waiting = service.tables[5]
    waiting.catalog.is_loaded = False
    scene.catalog.loads.clear()
    assert turn_until(service, lambda: scene.catalog.loads)
    assert list(scene.catalog.loads) == [waiting.name]


def test_tables_that_cannot_be_loaded_leave_a_slow_catalog_to_the_others_too(tmp_path: Path) -> None:
    scene = Asked(tmp_path, *"abcdefghij")
    service = scene.start()
    loaded, others = service.tables[0], service.tables[1:]
    for table in others:
        table.catalog.is_loaded = False

    def refuse(table: str) -> None:
        if table != loaded.name:
            raise UnavailableError("no answer", where=table)

    scene.catalog.begin, scene.catalog.takes_s = refuse, LONGEST_BACKOFF_S / 5
    asked_s, longest_s = scene.clock.monotonic_s(), 0.0
    until_s = asked_s + 10 * RELOAD_IDLE_EVERY_S
    while scene.clock.monotonic_s() < until_s:
        service.turn()
        longest_s = max(longest_s, scene.clock.monotonic_s() - asked_s)
        asked_s = max(asked_s, loaded.catalog.asked_at_s)
    assert all(table.schedule.failures > 2 for table in others), "these are tried again and again"
    assert longest_s < 2 * RELOAD_IDLE_EVERY_S, "its schemas, its credentials and other writers would be seen by chance"
