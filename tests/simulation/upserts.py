"""One seeded history of an upsert table: changes in any order that Kafka allows, services that come
and go, compactions and other writers also between the look for old rows and the commit, trouble between any two steps;
then the truth.

The truth: every snapshot holds exactly the rows that the plain dictionary of `model` has for its offsets, each with the
values of the very record that it came from; every bad record is a dead letter once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, DeadLettersSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import Progress
from frazil_testing.memory_table import MemorySnapshot
from tests.simulation.forms import UNSENT, Form, draw_form
from tests.simulation.scene import Place, Scene, arranged, pipeline_of
from tests.simulation.tables import ROW_ID, Lineage, Meddling, SharedTable, words
from tests.simulation.upsert_model import Change, Held, Key, Row, UpsertModel

_TABLE = "lake.u"
Produced = Callable[[Form], tuple[Change, ...]]
"""What a record asks for, as the file is when it is read."""
_FURTHEST = 4
"""How far behind a delete that ended a batch its tombstone may be."""


@dataclass
class Truth:
    """What a table must be at a snapshot. last: the last record that was read, of each partition."""

    model: UpsertModel = field(default_factory=lambda: UpsertModel(is_ordered=False))
    progress: Progress = field(default_factory=Progress)
    lineage: Lineage = field(default_factory=Lineage)
    last: dict[tuple[str, int], Place] = field(default_factory=dict)


class UpsertHistory(Scene):
    """Topics `a` and `b` feed `lake.u`. is_scattered: changes of a key come through several partitions. can_empty: the
    source's table is emptied at times; then there is one partition, as only there a truncate has a place among all changes.
    compacts: how often a topic is compacted; then transactions leave offsets without records too. expires: how often
    snapshots of the tables are expired.
    """

    compacts = 0.0
    expires = 0.0

    def __init__(self, seed: int, root: Path) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        fate.meddle = self._meddle
        self.table = SharedTable(self.catalog, _TABLE, fate)
        self.dead_letters = SharedTable(self.catalog, f"{_TABLE}__dead_letters", fate)
        self.forms = self._forms(draw_form(fate))
        self.form = self.forms[0]
        # Without an ordering column a key must stay in its partition for the values before a change to mean anything.
        self.is_scattered = fate.maybe(0.5) and all(one.is_ordered or not one.fills_rows for one in self.forms)
        self.can_empty = self.form.is_wrapped and fate.maybe(0.25)
        self.topics_grow, self.topics = not self.can_empty, "a" if self.can_empty else "ab"
        self.has_bad = fate.maybe(0.4)
        self.loses_records = fate.maybe(0.15)
        self.key_count = fate.pick(100, 1000) if fate.maybe(0.1) else fate.pick(2, 40)
        self.spec = self._spec()
        self.count = 0
        self.forms_of_runs: dict[str, Form] = {}
        self.changes: dict[Place, Produced] = {}
        self.foreign: dict[int, tuple[Key, Row]] = {}
        self.taken: dict[int, Key] = {}
        self.deletes: dict[Place, bytes] = {}
        self.tombstones: dict[Place, bytes] = {}
        self.compacted: list[tuple[int, frozenset[Place]]] = []
        self.expired: dict[int, Truth] = {}
        for topic in self.topics:
            self.source.create(topic, 1 if self.can_empty else fate.pick(1, 3))

    def check(self) -> Progress:
        """Compares every snapshot of the main branch with the dictionary; the newest progress."""
        return self._compared(self.catalog.ancestors(_TABLE)).progress

    def _compared(self, line: Sequence[MemorySnapshot]) -> Truth:
        """What the table must be, and is, at each of these snapshots, newest first; the truth of the newest."""
        before = line[-1].parent if line else None
        truth = deepcopy(self.expired[before]) if before is not None else Truth()
        for snapshot in reversed(line):
            self._follow(truth, snapshot)
        return truth

    def _follow(self, truth: Truth, snapshot: MemorySnapshot) -> None:
        """To the next snapshot."""
        model, before = truth.model, truth.progress
        truth.progress = progress = from_summary("sim", snapshot.summary) or before
        everywhere = (*self.changes, *self.bad)
        read = {place for place in everywhere if _at(before, *place[:2]) <= place[2] < _at(progress, *place[:2])}
        for begin, gone in self.compacted:
            read -= gone if snapshot.id >= begin else frozenset()
        form = self.forms_of_runs.get(progress.writer.run_id, self.form)
        model.is_ordered = form.is_ordered
        asked = list(self._asked(self._not_told(read - self._lost(read, progress), truth.last), form))
        model.apply(asked)
        if snapshot.id in self.foreign:
            key, row = self.foreign[snapshot.id]
            model.adopt(key, row, row["at"])
        if snapshot.id in self.taken:
            model.rows.pop(self.taken[snapshot.id], None)
        if any(change.op == "truncate" for change in asked):
            truth.lineage.recreate()
        rows = self.table.rows_at(snapshot.id)
        self._compare(snapshot.id, rows, model.rows)
        if self.spec.tables[0].layout.format_version > 2:
            truth.lineage.resume([(self.form.key_of(row), row[ROW_ID]) for row in rows], snapshot.id)

    def _not_told(self, read: set[Place], last: dict[tuple[str, int], Place]) -> Iterator[Place]:
        """These without tombstones that come right behind a delete of their key, which say nothing new. last: see Truth."""
        for place in sorted(read):
            before = last.get(place[:2])
            last[place[:2]] = place
            key = self.tombstones.get(place)
            is_told = key is not None and before is not None and self.deletes.get(before) == key
            if not is_told or before is None or (before not in read and place[2] - before[2] > _FURTHEST):
                yield place

    def _asked(self, places: Iterable[Place], form: Form) -> Iterator[Change]:
        """What these records ask for, as the file was when they were committed."""
        return (change for place in places if place in self.changes for change in self.changes[place](form))

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            number = self.fate.pick(0, self.key_count - 1)
            topic, partition = self._partition_of(number)
            if self.can_empty and self.fate.maybe(0.01):
                self._empty()
            elif self.has_bad and self.fate.maybe(0.05):
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
        self.changes[place] = lambda form: (form.written(place, number, row, at_ms),)

    def _delete(self, topic: str, partition: int, number: int) -> None:
        """By a tombstone; where records can tell it, mostly by such a one, and a tombstone may follow."""
        key = self.form.record_key(number)
        if not self.form.tells_deletes or self.fate.maybe(0.2):
            self._bury(topic, partition, number)
            return
        has_order = self.form.tells_operation and self.fate.maybe(0.8)
        at = self._at() if has_order or any(one.marks_in_order for one in self.forms) else None
        told_ms = self.clock.now_ms()
        before = {**self.form.key_fields(number), "at": at}
        place, _ = self._send(topic, partition, key, self.form.value(before, "d", told_ms))
        self.changes[place] = lambda form: (
            form.deleted(place, number, told_ms, at if has_order or form.marks_in_order else None),
        )
        self.deletes[place] = key
        if self.fate.maybe(0.5):
            self._bury(topic, partition, number)

    def _bury(self, topic: str, partition: int, number: int) -> None:
        key = self.form.record_key(number)
        place, at_ms = self._send(topic, partition, key, self._tombstone())
        self.changes[place] = lambda form: form.tombstone(place, number, at_ms)
        self.tombstones[place] = key

    def _empty(self) -> None:
        place, _ = self._send("a", 0, None, self.form.truncation(self.clock.now_ms()))
        self.changes[place] = lambda _: (Change("truncate", place),)

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
        topic = self.topics[key_number % len(self.topics)]
        if self.is_scattered and self.fate.maybe(0.4):
            topic = self.topics[self.fate.pick(0, len(self.topics) - 1)]
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
        if not form.tells_deletes and self.fate.maybe(0.25):
            return None, None
        if form.keys in ("record", "text") and not form.tells_deletes and self.fate.maybe(0.5):
            return None, json.dumps(row).encode()
        broken: list[bytes] = [b"{", b"[]", b"\xff"]
        if form.is_wrapped:
            broken += [b'{"op": "c", "after": null}', b'{"op": "d", "before": null}', form.value(row, "x", 0)]
        if form.tells_operation:
            broken += [json.dumps(row).encode(), form.value(row, "x", 0)]
        if form.keys in ("value", "nested"):
            names = form.key_fields(key_number).keys()
            lacking = {name: member for name, member in row.items() if name not in names}
            broken.append(form.value(lacking, "c", 0))
        if all(one.order_by == "at" for one in self.forms):
            broken.append(form.value({**row, "at": None}, "c", 0))
        return key, broken[self.fate.pick(0, len(broken) - 1)]

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self._roll_back(_TABLE)
        if self.fate.maybe(0.01):
            self._drop(_TABLE)
        if self.loses_records and self.fate.maybe(0.1):
            self._lose_records()
        if self.compacts and self.fate.maybe(self.compacts):
            self._compact_topic()
        if self.expires and self.fate.maybe(self.expires) and self.table.has_snapshots:
            self._expire()

    def _compact_topic(self) -> None:
        """While no batch is in hand: of one that is read meanwhile nobody could say what it has read."""
        self.services.clear()
        for _ in range(self.fate.pick(0, 4)):
            self._produce()
        topic = self.topics[self.fate.pick(0, len(self.topics) - 1)]
        partition = self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
        if self.fate.maybe(0.3):
            self.source.mark(topic, partition, self.fate.pick(1, 3))
        whole = self.source.by_name[topic].end(partition)
        end = whole if self.fate.maybe(0.5) else self.fate.pick(0, whole)
        tombstones_end = self.fate.pick(0, end) if self.fate.maybe(0.5) else 0
        gone = self.source.compact(topic, partition, end, tombstones_end)
        begin = self.table.touch() if self.catalog.load(_TABLE) is not None else 0
        self.compacted.append((begin, frozenset((topic, partition, offset) for offset in gone)))

    def _after_crash(self) -> None:
        if self.expires and self.fate.maybe(0.3) and self.table.has_snapshots:
            self._expire()

    def _expire(self) -> None:
        """Those that go are compared before. The files that they alone name may be those of a batch in hand."""
        if self.dead_letters.has_snapshots:
            self.dead_letters.expire(self.dead_letters.carry())
        retention = self.table.carry()
        before = self.catalog.ancestors(_TABLE)
        unnamed = self.table.expire(retention)
        gone = [snapshot for snapshot in before if snapshot.id <= (self.catalog.ancestors(_TABLE)[-1].parent or 0)]
        if gone:
            self.expired[gone[0].id] = self._compared(gone)
        for path in unnamed if not self.services else ():
            Path(path).unlink()

    def _is_left(self, place: Place) -> bool:
        return super()._is_left(place) and not any(place in gone for _, gone in self.compacted)

    def _drop(self, table: str) -> None:
        """Snapshots of the next one have their ids too."""
        super()._drop(table)
        if self.catalog.load(table) is None:
            self.foreign.clear()
            self.taken.clear()
            self.expired.clear()
            self.compacted = [(0, gone) for _, gone in self.compacted]

    def _meddle(self) -> None:
        """What somebody else does to the table: compacts or upgrades it, adds a row, takes rows away, commits nothing."""
        if not self.table.has_snapshots:
            return
        if self.expires and self.fate.maybe(0.3):
            self._expire()
            return
        turn = self.fate.pick(0, 4)
        if turn == 0:
            self.table.touch()
        elif turn == 1:
            self._add_row()
        elif turn == 2:
            self._take_rows()
        elif turn == 3 and self.fate.maybe(0.3):
            self.table.upgrade()
        else:
            self.table.compact()

    def _add_row(self) -> None:
        """A row of another writer, of a key that may be there already."""
        number = self.fate.pick(0, self.key_count - 1)
        if any(one.fills_rows for one in self.forms):
            number, self.key_count = self.key_count, self.key_count + 1
        row = {**self.form.key_fields(number), "n": -1, "at": self.fate.pick(0, 40)}
        snapshot = self.table.add(row) if self.form.order_by != "_at" else None
        if snapshot is not None:
            self.foreign[snapshot] = (self.form.key(number), row)

    def _take_rows(self) -> None:
        """Those of a key, by their places or by their values."""
        number, form = self.fate.pick(0, self.key_count - 1), self.form
        key, fields = list(form.key(number)), form.key_fields(number)
        if self.fate.maybe(0.5) or not self.table.has_columns(fields):
            snapshot = self.table.delete(lambda row: form.values_of(row) == key)
        else:
            snapshot = self.table.delete_equal(fields, form.names, lambda row: form.values_of(row) == key)
        self.taken[snapshot] = form.key(number)

    def _wanted(self) -> PipelineSpec:
        """The pipeline as its owner has it by now: the table is partitioned in another way from one start to the next."""
        if not self.fate.is_arranged:
            return self.spec
        first, last = self.form.names[0], self.form.names[-1]
        layouts = (
            None,
            "",
            "truncate(n, 20)",
            f"bucket({first}, 3)",
            f"_topic;bucket({last}, 2)",
            f"bucket({first}, 2);n",
        )
        return arranged(self.spec, layouts[self.fate.pick(0, len(layouts) - 1)])

    # The truth

    def _check_end(self, service: Service) -> None:
        [table] = service.tables
        assert table.status.run_state is not RunState.STOPPED, (
            f"{table.name} stopped: {table.status.reason} ({table.status.where})"
        )
        if self.catalog.load(_TABLE) is None:
            there = filter(self._is_left, self.changes)
            assert not any(change.op == "upsert" for change in self._asked(there, self.form))
            return
        progress = self.check()
        left = [place for place in (*self.changes, *self.bad) if self._is_left(place)]
        behind = [place for place in left if _at(progress, *place[:2]) <= place[2]]
        assert not behind, f"not complete: {behind[:5]}"
        missing = self.bad.keys() & set(left) - set(self.check_dead_letters(_TABLE))
        assert not missing, f"no dead letter of {sorted(missing)[:5]}"

    @staticmethod
    def _compare(snapshot: int, rows: list[Row], expected: dict[Key, list[Held]]) -> None:
        found = sorted(words(row) for row in rows)
        wanted = sorted(words(held.row) for rows in expected.values() for held in rows if held.row is not None)
        if found != wanted:
            only, lacking = [row for row in found if row not in wanted], [row for row in wanted if row not in found]
            raise AssertionError(f"snapshot {snapshot}: not expected {only[:3]}; not there {lacking[:3]}")

    def _forms(self, drawn: Form) -> tuple[Form, ...]:
        """What the file has for the table, one way or the other; `form` is one of them."""
        return (drawn,)

    def _spec(self) -> PipelineSpec:
        table = TableSpec(
            name=_TABLE,
            topics=tuple(TopicSelector(literal=name) for name in self.topics),
            commit=CommitSpec(interval_s=0.1),
            mode="upsert",
            format_version=3 if self.fate.maybe(0.6) else 2,
            columns=self._declared(),
            on_data_loss="skip" if self.loses_records else "stop",
            dead_letters=DeadLettersSpec(stop_above=1.0),
            **self.form.settings(),
        )
        return pipeline_of(self.root, table)

    def _declared(self) -> tuple[ColumnSpec, ...]:
        """What a table is partitioned by must be known before there are records of it."""
        kinds = {"n": "long", **self.form.kinds} if self.fate.is_arranged else {}
        return tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in kinds.items())


def _at(progress: Progress, topic: str, partition: int) -> int:
    return progress.offsets.get(topic, {}).get(partition, 0)


class DividedUpserts(UpsertHistory):
    """The same, where tasks read pieces of partitions."""

    divided = 1.0


class WornUpserts(UpsertHistory):
    """The same, where topics are compacted and snapshots expire."""

    compacts = 0.04
    expires = 0.1


class ChangingUpserts(UpsertHistory):
    """The same, where the file has another `order_by` and `deletes` from one start to the next."""

    ends = 0.1

    def _forms(self, drawn: Form) -> tuple[Form, ...]:
        # Tombstones have no ordering value but Kafka's time, which rows do not have that were written without marks.
        ways = [(False, False), (True, False), (False, True), *([(True, True)] if drawn.is_wrapped else [])]
        forms = [replace(drawn, is_ordered=is_ordered, has_marks=has_marks) for is_ordered, has_marks in ways]
        if self.fate.maybe(0.4):  # Those where keys may be scattered.
            forms = [form for form in forms if form.is_ordered or not form.fills_rows]
        return tuple(forms)

    def _wanted(self) -> PipelineSpec:
        form = self.forms[self.fate.pick(0, len(self.forms) - 1)]
        self.forms_of_runs[f"run-{self.started:04}"] = form
        spec = super()._wanted()
        [table] = spec.tables
        return spec.model_copy(update={"tables": (table.model_copy(update=dict(form.settings())),)})


class WornChangingUpserts(ChangingUpserts):
    """Both of these."""

    compacts = 0.04
    expires = 0.1


class OperationUpserts(WornUpserts):
    """The same, of rows that tell their operation: tombstones may be all that compaction leaves of a delete."""

    def _forms(self, drawn: Form) -> tuple[Form, ...]:
        keys = "record" if drawn.keys == "text" else drawn.keys
        return (replace(drawn, keys=keys, has_marks=False, is_wrapped=False, tells_operation=True),)
