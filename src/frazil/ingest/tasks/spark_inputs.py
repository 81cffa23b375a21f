"""What Spark gets of records whose table has expressions that Spark evaluates.

It gets the records as they are, and beside them the columns that these expressions use, decoded exactly as the task
behind will decode them.

A record that the task would refuse has nulls here; whatever is wrong with a batch, the task meets it too, and reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from frazil.decode.limits import read_bounded
from frazil.ingest.tasks.task import read_records, with_topic
from frazil.ingest.tasks.task_job import Job, by_topic
from frazil.ingest.tasks.task_limits import each_in_time, limited_memory
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.process.evaluate import evaluate
from frazil.process.program import INPUT
from frazil.rows.changes import UPSERT
from frazil.rows.query import query_input
from frazil.schema.arrow import Bools, Ints, pick, spread_places
from frazil.write.target import TableTarget


def with_inputs(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the records with the columns of `in_spark.input_schema`. The job has one table."""
    with limited_memory():
        for batch in each_in_time(batches):
            for topic, records in by_topic(job, batch):
                yield _with_inputs(job.targets[topic], topic, records)


def _with_inputs(target: TableTarget, topic: str, records: pa.RecordBatch) -> pa.RecordBatch:
    rows = np.flatnonzero(_are_read(target, topic, records))
    read = partial(inputs_of, target, topic)
    pieces = read_bounded(records.take(pa.array(rows)), read, target.reading.columns_left)
    try:
        found = [values for _, _, values in pieces]
    except Exception:  # noqa: BLE001  (whatever it is, the task raises it too, where it is found and reported)
        found = []
    part = target.spark_part
    assert part is not None
    places = spread_places(rows, records.num_rows) if found else pa.nulls(records.num_rows, pa.int64())
    kept = [name for name in records.schema.names if name != LEFT_OUT]
    sizes = records.column(LEFT_OUT) if LEFT_OUT in records.schema.names else pa.repeat(pa.scalar(0), records.num_rows)
    arrays = [*(records.column(name) for name in kept), sizes]
    for n, column in enumerate(part.inputs.output):
        values = pa.concat_arrays([one[n] for one in found]) if found else pa.array([], column.type)
        arrays.append(values.take(places))
    names = [*kept, LEFT_OUT, *(INPUT.format(n) for n in range(len(part.inputs.output)))]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _are_read(target: TableTarget, topic: str, records: pa.RecordBatch) -> Bools:
    """Returns which records the task will read: bool of shape (n_records,)."""
    partitions = np.asarray(records.column("partition"))
    found: Bools = np.ones(records.num_rows, np.bool_)
    if LEFT_OUT in records.schema.names:
        found &= np.asarray(records[LEFT_OUT]) == 0
    for one in target.known.crashing:
        if one.topic == topic:
            found &= ~((partitions == one.partition) & (np.asarray(records.column("offset")) == one.offset))
    return found


def inputs_of(target: TableTarget, topic: str, records: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Returns the columns that Spark's expressions use, with a value for each record; null for one that makes no row."""
    source, program = target.source, target.program
    assert source is not None
    assert program is not None
    assert program.spark_part is not None
    count = len(records["value"])
    columns, owner = _columns(source, topic, with_topic(target, topic, records))
    made = evaluate(program.spark_part.inputs, columns, owner.size, "null").columns
    places = spread_places(owner, count)
    return [one.take(places) for one in made]


def _columns(source: TableTarget, topic: str, records: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], Ints]:
    """Returns the columns of `records` for those that make a row, and which these are."""
    changes = read_records(source, topic, records, limit=0)
    is_read = (changes.ops == UPSERT) & ~changes.decoded.refused[changes.records] & (not changes.must_read_again)
    rows: Ints = np.flatnonzero(is_read)
    return pick(query_input(source, records, changes), rows), changes.records[rows].astype(np.int64)
