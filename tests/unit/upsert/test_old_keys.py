"""Updates of rows whose key is none of the source's own: whether it has changed must be in the row before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from frazil.spec.models import TopicSelector
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import Row, SourceRecord, UpsertSource

_UNTOLD = (
    "the row before the change lacks email, and so does the record's key: it is unknown whether the row had another"
    " key, as with PostgreSQL without `REPLICA IDENTITY FULL`"
)


def _row(number: int, email: str | None, v: str | None = "x") -> Row:
    return {"id": number, "email": email, "v": v}


def _change(op: str, after: Row | None, before: Row | None = None, key: tuple[str, ...] = ("id",)) -> SourceRecord:
    row = after or before or {}
    value = {"op": op, "before": before, "after": after, "source": {"connector": "postgresql"}}
    return {name: row[name] for name in key}, value


@pytest.mark.parametrize("before", [None, _row(1, None, None)], ids=["not sent", "its primary key alone"])
def test_an_update_that_does_not_tell_the_former_key_is_a_dead_letter(tmp_path: Path, before: Row | None) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("email",))
    scenario.say(_change("c", _row(1, "a")), _change("c", _row(2, "c")))
    told = scenario.say(_change("u", _row(1, "b"), before), _change("u", _row(2, "d"), _row(2, "c")))
    assert sorted(row["email"] for row in scenario.upsert_table()) == ["a", "d"]
    assert (scenario.dead_letters(), told.status.run_state) == ([("missing_image", _UNTOLD)], RunState.WAITING)


@pytest.mark.parametrize("columns", [("id",), ("id", "email"), ("email",)])
def test_columns_of_the_records_key_need_no_row_before(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """Where they change, a delete and an insert are told."""
    scenario = UpsertSource(tmp_path, key_columns=columns)
    key = ("id", "email")
    scenario.say(_change("c", _row(1, "a"), key=key))
    scenario.say(_change("u", _row(1, "a", "y"), key=key))
    scenario.say(_change("d", None, _row(1, "a", None), key=key), _change("c", _row(1, "b", "y"), key=key))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "b", "y")], [])


def test_one_column_of_several_that_the_records_key_lacks_is_enough(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id", "email"))
    scenario.say(_change("c", _row(1, "a")), _change("u", _row(1, "b")))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "a")], [("missing_image", _UNTOLD)])


def test_a_key_that_is_a_single_value_is_believed_to_be_the_key_column(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id",))
    for text in ("a", "b"):
        scenario.put("1", _change("u", _row(1, text))[1])
        scenario.catch_up()
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([_row(1, "b")], [])


@pytest.mark.parametrize("old", [{"email": "a"}, None], ids=["told", "missing"])
@needs("cdc")
def test_maxwells_updates_without_what_was_there_before(tmp_path: Path, old: Row | None) -> None:
    settings: dict[str, Any] = {"key": JSON_KEYS, "key_columns": ("email",), "dead_letters": {"stop_above": 1.0}}
    scenario = UpsertScenario(tmp_path, envelope=EnvelopeSpec(kind="maxwell"), **settings)
    key = json.dumps({"database": "s", "table": "t", "pk.id": 1})
    scenario.put(key, {"type": "insert", "ts": 1, "data": _row(1, "a")})
    scenario.put(key, {"type": "update", "ts": 2, "data": _row(1, "b"), **({"old": old} if old else {})})
    scenario.catch_up()
    assert [row["email"] for row in scenario.upsert_table()] == ["b" if old else "a"]
    dead_letters = scenario.dead_letters() if scenario.catalog.load("n.t__dead_letters") is not None else []
    assert dead_letters == ([] if old else [("missing_image", _UNTOLD)])


@pytest.mark.parametrize(
    "settings",
    [
        {"key_columns": ("_topic", "id"), "metadata": {"topic": "_topic"}},
        {
            "key_columns": ("tenant", "id"),
            "columns": (ColumnSpec(name="tenant", type=parse_type("string"), constant="x"),),
        },
    ],
    ids=["the topic", "a constant"],
)
def test_key_columns_that_no_field_feeds_need_no_row_before(tmp_path: Path, settings: dict[str, Any]) -> None:
    scenario = UpsertSource(tmp_path, **settings)
    scenario.say(_change("c", _row(1, "a")))
    scenario.say(_change("u", _row(1, "b")))
    assert [(row["id"], row["email"]) for row in scenario.upsert_table()] == [(1, "b")]


def test_a_row_of_a_snapshot_is_newer_than_older_changes_in_another_topic(tmp_path: Path) -> None:
    """Behind it in its own partition none are older, but that is no promise of another topic's partition of that number."""
    scenario = UpsertSource(
        tmp_path,
        key_columns=("id",),
        metadata={"source_order": "_source_order"},
        order_by="_source_order",
        topics=(TopicSelector(literal="a"), TopicSelector(literal="b")),
    )
    scenario.source.create("b", 2)
    for topic, op, email, lsn in (("b", "r", "new", 100), ("a", "u", "stale", 50)):
        value = {"op": op, "before": None, "after": _row(1, email), "source": {"connector": "postgresql", "lsn": lsn}}
        scenario.source.produce(topic, 0, json.dumps(value).encode(), key=b'{"id":1}')
        scenario.catch_up()
    assert [row["email"] for row in scenario.upsert_table()] == ["new"]
