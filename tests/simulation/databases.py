"""One seeded history of an upsert table of a database's table: rows get other keys, large values are not sent, tables are
emptied, the connector dies and repeats; services come and go, others compact the table, trouble between any two steps; then
the truth.

The truth is the source's own: every snapshot has, of each key, the row that the source had after the last change of that
key before the snapshot's offsets, its large values too; and none shows one half of a change of a key whose values the other
half has. In the end the changelog beside it has each change once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import Progress
from frazil_testing.twins import FakeClock
from tests.simulation.forms import UNSENT
from tests.simulation.scene import Scene, arranged, pipeline_of
from tests.simulation.shop import LoggedSnapshot, Shop, Ways, key_of
from tests.simulation.tables import Meddling, SharedTable, words

_TABLE, _LOG, _TOPIC = "lake.orders", "lake.changes", "shop.public.orders"
_LAYOUTS = (None, "", "bucket(id, 3)", "truncate(n, 20)", "bucket(id, 2);n")
_LONG_S = 120.0
"""Longer than anybody waits for the other half of a change of a key."""


class SlowClock(FakeClock):
    """The time of day stands still until `pass_long`, however long somebody waits: what lacks its other half is given up
    when all has arrived, and no sooner.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_long = 0

    def now_ms(self) -> int:
        """See Clock."""
        return self._start_ms + int(1000 * _LONG_S) * self._passed_long

    def pass_long(self) -> None:
        """Longer than anything is waited for."""
        self._passed_long += 1
        self.sleep(_LONG_S)


class DatabaseHistory(Scene):
    """is_ordered: by the places in the log of the source; else by arrival. has_marks: deleted rows stay. has_log: there is a
    changelog beside the upsert table. is_composite: keys have two columns. has_bad: records of others are in the topic too.
    is_plain: as histories were when seeds failed that are played again. expires: how often snapshots of the tables are
    expired.
    """

    topics_grow = False
    moves_keys = True
    expires = 0.0

    def __init__(self, seed: int, root: Path, *, is_plain: bool = False) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        self.clock: SlowClock = SlowClock()
        fate.meddle = self._meddle
        names = (_TABLE, _LOG, f"{_TABLE}__dead_letters")
        self.table, self.log, self.dead_letters = (SharedTable(self.catalog, name, fate) for name in names)
        self.is_ordered, self.has_marks = fate.maybe(0.5), fate.maybe(0.35)
        partitions = fate.pick(1, 3)
        self.has_log = fate.maybe(0.4)
        self.can_empty = fate.maybe(0.5) and (self.is_ordered or partitions == 1)
        self.is_plain, self.divided = is_plain, 0.0 if is_plain else self.divided
        self.is_composite, self.has_bad = (not is_plain and fate.maybe(share) for share in (0.4, 0.3))
        self.source.create(_TOPIC, partitions)
        self.arrived: list[tuple[int, int, LoggedSnapshot]] = []
        self.shop = Shop(
            fate.rng,
            fate.pick(2, 12),
            partitions,
            self._deliver,
            Ways(
                marks=self.has_marks,
                can_repeat_moves=self.is_ordered,  # By arrival nothing tells a row that came since from the one that moved.
                moves_keys=self.moves_keys,
                is_composite=self.is_composite,
            ),
        )
        self.spec = self._spec()

    def check(self) -> Progress:
        """Compares every snapshot of the main branch with the source; the newest progress. Of the oldest ones the snapshot
        that reports their progress may have expired: then they were compared before.
        """
        progress, line = Progress(), self.catalog.ancestors(_TABLE)
        is_known = bool(line) and line[-1].parent is None
        for snapshot in reversed(line):
            told = from_summary("sim", snapshot.summary)
            progress, is_known = told or progress, is_known or told is not None
            if not is_known:
                continue
            offsets = progress.offsets.get(_TOPIC, {})
            reported = [one for partition, offset, one in self.arrived if offset < offsets.get(partition, 0)]
            self._compare(snapshot.id, reported)
            self._check_parts(snapshot.id, reported)
        return progress

    def _compare(self, snapshot: int, reported: list[LoggedSnapshot]) -> None:
        """Each key that is settled, in this snapshot."""
        rows: dict[int, str] = {}
        for row in self.table.rows_at(snapshot):
            assert key_of(row) not in rows, f"snapshot {snapshot}: {key_of(row)} is there twice"
            rows[key_of(row)] = words(row)
        emptied = max((one.place for one in reported if one.op == "t"), default=(0, 0))
        for key, versions in self.shop.versions.items():
            mine = [one for one in reported if one.key in (key, None)]
            if self.is_ordered:
                mine = [one for one in mine if one.op == "tombstone" or (one.op != "t" and one.place >= emptied)]
            last, is_settled = self._decides(mine)
            found = rows.get(key)
            if is_settled:
                wanted = versions[last.at] if last is not None else None
                assert found == (wanted and words(wanted)), f"snapshot {snapshot}: {found}, not {wanted}, by {last}"

    def _decides(self, mine: list[LoggedSnapshot]) -> tuple[LoggedSnapshot | None, bool]:
        """What decides the row of a key, None where it is gone; and whether it does so already: the connector may be about
        to repeat what does. A tombstone comes right behind its delete, and reports nothing more.
        """
        changes = [one for one in mine if one.op != "tombstone"]
        state: LoggedSnapshot | None = None
        for one in changes:
            state = self._after(state, one)
        truth: LoggedSnapshot | None = None
        for _, one in sorted({one.at: one for one in changes}.items()):
            truth = self._after(truth, one)
        is_repeating = not self.is_ordered and bool(changes) and changes[-1].at != max(one.at for one in changes)
        return truth, state is truth and not is_repeating

    def _after(self, state: LoggedSnapshot | None, one: LoggedSnapshot) -> LoggedSnapshot | None:
        """What decides the row after another change: it is the newer one, unless it has an older place. What comes behind a
        row of a snapshot is newer whatever its place is.
        """
        if self.is_ordered and state is not None and state.op != "r" and one.place < state.place:
            return state
        return None if one.op == "t" or (one.op == "d" and not self.has_marks) else one

    def _check_parts(self, snapshot: int, reported: list[LoggedSnapshot]) -> None:
        """A change of a key whose values are in the old row is there whole or not at all; its insert may be there alone
        where later changes of the row have told its values, or have taken it away.
        """
        emptied = max((one.lsn for one in reported if one.op == "t"), default=0)
        gone = {one.lsn for one in reported if one.op == "d" and one.to is not None}
        come = {one.lsn: one for one in reported if one.since is not None}
        lacking = {one.lsn for one in self.shop.log if one.since is not None and one.lacks_values}
        alone = {lsn for lsn, one in come.items() if lsn not in gone and self._needs_old_row(one, reported)}
        parts = {lsn for lsn in lacking & ((gone - come.keys()) | alone) if lsn > emptied}
        assert not parts, f"snapshot {snapshot} has half of what was at {sorted(parts)}"

    @staticmethod
    def _needs_old_row(insert: LoggedSnapshot, reported: list[LoggedSnapshot]) -> bool:
        """Whether the row still has a value that was not sent when it got its key."""
        later = [one.row or {} for one in reported if one.key == insert.key and one.at > insert.at]
        lacking = {name for name, value in (insert.row or {}).items() if value == UNSENT}
        return not all(any(row.get(name) != UNSENT for row in later) for name in lacking)

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 8)):
            self.shop.change(can_empty=self.can_empty)
        for _ in range(self.fate.pick(1, 40)):
            self.shop.step()
        if self.fate.maybe(0.1):
            self._become_idle()

    def _become_idle(self) -> None:
        """All that was reported arrives, and nothing else happens for long."""
        self.shop.finish()
        self.clock.pass_long()

    def _deliver(self, reported: LoggedSnapshot) -> None:
        key, value, headers = reported.record
        if self.has_bad and reported.op != "tombstone" and self.fate.maybe(0.02):
            self._spoil(reported.partition)
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.05) else 0
        told: dict[str, Any] = {"key": key, "headers": headers}
        offset = self.source.produce(_TOPIC, reported.partition, value, self.clock.now_ms(), gap, **told)
        self.arrived.append((reported.partition, offset, reported))

    def _spoil(self, partition: int) -> None:
        value = (b"{", b"[]", b"\xff")[self.fate.pick(0, 2)]
        offset = self.source.produce(_TOPIC, partition, value, self.clock.now_ms(), key=b"{")
        self.bad[_TOPIC, partition, offset] = value

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self._roll_back(_TABLE)
        if not self.is_plain:
            for table in (_TABLE, _LOG):
                if self.fate.maybe(0.005):
                    self._drop(table)
            if self.fate.maybe(0.01):
                self._roll_back(_LOG)
        if self.expires and self.fate.maybe(self.expires):
            self._expire()

    def _after_crash(self) -> None:
        if self.expires and self.fate.maybe(0.3) and self.table.has_snapshots:
            self._expire()

    def _expire(self) -> None:
        """Those that go are compared before. The files that they alone name may be those of a batch in hand."""
        if self.table.has_snapshots:
            self.check()
        for table in (self.table, self.log, self.dead_letters):
            unnamed = table.expire(table.carry()) if table.has_snapshots else ()
            for path in unnamed if not self.services else ():
                Path(path).unlink()

    def _wanted(self) -> PipelineSpec:
        """The pipeline as its owner has it by now: the tables are partitioned in another way from one start to the next."""
        if self.is_plain or not self.fate.is_arranged:
            return self.spec
        return arranged(self.spec, _LAYOUTS[self.fate.pick(0, len(_LAYOUTS) - 1)])

    def _meddle(self) -> None:
        """What somebody else does to the table: compacts it, or commits nothing."""
        if self.table.has_snapshots:
            if self.expires and self.fate.maybe(0.3):
                self._expire()
            elif self.fate.maybe(0.3):
                self.table.touch()
            else:
                self.table.compact()

    def _start(self) -> Service:
        if self.fate.is_fault_free:
            self._become_idle()
        return super()._start()

    def _turn(self) -> None:
        for _ in range(self.fate.pick(1, 8)):
            super()._turn()

    # The truth

    def _check_end(self, service: Service) -> None:
        for table in service.tables:
            assert table.status.run_state is RunState.WAITING, (
                f"{table.name} stopped: {table.status.reason} ({table.status.where})"
            )
        if self.catalog.load(_TABLE) is None:
            assert not self.arrived
            return
        offsets = self.check().offsets.get(_TOPIC, {})
        behind = [one for partition, offset, one in self.arrived if offsets.get(partition, 0) <= offset]
        assert not behind, f"not complete: {behind[:5]}"
        for table in service.tables:
            assert self.bad.keys() == set(self.check_dead_letters(table.name)), f"{table.name} lacks dead letters"
        newest = self.catalog.ancestors(_TABLE)[0].id
        alive = [row for row in self.table.rows_at(newest) if not row.get("_deleted")]
        shown = {key_of(row): words({name: row.get(name) for name in self.shop.rows[key_of(row)]}) for row in alive}
        assert shown == {key: words(row) for key, row in self.shop.rows.items()}
        if self.has_log:
            told = {
                (partition, offset): reported.op
                for partition, offset, reported in self.arrived
                if reported.op != "tombstone"
            }
            rows = [
                row for file in self.catalog.data_files(_LOG) for row in pq.ParquetFile(file.path).read().to_pylist()
            ]
            assert len(rows) == len(told)
            assert {(row["_partition"], row["_offset"]): row["_op"] for row in rows} == told

    def _spec(self) -> PipelineSpec:
        asked = ("source_order", "source_ts", "transaction_id", "total_order")
        marks = ("deleted", "deleted_at") if self.has_marks else ()
        settings: dict[str, Any] = {
            "metadata": {name: f"_{name}" for name in (*asked, *marks)},
            "order_by": "_source_order" if self.is_ordered else None,
            "deletes": "soft" if self.has_marks else "hard",
            "format_version": 3 if self.fate.maybe(0.6) else 2,
        }
        shared: dict[str, Any] = {
            "topics": (TopicSelector(literal=_TOPIC),),
            "envelope": EnvelopeSpec(kind="debezium"),
            "commit": CommitSpec(interval_s=0.1),
            "columns": self._declared(),
        }
        model = TableSpec(name=_TABLE, key=ValueSpec(format="json"), mode="upsert", **shared, **settings)
        placed = {"op": "_op", "partition": "_partition", "offset": "_offset"}
        log = TableSpec(name=_LOG, changelog=True, metadata=placed, **shared)
        return pipeline_of(self.root, model, *((log,) if self.has_log else ()))

    def _declared(self) -> tuple[ColumnSpec, ...]:
        """What a table is partitioned by must be known before there are records of it."""
        names = () if self.is_plain or not self.fate.is_arranged else ("id", "n")
        return tuple(ColumnSpec(name=name, type=parse_type("long")) for name in names)


class DividedHistory(DatabaseHistory):
    """The same, where tasks read pieces of partitions. A change of a key would have one task read all."""

    divided = 1.0
    moves_keys = False


class WornDatabase(DatabaseHistory):
    """The same, where snapshots expire."""

    expires = 0.1
