"""What a Python worker costs, stage by stage, without Spark and Kafka: `python -m bench.workers`.

Records are decoded, shaped and written to memory in this process, on one core. Its figures are for finding out what a
change to the decoder brings; what counts is measured by the throughput benchmark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa

from bench.records import make_pool
from bench.wide import make_wide_pool
from frazil.decode.json.records import decode_json
from frazil.rows.project import decode_rows, shape_rows
from frazil.schema.evolve import new_schema
from frazil.stages.changes import appended
from frazil.write.target import TableFiles, TableTarget
from frazil.write.write import FileWriter

STAGES = ("decode", "shape", "write")
_BATCH = 20_000  # As many as Spark ships at a time.
_SAMPLE = 1000


def measure(values: pa.BinaryArray, folder: str) -> dict[str, float]:
    """CPU-seconds per million records of each stage, all of the process's threads counted."""
    schema = new_schema(decode_json(values.slice(0, _SAMPLE), ()).requested_fields[()].items())
    target = TableTarget("t", schema.model_dump_json(), TableFiles(folder, target_file_size_bytes=2**30))
    batches = [pa.concat_arrays([values.slice(start, _BATCH)]) for start in range(0, len(values), _BATCH)]
    writer, spent = FileWriter(target), dict.fromkeys(STAGES, 0.0)
    for batch in batches:
        start = time.process_time()
        decoded = decode_rows(target, {"value": batch})
        spent["decode"] += (middle := time.process_time()) - start
        rows = shape_rows(target, appended(decoded), {})
        spent["shape"] += (end := time.process_time()) - middle
        writer.write(rows)
        spent["write"] += time.process_time() - end
    start = time.process_time()
    files = writer.finish()
    spent["write"] += time.process_time() - start
    for file in files:
        Path(file.path).unlink()
    return {stage: seconds * 1e6 / len(values) for stage, seconds in spent.items()}


def _values(value: Callable[[int], bytes], count: int) -> pa.BinaryArray:
    return pa.array([value(number) for number in range(count)], pa.binary())


def main() -> None:
    """Prints the medians of some rounds, in which the variants take turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    variants = {
        "plain": _values(make_pool().value, arguments.records),
        "wide": _values(make_wide_pool().value, arguments.records),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if sys.platform == "linux" else None) as folder:
        for _ in range(arguments.rounds + 1):
            for name, values in variants.items():
                rounds[name].append(measure(values, folder))
    print("CPU-seconds per million records:", *STAGES, "all", sep="\t")
    for name, spent in rounds.items():
        stages = [median(one[stage] for one in spent[1:]) for stage in STAGES]
        print(name, *(f"{seconds:.3f}" for seconds in [*stages, sum(stages)]), sep="\t")


if __name__ == "__main__":
    main()
