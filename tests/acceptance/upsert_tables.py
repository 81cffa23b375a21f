"""An upsert table of a topic of changes, and what it must be: a dictionary that gets every change, read back
by two other readers at every snapshot.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from tests.acceptance.ledger import Feed, Ledger, Place
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.verifier import (
    chosen_snapshots,
    document_of,
    is_cut,
    newest_snapshot,
    open_duckdb,
    open_table,
    prefix,
    progress_at,
    scan_snapshot,
)

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("_offset", pa.int64())])


class KeyedFeed(Feed):
    """A feed that remembers the keys of its records too."""

    def __init__(self, servers: str, ledger: Ledger) -> None:
        super().__init__(servers, ledger)
        self.keys: dict[Place, int] = {}

    def _note(self, error: KafkaError | None, message: Message) -> None:
        super()._note(error, message)
        topic, partition, offset, key = message.topic(), message.partition(), message.offset(), message.key()
        if error is None and topic is not None and partition is not None and offset is not None:
            self.keys[topic, partition, offset] = int(key or b"-1")


class UpsertTable:
    """A topic with changes of a few hundred keys, and its table."""

    def __init__(self, pipeline: Pipeline, name: str, partitions: int = 2, **settings: Any) -> None:
        self.pipeline = pipeline
        self.feed = KeyedFeed(pipeline.servers, pipeline.ledger)
        given = {"mode": "upsert", "key_columns": ["id"], "key": {"format": "json"}, **settings}
        self.table, self.topic = pipeline.add_fed_table(name, partitions, **given)
        self._partitions = partitions
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._told = 0

    def change(self, count: int = 300, keys: int = 200) -> None:
        """Random changes: mostly rows, some deletes; a key stays in its partition."""
        for _ in range(count):
            key = int(self._rng.integers(0, keys))
            self._tell(key, is_row=self._rng.random() < 0.85)
        self.feed.flush()

    def put(self, keys: Iterable[int]) -> None:
        """A row for each of these keys."""
        for key in keys:
            self._tell(key, is_row=True)
        self.feed.flush()

    def drop(self, keys: Iterable[int]) -> None:
        """A delete of each of these keys."""
        for key in keys:
            self._tell(key, is_row=False)
        self.feed.flush()

    def wait(self, run: Run) -> None:
        """Waits until all that was told is in the table."""
        self.pipeline.wait_for_commit_of(self.table, run)

    def check(self) -> int:
        """Each of the chosen snapshots is what the changes before its progress say, in DuckDB; the newest one in PyIceberg
        too. How many snapshots there were.
        """
        metadata = self.pipeline.current(self.table)
        assert metadata is not None
        document = document_of(metadata)
        newest = newest_snapshot(document)
        assert newest is not None
        with open_duckdb(metadata) as reader:
            for snapshot in chosen_snapshots(document["snapshots"]):
                progress = progress_at(document, snapshot, self.pipeline.name)
                if not progress and is_cut(document, snapshot):
                    continue  # Kept for readers only, after a compaction: nothing is left that reports what it must hold.
                found = scan_snapshot(reader, metadata, snapshot["snapshot-id"])
                _assert_equal(found, self._expected(progress), snapshot["sequence-number"])
        found = open_table(metadata).scan().to_arrow()
        _assert_equal(found, self._expected(progress_at(document, newest, self.pipeline.name)), "by PyIceberg")
        return len(document["snapshots"])

    def check_all(self) -> None:
        """The same, and all that was told is there."""
        self.check()
        assert self.pipeline.progress(self.table) == self.pipeline.ledger.ends([self.topic])

    def _tell(self, key: int, *, is_row: bool) -> None:
        self._told += 1
        row = {"id": key, "v": self._told, "s": f"text {self._told}"} if is_row else None
        self.feed.send(self.topic, [row], key % self._partitions, str(key).encode())

    def _expected(self, progress: dict[str, dict[int, int]]) -> pa.Table:
        state: dict[int, dict[str, Any]] = {}
        told = prefix(self.pipeline.ledger.of(self.topic), progress)
        for place in sorted(told):
            value = told[place]
            if value is None:
                state.pop(self.feed.keys[place], None)
            else:
                state[self.feed.keys[place]] = {**json.loads(value), "_offset": place[2]}
        return pa.Table.from_pylist(list(state.values()), COLUMNS)


def _assert_equal(found: pa.Table, expected: pa.Table, where: object) -> None:
    """The same rows in any order, each as often. As tables, since as dictionaries they would take most of a test's time."""
    rows, wanted = (_by_id(one.select(COLUMNS.names).cast(COLUMNS)) for one in (found, expected))
    assert rows.equals(wanted) or rows.to_pylist() == wanted.to_pylist(), where


def _by_id(rows: pa.Table) -> pa.Table:
    """The rows in order, so that a row that is there twice is seen."""
    return rows.sort_by([("id", "ascending"), ("_offset", "ascending")])
