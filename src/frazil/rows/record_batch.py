"""Records in the columns that tasks receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from frazil.kafka.port import ReadRecord
from frazil.schema.arrow import Bools, arrow_type
from frazil.types import Offsets
from frazil.write.target import METADATA_TYPES

_NEVER = 2**63 - 1


def batch_of(records: Sequence[ReadRecord]) -> pa.RecordBatch:
    """Returns records that the driver has read, as a task receives them."""
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


def due_records(table: str, topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]) -> Bools:
    """Returns which records begin at the table's own start or after it, bool of shape (n_records,). starts: the offsets at
    which the records of a table begin, for tables that do not use all of them.
    """
    if table not in starts:
        return np.ones(records.num_rows, np.bool_)
    partitions, codes = np.unique(np.asarray(records.column("partition")), return_inverse=True)
    offsets = starts[table][topic]
    first = np.array([offsets.get(partition, _NEVER) for partition in partitions.tolist()], np.int64)
    return np.asarray(np.asarray(records.column("offset")) >= first[codes])
