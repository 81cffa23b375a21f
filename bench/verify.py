"""What `frazil verify` and the ledger cost on one core, without Spark and Kafka: `python -m bench.verify`.

The digests are timed beside the decoding, shaping and writing of the same records, in turns, so that their share is one of
one run. The levels are timed on records and rows in memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.schema import Schema

from bench.records import SCHEMA, make_pool
from bench.workers import measure
from frazil.ledger import Ledger, dump_ledger
from frazil.schema.arrow import arrow_field
from frazil.write.digests import digest_of, record_hashes, row_hashes
from frazil_verify.independent.judge import Judge
from frazil_verify.independent.rules import Format, Rules
from frazil_verify.independent.topic import Range, Record
from frazil_verify.model.settings import Settings, table_of
from frazil_verify.places import Expected, PlacedRows, check_places
from frazil_verify.settings import type_of

_BATCH = 20_000
_TOPIC = "t"
_KINDS: dict[str, t.PrimitiveType] = {
    "long": t.LongType(),
    "string": t.StringType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
}
_PLACES = {"partition": "_partition", "offset": "_offset"}


@dataclass(frozen=True)
class _Stored:
    """The rows of a Parquet file."""

    path: Path
    schema: pa.Schema
    unreadable: dict[str, str] = field(default_factory=dict)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """See StoredRows."""
        yield "rows", self.batches(names)

    def is_unreadable(self, _: str) -> bool:
        """See StoredRows."""
        return False

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See StoredRows."""
        wanted = pa.schema([field for field in self.schema if names is None or field.name in names])
        for batch in pq.ParquetFile(self.path).iter_batches(_BATCH, columns=wanted.names):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)


def _fields() -> list[t.NestedField]:
    kinds = {name: _KINDS[kind] for name, kind in SCHEMA.items()}
    kinds |= {"_partition": t.IntegerType(), "_offset": t.LongType()}
    return [t.NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)]


def ledger_share(values: pa.BinaryArray, rows: pa.Table, folder: str, rounds: int) -> tuple[float, float, float]:
    """CPU-seconds per million records: of a worker without digests, of the records' digests, of the rows' digests."""
    spent: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        work = sum(measure(values, folder).values())
        begun = time.process_time()
        for start in range(0, len(values), _BATCH):
            some = values.slice(start, _BATCH)
            columns = {"partition": pa.array(np.zeros(len(some), np.int32)), "value": some}
            columns["offset"] = pa.array(np.arange(start, start + len(some)))
            digest_of(record_hashes(_TOPIC, columns))
        middle = time.process_time()
        for start in range(0, len(rows), _BATCH):
            digest_of(row_hashes(rows.slice(start, _BATCH)))
        ended = time.process_time()
        scale = 1e6 / len(values)
        spent.append((work, (middle - begun) * scale, (ended - middle) * scale))
    return tuple(median(round_[part] for round_ in spent[1:]) for part in range(3))  # type: ignore[return-value]


def judge_pace(values: pa.BinaryArray, stored: _Stored) -> float:
    """Records per CPU-second of the independent judge."""
    fields = _fields()
    settings = Settings(metadata=_PLACES)
    table = table_of({field.name: type_of(field.field_type) for field in fields}, {}, settings)
    records = [Record(_TOPIC, 0, offset, value, None, None) for offset, value in enumerate(values.to_pylist())]

    def read(ranges: Sequence[Range]) -> Iterator[list[Record]]:
        for wanted in ranges:
            for start in range(wanted.start, wanted.end, _BATCH):
                yield records[start : min(wanted.end, start + _BATCH)]

    rules = Rules(settings, table, stored.schema, Format("json"))
    begun = time.process_time()
    judge = Judge(rules, stored, read, [Range(_TOPIC, 0, 0, len(values))], lambda _: None)  # type: ignore[arg-type]
    assert not judge.run().findings.counts
    return len(values) / (time.process_time() - begun)


def places_pace(count: int, stored: _Stored) -> float:
    """Rows per CPU-second of the check of places."""
    begun = time.process_time()
    batches = list(stored.batches(("_partition", "_offset")))
    offsets = np.concatenate([np.asarray(batch.column("_offset")) for batch in batches])
    rows = PlacedRows(np.zeros(count, np.int64), offsets, [(_TOPIC, 0)])
    expected = Expected([Range(_TOPIC, 0, 0, count)], {}, Ledger(1, "", count, count, 0, count))
    assert list(check_places(rows, expected)) == []
    return count / (time.process_time() - begun)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    count = arguments.records
    pool = make_pool()
    values = pa.array([pool.value(number) for number in range(count)], pa.binary())
    fields = _fields()
    schema = pa.schema([arrow_field(field) for field in fields])
    assert Schema(*fields).highest_field_id == len(fields)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if sys.platform == "linux" else None) as folder:
        path = Path(folder) / "rows.parquet"
        rows = _rows(values, schema)
        pq.write_table(rows, path, compression="zstd")
        few = values.slice(0, min(count, 200_000))
        work, of_records, of_rows = ledger_share(few, rows.slice(0, len(few)), folder, arguments.rounds)
        print(f"worker: {work:.3f} CPU-s a million; digests of records {of_records:.4f}, of rows {of_rows:.4f}")
        print(f"share of the ledger: {100 * (of_records + of_rows) / work:.2f} %")
        stored = _Stored(path, schema)
        print(f"--rows: {places_pace(count, stored) / 1e6:.2f} M rows a CPU-second")
        print(f"--independent: {judge_pace(values, stored) / 1e6:.3f} M records a CPU-second")
    many = Ledger(10_000, "x" * 36, 10**10, 10**10, 2**63, 10**10, 9, 9, 10**10, 2**63)
    print(f"ledger of the 10,000th commit: {len(dump_ledger(many))} bytes")


def _rows(values: pa.BinaryArray, schema: pa.Schema) -> pa.Table:
    """Returns the rows of records, with their places."""
    members = [json.loads(value) for value in values.to_pylist()]
    columns = [pa.array([row[name] for row in members], schema.field(name).type) for name in SCHEMA]
    columns += [pa.array(np.zeros(len(values), np.int32)), pa.array(np.arange(len(values)))]
    return pa.Table.from_arrays(columns, schema=schema)


if __name__ == "__main__":
    main()
