"""A whole database by one regular expression: each of its tables gets an upsert table as its topic appears, by its own
key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec, DeadLettersSpec, EnvelopeSpec, ValueSpec
from tests.unit.ingest.service_scene import Scene, turn_until

_ORDERS, _LINES, _LOG = "shop.public.orders", "shop.public.lines", "shop.public.log"
Row = dict[str, Any]


class Database(Scene):
    """Upsert tables of all tables of a database's schema."""

    def spec(self, *topics: str) -> PipelineSpec:
        defaults = TableSpec(
            name="defaults",
            topics=(),
            mode="upsert",
            envelope=EnvelopeSpec(kind="debezium"),
            key=ValueSpec(format="json"),
            format_version=3,
            commit=CommitSpec(interval_s=0.1),
            dead_letters=DeadLettersSpec(stop_above=0.2),
        )
        chosen = {"tables": (), "namespace": "n", "topics": (TopicSelector(pattern=r"^shop\.public\."),)}
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
