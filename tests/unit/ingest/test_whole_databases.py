"""A whole database by one regular expression: each of its tables gets an upsert table as its topic appears, by its own
key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec, DeadLettersSpec, EnvelopeSpec, ValueSpec
from tests.unit.ingest.service_scene import Scene, turn_until

_ORDERS, _LINES, _LOG = "shop.public.orders", "shop.public.lines", "shop.public.log"
_TRANSACTION = {"status": "BEGIN", "id": "571:1", "ts_ms": 1, "event_count": None, "data_collections": None}
_SCHEMA_CHANGE = {
    "source": {"connector": "mysql", "db": "shop"}, "ts_ms": 1, "databaseName": "shop", "schemaName": None,
    "ddl": "create table orders (id int primary key)", "tableChanges": [{"type": "CREATE", "id": '"shop"."orders"'}],
}  # fmt: skip
_NOTIFICATION = {
    "id": "5563ae14", "aggregate_type": "Initial Snapshot", "type": "STARTED", "timestamp": 1,
    "additional_data": {"connector_name": "shop"},
}  # fmt: skip
_OF_SERVER = {
    "shop": (_SCHEMA_CHANGE, "schema_change"),
    "shop.transaction": (_TRANSACTION, "transaction"),
    "shop-heartbeats": ({"ts_ms": 1}, "heartbeat"),
    "shop-notifications": (_NOTIFICATION, "notification"),
}
"""What a connector writes besides changes, by its topic, with the name of its kind."""
Row = dict[str, Any]


def _with_schema(value: Any) -> bytes:
    """A message as Kafka Connect's converter writes it, its members by their JSON types."""

    def of(name: str | None, member: Any) -> Row:
        kinds = {int: "int64", dict: "struct", list: "array"}
        schema: Row = {"type": kinds.get(type(member), "string"), "optional": True}
        if isinstance(member, dict):
            schema["fields"] = [of(*one) for one in member.items()]
        if isinstance(member, list):
            schema["items"] = of(None, member[0])
        return schema if name is None else {**schema, "field": name}

    return json.dumps({"schema": of(None, value), "payload": value}).encode()


class Database(Scene):
    """Upsert tables of all tables of a database's schema."""

    pattern = r"^shop\.public\."

    def spec(self, *topics: str) -> PipelineSpec:
        defaults = TableSpec(
            name="defaults",
            topics=(),
            envelope=EnvelopeSpec(kind="debezium"),
            commit=CommitSpec(interval_s=0.1),
            dead_letters=DeadLettersSpec(stop_above=0.2),
            **{"mode": "upsert", "key": ValueSpec(format="json"), "format_version": 3, **self.settings},
        )
        chosen = {"tables": (), "namespace": "n", "topics": (TopicSelector(pattern=self.pattern),)}
        return super().spec(*topics).model_copy(update={**chosen, "defaults": defaults})

    def tell(self, topic: str, op: str, row: Row, *keys: str) -> None:
        """One change of the table with this primary key."""
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        key = json.dumps({name: row[name] for name in keys}).encode() if keys else None
        value = json.dumps({"op": op, **images, "source": {"connector": "postgresql"}}).encode()
        self.source.produce(topic, 0, value, self.clock.now_ms(), key=key)

    def settle(self, service: Service) -> None:
        """All that is there is read."""
        self.clock.sleep(TOPICS_EVERY_S)
        turn_until(service, lambda: False, 60)


def test_each_table_gets_its_upsert_table_with_the_key_of_its_records_as_it_appears(tmp_path: Path) -> None:
    scene = Database(tmp_path, _ORDERS, "shop.transaction")
    scene.tell(_ORDERS, "c", {"id": 1, "v": "a"}, "id")
    service = scene.start()
    scene.settle(service)
    assert scene.rows(f"n.{_ORDERS}") == [{"id": 1, "v": "a"}]
    scene.source.create(_LINES)
    for op, row in (
        ("c", {"o": 1, "n": 1, "v": "a"}),
        ("c", {"o": 1, "n": 2, "v": "a"}),
        ("u", {"o": 1, "n": 2, "v": "b"}),
    ):
        scene.tell(_LINES, op, row, "o", "n")
    scene.settle(service)
    scene.tell(_ORDERS, "u", {"id": 1, "v": "b"}, "id")
    scene.tell(_LINES, "d", {"o": 1, "n": 1, "v": None}, "o", "n")
    scene.settle(service)
    assert scene.rows(f"n.{_ORDERS}") == [{"id": 1, "v": "b"}]
    assert scene.rows(f"n.{_LINES}") == [{"o": 1, "n": 2, "v": "b"}]
    assert [table.name for table in service.tables] == [f"n.{_LINES}", f"n.{_ORDERS}"]


def test_a_table_without_a_primary_key_stops_alone_and_reports_why(tmp_path: Path) -> None:
    scene = Database(tmp_path, _LOG, _ORDERS)
    for number in range(150):
        scene.tell(_LOG, "c", {"at": number})
    scene.tell(_ORDERS, "c", {"id": 1, "v": "a"}, "id")
    service = scene.start()
    scene.settle(service)
    scene.tell(_ORDERS, "u", {"id": 1, "v": "b"}, "id")
    scene.settle(service)
    assert scene.rows(f"n.{_ORDERS}") == [{"id": 1, "v": "b"}]
    log, orders = sorted(service.tables, key=lambda table: table.name)
    assert (log.status.run_state, orders.status.run_state) == (RunState.STOPPED, RunState.WAITING)
    assert "the record has no key" in log.status.reason or "no field" in log.status.reason


class Server(Database):
    """Tables of all topics of a connector, with those that it writes besides changes."""

    pattern = "^shop"


_ORDERED: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}


@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize("settings", [{}, _ORDERED], ids=["unordered", "ordered"])
def test_topics_of_a_server_without_changes_make_no_table_and_are_no_fault(
    tmp_path: Path, settings: dict[str, Any], has_schema: bool
) -> None:
    scene = Server(tmp_path, _ORDERS, *_OF_SERVER, **settings)
    for topic, (value, _) in _OF_SERVER.items():
        for _ in range(3):
            scene.feed(topic, _with_schema(value) if has_schema else value)
    row = {"id": 1, "v": "a"}
    change = {"op": "c", "before": None, "after": row, "source": {"connector": "postgresql", "lsn": 7}}
    scene.source.produce(_ORDERS, 0, json.dumps(change).encode(), scene.clock.now_ms(), key=b'{"id": 1}')
    tables = {table.name: table for table in scene.catch_up(turns=60)}
    assert {(one.status.run_state, one.offsets.lag_records) for one in tables.values()} == {(RunState.WAITING, 0)}
    assert [{"id": one["id"], "v": one["v"]} for one in scene.rows(f"n.{_ORDERS}")] == [row]
    if "metadata" in settings:
        assert dict(scene.progress("n.shop").totals.ignored_records) == {"schema_change": 3}
        return
    for topic, (_, kind) in _OF_SERVER.items():
        reason = f"the records so far change no row ({kind}), so the table has no column yet"
        assert tables[f"n.{topic}"].status.reason == reason
        assert scene.catalog.load(f"n.{topic}") is None


def test_records_that_change_no_row_are_read_once_and_the_row_behind_them_makes_the_table(tmp_path: Path) -> None:
    scene = Server(tmp_path, "shop")
    scene.feed("shop", *[_SCHEMA_CHANGE] * 3)
    service = scene.start()
    scene.settle(service)
    (table,) = service.tables
    assert table.offsets.lag_records == 0
    before = table.counts.batches["Replan"]
    scene.settle(service)
    assert table.counts.batches["Replan"] == before
    scene.feed("shop", _TRANSACTION)
    scene.settle(service)
    assert table.status.reason.startswith("the records so far change no row (schema_change, transaction)")
    scene.tell("shop", "c", {"id": 1, "v": "a"}, "id")
    scene.settle(service)
    assert (scene.rows("n.shop"), table.status.reason) == ([{"id": 1, "v": "a"}], "")
    progress = scene.progress("n.shop")
    assert (dict(progress.totals.ignored_records), progress.offsets) == (
        {"schema_change": 3, "transaction": 1},
        {"shop": {0: 5}},
    )


def test_a_record_without_a_field_among_those_that_change_no_row_is_still_reported(tmp_path: Path) -> None:
    scene = Server(tmp_path, "shop")
    scene.feed("shop", _SCHEMA_CHANGE, {"op": "c", "before": None, "after": {}})
    (table,) = scene.catch_up(turns=60)
    assert table.status.run_state is RunState.BACKING_OFF
