"""One seeded history of a pipeline: producers, services that come and go, trouble between any two steps; then the
truth.

The truth: every snapshot holds exactly the records before its offsets, each once, each with its own values; nothing a
snapshot names is missing; and in the end all records are there, or the table reports which record it stopped at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, DeadLettersSpec, FlattenSpec, MetadataField
from frazil.spec.syntax.types import parse_type
from frazil.types import Progress
from tests.simulation.faults import Fate
from tests.simulation.scene import Place, Scene, arranged, pipeline_of

_PLACE: dict[MetadataField, str] = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
# partition_by and sort_by; None: the file does not say.
_LAYOUTS = [
    (None, None),
    ("bucket(id, 3)", None),
    ("_partition;truncate(id, 20)", "id desc"),
    ("_topic;bucket(id, 3)", "_offset;bucket(id, 4) desc nulls first"),
    ("", ""),
]
_FLATTEN = [None, FlattenSpec(), FlattenSpec(depth=1)]


class History(Scene):
    """Topics `a` and `b` feed the table `lake.ab`, whose columns are inferred; `c` feeds `lake.c`, whose are
    declared; `b` and `c` feed `lake.bc` too, from the same reads or from its own.
    """

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(Fate(seed), root)
        self.has_bad = self.fate.maybe(0.4)
        self.is_flattened, self.loses_records = self.fate.maybe(0.4), self.fate.maybe(0.25)
        self.spec = _spec(root, has_bad=self.has_bad, loses_records=self.loses_records)
        self.is_read_again = False
        self.produced: dict[Place, dict[str, Any]] = {}
        for topic in "abc":
            self.source.create(topic, self.fate.pick(1, 3))

    def _touch_tables(self) -> None:
        for table in ("lake.ab", "lake.c", "lake.bc"):
            if self.catalog.load(table) is None:
                continue
            if self.fate.maybe(0.03):
                self.catalog.append_foreign(table)
            if self.fate.maybe(0.02):
                self.is_read_again = True
                self._roll_back(table)
            if self.fate.maybe(0.005):
                self.is_read_again = True
                self._drop(table)
        if self.loses_records and self.fate.maybe(0.1):
            self._lose_records()

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            topic = str(self.fate.rng.choice(["a", "b", "c"]))
            partition = self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
            number = len(self.produced)
            value, is_bad = self._value(number)
            gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
            offset = self.source.produce(topic, partition, value, self.clock.now_ms() - self.fate.pick(0, 50), gap)
            self.produced[topic, partition, offset] = {} if is_bad else json.loads(value or b"")
            if is_bad:
                self.bad[topic, partition, offset] = value

    def _value(self, number: int) -> tuple[bytes | None, bool]:
        if self.has_bad and self.fate.maybe(0.01):
            bad = [None, b"", b"{", b'{"id": "x"}', b'{"id": 1, "id": 2}', b'{"id": 1.5}', b"\xff"]
            return bad[self.fate.pick(0, len(bad) - 1)], True
        record: dict[str, Any] = {"id": number}
        if self.fate.maybe(0.5):
            record["x"] = number + 0.5
        for drift in range(min(3, number // 60)):
            if self.fate.maybe(0.2):
                record[f"new{drift}"] = f"text {number}"
            if self.fate.maybe(0.1):
                record.setdefault("deep", {})[f"n{drift}"] = [self._inner(number)]
            if self.fate.maybe(0.1):
                record.setdefault("deep", {})[f"s{drift}"] = self._inner(number)
        return json.dumps(record).encode(), False

    def _inner(self, number: int) -> dict[str, Any]:
        """A nested record, which later ones have nested records in."""
        record: dict[str, Any] = {"k": number}
        if number > 90 and self.fate.maybe(0.3):
            record["g"] = {"x": number, **({"h": {"y": [{"z": number}]}} if self.fate.maybe(0.3) else {})}
        return record

    def _wanted(self) -> PipelineSpec:
        """The pipeline as its owner has it by now: other partitions, another order, nested records made columns or not, from
        one start to the next.
        """
        words = _LAYOUTS[self.fate.pick(0, len(_LAYOUTS) - 1)] if self.fate.is_arranged else _LAYOUTS[0]
        flatten = _FLATTEN[self.fate.pick(0, len(_FLATTEN) - 1)] if self.is_flattened else None
        tables = tuple(table.model_copy(update={"flatten": flatten}) for table in self.spec.tables)
        return arranged(self.spec.model_copy(update={"tables": tables}), *words)

    # The truth

    def _check_end(self, service: Service) -> None:
        for table in service.tables:
            progress = self.check_table(table.name)
            mine = {place for place in self.produced if place[0] in table.name[5:] and self._is_left(place)}
            bad = sorted(self.bad.keys() & mine)
            if table.spec.bad_records.on_bad_record == "dead_letter":
                assert table.status.run_state is not RunState.STOPPED, (
                    f"{table.name} stopped: {table.status.reason} ({table.status.where})"
                )
                dead_letters = self.check_dead_letters(table.name)
                missing = set(bad) - set(dead_letters)
                sent = self.outbox.topics.get("bad", [])
                assert self.is_read_again or len(sent) == len(dead_letters), "the topic has not every dead letter once"
                assert not missing, f"{table.name} has no dead letter of {sorted(missing)[:5]}"
            elif table.status.run_state is RunState.STOPPED:
                words = [f"topic {t}, partition {p}, offset {o}" for t, p, o in bad]
                assert table.status.where in words, (
                    f"{table.name} stopped: {table.status.reason} ({table.status.where})"
                )
            else:
                assert not bad, f"{table.name} went past {bad}"
            if table.status.run_state is not RunState.STOPPED:
                assert all(progress.offsets.get(t, {}).get(p, 0) > o for t, p, o in mine), (
                    f"{table.name} is not complete"
                )

    def check_table(self, table: str) -> Progress:
        """Checks every snapshot of the main branch; the newest progress."""
        if self.catalog.load(table) is None:
            return Progress()
        self.check_dead_letters(table)
        truth = {
            place: _leaves(record if table == "lake.ab" else record["id"])
            for place, record in self.produced.items()
            if place not in self.bad
        }
        rows: dict[Place, list[str]] = {}
        progress = Progress()
        lost: set[Place] = set()
        files: set[str] = set()
        for snapshot in reversed(self.catalog.ancestors(table)):
            for file in snapshot.files:
                assert file.path not in files, f"{file.path} is in two snapshots"
                files.add(file.path)
                read = pq.ParquetFile(file.path).read().to_pylist()
                assert len(read) == file.record_count
                for row in read:
                    place = (row.pop("_topic"), row.pop("_partition"), row.pop("_offset"))
                    assert place not in rows, f"{place} is there twice"
                    rows[place] = _leaves(row)
            progress = from_summary("sim", snapshot.summary) or progress
            lost |= self._lost(self.produced, progress)
            expected = {
                (t, p, o): held
                for (t, p, o), held in truth.items()
                if o < progress.offsets.get(t, {}).get(p, 0) and (t, p, o) not in lost
            }
            assert rows == expected, _difference(rows, expected)
        return progress


def _leaves(held: Any) -> list[str]:
    """The values in a record or a row, whatever the fields are called and lie in."""
    if isinstance(held, dict | list):
        return sorted(leaf for inner in (held.values() if isinstance(held, dict) else held) for leaf in _leaves(inner))
    return [] if held is None else [str(held)]


def _difference(rows: dict[Place, list[str]], expected: dict[Place, list[str]]) -> str:
    lost = sorted(expected.keys() - rows.keys())[:5]
    more = sorted(rows.keys() - expected.keys())[:5]
    other = [(place, rows[place], held) for place, held in expected.items() if rows.get(place, held) != held][:5]
    return f"lost={lost} more={more} other={other}"


def _spec(root: Path, *, has_bad: bool, loses_records: bool) -> PipelineSpec:
    def topics(names: str) -> tuple[TopicSelector, ...]:
        return tuple(TopicSelector(literal=name) for name in names)

    on_loss = "skip" if loses_records else "stop"
    shared: dict[str, Any] = {"metadata": _PLACE, "commit": CommitSpec(interval_s=0.5), "on_data_loss": on_loss}
    # The bad values must be bad whenever they are read: the type of `id` may not be inferred from them.
    known = (ColumnSpec(name="id", type=parse_type("long")),) if has_bad else ()
    declared = (ColumnSpec(name="id", type=parse_type("long")),)
    dead_letters = DeadLettersSpec(topic="bad")
    table = TableSpec(name="lake.ab", topics=topics("ab"), columns=known, dead_letters=dead_letters, **shared)
    stopping = (
        TableSpec(
            name=f"lake.{names}",
            topics=topics(names),
            columns=declared,
            unknown_fields="drop",
            on_bad_record="stop",
            **shared,
        )
        for names in ("c", "bc")
    )
    return pipeline_of(root, table, *stopping)
