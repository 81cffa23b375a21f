"""Compares the rows that snapshots have with those that the records make, in a process of its own.

The process runs what a task runs, on records that it reads itself, and writes the rows to a temporary folder. A record
that ends it, and the memory and the processor time that it takes, touch no batch of the pipeline.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.errors import FrazilError, UnavailableError
from frazil.files import temporary_folder
from frazil.ingest.tasks.task import read_all
from frazil.ingest.tasks.task_job import Job, quoting_no_record
from frazil.ingest.tasks.task_limits import each_in_time, limited_memory
from frazil.kafka.port import Partition, ReadRecord
from frazil.kafka.reader import KafkaReader
from frazil.report import TaskReport, merge_reports
from frazil.rows.metadata_columns import batch_of
from frazil.rows.storable import partition_floors
from frazil.schema.arrow import Ints
from frazil.types import DataFile, OffsetRange
from frazil.upsert.change_notes import dependence
from frazil.upsert.deduplicate import load_ranked
from frazil.write.target import TableFiles, TableTarget
from frazil_replay.snapshots import FilePosition, FileRows, read_rows
from frazil_replay.values import JsonEncoder
from frazil_verify.copies import ASIDE

MOST_ROWS = 2_000_000
"""The most rows of files that are read of a window: another writer may have rewritten a whole table."""
PREFIX = "frazil-verify-"
"""The beginning of the names of temporary folders with the rows of records."""
_AT_ONCE_BYTES = 16 * 1024 * 1024
# Fewer than tasks decode at once: a row that depends on which records were decoded with its own is a difference.
_AT_ONCE_RECORDS = 997
_NICE = 10
Read = Callable[[Iterable[OffsetRange], int], tuple[list[ReadRecord], dict[Partition, int]]]
"""Reads records, as `RecordReader.read` does."""


@dataclass(frozen=True)
class Change:
    """A commit, and what other writers have changed before it."""

    #: The records that the commit has read; empty where there is no commit.
    ranges: tuple[OffsetRange, ...]
    #: What the commit changed.
    committed: tuple[FileRows, ...]
    #: What other writers changed.
    others: tuple[FileRows, ...] = ()
    #: The number of records that the commit has read.
    record_count: int = 0


@dataclass(frozen=True)
class Piece:
    """The commits of one table that are compared."""

    target: TableTarget
    changes: tuple[Change, ...]
    #: Whether late changes are left out, which the records alone do not show.
    may_drop_late: bool = False


@dataclass(frozen=True)
class Compared:
    """What was found of the commits of one table."""

    table: str
    commits: int = 0
    records: int = 0
    #: Rows that records make, and that the table did not get, or lost again.
    missing: int = 0
    #: Rows that no record makes.
    surplus: int = 0
    #: Why some commits were not compared.
    reasons: tuple[str, ...] = ()


class NotComparable(Exception):
    """Why the rows of a commit cannot be compared."""


@dataclass
class _Rows:
    """Rows by the hash of their text, each counted up or down."""

    encoder: JsonEncoder
    _hashes: list[Ints] = field(default_factory=list)
    _signs: list[Ints] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, sign: int) -> None:
        """Counts rows."""
        texts = self.encoder.encode(rows)
        self._hashes.append(np.fromiter(map(hash, texts), np.int64, len(texts)))
        self._signs.append(np.full(len(texts), sign, np.int64))

    def differing(self) -> tuple[int, int]:
        """Returns how many rows were counted down more often than up, and up more often than down."""
        if not self._hashes:
            return 0, 0
        _, places = np.unique(np.concatenate(self._hashes), return_inverse=True)
        sums = np.zeros(int(places.max(initial=-1)) + 1, np.int64)
        np.add.at(sums, places, np.concatenate(self._signs))
        return int(-sums[sums < 0].sum()), int(sums[sums > 0].sum())


def compare(piece: Piece, read: Read) -> Compared:
    """Returns what was found of one table.

    Raises: UnavailableError where Kafka or the store does not answer.
    """
    compared, reasons = Compared(piece.target.name), list[str]()
    for change in piece.changes:
        try:
            records, missing, surplus = _compare_change(piece, change, read)
        except NotComparable as error:
            reasons.append(str(error))
            continue
        compared = replace(
            compared,
            commits=compared.commits + 1,
            records=compared.records + records,
            missing=compared.missing + missing,
            surplus=compared.surplus + surplus,
        )
    return replace(compared, reasons=tuple(dict.fromkeys(reasons)))


def _compare_change(piece: Piece, change: Change, read: Read) -> tuple[int, int, int]:
    """Returns the numbers of records, of missing rows and of surplus rows."""
    if any(stage.keeps_aside for stage in piece.target.stages):
        raise NotComparable(ASIDE)
    if sum(file.file.record_count for file in (*change.committed, *change.others)) > MOST_ROWS:
        raise NotComparable("another writer has rewritten more rows than are compared")
    target, stray = piece.target, 0
    rows, others = _Rows(JsonEncoder(target.schema.fields)), _Rows(JsonEncoder(target.schema.fields))
    report = _add_wanted(rows, target, change.ranges, read)
    if report.counts.record_count < change.record_count:  # As by the compaction of the topic.
        raise NotComparable("Kafka has deleted some records of the commits")
    if target.changes is None:
        _add_changes(rows, target, change.committed)
        _add_changes(rows, target, change.others)
    else:
        stray = _add_upserts(rows, target, change.committed, report)
        _add_changes(others, target, change.others)
    own_missing, own_surplus = rows.differing()
    missing, surplus = others.differing()
    missing += stray + (0 if piece.may_drop_late else own_missing)
    return report.counts.record_count, missing, surplus + own_surplus


def _add_wanted(rows: _Rows, target: TableTarget, ranges: Sequence[OffsetRange], read: Read) -> TaskReport:
    """Counts the rows that the records make down; returns the report of a task that reads them."""
    with temporary_folder(PREFIX) as folder:
        # The table in the folder, whose bad records are left out.
        local_files = TableFiles(
            location=folder.as_uri(),
            properties=tuple(pair for pair in target.files.properties if pair[0].startswith("schema.name-mapping")),
            target_file_size_bytes=target.files.target_file_size_bytes,
            partition_spec=target.files.partition_spec if partition_floors(target) else "",
        )
        local = replace(target, files=local_files, dead_letters=None, reading=replace(target.reading, on_bad="skip"))
        job = Job(dict.fromkeys({offset_range.topic for offset_range in ranges}, local))
        with quoting_no_record(job):
            reports = read_all(job, each_in_time(_batches(ranges, read)))
        report = merge_reports(local.name, reports)
        # Rows may depend on more than the records.
        asked, why = report.schema, dependence(report.changes)
        if asked.missing or asked.requested_fields or asked.made_optional or asked.key_columns:
            raise NotComparable("the columns or the schemas are others than those of the commit")
        if why:
            raise NotComparable(why)
        files = [FileRows(_live(file)) for file in report.written.data]
        for batch in read_rows(local, files, FilePosition(), None):
            rows.add(batch.batch, -1)
    return report


def _add_changes(rows: _Rows, target: TableTarget, files: Iterable[FileRows]) -> None:
    for batch in read_rows(target, files, FilePosition(), None):
        rows.add(batch.batch, -1 if batch.source.change_type == "DELETE" else 1)


def _add_upserts(rows: _Rows, target: TableTarget, files: Iterable[FileRows], report: TaskReport) -> int:
    """Adds inserted rows; returns the number of deleted rows whose key no record has."""
    assert target.changes is not None
    paths, stray = target.changes.paths, 0
    if any(len(path) > 1 for path in paths):
        raise NotComparable("a key column is inside of another column")
    keys = JsonEncoder([target.schema.find_field(path[0]) for path in paths])
    touched: set[bytes] = set()
    for touched_keys in report.changes.touched:
        columns = load_ranked(touched_keys.keys).keys
        touched.update(keys.encode(pa.RecordBatch.from_arrays(list(columns), [path[0] for path in paths])))
    for batch in read_rows(target, files, FilePosition(), None):
        if batch.source.change_type == "DELETE":
            gone = keys.encode(batch.batch.select([path[0] for path in paths]))
            stray += sum(key not in touched for key in gone)
        else:
            rows.add(batch.batch, 1)
    return stray


def _live(file: DataFile) -> LiveFile:
    return LiveFile(file.path, file.record_count, file.content)


def _batches(ranges: Sequence[OffsetRange], read: Read) -> Iterator[pa.RecordBatch]:
    """Yields the records of the ranges, each batch of one topic."""
    left = deque(ranges)
    while left:
        wanted = left.popleft()
        records, reached = read([wanted], _AT_ONCE_BYTES)
        for start in range(0, len(records), _AT_ONCE_RECORDS):
            yield batch_of(records[start : start + _AT_ONCE_RECORDS])
        if (reached_offset := reached[wanted.topic, wanted.partition]) < wanted.end:
            left.appendleft(replace(wanted, start=reached_offset))


def main() -> None:
    """Reads Kafka's properties and pieces from standard input, and writes what was found of each, a line of JSON each."""
    os.nice(_NICE)
    properties: Mapping[str, str]
    pieces: Sequence[Piece]
    properties, pieces = pickle.load(sys.stdin.buffer)
    reader = KafkaReader(properties)
    with limited_memory():
        for piece in pieces:
            try:
                compared = compare(piece, reader.read)
            except UnavailableError as error:
                compared = Compared(piece.target.name, reasons=(error.message,))
            except (OSError, FrazilError) as error:
                compared = Compared(piece.target.name, reasons=(f"the rows cannot be read: {error}",))
            except Exception as error:  # noqa: BLE001  (the next tables are compared; a message may quote a row)
                compared = Compared(
                    piece.target.name, reasons=(f"its rows cannot be compared: {type(error).__name__}",)
                )
            sys.stdout.write(json.dumps(asdict(compared)) + "\n")
            sys.stdout.flush()
    reader.close()


if __name__ == "__main__":
    main()
