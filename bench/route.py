"""CPU of a task that divides a topic among 20 tables, against the same records in one table: `python -m bench.route`.

Both in one warm process, in turn: records of 400 bytes in JSON as Spark hands them over, files in a temporary folder.
The commits of 20 tables are not in it.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from frazil.ingest.task import run_task
from frazil.ingest.task_job import Job
from frazil.routing import Route, parse_template
from frazil.schema.evolve import new_schema
from frazil.spec.types import parse_type
from frazil.types import RoutedTable
from frazil.write.target import TableTarget

_TABLES = 20
_BATCHES, _RECORDS = 20, 20_000
_TURNS = 5
_COLUMNS = {
    "id": "long", "kind": "string", "at": "string", "amount": "double", "user": "string", "note": "string",
    "tags": "list<string>", "place": "struct<country: string, city: string, lat: double, lon: double>",
}  # fmt: skip


def _records(rng: np.random.Generator, first: int) -> pa.RecordBatch:
    kinds = rng.integers(0, _TABLES, _RECORDS)
    values = [
        json.dumps(
            {
                "id": first + n,
                "kind": f"kind{kinds[n]:02}",
                "at": "2026-01-31T12:34:56.789Z",
                "amount": float(n) / 7,
                "user": f"user-{n * 7919 % 100_003}",
                "note": f"the quick brown fox {n} jumps over the lazy dog {n * 31} and over the fence, again and again",
                "tags": ["a", "b", f"tag{n % 50}"],
                "place": {"country": "DE", "city": f"city{n % 500}", "lat": 52.5 + n / 1e5, "lon": 13.4 - n / 1e5},
            }
        ).encode()
        for n in range(_RECORDS)
    ]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array(np.zeros(_RECORDS, np.int32)),
            "timestamp": pa.array(np.arange(_RECORDS), pa.timestamp("us", tz="UTC")),
            "value": pa.array(values, pa.binary()),
        }
    )


def _target(folder: Path, name: str) -> TableTarget:
    schema = new_schema((column, parse_type(word)) for column, word in _COLUMNS.items())
    return TableTarget(
        name=name,
        schema_json=schema.model_dump_json(),
        location=str(folder / name),
        properties=(),
        io_properties=(),
        spec_id=0,
        metadata=(),
        target_file_size_bytes=128 * 2**20,
    )


def _routed(folder: Path) -> Job:
    route = Route("b.rest", parse_template("b.${kind}"), 200)
    tables = [RoutedTable(f"b.kind{n:02}", (f"kind{n:02}",)) for n in range(_TABLES)]
    rest = replace(_target(folder, "b.rest"), route=route, routed=tuple(tables))
    own = [replace(_target(folder, one.name), route=route, route_values=one.values) for one in tables]
    return Job({"t": rest}, beside={"t": tuple(own)})


def _cpu_s(job: Job, batches: list[pa.RecordBatch]) -> float:
    began_s = time.process_time()
    for _ in run_task(job, iter(batches)):
        pass
    return time.process_time() - began_s


def main() -> None:
    """Measures and prints."""
    rng = np.random.default_rng(7)
    batches = [_records(rng, number * _RECORDS) for number in range(_BATCHES)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = {"one table": Job({"t": _target(folder, "b.all")}), f"{_TABLES} tables": _routed(folder)}
        took: dict[str, list[float]] = {what: [] for what in jobs}
        for turn in range(_TURNS + 1):
            for what, job in jobs.items():
                cpu_s = _cpu_s(job, batches)
                if turn:  # The first compiles.
                    took[what].append(cpu_s)
    million = _BATCHES * _RECORDS / 1e6
    one, many = (median(times) / million for times in took.values())
    print(f"one table {one:.2f}, {_TABLES} tables {many:.2f} CPU s per million records: {many / one:.2f} x")


if __name__ == "__main__":
    main()
