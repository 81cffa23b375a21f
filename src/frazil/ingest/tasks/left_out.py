"""Records whose values Kafka's reader has left out for their size: bad records of every table that would have read them.

A record of hundreds of megabytes fits into a compressed batch of some kilobytes. Its value is never in a task's memory; its
neighbours are read as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_classes import ErrorClass
from frazil.ingest.tasks.task_job import MOST_VALUE_BYTES, limit_of
from frazil.kafka.fetch.columns import LEFT_OUT
from frazil.rows.metadata_columns import due_records
from frazil.types import BadRecord, Offsets
from frazil.write.target import TableTarget


def split_left_out(records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Returns the records with their values, without LEFT_OUT, and those whose values were left out, with it."""
    if LEFT_OUT not in records.schema.names:
        return records, records.slice(0, 0)
    is_left_out = pc.fill_null(pc.greater(records[LEFT_OUT], 0), False)
    return records.filter(pc.invert(is_left_out)).drop_columns([LEFT_OUT]), records.filter(is_left_out)


def refusals_of(
    targets: Sequence[TableTarget], topic: str, left_out: pa.RecordBatch, starts: Mapping[str, Offsets]
) -> Iterator[tuple[TableTarget, pa.RecordBatch, list[BadRecord]]]:
    """Yields each table with its own of the records whose values were left out, and why it refuses each. Where only
    values decide whose a record is, the table of the rest has it, and the others have no reasons. starts: see `due_records`.
    """
    for target in targets if left_out.num_rows else ():
        own = left_out.filter(pa.array(due_records(target.name, topic, left_out, starts)))
        sizes, records = own[LEFT_OUT].to_pylist(), own.drop_columns([LEFT_OUT])
        is_taken = target.share is None or target.share.is_rest
        yield target, records, _bad_records(target, topic, records, sizes) if is_taken else []


def _bad_records(target: TableTarget, topic: str, records: pa.RecordBatch, sizes: Sequence[int]) -> list[BadRecord]:
    count = records.num_rows
    offsets = records["offset"].to_pylist() if "offset" in records.schema.names else [-1] * count
    return [
        BadRecord(topic, partition, offset, ErrorClass.TOO_LARGE, "", _reason(size, limit_of(target)))
        for partition, offset, size in zip(records["partition"].to_pylist(), offsets, sizes, strict=True)
    ]


def _reason(size: int, limit: int) -> str:
    most = f"`limits.record_size` allows {limit}" if size > limit else f"no more than {MOST_VALUE_BYTES} are ever read"
    return f"the value has {size} bytes, and {most}: it was not read, and only Kafka has it"
