"""One seeded history of dead letters of a table whose records replace rows: ingestion continues while dead letters are
retried, with trouble between any two steps, also of two retries at a time; then the truth.

The truth: at any moment no row and no dead letter is there twice; in the end the table is what a dictionary reports
that was told every record in its place, as though none had ever been a dead letter, and what is still a dead letter is
broken or superseded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from frazil.catalog.port import Catalog
from frazil.dead_letters.files import Selection
from frazil.kafka.port import TopicReaders
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, DeadLettersSpec, EnvelopeSpec, MetadataField, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import DataFile
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import live_rows
from tests.simulation.faults import UnsureSource
from tests.simulation.replay import Place, Replay
from tests.simulation.scene import pipeline_of
from tests.simulation.upsert_model import Change, UpsertModel

_TABLE, _DEAD_LETTERS = "lake.a", "lake.a__dead_letters"
_LARGE = 3_000_000_000
_BROKEN = (b"{", b"[]", b'{"id": "x"}')


class LateReplay(Replay):
    """Topic `a` feeds an upsert table whose column `n` was too narrow for a while. is_wrapped: the records are envelopes of
    Debezium's, and in order where their source's log tells it.
    """

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root)
        self.is_ordered = bool(seed % 2)
        self.has_places = bool(seed // 2 % 2)
        self.is_wrapped = bool(seed // 4 % 2)
        self.key_count = 3 + seed % 7
        self.changes: list[Change] = []

    def check(self) -> tuple[dict[Place, int], dict[Place, bytes | None]]:
        """Nothing twice; the rows' values by key, and the dead letters."""
        rows: dict[Place, int] = {}
        dead_letters: dict[Place, bytes | None] = {}
        for row in live_rows(self.catalog, _TABLE) if self.catalog.load(_TABLE) is not None else ():
            assert (0, row["id"]) not in rows, f"{row['id']} is there twice"
            rows[0, row["id"]] = row["n"]
        for dead_letter in self._read(_DEAD_LETTERS):
            place = (dead_letter["partition"], dead_letter["offset"])
            assert place not in dead_letters, f"{place} is a dead letter twice"
            assert dead_letter["value"] == self.produced[place]
            dead_letters[place] = dead_letter["value"]
        return rows, dead_letters

    def _check_end(self) -> None:
        model = UpsertModel(is_ordered=self.is_ordered)
        model.apply(self.changes)
        expected = {(0, key[0]): held.row["n"] for key, rows in model.rows.items() for held in rows if held.row}
        rows, dead_letters = self.check()
        assert rows == expected
        reasons = {(row["partition"], row["offset"]): row["error_class"] for row in self._read(_DEAD_LETTERS)}
        assert self.broken <= dead_letters.keys()
        assert {reasons[place] for place in dead_letters.keys() - self.broken} <= {"superseded"}
        for (_, name), value in self._marks():
            raise AssertionError(f"a retry was not finished: {name} {value}")

    def _marks(self) -> list[tuple[tuple[str, str], str]]:
        state = self.catalog.load(_DEAD_LETTERS)
        marks = state.marks if state is not None else {}
        return [((_DEAD_LETTERS, name), value) for name, value in marks.items() if name.startswith("replaying.")]

    def _replayer(self, catalog: Catalog) -> Replayer:
        source = UnsureSource(self.source, self.replay_fate)
        return Replayer(catalog, None, TopicReaders(source, source))

    def _selection(self) -> Selection:
        """One dead letter alone too, while others of its row wait."""
        places = sorted(self.check()[1])
        if places and self.fate.maybe(0.3):
            partition, offset = places[self.fate.pick(0, len(places) - 1)]
            return Selection(partition=partition, offset=offset)
        return super()._selection()

    def _drop(self, replayer: Replayer) -> None:  # noqa: ARG002  (somebody else is at work on the dead-letter table)
        """A compaction: the same dead letters in other files."""
        files = self.catalog.data_files(_DEAD_LETTERS) if self.catalog.load(_DEAD_LETTERS) is not None else []
        copies = []
        for file in files:
            path = file.path.removesuffix(".parquet") + "c.parquet"
            pq.write_table(pq.read_table(file.path), path)
            copies.append(DataFile(path, file.record_count, file.size_bytes, file.content.replace(file.path, path)))
        if copies:
            self.catalog.append_foreign(_DEAD_LETTERS, tuple(copies), frozenset(file.path for file in files))

    def _produce(self) -> None:
        for _ in range(self.fate.pick(0, 8)):
            number, key = len(self.produced), self.fate.pick(0, self.key_count)
            row: dict[str, Any] = {"id": key, "n": number + (_LARGE if self.fate.maybe(0.25) else 0)}
            row["at"] = number // 3 - (self.fate.pick(0, 8) if self.fate.maybe(0.3) else 0)
            is_broken, is_gone = self.fate.maybe(0.05), self.fate.maybe(0.2)
            # Of some deletes the tombstone is all there is.
            is_bare = is_gone and not (self.is_wrapped and self.fate.maybe(0.9))
            value = None if is_bare else self._value(row, number, is_gone=is_gone)
            if is_broken:
                value = _BROKEN[self.fate.pick(0, len(_BROKEN) - 1)]
            place = self._send(key, value)
            if is_broken:
                self.broken.add(place[1:])
                continue
            order = None if is_bare or not self.is_ordered else number if self.is_wrapped else row["at"]
            self.changes.append(Change("delete" if is_gone else "upsert", place, (key,), {} if is_gone else row, order))
            if is_gone and not is_bare and self.fate.maybe(0.7):
                self._send(key, None)

    def _send(self, key: int, value: bytes | None) -> tuple[str, int, int]:
        name = json.dumps({"id": key} if self.is_wrapped else key).encode()
        offset = self.source.produce("a", key % 2, value, self.clock.now_ms(), key=name)
        self.produced[key % 2, offset] = value
        return "a", key % 2, offset

    def _value(self, row: dict[str, Any], number: int, *, is_gone: bool) -> bytes:
        if not self.is_wrapped:
            return json.dumps(row).encode()
        op = "d" if is_gone else "cur"[self.fate.pick(0, 2)]
        images = {"before": {"id": row["id"]}, "after": None} if is_gone else {"before": None, "after": row}
        # A row that is read beside the stream tells the place in `sequence` alone.
        source = {"connector": "postgresql", "lsn": None if op == "r" else number, "sequence": f'[null,"{number}"]'}
        return json.dumps({"op": op, **images, "source": source}).encode()

    def _spec(self) -> PipelineSpec:
        kinds = {"id": "long", "n": "long" if self.is_fixed else "int", "at": "long"}
        table = TableSpec(
            name=_TABLE,
            topics=(TopicSelector(literal="a"),),
            metadata=self._metadata(),
            commit=CommitSpec(interval_s=0.1),
            columns=tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in kinds.items()),
            dead_letters=DeadLettersSpec(stop_above=1.0),
            mode="upsert",
            key=ValueSpec(format="json"),
            key_columns=("id",),
            order_by=("_source_order" if self.is_wrapped else "at") if self.is_ordered else None,
            envelope=EnvelopeSpec(kind="debezium") if self.is_wrapped else None,
            format_version=3,
        )
        return pipeline_of(self.root, table)

    def _metadata(self) -> dict[MetadataField, str]:
        """Columns for where rows are from."""
        names: list[MetadataField] = ["partition", "offset"] if self.has_places else []
        if self.is_wrapped and self.is_ordered:
            names.append("source_order")
        return {name: f"_{name}" for name in names}
