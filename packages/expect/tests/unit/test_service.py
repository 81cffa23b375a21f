"""Tables with `expect`: what becomes of records that do not meet a condition, what is counted, and what stops the table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import structlog
from pyiceberg.types import LongType

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicReaders
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.stages.expect_settings import ExpectationSpec
from frazil.stages.protect_settings import ProtectRule
from frazil.types import Balance
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import live_rows
from tests.unit.ingest.service_scene import Scene, only, turn_until

GOOD, BAD, NULL = {"id": 1, "amount": 5}, {"id": 2, "amount": -5}, {"id": 3, "amount": None}
UPSERT = {"mode": "upsert", "key_columns": ("id",), "format_version": 3}


def expect(action: str, that: str = "amount >= 0", name: str = "positive") -> ExpectationSpec:
    """One expectation."""
    return ExpectationSpec.model_validate({"name": name, "that": that, "action": action})


def balance(scene: Scene) -> Balance:
    """The balance of the newest commit, of its records alone."""
    found = scene.progress().batch.balance
    assert found is not None
    return replace(found, fields={})


def ids(scene: Scene) -> list[int]:
    """The ids of the table's rows."""
    return [row["id"] for row in scene.rows("n.a")]


def reasons(scene: Scene) -> list[tuple[int, str, str]]:
    """Offset, class and message of each dead letter."""
    rows = live_rows(scene.catalog, "n.a__dead_letters")
    return sorted((row["offset"], row["error_class"], row["message"]) for row in rows)


def stopped(scene: Scene) -> Table:
    """The table of a run in which it stops."""
    service = scene.start()
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED, 50)
    return only(service.tables)


def test_a_field_that_only_bad_records_have_had_is_waited_for_with_words_that_are_true(scene: Any) -> None:
    made = scene(expect=(expect("warn"),), columns=(ColumnSpec(name="id", type=LongType()),))
    made.feed("a", {"id": 4}, {"id": "x", "amount": 5})
    service = made.start()
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.BACKING_OFF, 50)
    reason = only(service.tables).status.reason
    assert reason == "the query names an unknown column `amount`, and no record that can become a row has had it yet"
    made.feed("a", GOOD)
    made.catch_up()
    assert ids(made) == [4, 1]
    assert [error_class for _, error_class, _ in reasons(made)] == ["type_mismatch"]


def test_with_warn_rows_stay_and_what_does_not_meet_the_condition_is_counted(scene: Any) -> None:
    made = scene(expect=(expect("warn"), expect("warn", "id > 0", "identified")))
    made.feed("a", GOOD, BAD, NULL)
    with structlog.testing.capture_logs() as logs:
        made.catch_up()
        made.feed("a", BAD)
        made.catch_up()
    assert ids(made) == [1, 2, 3, 2]
    assert made.progress().totals.findings == {"positive": 3, "identified": 0}
    assert made.progress().totals.ignored_records == {}
    (first, second) = [one for one in logs if one["event"] == "expectation_not_met"]
    assert (first["expectation"], first["count"], first["offset"], first["action"]) == ("positive", 2, 1, "warn")
    assert first["reason"] == "the record does not meet positive (amount >= 0): amount = -5"
    assert second["count"] == 1  # A process logs an expectation at most once a minute; this is another one.


def test_an_expectation_is_logged_at_most_once_a_minute_with_all_since_then(scene: Any) -> None:
    made = scene(expect=(expect("warn"),))
    made.feed("a", GOOD)
    with structlog.testing.capture_logs() as logs:
        service = made.start()
        for number, pause_s in enumerate((1, 1, 70), 2):
            made.feed("a", BAD)
            made.clock.sleep(pause_s)
            assert turn_until(service, partial(has_reached, made, number))
    found = [one["count"] for one in logs if one["event"] == "expectation_not_met"]
    assert found == [1, 2]


def has_reached(scene: Scene, offset: int) -> bool:
    """Whether the table has the records before an offset."""
    state = scene.catalog.load("n.a")
    return state is not None and state.progress.offsets == {"a": {0: offset}}


def test_with_drop_the_record_makes_no_row_and_is_counted_by_the_name(scene: Any) -> None:
    made = scene(expect=(expect("drop"), expect("drop", "id < 3", "small")), where="id < 9")
    made.feed("a", GOOD, BAD, NULL, {"id": 9, "amount": -1})
    made.catch_up()
    assert ids(made) == [1]
    assert made.progress().totals.ignored_records == {"positive": 2, "where": 1}
    assert made.progress().totals.findings == {"positive": 2, "small": 1}
    assert balance(made) == Balance(4, 1, 0, {"positive": 2, "where": 1})


def test_with_dead_letter_the_record_is_kept_aside_with_the_condition_and_the_values(scene: Any) -> None:
    made = scene(expect=(expect("dead_letter"), expect("drop", "id < 2", "first")))
    made.feed("a", GOOD, BAD, NULL, {"id": 4, "amount": 4})
    made.catch_up()
    assert ids(made) == [1]
    assert reasons(made) == [
        (1, "failed_expectation", "the record does not meet positive (amount >= 0): amount = -5"),
        (2, "failed_expectation", "the record does not meet positive (amount >= 0): amount = null"),
    ]
    assert balance(made) == Balance(4, 1, 2, {"first": 1})


def test_a_condition_judges_the_rows_of_the_query_and_a_failing_one_is_not_met(scene: Any) -> None:
    made = scene(
        select="select id, amount * 2 as twice, text from records",
        expect=(expect("drop", "twice < 10", "small"), expect("dead_letter", "cast(text as int) > 0", "number")),
    )
    made.feed(
        "a",
        {"id": 1, "amount": 1, "text": "1"},
        {"id": 2, "amount": 5, "text": "1"},
        {"id": 3, "amount": 1, "text": "x"},
    )
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "twice": 2, "text": "1"}]
    assert reasons(made) == [
        (2, "failed_expectation", 'the record does not meet number (cast(text as int) > 0): text = "x"')
    ]


def test_of_a_record_with_several_rows_none_is_written_where_one_does_not_meet_it(scene: Any) -> None:
    made = scene(select="select id, explode(many) as one from records", expect=(expect("drop", "one > 0"),))
    made.feed("a", {"id": 1, "many": [1, 2]}, {"id": 2, "many": [3, -1]}, {"id": 3, "many": []})
    made.catch_up()
    assert ids(made) == [1, 1]
    assert balance(made) == Balance(3, 1, 0, {"positive": 1, "explode": 1})


def test_with_stop_nothing_of_the_batch_is_committed_until_the_consequence_is_another(scene: Any) -> None:
    made = scene(expect=(expect("stop"),))
    made.feed("a", GOOD)
    made.catch_up()
    made.feed("a", {"id": 4, "amount": 4}, BAD, BAD)
    table = stopped(made)
    assert (
        table.status.reason == "the record does not meet positive (amount >= 0): amount = -5 (and 1 more in this batch)"
    )
    assert "offset 2" in table.status.where
    assert "write another `else`" in table.status.remedy
    assert ids(made) == [1]
    assert made.progress().offsets == {"a": {0: 1}}
    made.settings = {"expect": (expect("dead_letter"),)}
    made.catch_up()
    assert ids(made) == [1, 4]
    assert [offset for offset, *_ in reasons(made)] == [2, 3]


def test_an_upsert_table_keeps_the_row_that_a_refused_or_dropped_change_would_replace(scene: Any) -> None:
    made = scene(expect=(expect("drop", "amount >= 0 or id = 3"), expect("dead_letter", "id <> 3", "third")), **UPSERT)
    made.feed("a", GOOD, {"id": 2, "amount": 2})
    made.catch_up()
    made.feed("a", {"id": 1, "amount": -1}, {"id": 2, "amount": 7}, {"id": 2, "amount": None}, {"id": 3, "amount": 1})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "amount": 5}, {"id": 2, "amount": 7}]
    assert balance(made) == Balance(4, 1, 1, {"positive": 2})
    assert [offset for offset, *_ in reasons(made)] == [5]


def test_an_upsert_table_stops_too_and_a_row_that_the_query_drops_is_not_judged(scene: Any) -> None:
    made = scene(where="id <> 9", expect=(expect("stop"),), **UPSERT)
    made.feed("a", GOOD, {"id": 9, "amount": -9})
    made.catch_up()
    assert balance(made) == Balance(2, 1, 0, {"where": 1})
    made.feed("a", BAD)
    assert "positive (amount >= 0): amount = -5" in stopped(made).status.reason
    assert ids(made) == [1]


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_a_replayed_dead_letter_is_judged_again(scene: Any, queries: Any, settings: dict[str, Any]) -> None:
    made = scene(expect=(expect("dead_letter"),), **settings)
    made.feed("a", GOOD, BAD, NULL)
    made.catch_up()
    replayer = Replayer(made.catalog, None, TopicReaders(made.source, made.source), queries)
    (spec,) = made.spec("a").tables
    assert replayer.replay(Table(spec), Selection()) == ReplayResult(0, 2)
    for action in ("stop", "dead_letter"):
        (spec,) = made.spec("a").tables
        other = spec.model_copy(update={"expect": (expect(action, "amount >= 0 or amount is null"),)})
        replayed = replayer.replay(Table(other), Selection())
        assert replayed == (ReplayResult(1, 1) if action == "stop" else ReplayResult(0, 1))
    assert sorted(ids(made)) == [1, 3]


def test_a_condition_over_a_field_that_no_record_has_had_yet_is_waited_for(scene: Any) -> None:
    made = scene(expect=(expect("drop"),))
    made.feed("a", {"id": 1})
    service = made.start()
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.BACKING_OFF, 20)
    status = only(service.tables).status
    assert ("unknown column" in status.reason, status.where) == (True, "n.a, expect.positive")
    made.feed("a", {"id": 2, "amount": 1})
    made.catch_up()
    assert ids(made) == [2]


@pytest.mark.parametrize(
    ("that", "settings", "words"),
    [
        ("total > 0", {"select": "select amount from records"}, "unknown column"),
        ("amount +", {}, ""),
        ("sum(amount) > 0", {}, "sum"),
        ("amount", {}, ""),
        ("exists(many, x -> x > 0)", {}, "tasks cannot compute"),
    ],
)
def test_a_condition_that_tasks_cannot_judge_stops_the_table(
    scene: Any, that: str, settings: dict[str, Any], words: str
) -> None:
    made = scene(expect=(expect("warn", that),), **settings)
    made.feed("a", {"id": 1, "amount": 1, "many": [1]})
    table = stopped(made)
    assert words in table.status.reason
    assert table.status.remedy
    made.settings = {"expect": (expect("warn", "amount > 0"),), **settings}
    made.catch_up()
    assert made.progress().totals.findings == {"positive": 0}


def test_a_protected_table_shows_no_value_that_its_rows_do_not_have(scene: Any) -> None:
    made = scene(
        protect=(ProtectRule(selector="name", action="mask"),),
        protect_key="0123456789abcdef0123456789abcdef",
        expect=(expect("dead_letter", "amount >= 0 and name <> ''"),),
    )
    made.feed("a", {"id": 1, "amount": -1, "name": "Alice Anderson"})
    made.catch_up()
    ((_, kind, message),) = reasons(made)
    assert kind == "failed_expectation"
    assert ("Alice" not in message, "amount = -1" in message) == (True, True)


def test_expectations_of_an_existing_table_are_met_by_what_comes_and_may_go_again(scene: Any) -> None:
    made = scene()
    made.feed("a", BAD)
    made.catch_up()
    made.settings = {"expect": (expect("drop"),)}
    made.feed("a", BAD, {"id": 4, "amount": 4, "new": "x"})
    made.catch_up()
    made.settings = {}
    made.feed("a", BAD)
    made.catch_up()
    assert ids(made) == [2, 4, 2]
    assert made.progress().totals.findings == {}


def test_a_share_of_recent_records_may_be_otherwise_and_a_greater_one_stops_the_table(scene: Any) -> None:
    few = ExpectationSpec(name="has_email", that="email is not null", at_most=0.05, action="stop")
    made = scene(expect=(few,))
    made.feed("a", {"id": 0, "email": None})
    made.feed("a", *({"id": n, "email": "e"} for n in range(1, 99)))
    made.catch_up()
    made.feed("a", *({"id": n, "email": None} for n in range(99, 102)))
    made.catch_up()
    assert (len(ids(made)), made.progress().totals.findings) == (102, {"has_email": 4})
    made.feed("a", *({"id": n, "email": None if n % 2 else "e"} for n in range(102, 202)))
    table = stopped(made)
    assert table.status.reason == (
        "more than 5% of recent records do not meet has_email: the record does not meet has_email (email is not null):"
        " email = null (and 49 more in this batch)"
    )
    assert (len(ids(made)), table.status.where) == (102, "topic a, partition 0, offset 103")
    made.settings = {"expect": (few.model_copy(update={"action": "warn"}),)}
    made.catch_up()
    assert (len(ids(made)), made.progress().totals.findings) == (202, {"has_email": 54})


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_a_commit_with_fewer_rows_than_expected_stops_the_table_or_is_counted(
    scene: Any, settings: dict[str, Any]
) -> None:
    enough = ExpectationSpec(name="enough", min_rows=2, action="stop")
    made = scene(expect=(enough, expect("drop")), **settings)
    made.feed("a", GOOD, {"id": 4, "amount": 4}, BAD)
    made.catch_up()
    made.feed("a", {"id": 5, "amount": 5}, BAD)
    assert stopped(made).status.reason == "the batch has 1 row, and enough expects at least 2"
    assert ids(made) == [1, 4]
    made.settings = {**settings, "expect": (enough.model_copy(update={"action": "warn"}), expect("drop"))}
    with structlog.testing.capture_logs() as logs:
        made.catch_up()
    assert (ids(made), made.progress().totals.findings) == ([1, 4, 5], {"enough": 1, "positive": 2})
    assert "a commit has fewer than 2 rows" in [one.get("reason") for one in logs]


def test_expectations_of_commits_need_no_query(scene: Any) -> None:
    made = scene(expect=(ExpectationSpec(name="enough", min_rows=1),))
    made.feed("a", GOOD)
    made.catch_up()
    assert (made.spec("a").tables[0].has_query, made.progress().totals.findings) == (False, {"enough": 0})


def _change(op: str, row: Any) -> dict[str, Any]:
    return {"before": {"id": row["id"]}, "after": row, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}


def test_a_change_without_the_value_that_a_condition_names_keeps_what_was_judged_before(scene: Any) -> None:
    made = scene(
        envelope=EnvelopeSpec(kind="debezium"),
        expect=(expect("dead_letter", "length(text) < 9", "short"), expect("drop", "state <> 'bad'", "good")),
        mode="upsert",
        key_columns=("id",),
        format_version=3,
    )
    made.feed(
        "a",
        _change("c", {"id": 1, "text": "t", "state": "on"}),
        _change("c", {"id": 2, "text": "t" * 9, "state": "on"}),
    )
    made.feed("a", _change("u", {"id": 1, "text": "__debezium_unavailable_value", "state": "off"}))
    made.feed("a", _change("u", {"id": 1, "text": "u", "state": "bad"}))
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "text": "t", "state": "off"}]
    assert [offset for offset, *_ in reasons(made)] == [1]
    assert balance(made) == Balance(4, 2, 1, {"good": 1})
