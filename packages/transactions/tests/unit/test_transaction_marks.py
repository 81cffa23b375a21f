"""Transactions in records: real ones of PostgreSQL, and the shapes of other sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import Envelope, Reading
from frazil.errors import RecordError
from frazil.kafka.port import ReadRecord
from frazil_transactions.markers import Event, read_events, read_marks, reading_of_marks

READING = reading_of_marks(Reading(), Envelope("debezium"))
SourceRecord = tuple[str, str, int | None]


def _real() -> list[ReadRecord]:
    lines = Path("tests/fixtures/debezium_messages.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    return [
        ReadRecord(
            one["topic"], one["partition"], one["offset"], one["value"] and one["value"].encode(), one["timestamp"]
        )
        for one in told
    ]


def _records(*envelopes: Any) -> list[ReadRecord]:
    return [
        ReadRecord("t", 0, at, None if one is None else json.dumps(one).encode()) for at, one in enumerate(envelopes)
    ]


def _told(records: Sequence[ReadRecord], *, has_events: bool = False) -> list[SourceRecord]:
    marks, missing = read_marks(READING, records, has_events)
    assert missing == frozenset()
    return [(mark.transaction, mark.place, mark.order) for mark in marks]


def _change(source: dict[str, Any], transaction: dict[str, Any] | None = None, op: str = "u") -> dict[str, Any]:
    return {"op": op, "before": None, "after": {"id": 1}, "source": source, "transaction": transaction}


def test_changes_of_a_real_postgresql_in_the_order_of_its_commits() -> None:
    records = [record for record in _real() if not record.topic.endswith(".transaction")]
    marks = list(read_marks(READING, records, has_events=True)[0])
    by_place = sorted(marks, key=lambda mark: mark.place)
    assert [(mark.transaction, mark.order) for mark in by_place] == [
        ("745", 1), ("746", 1), ("747", 1), ("747", 2), ("748", 1), ("749", 1), ("749", 2), ("751", 1), ("754", 1),
        ("756", 1), ("757", 1), ("759", 1),
    ]  # fmt: skip
    assert by_place[0].place == "/00000000000026682184"
    assert by_place[-1].place == "00000000000026720560/00000000000026723488"
    of_row = [mark for mark in marks if mark.partition == ("fz.public.orders", 3)]
    assert [(mark.offset, mark.timestamp_ms > 0, mark.transaction) for mark in of_row] == [(0, True, "747")]


def _counts(events: Sequence[Event]) -> dict[str, int]:
    return {event.transaction: event.count for event in events if event.count is not None}


def test_real_events_tell_how_many_changes_of_a_table_each_transaction_had() -> None:
    events = [record for record in _real() if record.topic.endswith(".transaction")]
    found, missing = read_events(READING, events, "fz.public.orders")
    assert missing == frozenset()
    assert {event.transaction for event in found if not event.is_end} == {
        "745",
        "746",
        "747",
        "748",
        "749",
        "751",
        "754",
        "756",
        "757",
        "758",
        "759",
    }
    assert _counts(found) == {"745": 1, "746": 1, "747": 2, "748": 1, "759": 1}
    of_others = read_events(READING, events, "fz.public.customers")[0]
    assert _counts(of_others) == {"749": 2, "751": 1, "754": 1, "756": 1, "757": 1}
    assert _counts(read_events(READING, events, "fz.orders")[0]) == {}
    assert all(event.at_ms > 0 for event in found)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            {"connector": "postgresql", "txId": 7, "lsn": 30, "sequence": '["20","30"]'},
            ("7", "00000000000000000020/00000000000000000030"),
        ),
        (
            {"connector": "postgresql", "txId": 7, "lsn": 30, "sequence": '[null,"30"]'},
            ("7", "/00000000000000000030"),
        ),
        (
            {"connector": "mysql", "gtid": "3e11fa47:23", "file": "binlog.000003", "pos": 154, "row": 0},
            ("3e11fa47:23", "binlog.000003/00000000000000000154/00000000000000000000"),
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00027:0c", "change_lsn": "00027:0a", "event_serial_no": 1},
            ("00027:0c", "00027:0c/00027:0a/00000000000000000001"),
        ),
    ],
    ids=["PostgreSQL", "its first", "MySQL", "SQL Server"],
)
@pytest.mark.parametrize("has_schema", [False, True])
def test_without_debeziums_own_the_source_names_the_transaction(
    source: dict[str, Any], told: tuple[str, str], has_schema: bool
) -> None:
    envelope = _change(source)
    if has_schema:
        envelope = {"schema": _schema_of(source), "payload": envelope}
    assert _told(_records(envelope)) == [(*told, None)]


def _schema_of(source: dict[str, Any]) -> dict[str, Any]:
    kinds = {str: "string", int: "int64"}
    members = [{"type": kinds[type(value)], "optional": True, "field": name} for name, value in source.items()]
    row = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "optional": True}
    told = {"type": "struct", "fields": [{"type": "string", "field": "id", "optional": False}], "optional": True}
    fields = [
        {"type": "string", "optional": False, "field": "op"},
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": members, "optional": False, "field": "source"},
        {**told, "field": "transaction"},
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": "e.Envelope"}


def test_debeziums_own_name_comes_first() -> None:
    source = {"txId": 8, "lsn": 30, "sequence": '["20","30"]'}
    own = {"id": "7:30", "total_order": 2, "data_collection_order": 1}
    place = "00000000000000000020/00000000000000000030"
    assert _told(_records(_change(source, own)), has_events=True) == [("7", place, 2)]


def test_what_is_no_change_of_a_transaction_is_left_out() -> None:
    source = {"txId": 8, "lsn": 30, "sequence": '["20","30"]'}
    snapshot, heartbeat, event = _change(source, op="r"), {"ts_ms": 1}, {"status": "END", "id": "1", "event_count": 0}
    assert _told(_records(snapshot, None, heartbeat, event, 7, {"op": 7}, {"a": 1}, _change(source, op="m"))) == []


@pytest.mark.parametrize(
    ("envelope", "has_events", "message"),
    [
        (_change({"lsn": 30}), False, "the change does not name its transaction"),
        (_change({"lsn": 3, "txId": 7, "sequence": '["2","3"]'}), True, "the change does not name its transaction"),
        (_change({"lsn": 30, "txId": 7}), False, "the change does not have its position in the source's commit order"),
        (
            _change({"scn": "30", "txId": "7"}),
            False,
            "the change does not have its position in the source's commit order",
        ),
        ({"id": 1, "__op": "u"}, False, "the change does not name its transaction"),
    ],
    ids=["no transaction", "none of Debezium's", "PostgreSQL without a sequence", "Oracle", "unwrapped"],
)
def test_a_change_that_does_not_tell_enough(envelope: dict[str, Any], has_events: bool, message: str) -> None:
    records = _records(None, envelope)
    with pytest.raises(RecordError) as caught:
        list(read_marks(READING, records, has_events)[0])
    assert (caught.value.message, caught.value.where) == (message, "topic t, partition 0, offset 1")
    assert list(read_marks(READING, records, has_events, is_strict=False)[0]) == []


def test_events_that_are_none_are_skipped() -> None:
    counted = {"data_collection": "a b.c", "event_count": 3}
    no_counts: list[Any] = [
        5, "text", [5], ["text"], {"a": 1}, [None], [{}], [{"data_collection": 5, "event_count": 1}],
        [{"data_collection": "a b.c"}], [counted | {"event_count": None}], [counted | {"event_count": "x"}],
        [counted | {"event_count": float("inf")}],
    ]  # fmt: skip
    events = [
        None, {"status": "BEGIN", "id": "1"}, {"status": "END", "id": "2"},
        {"status": "END", "id": "3", "data_collections": None},
        {"status": "END", "id": "4", "data_collections": [counted]}, {"x": '"END"'}, ["END"],
        *({"status": "END", "id": "5", "data_collections": collections} for collections in no_counts),
    ]  # fmt: skip
    records = [*_records(*events), ReadRecord("t", 0, 99, b'no "END"')]
    begun = Event("1", 0, is_end=False)
    ended = [Event(name, 0, is_end=True) for name in "23"]
    for topic in ("p.a_b.c", "a_b.c"):
        found = read_events(READING, records, topic)
        assert found == ([begun, *ended, Event("4", 0, is_end=True, count=3)], frozenset())
