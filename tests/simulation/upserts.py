"""One seeded history of a table that mirrors its keys: changes in any order that Kafka allows, services that come and go,
compactions and other writers also between the look for old rows and the commit, trouble between any two steps; then the
truth.

The truth: every snapshot holds exactly the rows that the plain dictionary of `mirror` has for its offsets, each with the
values of the very record that it came from; every bad record is a dead letter once. In format 3 a row has the id of the one
that it took the place of, and no other row has had it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.catalog.progress import from_summary
from frazil.catalog.scans import LiveFile
from frazil.ingest.files.lineage import lineage_schema
from frazil.ingest.files.write import FileWriter
from frazil.ingest.service import Service
from frazil.ingest.table import RunState, letters_target
from frazil.ingest.target import TableTarget
from frazil.ingest.upserts.delete_files import read_deletes
from frazil.spec import PipelineSpec
from frazil.spec.models import CatalogSpec, CommitSpec, DeadLettersSpec, TableSpec, TopicSelector, ValueSpec
from frazil.types import DataFile, Progress
from tests.fixtures.lineage import COLUMNS, ids_of_file
from tests.simulation.faults import Fate
from tests.simulation.mirror import Change, Held, Key, Mirror, Row
from tests.simulation.scene import Place, Scene

_TABLE = "lake.u"
_PLACES = ("_topic", "_partition", "_offset")


class _Meddling(Fate):
    """Others change the table when a commit is about to be made."""

    history: UpsertHistory

    def step(self, name: str) -> None:
        if name == "catalog.commit" and self.maybe(0.15):
            self.history.meddle()
        super().step(name)


class UpsertHistory(Scene):
    """Topics `a` and `b` feed `lake.u`.

    keys: `value`: the field `id` of the value; `record`: the fields of the key, two of them; `text`: the key as it is.
    """

    def __init__(self, seed: int, root: Path) -> None:
        fate = _Meddling(seed)
        super().__init__(fate, root)
        fate.history = self
        self.keys = ("value", "record", "text")[fate.pick(0, 2)]
        self.is_ordered = fate.maybe(0.5)
        self.is_scattered = fate.maybe(0.5)
        self.has_bad = fate.maybe(0.4)
        self.key_count = fate.pick(100, 1000) if fate.maybe(0.1) else fate.pick(2, 40)
        self.spec = self._spec()
        self.changes: dict[Place, Change] = {}
        self.foreign: dict[int, tuple[Key, Row]] = {}
        self._rows_of_files: dict[str, list[Row]] = {}
        self._deleted: dict[LiveFile, frozenset[int]] = {}
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))

    def meddle(self) -> None:
        """What somebody else does to the table: compacts it, adds a row, commits nothing."""
        if self.catalog.load(_TABLE) is None or not self.catalog.ancestors(_TABLE):
            return
        turn = self.fate.pick(0, 3)
        if turn == 0:
            self.catalog.append_foreign(_TABLE)
        elif turn == 1:
            self._add_row()
        else:
            self._compact()

    def check(self) -> Progress:
        """Compares every snapshot of the main branch with the dictionary; the newest progress."""
        mirror, progress, lineage = Mirror(is_ordered=self.is_ordered), Progress(), _Lineage()
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
                mirror.adopt(key, row, row.get("at"))
            rows = self._rows_at(snapshot.id)
            self._compare(snapshot.id, rows, mirror.rows)
            if self.spec.tables[0].format_version > 2:
                names = tuple(self._key_fields(0))
                lineage.go_on([(tuple(row[name] for name in names), row["_row_id"]) for row in rows], snapshot.id)
        return progress

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            number = len(self.changes) + len(self.bad)
            key_number = self.fate.pick(0, self.key_count - 1)
            topic, partition = self._partition_of(key_number)
            key = self._record_key(key_number)
            row = None if self.fate.maybe(0.25) else self._row(number, key_number)
            is_bad = self.has_bad and self.fate.maybe(0.05)
            value = self._tombstone() if row is None else json.dumps(row).encode()
            if is_bad:
                key, value = self._spoilt(key, row)
            gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
            at_ms = self.clock.now_ms() - self.fate.pick(0, 50)
            offset = self.source.produce(topic, partition, value, at_ms, gap, key=key)
            place = (topic, partition, offset)
            if is_bad:
                self.bad[place] = value
            else:
                self.changes[place] = self._change(place, key_number, row)

    def _tombstone(self) -> bytes | None:
        """No value, or what converters make of none."""
        return b"null" if self.fate.maybe(0.3) else None

    def _change(self, place: Place, key_number: int, row: Row | None) -> Change:
        key = self._key(key_number)
        if row is None:
            return Change("delete", place, key)
        placed = {**dict(zip(_PLACES, place, strict=True)), **self._key_fields(key_number), **row}
        return Change("upsert", place, key, placed, row["at"] if self.is_ordered else None)

    def _partition_of(self, key_number: int) -> tuple[str, int]:
        """One for each key, as a producer chooses it; where keys are scattered, often any."""
        topic = "ab"[key_number % 2]
        if self.is_scattered and self.fate.maybe(0.4):
            topic = "ab"[self.fate.pick(0, 1)]
            return topic, self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
        return topic, 0

    def _row(self, number: int, key_number: int) -> Row:
        """A value: its number, an ordering value that goes back at times and comes twice, fields that are there or not."""
        row: dict[str, Any] = {"n": number, "at": number // 3 - (self.fate.pick(0, 8) if self.fate.maybe(0.3) else 0)}
        if self.keys == "value":
            row["id"] = key_number
        if self.fate.maybe(0.5):
            row["x"] = number + 0.5
        for drift in range(min(3, number // 60)):
            if self.fate.maybe(0.2):
                row[f"new{drift}"] = f"text {number}"
            if self.fate.maybe(0.1):
                row.setdefault("deep", {})[f"n{drift}"] = [{"k": number}]
        return row

    def _key(self, number: int) -> Key:
        return {"value": (number,), "record": (number % 5, f"k{number}"), "text": (f"k{number}",)}[self.keys]

    def _key_fields(self, number: int) -> dict[str, Any]:
        names = {"value": ("id",), "record": ("region", "code"), "text": ("_key",)}[self.keys]
        return dict(zip(names, self._key(number), strict=True))

    def _record_key(self, number: int) -> bytes | None:
        if self.keys == "text":
            return f"k{number}".encode()
        return json.dumps(number if self.keys == "value" else self._key_fields(number)).encode()

    def _spoilt(self, key: bytes | None, row: Row | None) -> tuple[bytes | None, bytes | None]:
        """Key and value of a record that cannot become a change."""
        if row is None or (self.fate.maybe(0.5) and self.keys != "value"):
            return None, None if row is None else json.dumps(row).encode()
        broken: list[bytes] = [b"{", b"[]", b"\xff"]
        if self.keys == "value":
            broken.append(json.dumps({name: member for name, member in row.items() if name != "id"}).encode())
        if self.is_ordered:
            broken.append(json.dumps({**row, "at": None}).encode())
        return key, broken[self.fate.pick(0, len(broken) - 1)]

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self.meddle()
        if self.fate.maybe(0.02) and self.catalog.load(_TABLE) is not None:
            line = [None, *(snapshot.id for snapshot in self.catalog.ancestors(_TABLE))]
            self.catalog.roll_back(_TABLE, line[self.fate.pick(0, len(line) - 1)])

    def _add_row(self) -> None:
        """A row of another writer, of a key that may be there already."""
        number = self.fate.pick(0, self.key_count - 1)
        target = self._target()
        names = {field.name for field in target.fields} | {name for _, name in target.metadata}
        row = {**self._key_fields(number), "n": -1, "at": self.fate.pick(0, 40)}
        if not names.issuperset(row):
            return
        files = self._written(target, [row])
        self.foreign[self.catalog.append_foreign(_TABLE, files)] = (self._key(number), row)

    def _compact(self) -> None:
        """Some files become one, without the rows that are deleted."""
        files = self.catalog.scan(_TABLE).files
        chosen = [file for file in files if self.fate.maybe(0.6)]
        target = self._target()
        rows = [row for file in chosen for row in self._rows(target, file)]
        if chosen:
            paths = frozenset(file.path for file in chosen)
            self.catalog.append_foreign(_TABLE, self._written(target, rows) if rows else (), paths)

    def _target(self) -> TableTarget:
        state = self.catalog.load(_TABLE)
        assert state is not None
        return letters_target(state)

    @staticmethod
    def _written(target: TableTarget, rows: list[Row]) -> tuple[DataFile, ...]:
        schema = lineage_schema(target) if any("_row_id" in row for row in rows) else target.arrow_schema
        writer = FileWriter(target, schema)
        writer.write(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
        return tuple(writer.finish())

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
        found = sorted(_words(row) for row in rows)
        wanted = sorted(_words(held.row) for rows in expected.values() for held in rows if held.row is not None)
        if found != wanted:
            only, lacking = [row for row in found if row not in wanted], [row for row in wanted if row not in found]
            raise AssertionError(f"snapshot {snapshot}: not expected {only[:3]}; not there {lacking[:3]}")

    def _rows_at(self, snapshot: int) -> list[Row]:
        head = self.catalog.ancestors(_TABLE)[0].id
        self.catalog.roll_back(_TABLE, snapshot)
        files = self.catalog.scan(_TABLE).files
        self.catalog.roll_back(_TABLE, head)
        target = self._target()
        return [row for file in files for row in self._rows(target, file)]

    def _rows(self, target: TableTarget, file: LiveFile) -> list[Row]:
        """What is left of a file's rows."""
        if file.path not in self._rows_of_files:
            rows, ids = pq.read_table(file.path).to_pylist(), ids_of_file(file)
            self._rows_of_files[file.path] = [
                row if number is None else {**row, "_row_id": number} for row, number in zip(rows, ids, strict=True)
            ]
        if file not in self._deleted:
            self._deleted[file] = frozenset(read_deletes(target, file.path, file.deletes))
        rows, deleted = self._rows_of_files[file.path], self._deleted[file]
        assert len(rows) == file.record_count
        return [row for place, row in enumerate(rows) if place not in deleted]

    def _spec(self) -> PipelineSpec:
        by_keys: dict[str, dict[str, Any]] = {
            "value": {"key": ValueSpec(format="json"), "key_columns": ("id",)},
            "record": {"key": ValueSpec(format="json")},
            "text": {"key": ValueSpec(format="text"), "metadata": {"key": "_key"}},
        }
        settings = by_keys[self.keys]
        places = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
        table = TableSpec(
            name=_TABLE,
            topics=tuple(TopicSelector(literal=name) for name in "ab"),
            commit=CommitSpec(interval_s=0.1),
            mode="upsert",
            order_by="at" if self.is_ordered else None,
            format_version=3 if self.fate.maybe(0.6) else 2,
            dead_letters=DeadLettersSpec(stop_above=1.0),
            **{**settings, "metadata": {**places, **settings.get("metadata", {})}},
        )
        return PipelineSpec(
            pipeline="sim",
            kafka={},
            catalog=CatalogSpec(uri="memory"),
            tables=(table,),
            path=self.root / "pipeline.yaml",
            state_dir=self.root / "state",
        )


class _Lineage:
    """The ids of keys' rows over snapshots, oldest first."""

    def __init__(self) -> None:
        self._now: dict[Key, set[int]] = {}
        self._seen: set[int] = set()

    def go_on(self, rows: list[tuple[Key, int]], snapshot: int) -> None:
        """rows: key and id of those in the next snapshot."""
        now: dict[Key, set[int]] = {}
        for key, number in rows:
            now.setdefault(key, set()).add(number)
        assert sum(map(len, now.values())) == len(rows), f"snapshot {snapshot}: two rows have one id"
        for key, ids in now.items():
            before = self._now.get(key, set())
            # Of a key's rows one stays, or all of them; another writer may add one.
            assert not before or ids & before, f"snapshot {snapshot}: {key} had {before} and has {ids}"
            assert not (ids - before) & self._seen, f"snapshot {snapshot}: {key} has an id of another row, {ids}"
        self._now = now
        self._seen |= {number for ids in now.values() for number in ids}


def _at(progress: Progress, topic: str, partition: int) -> int:
    return progress.offsets.get(topic, {}).get(partition, 0)


def _words(row: Row) -> str:
    """A row as text; an absent field and a null are the same, and so is a struct of nulls. Its id is no part of it."""
    return json.dumps(
        _present({name: value for name, value in row.items() if name not in COLUMNS.values()}), sort_keys=True
    )


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        plain = {name: _present(member) for name, member in value.items()}
        return {name: member for name, member in plain.items() if member is not None and member != {}}
    return [_present(member) for member in value] if isinstance(value, list) else value
