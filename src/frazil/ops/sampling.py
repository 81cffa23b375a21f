"""A sample of a table's records, decoded as a run would decode them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.ingest.decode.columns import Decoded
from frazil.ingest.decode.json.slices import MAX_MISFITS
from frazil.ingest.reading import read_records
from frazil.ingest.schemas import Schemas
from frazil.ingest.table import Table
from frazil.ingest.target import METADATA_TYPES, TableTarget, arrow_type
from frazil.ingest.upserts.row_changes import read_checked
from frazil.ingest.wanted_by_rows import wanted_by_rows
from frazil.kafka.port import ReadRecord

_ROUNDS = 3


def decode_sample(table: Table, records: Sequence[ReadRecord], schema: Schema, schemas: Schemas | None) -> Decoded:
    """The records' columns and what the table, with `schema`, lacks for them. Schemas that the records name are asked of
    the registry; UnavailableError when it does not answer.
    """
    columns = {
        "value": pa.array([record.value for record in records], pa.binary()),
        "key": pa.array([record.key for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in records],
            arrow_type(METADATA_TYPES["headers"]),
        ),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", tz="UTC")),
    }
    topic = min(table.topics, default="")

    def look(target: TableTarget, records: Mapping[str, pa.Array]) -> Decoded:
        if target.changes is not None:
            return read_checked(target, topic, records, MAX_MISFITS).decoded
        return read_records(target, records).decoded

    for _ in range(_ROUNDS):
        target = table.target(schema)
        decoded = look(target, columns)
        if not decoded.missing or schemas is None:
            break
        table.schemas |= schemas.fetch_for(table.spec, decoded.missing, topic)
    return wanted_by_rows(target, columns, decoded, look)
