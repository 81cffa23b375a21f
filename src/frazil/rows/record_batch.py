"""Records that the driver has read, in the columns that tasks receive."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from frazil.kafka.port import ReadRecord
from frazil.schema.arrow import arrow_type
from frazil.write.target import METADATA_TYPES


def batch_of(records: Sequence[ReadRecord]) -> pa.RecordBatch:
    """Returns the records as a task receives them."""
    columns: dict[str, pa.Array] = {
        "value": pa.array([record.value for record in records], pa.binary()),
        "key": pa.array([record.key for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in records],
            arrow_type(METADATA_TYPES["headers"]),
        ),
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", tz="UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)
