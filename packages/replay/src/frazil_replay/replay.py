"""Writes rows of a table, or changes between two of its snapshots, to a topic, each once.

A batch of records is one transaction of Kafka, together with the place in the table that follows it (`kafka/outbox.py`).
The places of all rows are the same whenever they are read, so another process continues where the last transaction ended.

The condition of `--where` is Spark's SQL over the columns of the table, evaluated on Arrow columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.clock import Clock
from frazil.errors import SpecError, UnavailableError
from frazil.kafka.port import Outbox, OutFields
from frazil.queries.analysis import analyse_condition
from frazil.queries.catalyst import Catalyst
from frazil.queries.evaluate import evaluate
from frazil.queries.kernels.table import reason
from frazil.queries.program import Program
from frazil.schema.arrow import Ints
from frazil.types import as_json
from frazil.write.target import TableTarget
from frazil_replay.snapshots import FilePosition, Keep, Rows, Snapshots, read_rows
from frazil_replay.values import Encoder

_WHERE = "--where"
_REMEDY = "write it otherwise, with Spark's functions of single rows"
CHANGE_TYPE, SNAPSHOT_ID = "_change_type", "_commit_snapshot_id"
"""The headers of changes, as Iceberg's changelogs name them."""
_RECORDS, _BYTES = 50_000, 32 * 1024 * 1024
"""The size of a transaction: it ends with the first row that reaches one of them."""


def rows_where(jvm: Any, condition: str, columns: Schema) -> Keep:
    """Returns what finds the rows for which a condition is true. jvm: py4j's view of a JVM with Spark's classes.

    Raises: SpecError for what is not a condition over these columns, or only Spark can compute.
    """
    analysed = analyse_condition(Catalyst(jvm), condition, columns, _WHERE)
    if analysed.operator is None:
        assert analysed.outside is not None
        what = f"`{analysed.outside.expression}` cannot be computed: {analysed.outside.reason}"
        raise SpecError(what, remedy=_REMEDY, where=_WHERE)
    program = Program((analysed.operator,), ())
    if unproven := reason(program):
        raise SpecError(f"{unproven} cannot be computed", remedy=_REMEDY, where=_WHERE)

    def keep(rows: pa.RecordBatch) -> Ints:
        evaluated = evaluate(program, dict(zip(rows.schema.names, rows.columns, strict=True)), len(rows))
        if evaluated.failures:
            failure = evaluated.failures[0]
            raise SpecError(
                f"the condition fails for a row of the table: {failure.error_class} in {failure.expression},"
                f" where it is given {', '.join(failure.values)}",
                remedy="write it so that it is defined for every row, for example with `try_cast` or `try_divide`",
                where=_WHERE,
            )
        return np.asarray(evaluated.parents, np.int64)

    return keep


@dataclass(frozen=True)
class Request:
    """What is to be written, and how: two equal requests are one replay."""

    #: The UUID of the table, and the id of the topic: neither shares it with one that has its name later.
    table_id: str
    topic_id: str
    topic: str
    #: The snapshot whose later changes are written; None for the rows of a snapshot.
    after: int | None
    #: The last snapshot; None for the newest when the replay begins.
    last: int | None
    where: str
    #: The format of values and keys.
    form: str
    key: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]

    def owner(self, pipeline: str) -> str:
        """Returns the name of the replay, which is its transactional id."""
        return f"frazil-{pipeline}-replay-{hashlib.sha256(as_json(asdict(self)).encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class ReplayProgress:
    """How far a replay is."""

    #: The last snapshot.
    snapshot_id: int
    #: The row to be written next.
    place: FilePosition = field(default_factory=FilePosition)
    #: The number of records written.
    records: int = 0
    is_complete: bool = False

    def dump(self) -> str:
        """Returns the text that Kafka keeps."""
        return as_json(asdict(self))


def load_progress(text: str) -> ReplayProgress | None:
    """Returns the progress of `ReplayProgress.dump`; None for an empty text."""
    if not text:
        return None
    fields = json.loads(text)
    return ReplayProgress(**{**fields, "place": FilePosition(**fields["place"])})


class Pace:
    """Holds back a writer that is faster than `rate` records a second; None: as fast as it can."""

    def __init__(self, clock: Clock, rate: int | None) -> None:
        self._clock = clock
        self._rate = rate
        self._written = 0
        self._begun_s = clock.monotonic_s()

    @property
    def at_once(self) -> int:
        """How many records may be written at once: those of a second."""
        return _RECORDS if self._rate is None else min(_RECORDS, self._rate)

    def wait(self, records: int) -> None:
        """Waits after so many further records."""
        self._written += records
        if self._rate is not None:
            ahead_s = self._written / self._rate - (self._clock.monotonic_s() - self._begun_s)
            self._clock.sleep(max(0.0, ahead_s))


_Batch = tuple[list[OutFields], ReplayProgress]
"""The records of a transaction, and the progress after it."""


@dataclass(frozen=True)
class Replay:
    """One replay."""

    request: Request
    #: Its name in Kafka.
    owner: str
    snapshots: Snapshots
    target: TableTarget
    values: Encoder
    #: Makes the records' keys of the key columns; None for records without keys.
    keys: Encoder | None
    #: Finds the rows that are wanted; None for all.
    keep: Keep | None

    def progress(self, outbox: Outbox) -> ReplayProgress | None:
        """Returns how far it is; None where it has not begun."""
        return load_progress(outbox.last(self.owner, self.request.topic))

    def run(
        self, outbox: Outbox, begin: ReplayProgress, pace: Pace, note: Callable[[ReplayProgress, float | None], None]
    ) -> ReplayProgress:
        """Writes what is left after `begin`, unless it is complete. note: is called after every transaction, with the share
        of the rows that were read; None for changes, whose number is known at the end.

        Raises: UnavailableError where the store or Kafka does not answer: what is committed stays, and another run
        continues. ConflictError where another process runs the same replay.
        """
        progress = begin
        batches = iter(()) if begin.is_complete else self._batches(begin, pace.at_once)
        sizes = list[int]()
        if self.request.after is None and not begin.is_complete:
            sizes += (rows.file.record_count for rows in self.snapshots.rows(begin.snapshot_id))
        try:
            for records, next_progress in one_ahead(batches):
                outbox.write(self.owner, self.request.topic, next_progress.dump(), records)
                progress = next_progress
                note(progress, _share_of(progress, sizes))
                pace.wait(len(records))
        except OSError as error:
            raise UnavailableError(
                f"the table cannot be read: {error}",
                remedy="run the same command again: it continues after the last record",
                where=self.target.name,
            ) from None
        return progress

    def _batches(self, begin: ReplayProgress, most: int) -> Iterator[_Batch]:
        """Yields the records of each transaction, with the progress after it. The last one may be empty."""
        pending: list[OutFields] = []
        progress, size = begin, 0
        after, last = self.request.after, begin.snapshot_id
        files = self.snapshots.rows(last) if after is None else self.snapshots.changes(after, last)
        for rows in read_rows(self.target, files, begin.place, self.keep):
            records, start = self._records(rows), 0
            size += rows.batch.nbytes
            while start < len(records):
                part = records[start : start + most - len(pending)]
                pending += part
                start += len(part)
                place = FilePosition(rows.file, int(rows.positions[start - 1]) + 1)
                progress = replace(progress, place=place, records=progress.records + len(part))
                if len(pending) >= most or size >= _BYTES:
                    yield pending, progress
                    pending, size = [], 0
        yield pending, replace(progress, is_complete=True)

    def _records(self, rows: Rows) -> list[OutFields]:
        source = rows.source
        # A tuple: records with a list in them would all be visited by each collection of garbage.
        headers: tuple[tuple[str, bytes], ...] = tuple((name, text.encode()) for name, text in self.request.headers)
        if source.change_type is not None:
            headers += (CHANGE_TYPE, source.change_type.encode()), (SNAPSHOT_ID, str(source.snapshot_id).encode())
        keys: Sequence[bytes] | repeat[None] = repeat(None)
        if self.keys is not None:
            keys = self.keys.encode(rows.batch.select(self.request.key))
        # A record with a key and no value is Kafka's way to delete what the key names.
        is_tombstone = source.change_type == "DELETE" and self.keys is not None
        values = repeat(None, len(rows.batch)) if is_tombstone else self.values.encode(rows.batch)
        return list(zip(keys, values, repeat(headers), strict=False))


def _share_of(progress: ReplayProgress, sizes: Sequence[int]) -> float | None:
    """Returns the share of the rows that a replay has read; None where their number is not known. sizes: of each file."""
    if progress.is_complete or not sum(sizes):
        return 1.0 if sizes else None
    return (sum(sizes[: progress.place.file]) + progress.place.row) / sum(sizes)


def one_ahead(batches: Iterator[_Batch]) -> Iterator[_Batch]:
    """Yields the same, and makes the next one meanwhile in a thread: most of its time the store and Arrow take."""
    with ThreadPoolExecutor(1, "replay") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch
