"""Tables that show transactions whole: a whole service on the ports in memory, over restarts."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.ingest.loop.table_updates import INCOMPLETE_TRANSACTION
from frazil.ingest.tables.state import RunState
from frazil.spec.models import TopicSelector
from frazil.spec.settings import AtomicSpec, EnvelopeSpec, ValueSpec
from frazil.types import Offsets
from frazil_testing.twins import FakeClock, live_rows
from frazil_transactions import lookahead
from tests.unit.rows.test_shaped_service import Scenario

TOPIC, EVENTS = "s.public.t", "s.transaction"
SOURCE = ("lsn", "txId")


class AtomicScenario(Scenario):
    """An upsert table of one topic. events: whether it goes by the topic of transactions."""

    def __init__(self, root: Path, partitions: int = 1, *, events: bool = False, **settings: Any) -> None:
        given: dict[str, Any] = {
            "topics": (TopicSelector(literal=TOPIC),),
            "envelope": EnvelopeSpec(kind="debezium"),
            "mode": "upsert",
            "format_version": 3,
            "key_columns": ("id",),
            "key": ValueSpec(format="json"),
            "atomic": AtomicSpec(transaction_topic=EVENTS if events else None),
            **settings,
        }
        super().__init__(root, **given)
        self.source.create(TOPIC, partitions)
        self.source.create(EVENTS)
        self.lsn = 0

    def tell(self, transaction: int, *changes: tuple[int, Any], partition: int = 0, first: int = 1) -> None:
        """Changes of keys to values, in one transaction."""
        for order, (key, value) in enumerate(changes, first):
            self.put(partition, key, self.envelope(transaction, key, value, order))

    def put(self, partition: int, key: int, envelope: dict[str, Any] | None) -> None:
        value = None if envelope is None else json.dumps(envelope).encode()
        self.source.produce(TOPIC, partition, value, 1000, key=json.dumps({"id": key}).encode())

    def envelope(self, transaction: int, key: int, value: Any, order: int) -> dict[str, Any]:
        self.lsn += 1
        return {
            "op": "u",
            "after": {"id": key, "v": value},
            "source": {
                "connector": "postgresql",
                "lsn": self.lsn,
                "txId": transaction,
                "sequence": json.dumps([str(transaction * 1000), str(self.lsn)]),
            },
            "transaction": {"id": f"{transaction}:{self.lsn}", "total_order": order, "data_collection_order": order},
        }

    def begin(self, transaction: int) -> None:
        """The event that a transaction begins."""
        event = {"status": "BEGIN", "id": f"{transaction}:3", "event_count": None, "data_collections": None}
        self.source.produce(EVENTS, 0, json.dumps(event).encode(), 1000)

    def end(self, transaction: int, count: int, collection: str = "public.t") -> None:
        """The event that a transaction has ended."""
        event = {"status": "END", "id": f"{transaction}:7", "event_count": count}
        counted = [{"data_collection": collection, "event_count": count}]
        self.source.produce(EVENTS, 0, json.dumps({**event, "data_collections": counted}).encode(), 1000)

    def shown(self) -> dict[int, Any]:
        if self.catalog.load("n.t") is None:
            return {}
        return {row["id"]: row["v"] for row in live_rows(self.catalog, "n.t")}

    def stop_reason(self) -> tuple[str, str, str]:
        table = self.catch_up()
        assert table.status.run_state is RunState.STOPPED
        return table.status.reason, table.status.remedy, table.status.where

    def change(self, **settings: Any) -> None:
        """Another run has another file."""
        (table,) = self.spec.tables
        self.spec = self.spec.model_copy(update={"tables": (table.model_copy(update=settings),)})

    def offsets(self) -> Offsets:
        (newest, *_) = self.catalog.ancestors("n.t")
        progress = from_summary("p", newest.summary)
        assert progress is not None
        return progress.offsets


def test_the_newest_transaction_is_held_back_until_the_next_one_begins(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path)
    scenario.tell(1, (1, "a"), (2, "a"))
    table = scenario.catch_up()
    assert (scenario.shown(), table.status.run_state, table.status.reason, table.offsets.lag_records) == (
        {},
        RunState.WAITING,
        INCOMPLETE_TRANSACTION,
        2,
    )
    scenario.tell(2, (1, "b"))
    table = scenario.catch_up()
    assert (scenario.shown(), table.status.reason, table.offsets.lag_records) == (
        {1: "a", 2: "a"},
        INCOMPLETE_TRANSACTION,
        1,
    )
    scenario.tell(3, (2, "c"))
    scenario.put(0, 9, None)
    scenario.catch_up()
    assert (scenario.shown(), scenario.offsets()) == ({1: "b", 2: "a"}, {TOPIC: {0: 3}})


def test_with_its_end_a_transaction_is_shown_at_once(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True)
    scenario.tell(1, (1, "a"), (2, "a"))
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})
    scenario.end(1, 2)
    table = scenario.catch_up()
    assert (scenario.shown(), table.status.reason, table.offsets.lag_records) == ({1: "a", 2: "a"}, "", 0)


def test_a_transaction_of_several_partitions_is_shown_when_all_of_it_is_there(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, partitions=3, events=True)
    scenario.tell(1, (1, "a"), (2, "a"))
    scenario.end(1, 3)
    scenario.tell(2, (2, "b"))
    scenario.end(2, 1)
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})
    scenario.tell(1, (3, "a"), partition=2, first=3)
    scenario.catch_up()
    assert scenario.shown() == {1: "a", 2: "b", 3: "a"}


def test_without_events_a_topic_of_several_partitions_stops_the_table(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, partitions=3)
    scenario.tell(1, (1, "a"))
    reason, remedy, where = scenario.stop_reason()
    assert reason == "a transaction may span all 3 partitions of the topic, and nothing shows when it is complete"
    assert remedy.startswith("write `atomic: {transaction_topic: …}`")
    assert where == f"topic {TOPIC}"
    scenario.source.create(EVENTS)
    scenario.end(1, 1)
    scenario.change(atomic=AtomicSpec(transaction_topic=EVENTS))
    scenario.catch_up()
    assert scenario.shown() == {1: "a"}


def test_an_event_of_another_table_of_the_source_counts_nothing_here(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True)
    scenario.tell(1, (1, "a"))
    scenario.end(1, 1, collection="public.other")
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})


def test_a_topic_of_transactions_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True)
    events = scenario.source.by_name.pop(EVENTS)
    scenario.tell(1, (1, "a"))
    table = scenario.catch_up()
    assert (table.status.run_state, table.status.reason) == (RunState.BACKING_OFF, f"topic {EVENTS} does not exist")
    scenario.source.by_name[EVENTS] = events
    scenario.end(1, 1)
    scenario.catch_up()
    assert scenario.shown() == {1: "a"}


def test_rows_of_a_snapshot_are_shown_one_by_one_and_bad_records_beside_their_transaction(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, on_bad_record="skip")
    for key in range(3):
        scenario.put(0, key, {"op": "r", "after": {"id": key, "v": "r"}, "source": {"lsn": 0}, "transaction": None})
    scenario.catch_up()
    assert scenario.shown() == {0: "r", 1: "r", 2: "r"}
    scenario.tell(1, (1, "a"))
    scenario.source.produce(TOPIC, 0, b"no envelope", 1000)
    scenario.tell(1, (2, "a"), first=2)
    scenario.catch_up()
    assert scenario.shown() == {0: "r", 1: "r", 2: "r"}
    scenario.tell(2, (0, "b"))
    scenario.catch_up()
    assert scenario.shown() == {0: "r", 1: "a", 2: "a"}


@pytest.mark.parametrize("events", [True, False])
def test_changes_that_say_nothing_of_their_transaction_stop_the_table(tmp_path: Path, events: bool) -> None:
    scenario = AtomicScenario(tmp_path, events=events)
    envelope = scenario.envelope(1, 1, "a", 1) | {"transaction": None}
    for name in SOURCE if not events else ():
        envelope["source"].pop(name)
    scenario.put(0, 1, envelope)
    reason, remedy, where = scenario.stop_reason()
    assert (reason, where) == ("the change does not name its transaction", f"topic {TOPIC}, partition 0, offset 0")
    assert "provide.transaction.metadata" in remedy
    assert "`atomic: batch`" in remedy
    scenario.change(atomic=None)
    scenario.catch_up()
    assert scenario.shown() == {1: "a"}


def test_changes_whose_order_is_not_known_stop_the_table(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path)
    oracle = {"connector": "oracle", "scn": "12345", "txId": "0a001"}
    scenario.put(0, 1, scenario.envelope(1, 1, "a", 1) | {"source": oracle})
    reason, remedy, _ = scenario.stop_reason()
    assert reason == "the change does not have its position in the source's commit order"
    assert remedy.startswith("write `atomic: batch`")
    scenario.change(atomic=None)
    scenario.catch_up()
    assert scenario.shown() == {1: "a"}


def test_a_transaction_that_is_larger_than_a_batch_is_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.ingest.plan.FIRST_BATCH_RECORDS", 10)
    monkeypatch.setattr("frazil.ingest.plan.MAX_BATCH_RECORDS", 10)
    monkeypatch.setattr(lookahead, "AT_A_TIME", 5)
    monkeypatch.setattr(lookahead, "_ENOUGH_BYTES", 2000)
    monkeypatch.setattr(lookahead, "_LEAST_GROWTH", 10)
    scenario = AtomicScenario(tmp_path)
    scenario.tell(1, *((key, "a") for key in range(300)))
    scenario.tell(2, *((key, "b") for key in range(2)))
    scenario.tell(3, (0, "c"))
    scenario.catch_up()
    assert scenario.offsets() == {TOPIC: {0: 302}}
    progresses = [from_summary("p", snapshot.summary) for snapshot in scenario.catalog.ancestors("n.t")]
    ends = sorted(progress.offsets[TOPIC][0] for progress in progresses if progress is not None)
    assert ends == [302]


def test_a_transaction_that_no_batch_takes_stops_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.ingest.plan.FIRST_BATCH_RECORDS", 10)
    monkeypatch.setattr(lookahead, "LARGEST_TRANSACTION", 40)
    monkeypatch.setattr(lookahead, "_LEAST_GROWTH", 10)
    scenario = AtomicScenario(tmp_path)
    scenario.tell(1, *((key, "a") for key in range(300)))
    assert scenario.stop_reason() == (
        "no transaction is complete within 40 offsets after the table's next offset",
        "write `atomic: batch` until the table has passed the transaction",
        "n.t",
    )
    scenario.change(atomic=None)
    scenario.catch_up()
    assert len(scenario.shown()) == 300


def test_a_repetition_of_what_the_table_has_is_shown_only_to_its_end(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True)
    told = [scenario.envelope(1, key, "a", key) for key in (1, 2)] + [
        scenario.envelope(2, key, "b", key) for key in (1, 2)
    ]
    for envelope in told:
        scenario.put(0, envelope["after"]["id"], envelope)
    for transaction in (1, 2):
        scenario.end(transaction, 2)
    scenario.catch_up()
    assert scenario.shown() == {1: "b", 2: "b"}
    for envelope in told[1:3]:
        scenario.put(0, envelope["after"]["id"], envelope)
    assert (scenario.catch_up().status.reason, scenario.shown(), scenario.offsets()) == (
        INCOMPLETE_TRANSACTION,
        {1: "b", 2: "b"},
        {TOPIC: {0: 4}},
    )
    scenario.put(0, 2, told[3])
    scenario.tell(3, (1, "c"))
    scenario.end(3, 1)
    table = scenario.catch_up()
    assert (table.status.reason, scenario.shown(), scenario.offsets()) == ("", {1: "c", 2: "b"}, {TOPIC: {0: 8}})


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_changelog_shows_transactions_whole_too(tmp_path: Path, wrapped: bool) -> None:
    log = {"op": "_op", "transaction_id": "_transaction_id"}
    scenario = AtomicScenario(tmp_path, events=True, mode="append", key_columns=(), changelog=True, metadata=log)
    scenario.tell(1, (1, "a"), (2, "a"))
    event = {"status": "END", "id": "1:9", "event_count": 2}
    event |= {"data_collections": [{"data_collection": "public.t", "event_count": 2}]}
    text = json.dumps({"schema": {"type": "struct"}, "payload": event} if wrapped else event)
    scenario.source.produce(EVENTS, 0, b'{"status": "BEGIN", "id": "1:9"}', 1000)
    scenario.source.produce(EVENTS, 0, text.encode(), 1000)
    scenario.tell(2, (1, "b"))
    scenario.catch_up()
    assert sorted((row["id"], row["_transaction_id"]) for row in scenario.rows()) == [(1, "1:1"), (2, "1:2")]


def _avro(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    return b"\x00" + struct.pack(">i", number) + body.getvalue()


def _struct(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def test_changes_and_events_in_avro(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True, value=ValueSpec(format="avro"), key_columns=("id",))
    source = _struct("S", connector="string", lsn="long", txId="long", sequence="string")
    told = _struct("T", id="string", total_order="long", data_collection_order="long")
    row = ["null", _struct("R", id="long", v="string")]
    change = _struct("E", op="string", before="null", after=row, source=source, transaction=["null", told])
    counted = _struct("C", data_collection="string", event_count="long")
    counts = ["null", {"type": "array", "items": counted}]
    event = _struct("X", status="string", id="string", event_count=["null", "long"], data_collections=counts)
    of_change = scenario.registry.register("avro", json.dumps(change), subject=f"{TOPIC}-value")
    of_event = scenario.registry.register("avro", json.dumps(event), subject=f"{EVENTS}-value")
    for order, key in enumerate((1, 2), 1):
        value = _avro(of_change, change, {"before": None, **scenario.envelope(1, key, "a", order)})
        scenario.source.produce(TOPIC, 0, value, 1000, key=json.dumps({"id": key}).encode())
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})
    counts_of_it = [{"data_collection": "public.t", "event_count": 2}]
    ended = {"status": "END", "id": "1:3", "event_count": 2, "data_collections": counts_of_it}
    begun = {"status": "BEGIN", "id": "1:3", "event_count": None, "data_collections": None}
    for reported in (begun, ended):
        scenario.source.produce(EVENTS, 0, _avro(of_event, event, reported), 1000)
    scenario.catch_up()
    assert scenario.shown() == {1: "a", 2: "a"}


@pytest.mark.parametrize("is_expired", [False, True])
def test_who_comes_in_the_middle_of_a_transaction_continues_with_its_rest(tmp_path: Path, is_expired: bool) -> None:
    scenario = AtomicScenario(tmp_path, partitions=2, events=True, atomic=None)
    scenario.put(0, 7, scenario.envelope(0, 7, "no event tells of it", 1) | {"transaction": None})
    scenario.tell(1, (1, "a"))
    scenario.catch_up()
    if is_expired:
        scenario.source.trim(TOPIC, 0, 2)
    scenario.change(atomic=AtomicSpec(transaction_topic=EVENTS))
    scenario.tell(1, (2, "a"), first=2)
    scenario.end(1, 2)
    table = scenario.catch_up()
    if is_expired:
        assert (table.status.reason, set(scenario.shown())) == (INCOMPLETE_TRANSACTION, {1, 7})
        scenario.tell(2, (3, "b"))
        scenario.tell(2, (4, "b"), first=2, partition=1)
        scenario.end(2, 2)
        table = scenario.catch_up()
    assert (table.status.reason, scenario.shown()[2]) == ("", "a")


def test_a_partition_without_a_leader_holds_back_the_others(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, partitions=2, events=True)
    scenario.tell(1, (1, "a"))
    scenario.end(1, 1)
    scenario.source.silent.add((TOPIC, 1))
    table = scenario.catch_up()
    assert (table.status.run_state, scenario.shown()) == (RunState.BACKING_OFF, {})
    assert "has no leader" in table.status.reason


def test_without_the_setting_nothing_of_it_stays_in_the_progress(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, events=True)
    scenario.tell(1, (1, "a"))
    scenario.end(1, 1)
    assert scenario.catch_up().progress.order.places == {TOPIC: {0: "00000000000000001000/00000000000000000001"}}
    scenario.change(atomic=None)
    scenario.tell(2, (1, "b"))
    assert scenario.catch_up().progress.order.places == {}


def test_a_transaction_that_its_connector_has_died_in_is_not_counted(tmp_path: Path) -> None:
    scenario = AtomicScenario(tmp_path, partitions=2, events=True)
    scenario.begin(1)
    scenario.tell(1, (1, "a"))
    scenario.begin(1)  # It continues with the second of three changes, which it calls the first of two.
    scenario.tell(1, (3, "a"), first=2)
    scenario.end(1, 2)
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})
    scenario.tell(1, (2, "a"), partition=1)
    assert (scenario.catch_up().status.reason, scenario.shown()) == (INCOMPLETE_TRANSACTION, {})
    for number, partition in enumerate((0, 1), 2):
        scenario.begin(number)
        scenario.tell(number, (9, "b"), partition=partition)
        scenario.end(number, 1)
    scenario.catch_up()
    assert scenario.shown() == {1: "a", 2: "a", 3: "a", 9: "b"}


def test_a_table_that_is_rolled_back_learns_again_where_its_transactions_end(tmp_path: Path) -> None:
    scenario, clock = AtomicScenario(tmp_path, partitions=2, events=True), FakeClock()
    service = scenario.process(clock)
    for transaction, value in ((1, "a"), (2, "b")):
        scenario.tell(transaction, (transaction, value))
        scenario.end(transaction, 1)
        _turn(service, clock)
    assert scenario.shown() == {1: "a", 2: "b"}
    scenario.catalog.roll_back("n.t", None)
    _turn(service, clock)
    assert scenario.shown() == {1: "a", 2: "b"}


def _turn(service: Service, clock: FakeClock) -> None:
    """Long enough for an idle table to be loaded again, and for a batch."""
    clock.sleep(RELOAD_IDLE_EVERY_S)
    for _ in range(30):
        service.turn()
