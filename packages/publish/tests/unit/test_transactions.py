"""Cuts of a group at the ends of transactions of its source: pure, and on records in memory as Debezium writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.ingest.tables.cuts import GRACE_S
from frazil.ingest.tables.table import Table
from frazil.ingest.transactions.runs import Mark
from frazil.kafka.port import Partition
from frazil.spec.settings import EnvelopeSpec, ValueSpec
from frazil_publish.transactions import TransactionCuts, close
from tests.unit.ingest.service_scene import Scene

EVENTS = "s.transaction"
Places = dict[Partition, int]


def marks(topic: str, *transactions: int) -> list[Mark]:
    """The changes of a topic of one partition: of each the transaction."""
    return [
        Mark((topic, 0), offset, 1000, str(number), f"{number:03}/{offset:03}", offset + 1)
        for offset, number in enumerate(transactions)
    ]


@pytest.mark.parametrize(
    ("orders", "customers", "moment", "bounds"),
    [
        pytest.param((1, 1, 2), (1, 2), (2, 1), (2, 1), id="between two"),
        pytest.param((1, 1, 2), (1, 2), (1, 0), (2, 1), id="inside of the first"),
        pytest.param((1, 1, 2), (1, 2), (3, 0), (3, 2), id="the last one has a change in the other topic"),
        pytest.param((1, 1), (1, 2), (0, 0), (0, 0), id="before all"),
        pytest.param((1, 2, 1, 2, 3), (2,), (1, 0), (4, 1), id="repeated by a connector that was started again"),
        pytest.param((), (1, 2), (0, 1), (0, 1), id="a topic without changes"),
    ],
)
def test_a_cut_is_moved_to_the_end_of_a_transaction(
    orders: Sequence[int], customers: Sequence[int], moment: tuple[int, int], bounds: tuple[int, int]
) -> None:
    places = [("orders", 0), ("customers", 0)]
    closed = close(dict(zip(places, moment, strict=True)), marks("orders", *orders) + marks("customers", *customers))
    assert closed.bounds == dict(zip(places, bounds, strict=True))


class Shop(Scene):
    """Upsert tables of two topics of one source."""

    def __init__(self, root: Path) -> None:
        key, envelope = ValueSpec(format="json"), EnvelopeSpec(kind="debezium")
        settings: dict[str, Any] = {"mode": "upsert", "key_columns": ("id",), "key": key, "envelope": envelope}
        super().__init__(root, "orders", "customers", format_version=3, **settings)
        self.source.create(EVENTS)
        self.lsn = 0
        self.cutting = TransactionCuts(self.source, self.source, None, self.clock)

    def change(self, transaction: int, *topics: str, first: int = 1, has_metadata: bool = True) -> None:
        """One change in each of the topics."""
        for order, topic in enumerate(topics, first):
            self.lsn += 1
            sequence = json.dumps([str(transaction * 1000), str(self.lsn)])
            source = {"connector": "postgresql", "lsn": self.lsn, "txId": transaction, "sequence": sequence}
            numbered = {"id": f"{transaction}:{self.lsn}", "total_order": order, "data_collection_order": order}
            record: dict[str, Any] = {"op": "c", "after": {"id": self.lsn}, "source": source}
            record["transaction"] = numbered if has_metadata else None
            key = json.dumps({"id": self.lsn}).encode()
            self.source.produce(topic, 0, json.dumps(record).encode(), self.clock.now_ms(), key=key)

    def end(self, transaction: int, **counts: int) -> None:
        counted = [{"data_collection": f"public.{name}", "event_count": count} for name, count in counts.items()]
        counted += [{"data_collection": name, "event_count": count} for name, count in counts.items()]
        event = {"status": "END", "id": f"{transaction}:7", "event_count": 9, "data_collections": counted}
        self.source.produce(EVENTS, 0, json.dumps(event).encode(), self.clock.now_ms())

    def cut(self, orders: int, customers: int, tables: Sequence[Table]) -> list[int] | None:
        """Where a cut of this moment ends."""
        moment = {("orders", 0): orders, ("customers", 0): customers}
        bounds = self.cutting.close("shop", moment, tables, EVENTS)
        return None if bounds is None else [bounds[place] for place in moment]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_cut_waits_for_all_changes_of_its_newest_transaction(shop: Shop) -> None:
    shop.change(1, "orders", "customers")
    shop.end(1, orders=1, customers=1)
    tables = shop.catch_up()
    assert shop.cut(1, 1, tables) == [1, 1]
    shop.change(2, "orders", "orders")
    assert shop.cut(2, 1, tables) is None
    shop.end(2, orders=2, customers=1)
    assert shop.cut(2, 1, tables) is None
    shop.change(2, "customers", first=3)
    assert shop.cut(2, 1, tables) == [3, 2]
    shop.change(3, "customers")
    assert (shop.cut(2, 1, tables), shop.cut(2, 3, tables)) == ([3, 2], None)


def test_a_transaction_that_is_longer_than_what_is_read_has_a_second_after_its_end(shop: Shop) -> None:
    shop.change(1, *["orders"] * 300)
    tables = shop.catch_up()
    assert shop.cut(250, 0, tables) is None
    shop.end(1, orders=300)
    assert shop.cut(250, 0, tables) is None
    shop.clock.sleep(GRACE_S)
    assert shop.cut(250, 0, tables) == [300, 0]


def test_changes_without_their_transaction_are_named_until_the_source_writes_it(shop: Shop) -> None:
    shop.change(1, "orders", "customers", has_metadata=False)
    tables = shop.catch_up()
    with pytest.raises(UnavailableError, match=r"n\.customers: the change does not name its transaction") as refused:
        shop.cut(1, 1, tables)
    assert refused.value.remedy.startswith("set `provide.transaction.metadata` to true")
    shop.change(2, *["orders"] * 150)
    shop.change(2, *["customers"] * 150, first=151)
    shop.end(2, orders=150, customers=150)
    assert shop.cut(151, 151, tables) is None  # Its first changes are longer ago than what is read.
    shop.clock.sleep(GRACE_S)
    assert shop.cut(151, 151, tables) == [151, 151]
