"""One seeded history of an upsert table of a bank's accounts in whole transactions: the connector dies and repeats,
services come and go, others compact the table, roll it back or drop it, trouble between any two steps; and no snapshot
shows a part of a transfer.
"""

from __future__ import annotations

import json
from pathlib import Path

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import AtomicSpec, EnvelopeSpec, ValueSpec
from frazil.types import Offsets
from frazil_testing.twins import live_rows
from tests.simulation.bank import EACH, EVENTS, TOPIC, Bank, LoggedSnapshot, check_shown
from tests.simulation.faults import Fate
from tests.simulation.scene import Scene, pipeline_of
from tests.simulation.tables import SharedTable

_TABLE = "lake.accounts"


class TransferHistory(Scene):
    """has_events: whether there is a topic of transactions; without it the topic of accounts has one partition."""

    topics_grow = False

    def __init__(self, seed: int, root: Path) -> None:
        fate = Fate(seed)
        super().__init__(fate, root)
        self.has_events = fate.maybe(0.7)
        partitions = fate.pick(1, 3) if self.has_events else 1
        self.source.create(TOPIC, partitions)
        self.source.create(EVENTS, fate.pick(1, 2))
        self.arrived: dict[tuple[int, int], LoggedSnapshot] = {}
        self.checked: set[int] = set()
        self.table = SharedTable(self.catalog, _TABLE, fate)
        self.bank = Bank(fate.rng, fate.pick(3, 12), partitions, self._deliver)
        self.spec = self._spec()

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 4)):
            self.bank.transfer(most=self.fate.pick(2, 9))
        for _ in range(self.fate.pick(1, 40)):
            self.bank.step()

    def _deliver(self, reported: LoggedSnapshot) -> None:
        value = reported.value(self.has_events)
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.05) else 0
        if reported.is_event:
            partition = (reported.number + reported.is_end) % len(self.source.by_name[EVENTS].partitions)
            self.source.produce(EVENTS, partition, value, self.clock.now_ms(), gap)
            return
        key = json.dumps({"id": reported.account}).encode()
        offset = self.source.produce(TOPIC, reported.partition, value, self.clock.now_ms(), gap, key=key)
        self.arrived[reported.partition, offset] = reported

    def _touch_tables(self) -> None:
        """A rewrite, or somebody else's commit, carries no progress."""
        if self.table.has_snapshots and self.fate.maybe(0.1):
            if self.fate.maybe(0.5):
                self.table.touch()
            else:
                self.table.compact()
        if self.fate.maybe(0.02):
            self._roll_back(_TABLE)
        if self.fate.maybe(0.01):
            self._drop(_TABLE)
            self.checked.clear()  # Snapshots of the next one have their ids too.

    def _something(self) -> None:
        self.clock.sleep(self.fate.pick(0, 2))
        super()._something()

    def _start(self) -> Service:
        if self.fate.is_fault_free:
            self.bank.finish()
            for account in (*self.bank.balances, 0):  # Each partition has a newest one that nothing is wrong with.
                self.bank.touch(account)
            self.bank.finish()
        return super()._start()

    def _turn(self) -> None:
        for _ in range(self.fate.pick(1, 12)):  # A batch takes four: planned, looked at, read, committed.
            super()._turn()
            self._check_snapshots()

    def _check_snapshots(self) -> None:
        """Every snapshot, and the rows of the newest."""
        if self.catalog.load(_TABLE) is None:
            return
        snapshots = self.catalog.ancestors(_TABLE)
        for snapshot in snapshots:
            progress = from_summary("sim", snapshot.summary)
            if progress is None or snapshot.id in self.checked:
                continue
            self.checked.add(snapshot.id)
            shown = self._shown(progress.offsets)
            assert sum((dict.fromkeys(self.bank.balances, EACH) | shown).values()) == EACH * len(self.bank.balances)
            if snapshot is snapshots[0]:
                assert {row["id"]: row["balance"] for row in live_rows(self.catalog, _TABLE)} == shown

    def _shown(self, offsets: Offsets) -> dict[int, int]:
        before = (reported for (p, at), reported in self.arrived.items() if at < offsets.get(TOPIC, {}).get(p, 0))
        return check_shown(list(before), self.bank.sizes)

    def _check_end(self, service: Service) -> None:
        (table,) = service.tables
        assert table.status.run_state is RunState.WAITING, table.status.reason
        self._check_snapshots()
        assert self._shown(table.progress.offsets) == self.bank.balances

    def _spec(self) -> PipelineSpec:
        atomic = AtomicSpec(transaction_topic=EVENTS if self.has_events else None)
        table = TableSpec(
            name=_TABLE,
            topics=(TopicSelector(literal=TOPIC),),
            key=ValueSpec(format="json"),
            envelope=EnvelopeSpec(kind="debezium"),
            mode="upsert",
            format_version=3,
            atomic=atomic,
        )
        return pipeline_of(self.root, table)
