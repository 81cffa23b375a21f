"""Lookups with `wait`: records are held in the commit of their batch until the reference table has their row, each becomes
one row, and what decides when the wait is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.clock import SystemClock
from frazil.dead_letters.files import count_waiting
from frazil.errors import UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.kafka.port import TopicReaders
from frazil.spec.settings import KeySpec, LookupSpec
from frazil_deadletters.replay import Replayer
from frazil_lookup.waiting import WaitingTable, WaitSchedule
from frazil_testing.twins import FakeClock, live_rows
from packages.lookup.tests.unit.test_lookups import COUNTRIES, COUNTRY, SCHEMA, put
from tests.unit.ingest.service_scene import Scene, only

WAIT = {**COUNTRY, "wait_s": 600.0}
UPSERT = {"mode": "upsert", "key_columns": ("id",), "format_version": 3}
SELECT = "select id, country.name as name from records"


class Waiting:
    """A scene, and what replays its records that wait; time passes as the test says."""

    def __init__(self, scene: Scene, queries: Any) -> None:
        self.scene, self.clock = scene, FakeClock(SystemClock().now_ms())
        self._replayer = Replayer(scene.catalog, None, TopicReaders(scene.source, scene.source), queries)
        self.table = self.another()

    def another(self) -> WaitingTable:
        """The same in another process."""
        (spec,) = self.scene.spec("a").tables
        return WaitingTable(spec, self.scene.catalog, self._replayer, self.clock)

    def feed(self, *values: Any) -> None:
        self.scene.feed("a", *values)
        assert only(self.scene.catch_up()).status.run_state is RunState.WAITING

    def rows(self) -> dict[int, Any]:
        rows = self.scene.rows("n.a")
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["name"] for row in rows}

    def dead_letters(self) -> dict[int, str]:
        """By offset the class of error."""
        rows = live_rows(self.scene.catalog, "n.a__dead_letters")
        return {row["offset"]: row["error_class"] for row in rows}

    def head(self) -> int | None:
        state = self.scene.catalog.load("n.a__dead_letters")
        return None if state is None else state.head_id


@pytest.fixture
def waiting(scene: Any, queries: Any) -> Callable[..., Waiting]:
    def make(lookup: Any = WAIT, **settings: Any) -> Waiting:
        made: Scene = scene(lookup=(LookupSpec(**{"name": "country", **lookup}),), **{"select": SELECT, **settings})
        made.catalog.create("ref.countries", SCHEMA, {}, 2)
        put(made, COUNTRIES)
        return Waiting(made, queries)

    return make


def test_a_record_is_held_until_the_reference_table_has_its_row(waiting: Any) -> None:
    made = waiting()
    made.feed({"id": 1, "country_code": "de"}, {"id": 2, "country_code": "it"}, {"id": 3, "country_code": "at"})
    assert (made.rows(), made.dead_letters()) == ({1: "Germany"}, {1: "lookup_waiting", 2: "lookup_waiting"})
    head = made.head()
    assert not made.table.replay_due()
    assert (made.table.count, made.head()) == (2, head)  # Nothing is committed while they still wait.
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters(), made.table.count) == (
        {1: "Germany", 2: "Italy"},
        {2: "lookup_waiting"},
        1,
    )
    assert not made.another().replay_due()
    assert made.rows() == {1: "Germany", 2: "Italy"}


@pytest.mark.parametrize(
    ("on_miss", "row", "dead_letters"),
    [("null", {1: None}, {}), ("drop", {}, {}), ("dead_letter", {}, {0: "lookup_miss"})],
)
def test_on_miss_decides_once_the_wait_is_over(
    waiting: Any, on_miss: str, row: dict[int, None], dead_letters: dict[int, str]
) -> None:
    made = waiting({**WAIT, "on_miss": on_miss})
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "de"})
    made.clock.sleep(590)
    assert not made.table.replay_due()
    made.clock.sleep(20)
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({**row, 2: "Germany"}, dead_letters)
    assert not made.table.replay_due()


def test_a_replay_does_not_begin_the_wait_again(waiting: Any) -> None:
    made = waiting()
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "at"})
    made.clock.sleep(400)
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    assert made.table.replay_due()  # The other record is written to another file.
    made.clock.sleep(300)
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: "Italy", 2: None}, {})


def test_a_record_without_a_key_to_look_up_does_not_wait(waiting: Any) -> None:
    made = waiting()
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": None})
    assert (made.rows(), made.dead_letters()) == ({2: None}, {0: "lookup_waiting"})


def test_each_of_two_lookups_has_a_wait_of_its_own(scene: Any, queries: Any) -> None:
    lookups = (
        LookupSpec(**{"name": "country", **WAIT, "wait_s": 60.0}),
        LookupSpec(**{**WAIT, "name": "home", "on": ((("home_code",), "code"),)}),
    )
    select = "select id, concat_ws('-', country.name, home.name) as name from records"
    scene = scene(lookup=lookups, select=select)
    scene.catalog.create("ref.countries", SCHEMA, {}, 2)
    put(scene, COUNTRIES)
    made = Waiting(scene, queries)
    made.feed({"id": 1, "country_code": "it", "home_code": "it"}, {"id": 2, "country_code": "de", "home_code": "it"})
    made.clock.sleep(70)
    assert made.table.replay_due() is False or made.rows() == {}  # The first waits for the second lookup now.
    put(scene, [*COUNTRIES, ("it", "Italy", "EU")])
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: "Italy-Italy", 2: "Germany-Italy"}, {})


def _two_lookups(scene: Any, queries: Any, waits: tuple[float, float], **settings: Any) -> Waiting:
    lookups = (
        LookupSpec(**{**WAIT, "name": "country", "wait_s": waits[0]}),
        LookupSpec(**{**WAIT, "name": "home", "on": ((("home_code",), "code"),), "wait_s": waits[1]}),
    )
    select = "select id, concat_ws('-', country.name, home.name) as name from records"
    scene = scene(lookup=lookups, select=select, **settings)
    scene.catalog.create("ref.countries", SCHEMA, {}, 2)
    put(scene, COUNTRIES)
    return Waiting(scene, queries)


@pytest.mark.parametrize("waits", [(60.0, 600.0), (600.0, 60.0), (600.0, 600.0)])
@pytest.mark.parametrize("settings", [{}, UPSERT])
def test_a_record_whose_rows_of_two_reference_tables_never_come_waits_for_the_longer_time(
    scene: Any, queries: Any, waits: tuple[float, float], settings: Any
) -> None:
    made = _two_lookups(scene, queries, waits, **settings)
    made.feed({"id": 1, "country_code": "it", "home_code": "at"}, {"id": 2, "country_code": "de", "home_code": "de"})
    for _ in range(2):
        made.clock.sleep(70)
        made.table.replay_due()
    assert made.rows() == {2: "Germany-Germany"}
    made.clock.sleep(500)
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters(), made.table.count) == ({1: "", 2: "Germany-Germany"}, {}, 0)


def test_a_record_that_a_newer_one_has_held_back_does_not_wait_for_ever(
    waiting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = waiting(**UPSERT)
    monkeypatch.setattr("frazil.dead_letters.record.SystemClock", lambda: made.clock)
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "it"})
    made.clock.sleep(300)
    made.feed({"id": 1, "country_code": "at"})
    made.clock.sleep(310)
    made.table.replay_due()
    made.clock.sleep(700)
    made.table.replay_due()
    made.clock.sleep(700)
    made.table.replay_due()
    assert (made.rows(), made.dead_letters(), made.table.count) == ({1: None, 2: None}, {}, 0)


def test_a_newer_change_of_the_row_stays(waiting: Any) -> None:
    made = waiting(**UPSERT)
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "it"}, {"id": 3, "country_code": "at"})
    made.feed({"id": 1, "country_code": "de"}, {"id": 3, "country_code": "it"})
    assert (made.rows(), len(made.dead_letters())) == ({1: "Germany"}, 4)
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU"), ("at", "Austria", "EU")])
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: "Germany", 2: "Italy", 3: "Italy"}, {})


def test_a_newer_change_stays_whose_own_row_has_left_the_reference_table(waiting: Any) -> None:
    made = waiting(**UPSERT)
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "it"})
    made.feed({"id": 1, "country_code": "fr"}, {"id": 3, "country_code": "de"})
    put(made.scene, [("de", "Germany", "EU"), ("it", "Italy", "EU")])
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: "France", 2: "Italy", 3: "Germany"}, {})


def test_of_two_records_of_a_row_that_wait_the_newer_one_stays(waiting: Any) -> None:
    made = waiting(**UPSERT)
    made.feed({"id": 1, "country_code": "it"})
    made.feed({"id": 1, "country_code": "at"})
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: "Italy"}, {1: "lookup_waiting"})
    made.clock.sleep(700)
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: None}, {})


def test_a_deleted_row_does_not_come_back(waiting: Any) -> None:
    made = waiting(key=KeySpec(format="json"), **UPSERT)
    made.scene.source.produce("a", 0, b'{"id": 1, "country_code": "it"}', 5, key=b'{"id": 1}')
    made.scene.catch_up()
    made.scene.source.produce("a", 0, None, 6, key=b'{"id": 1}')
    made.scene.catch_up()
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    assert made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({}, {})


def test_a_held_record_counts_once_in_the_row_of_its_key(waiting: Any) -> None:
    made = waiting(
        select="select id, n as name, country.name as last from records",
        **{**UPSERT, "merge": (("name", "sum"),)},
    )
    made.feed(*({"id": 1, "n": n, "country_code": code} for n, code in ((1, "de"), (20, "it"), (300, "fr"))))
    assert made.rows() == {1: 301}
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    assert made.table.replay_due()
    assert not made.table.replay_due()
    assert (made.rows(), made.dead_letters()) == ({1: 321}, {})


def test_records_that_wait_do_not_stop_a_table(waiting: Any) -> None:
    made = waiting()
    made.feed(*({"id": n, "country_code": "it"} for n in range(300)), {"id": 300, "country_code": "de"})
    made.feed(*({"id": n, "country_code": "it"} for n in range(301, 600)))
    assert len(made.dead_letters()) == 599


def test_a_dead_letter_table_from_before_gets_the_column(waiting: Any) -> None:
    made = waiting({**COUNTRY, "on_miss": "dead_letter"})
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "de"})
    made.scene.settings["lookup"] = (LookupSpec(**{"name": "country", **WAIT}),)
    made.table = made.another()
    assert not made.table.replay_due()
    made.feed({"id": 3, "country_code": "it"})
    state = made.scene.catalog.load("n.a__dead_letters")
    assert (made.dead_letters(), count_waiting(made.scene.catalog, state)) == (
        {0: "lookup_miss", 2: "lookup_waiting"},
        1,
    )


def test_the_schedule_replays_tables_that_are_due_and_shows_how_many_wait(waiting: Any) -> None:
    made = waiting()
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "de"})
    replayed: list[str] = []
    schedule = WaitSchedule(lambda: (made.scene.catalog, made._replayer), made.clock, replayed.append, has_thread=False)
    table = only(made.scene.start().tables)
    schedule.note([table])
    schedule.run_last()
    schedule.note([table])
    assert (table.catalog.waiting_count, replayed) == (1, [])
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    made.clock.sleep(60)
    schedule.run_last()
    schedule.note([table])
    assert (table.catalog.waiting_count, replayed, made.rows()) == (0, ["n.a"], {1: "Italy", 2: "Germany"})


def test_a_failed_replay_is_logged_once_and_tried_again(waiting: Any) -> None:
    made = waiting()
    made.feed({"id": 1, "country_code": "it"}, {"id": 2, "country_code": "de"})
    answers = [UnavailableError("the catalog does not answer")] * 2

    def services() -> Any:
        if answers:
            raise answers.pop()
        return made.scene.catalog, made._replayer

    schedule = WaitSchedule(services, made.clock, has_thread=False)
    schedule.note([only(made.scene.start().tables)])
    put(made.scene, [*COUNTRIES, ("it", "Italy", "EU")])
    with capture_logs() as logs:
        for _ in range(4):
            schedule.run_last()
            made.clock.sleep(40)
    assert [log["event"] for log in logs] == ["waiting_records_failed", "waiting_records_replayed"]
    assert made.rows() == {1: "Italy", 2: "Germany"}
