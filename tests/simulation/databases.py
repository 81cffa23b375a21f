"""One seeded history of a table that mirrors a database's: rows get other keys, large values are not sent, tables are
emptied, the connector dies and repeats; services come and go, others compact the table, trouble between any two steps; then
the truth.

The truth is the source's own: every snapshot has, of each key, the row that the source had after the last change of that
key before the snapshot's offsets, its large values too; and none shows one half of a change of a key whose values the other
half has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.service import Service
from frazil.ingest.table import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import CatalogSpec, CommitSpec, EnvelopeSpec, TableSpec, TopicSelector, ValueSpec
from frazil.types import Progress
from tests.simulation.scene import Scene
from tests.simulation.shop import Said, Shop
from tests.simulation.tables import Meddling, SharedTable, words

_TABLE, _TOPIC = "lake.orders", "shop.public.orders"
_NEVER_OLD_MS = 1_900_000_000_000
"""The time of every record: what lacks its other half is never given up."""


class DatabaseHistory(Scene):
    """is_ordered: by the places in the source's log; else by arrival. has_marks: deleted rows stay."""

    def __init__(self, seed: int, root: Path) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        fate.meddle = self._meddle
        self.table = SharedTable(self.catalog, _TABLE, fate)
        self.is_ordered, self.has_marks = fate.maybe(0.5), fate.maybe(0.35)
        partitions = fate.pick(1, 3)
        self.can_empty = fate.maybe(0.5) and (self.is_ordered or partitions == 1)
        self.source.create(_TOPIC, partitions)
        self.arrived: list[tuple[int, int, Said]] = []
        self.shop = Shop(
            fate.chance,
            fate.pick(2, 12),
            partitions,
            self._deliver,
            marks=self.has_marks,
            can_repeat_moves=self.is_ordered,  # By arrival nothing tells a row that came since from the one that moved.
        )
        self.spec = self._spec()

    def check(self) -> Progress:
        """Compares every snapshot of the main branch with the source; the newest progress."""
        progress, unsure = Progress(), 0
        for snapshot in reversed(self.catalog.ancestors(_TABLE)):
            progress = from_summary("sim", snapshot.summary) or progress
            offsets = progress.offsets.get(_TOPIC, {})
            said = [one for partition, offset, one in self.arrived if offset < offsets.get(partition, 0)]
            unsure = self._compare(snapshot.id, said)
            self._check_halves(snapshot.id, said)
        assert not unsure, f"{unsure} keys are not as the source has said last"
        return progress

    def _compare(self, snapshot: int, said: list[Said]) -> int:
        """Each key that is settled, in this snapshot; how many are not."""
        rows: dict[int, str] = {}
        for row in self.table.rows_at(snapshot):
            assert row["id"] not in rows, f"snapshot {snapshot}: {row['id']} is there twice"
            rows[row["id"]] = words(row)
        unsure = 0
        for key, versions in self.shop.versions.items():
            last = self._decides(key, said)
            if last is None:
                assert key not in rows, f"snapshot {snapshot}: {rows[key]} is there, and nobody has said so"
            elif isinstance(last, str):
                unsure += 1
            else:
                wanted = versions[last.lsn] if last.key is not None else None
                found = rows.get(key)
                assert found == (wanted and words(wanted)), f"snapshot {snapshot}: {found}, not {wanted}, by {last}"
        return unsure

    def _decides(self, key: int, said: list[Said]) -> Said | str | None:
        """What decides the row of a key; a word where the connector is about to repeat what does."""
        mine = [one for one in said if one.key in (key, None)]
        emptied = max((one.lsn for one in mine if one.op == "t"), default=0)
        if self.is_ordered:
            mine = [one for one in mine if one.op != "t" and one.lsn > emptied]
        if not mine:
            return None
        newest = max((one for one in mine if one.op != "tombstone"), key=lambda one: one.lsn)
        since = mine[max(n for n, one in enumerate(mine) if one.lsn == newest.lsn) + 1 :]
        if self.is_ordered:  # A tombstone has no place: what has made the row anew is repeated behind it.
            since = [one for one in since if not self.has_marks and (newest.op == "d" or one.op in ("d", "tombstone"))]
        return "repeated" if since else newest

    def _check_halves(self, snapshot: int, said: list[Said]) -> None:
        """A change of a key whose values are in the old row is there whole or not at all."""
        emptied = max((one.lsn for one in said if one.op == "t"), default=0)
        gone = {one.lsn for one in said if one.op == "d" and one.to is not None}
        come = {one.lsn for one in said if one.since is not None}
        lacking = {one.lsn for one in self.shop.log if one.since is not None and one.lacks_values}
        halves = {lsn for lsn in lacking & (gone ^ come) if lsn > emptied}
        assert not halves, f"snapshot {snapshot} has half of what was at {sorted(halves)}"

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 8)):
            self.shop.change(can_empty=self.can_empty)
        for _ in range(self.fate.pick(1, 40)):
            self.shop.step()

    def _deliver(self, said: Said) -> None:
        key, value, headers = said.record
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.05) else 0
        told: dict[str, Any] = {"key": key, "headers": headers}
        offset = self.source.produce(_TOPIC, said.partition, value, _NEVER_OLD_MS, gap, **told)
        self.arrived.append((said.partition, offset, said))

    def _something(self) -> None:
        """The topic's partitions stay as many as they are: rows would move to others."""
        if self.fate.maybe(0.6):
            self._produce()
        if self.fate.maybe(0.25) and len(self.services) < 2:
            self._start()
        if self.fate.maybe(0.03) and self.services:
            self.services.pop(self.fate.pick(0, len(self.services) - 1))
        self._touch_tables()

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self.table.roll_back()

    def _meddle(self) -> None:
        """What somebody else does to the table: compacts it, or commits nothing."""
        if self.table.has_snapshots:
            if self.fate.maybe(0.3):
                self.table.touch()
            else:
                self.table.compact()

    def _start(self) -> Service:
        if self.fate.is_calm:
            self.shop.finish()
        return super()._start()

    def _turn(self) -> None:
        for _ in range(self.fate.pick(1, 8)):
            super()._turn()

    # The truth

    def _check_end(self, service: Service) -> None:
        [table] = service.tables
        assert table.run_state is RunState.WAITING, f"{table.name} stopped: {table.reason} ({table.where})"
        if self.catalog.load(_TABLE) is None:
            assert not self.arrived
            return
        offsets = self.check().offsets.get(_TOPIC, {})
        behind = [one for partition, offset, one in self.arrived if offsets.get(partition, 0) <= offset]
        assert not behind, f"not complete: {behind[:5]}"
        assert self.check_letters(_TABLE) == []
        newest = self.catalog.ancestors(_TABLE)[0].id
        alive = {row["id"] for row in self.table.rows_at(newest) if not row.get("_deleted")}
        assert alive == self.shop.rows.keys()

    def _spec(self) -> PipelineSpec:
        asked = ("source_order", "source_ts", "transaction_id", "total_order")
        marks = ("deleted", "deleted_at") if self.has_marks else ()
        settings: dict[str, Any] = {
            "metadata": {name: f"_{name}" for name in (*asked, *marks)},
            "order_by": "_source_order" if self.is_ordered else None,
            "deletes": "mark" if self.has_marks else "apply",
            "format_version": 3 if self.fate.maybe(0.6) else 2,
        }
        table = TableSpec(
            name=_TABLE,
            topics=(TopicSelector(literal=_TOPIC),),
            key=ValueSpec(format="json"),
            envelope=EnvelopeSpec(kind="debezium"),
            mode="upsert",
            commit=CommitSpec(interval_s=0.1),
            **settings,
        )
        return PipelineSpec(
            pipeline="sim",
            kafka={},
            catalog=CatalogSpec(uri="memory"),
            tables=(table,),
            path=self.root / "pipeline.yaml",
            state_dir=self.root / "state",
        )
