"""One seeded history of a table that mirrors its keys: changes in any order that Kafka allows, services that come and go,
compactions and other writers also between the look for old rows and the commit, trouble between any two steps; then the
truth.

The truth: every snapshot holds exactly the rows that the plain dictionary of `mirror` has for its offsets, each with the
values of the very record that it came from; every bad record is a dead letter once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.service import Service
from frazil.ingest.table import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import CommitSpec, DeadLettersSpec, TableSpec, TopicSelector
from frazil.types import Progress
from tests.simulation.forms import UNSENT, draw_form
from tests.simulation.mirror import Change, Held, Key, Mirror, Row
from tests.simulation.scene import Place, Scene, pipeline_of
from tests.simulation.tables import ROW_ID, Lineage, Meddling, SharedTable, words

_TABLE = "lake.u"


class UpsertHistory(Scene):
    """Topics `a` and `b` feed `lake.u`. is_scattered: changes of a key come through several partitions."""

    def __init__(self, seed: int, root: Path) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        fate.meddle = self._meddle
        self.table = SharedTable(self.catalog, _TABLE, fate)
        self.form = draw_form(fate)
        # Without an ordering column a key must stay in its partition for the values before a change to mean anything.
        self.is_scattered = fate.maybe(0.5) and (self.form.is_ordered or not self.form.fills_rows)
        self.has_bad = fate.maybe(0.4)
        self.key_count = fate.pick(100, 1000) if fate.maybe(0.1) else fate.pick(2, 40)
        self.spec = self._spec()
        self.count = 0
        self.changes: dict[Place, Change] = {}
        self.foreign: dict[int, tuple[Key, Row]] = {}
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))

    def check(self) -> Progress:
        """Compares every snapshot of the main branch with the dictionary; the newest progress."""
        mirror, progress, lineage = Mirror(is_ordered=self.form.is_ordered), Progress(), Lineage()
        for snapshot in reversed(self.catalog.ancestors(_TABLE)):
            before = progress
            progress = from_summary("sim", snapshot.summary) or progress
            mirror.apply(
                change
                for (topic, partition, offset), change in self.changes.items()
                if _at(before, topic, partition) <= offset < _at(progress, topic, partition)
            )
            if snapshot.id in self.foreign:
                key, row = self.foreign[snapshot.id]
                mirror.adopt(key, row, row["at"])
            rows = self.table.rows_at(snapshot.id)
            self._compare(snapshot.id, rows, mirror.rows)
            if self.spec.tables[0].format_version > 2:
                lineage.go_on([(self.form.key_of(row), row[ROW_ID]) for row in rows], snapshot.id)
        return progress

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            number = self.fate.pick(0, self.key_count - 1)
            topic, partition = self._partition_of(number)
            if self.has_bad and self.fate.maybe(0.05):
                key, value = self._spoilt(number)
                place, _ = self._send(topic, partition, key, value)
                self.bad[place] = value
            elif self.fate.maybe(0.75):
                self._write(topic, partition, number)
            else:
                self._delete(topic, partition, number)

    def _write(self, topic: str, partition: int, number: int) -> None:
        row = self._row(number)
        op = "cur"[self.fate.pick(0, 2)]
        if self.form.is_wrapped:
            row["big"] = UNSENT if op == "u" and self.fate.maybe(0.6) else f"big {self.count}"
        told_ms = self.clock.now_ms()
        place, at_ms = self._send(topic, partition, self.form.record_key(number), self.form.value(row, op, told_ms))
        self.changes[place] = self.form.written(place, number, row, at_ms)

    def _delete(self, topic: str, partition: int, number: int) -> None:
        """By a tombstone; where records are wrapped, mostly by an envelope, and a tombstone may follow."""
        key = self.form.record_key(number)
        if not self.form.is_wrapped or self.fate.maybe(0.2):
            place, at_ms = self._send(topic, partition, key, self._tombstone())
            if not (self.form.is_wrapped and self.form.has_marks):
                self.changes[place] = self.form.deleted(place, number, at_ms)
            return
        at = self._at() if self.form.is_ordered and self.form.has_marks else None
        told_ms = self.clock.now_ms()
        before = {**self.form.key_fields(number), "at": at}
        place, _ = self._send(topic, partition, key, self.form.value(before, "d", told_ms))
        self.changes[place] = self.form.deleted(place, number, told_ms, at)
        if self.fate.maybe(0.5):
            self._send(topic, partition, key, self._tombstone())

    def _send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> tuple[Place, int]:
        """Where the record is now, and Kafka's time of it."""
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
        at_ms = self.clock.now_ms() - self.fate.pick(0, 50)
        self.count += 1
        return (topic, partition, self.source.produce(topic, partition, value, at_ms, gap, key=key)), at_ms

    def _tombstone(self) -> bytes | None:
        """No value, or what converters make of none."""
        return b"null" if self.fate.maybe(0.3) else None

    def _partition_of(self, key_number: int) -> tuple[str, int]:
        """One for each key, as a producer chooses it; where keys are scattered, often any."""
        topic = "ab"[key_number % 2]
        if self.is_scattered and self.fate.maybe(0.4):
            topic = "ab"[self.fate.pick(0, 1)]
            return topic, self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
        return topic, 0

    def _at(self) -> int:
        """An ordering value: it goes back at times and comes twice."""
        return self.count // 3 - (self.fate.pick(0, 8) if self.fate.maybe(0.3) else 0)

    def _row(self, key_number: int) -> dict[str, Any]:
        """A value: its number, an ordering value, fields that are there or not."""
        number = self.count
        row: dict[str, Any] = {"n": number, "at": self._at(), **self.form.own_fields(key_number)}
        if self.fate.maybe(0.5):
            row["x"] = number + 0.5
        for drift in range(min(3, number // 60)):
            if self.fate.maybe(0.2):
                row[f"new{drift}"] = f"text {number}"
            if self.fate.maybe(0.1):
                row.setdefault("deep", {})[f"n{drift}"] = [{"k": number}]
        return row

    def _spoilt(self, key_number: int) -> tuple[bytes | None, bytes | None]:
        """Key and value of a record that cannot become a change."""
        row, key, form = self._row(key_number), self.form.record_key(key_number), self.form
        if not form.is_wrapped and self.fate.maybe(0.25):
            return None, None
        if form.keys in ("record", "text") and not form.is_wrapped and self.fate.maybe(0.5):
            return None, json.dumps(row).encode()
        broken: list[bytes] = [b"{", b"[]", b"\xff"]
        if form.is_wrapped:
            broken += [b'{"op": "c", "after": null}', b'{"op": "d", "before": null}', form.value(row, "x", 0)]
        if form.keys in ("value", "nested"):
            names = form.key_fields(key_number).keys()
            lacking = {name: member for name, member in row.items() if name not in names}
            broken.append(form.value(lacking, "c", 0))
        if form.order_by == "at":
            broken.append(form.value({**row, "at": None}, "c", 0))
        return key, broken[self.fate.pick(0, len(broken) - 1)]

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self.table.roll_back()

    def _meddle(self) -> None:
        """What somebody else does to the table: compacts it, adds a row, commits nothing."""
        if not self.table.has_snapshots:
            return
        turn = self.fate.pick(0, 3)
        if turn == 0:
            self.table.touch()
        elif turn == 1:
            self._add_row()
        else:
            self.table.compact()

    def _add_row(self) -> None:
        """A row of another writer, of a key that may be there already."""
        number = self.fate.pick(0, self.key_count - 1)
        if self.form.fills_rows:
            number, self.key_count = self.key_count, self.key_count + 1
        row = {**self.form.key_fields(number), "n": -1, "at": self.fate.pick(0, 40)}
        snapshot = self.table.add(row) if self.form.order_by != "_at" else None
        if snapshot is not None:
            self.foreign[snapshot] = (self.form.key(number), row)

    # The truth

    def _check_end(self, service: Service) -> None:
        [table] = service.tables
        assert table.run_state is not RunState.STOPPED, f"{table.name} stopped: {table.reason} ({table.where})"
        if self.catalog.load(_TABLE) is None:
            assert not any(change.op == "upsert" for change in self.changes.values())
            return
        progress = self.check()
        behind = [place for place in (*self.changes, *self.bad) if _at(progress, *place[:2]) <= place[2]]
        assert not behind, f"not complete: {behind[:5]}"
        missing = self.bad.keys() - set(self.check_letters(_TABLE))
        assert not missing, f"no dead letter of {sorted(missing)[:5]}"

    @staticmethod
    def _compare(snapshot: int, rows: list[Row], expected: dict[Key, list[Held]]) -> None:
        found = sorted(words(row) for row in rows)
        wanted = sorted(words(held.row) for rows in expected.values() for held in rows if held.row is not None)
        if found != wanted:
            only, lacking = [row for row in found if row not in wanted], [row for row in wanted if row not in found]
            raise AssertionError(f"snapshot {snapshot}: not expected {only[:3]}; not there {lacking[:3]}")

    def _spec(self) -> PipelineSpec:
        table = TableSpec(
            name=_TABLE,
            topics=tuple(TopicSelector(literal=name) for name in "ab"),
            commit=CommitSpec(interval_s=0.1),
            mode="upsert",
            format_version=3 if self.fate.maybe(0.6) else 2,
            dead_letters=DeadLettersSpec(stop_above=1.0),
            **self.form.settings(),
        )
        return pipeline_of(self.root, table)


def _at(progress: Progress, topic: str, partition: int) -> int:
    return progress.offsets.get(topic, {}).get(partition, 0)


class DividedUpserts(UpsertHistory):
    """The same, where tasks read pieces of partitions."""

    divides_ranges = True
