"""Rows that move between topics or partitions of one upsert table, as between partitions of a PostgreSQL table: a delete in
one and an insert in another, with positions in the log of one server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from frazil.ingest.tables.table import Table
from frazil.spec import TopicSelector
from tests.fixtures.slices import sliced
from tests.unit.upsert.upsert_source import MARKS, Row, UpsertSource

ORDERED: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}
_MARKED = {**ORDERED, "deletes": "soft", "metadata": {**ORDERED["metadata"], **MARKS["metadata"]}}
_TOPICS = ("ev_2026_01", "ev_2026_02", "ev_2026_03")
_KEYS, _STEPS = 6, 60


class Partitions(UpsertSource):
    """An upsert table of the topics of a partitioned table, and what the log of its server says, not read yet. is_one_topic:
    whether they are partitions of one topic, whose keys have the partition too.
    """

    def __init__(self, root: Path, is_one_topic: bool = False, **settings: Any) -> None:
        own: dict[str, Any] = {"topics": (TopicSelector(pattern="^ev_"),)}
        if is_one_topic:
            own["key_columns"] = ("id",)
        super().__init__(root, **{**own, **settings})
        self.is_one_topic = is_one_topic
        for topic, partitions in [("ev_all", len(_TOPICS))] if is_one_topic else [(topic, 1) for topic in _TOPICS]:
            self.source.create(topic, partitions)
        self.lsn = 0
        self.unread: dict[str, list[tuple[Row, Row | None]]] = {topic: [] for topic in _TOPICS}

    def log(self, topic: str, op: str, number: int, v: str = "") -> None:
        """A change that the server has committed."""
        self.lsn += 1
        key: Row = {"id": number, "day": topic} if self.is_one_topic else {"id": number}
        images = {"before": key, "after": None} if op == "d" else {"before": None, "after": {**key, "v": v}}
        source = {"connector": "postgresql", "lsn": self.lsn, "ts_ms": self.lsn, "table": topic}
        self.unread[topic].append((key, {"op": op, **images, "source": source}))
        if op == "d":
            self.unread[topic].append((key, None))

    def move(self, old: str, new: str, number: int, v: str) -> None:
        """An update of the column by which the table is partitioned."""
        self.log(old, "d", number)
        self.log(new, "c", number, v)

    def produce(self, topic: str, count: int | None = None) -> None:
        """Lets the topic have so many of its records more; all of them unless said."""
        ready, self.unread[topic] = self.unread[topic][:count], self.unread[topic][len(self.unread[topic][:count]) :]
        for key, value in ready:
            text = None if value is None else json.dumps(value).encode()
            place = ("ev_all", _TOPICS.index(topic)) if self.is_one_topic else (topic, 0)
            self.source.produce(*place, text, key=json.dumps(key).encode())

    def rows(self) -> dict[int, str]:  # type: ignore[override]
        """The rows that are not marked as deleted."""
        found = [(row["id"], row["v"]) for row in self.upsert_table() if not row.get("_deleted")]
        assert len(dict(found)) == len(found)
        return dict(found)


@pytest.mark.parametrize("settings", [ORDERED, _MARKED], ids=["hard", "soft"])
@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("is_back", sliced([False, True], 1))
@pytest.mark.parametrize("is_one_topic", [False, True], ids=["topics", "partitions"])
def test_a_row_that_moves_to_another_partition_stays_whichever_is_read_first(
    tmp_path: Path, settings: dict[str, Any], first: int, at_once: bool, is_back: bool, is_one_topic: bool
) -> None:
    table = Partitions(tmp_path, is_one_topic, **settings)
    old, new = (_TOPICS[1], _TOPICS[0]) if is_back else _TOPICS[:2]
    table.log(old, "c", 1, "a")
    table.log(old, "c", 2, "a")
    table.move(old, new, 1, "b")
    for topic in (old, new) if first == 0 else (new, old):
        table.produce(topic)
        if not at_once:
            table.catch_up()
    table.catch_up()
    assert (table.rows(), table.dead_letters()) == ({1: "b", 2: "a"}, [])


@pytest.mark.parametrize("settings", [ORDERED, _MARKED], ids=["hard", "soft"])
@pytest.mark.parametrize("is_one_topic", [False, True], ids=["topics", "partitions"])
@pytest.mark.parametrize("seed", sliced(range(3), 1))
def test_rows_that_move_again_and_again_are_those_of_the_source(
    tmp_path: Path, settings: dict[str, Any], is_one_topic: bool, seed: int
) -> None:
    table, rng = Partitions(tmp_path, is_one_topic, **settings), np.random.default_rng(seed)
    places: dict[int, str] = {}
    rows: dict[int, str] = {}
    for step in range(_STEPS):
        number, topic, v = int(rng.integers(_KEYS)), _TOPICS[int(rng.integers(3))], f"v{step}"
        place = places.get(number)
        if place is None:
            table.log(topic, "c", number, v)
        elif rng.random() < 0.2:
            table.log(place, "d", number)
            del places[number], rows[number]
            continue
        elif topic == place:
            table.log(topic, "u", number, v)
        else:
            table.move(place, topic, number, v)
        places[number], rows[number] = topic, v
    while any(table.unread.values()):
        table.produce(_TOPICS[int(rng.integers(3))], int(rng.integers(1, 12)))
        if rng.random() < 0.5:
            table.catch_up()
    table.catch_up()
    assert (table.rows(), table.dead_letters()) == (rows, [])


def test_every_change_is_newer_than_a_row_from_before_the_order_was_declared(tmp_path: Path) -> None:
    table = Partitions(tmp_path)
    for number in (1, 2):
        table.log(_TOPICS[0], "c", number, "a")
    table.produce(_TOPICS[0])
    table.catch_up()
    (spec,) = table.spec.tables
    table.spec = table.spec.model_copy(update={"tables": (spec.model_copy(update=ORDERED),)})
    table.move(_TOPICS[0], _TOPICS[1], 1, "b")
    table.log(_TOPICS[0], "u", 2, "b")
    for topic in (_TOPICS[1], _TOPICS[0]):
        table.produce(topic)
        table.catch_up()
    assert (table.rows(), table.dead_letters()) == ({1: "b", 2: "b"}, [])


def test_a_table_of_several_topics_without_an_order_is_reported_once(tmp_path: Path) -> None:
    def events(**settings: Any) -> list[Any]:
        table = Partitions(tmp_path / str(len(settings)), **settings)
        for topic in _TOPICS:
            table.log(topic, "c", 1, "a")
            table.produce(topic)
        with capture_logs() as logs:
            found: Table = table.catch_up()
        assert found.offsets.lag_records == 0
        return [one for one in logs if one["event"] == "topics_not_ordered"]

    (told,) = events()
    assert (told["log_level"], told["table"]) == ("warning", "n.t")
    assert "Write `metadata: [source_order]` and `order_by: _source_order`" in told["reason"]
    assert events(**ORDERED) == []
    apart: dict[str, Any] = {"metadata": {"source_table": "_source_table"}, "deletes": "hard"}
    assert events(key_columns=("_source_table", "id"), **apart) == []
