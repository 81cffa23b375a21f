"""The rows of a dead-letter table: each has all that Kafka had of a bad record, so that it can be replayed, and why it
was refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.types import IcebergType, IntegerType, LongType, StringType

from frazil import __version__
from frazil.dead_letters.sealing import sealed
from frazil.decode.columns import Decoded, Mismatch, as_text
from frazil.decode.settings import Reading
from frazil.decode.wire_format import guids_of, split_headers
from frazil.plugins.formats import FORMATS
from frazil.rows.metadata_columns import divided_times
from frazil.schema.arrow import as_written
from frazil.write.target import METADATA_TYPES, TableTarget

FAR_TIME = "timestamp_ms"
"""Column with the record's timestamp in milliseconds, where it is outside of the range of `timestamp`. Older
dead-letter tables lack the column.
"""
DEAD_LETTER_TYPES: Mapping[str, IcebergType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": METADATA_TYPES["timestamp"],
    FAR_TIME: LongType(),
    "key": METADATA_TYPES["key"],
    "value": METADATA_TYPES["key"],
    "headers": METADATA_TYPES["headers"],
    "schema_id": StringType(),
    "error_class": StringType(),
    "message": StringType(),
    "path": StringType(),
    "retries": IntegerType(),
    "frazil_version": StringType(),
}
"""The columns of a dead-letter table, with their types."""
SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
"""The columns of a record that its dead letter needs."""
UNEXPLAINED = Mismatch(0, "", "type_mismatch", "the value does not fit the table")
"""The mismatch of a record whose fault is not known."""


def dead_letter_rows(
    dead_letters: TableTarget,
    records: Mapping[str, pa.Array],
    mismatches: Sequence[Mismatch],
    schema_ids: pa.Array | None = None,
) -> pa.Table:
    """Returns one row per record in the schema of the dead-letter table; the bytes of a protected table's are encrypted.

    records: the source's columns of the bad records alone. mismatches: the mismatch of each record, in the same order.
    """
    count = len(mismatches)
    known = {**sealed(records, dead_letters.protection), **reason_columns(mismatches)}
    known["retries"] = pa.repeat(pa.scalar(0, pa.int32()), count)
    if schema_ids is not None:
        known["schema_id"] = schema_ids
    if "timestamp" in known:
        known["timestamp"], known[FAR_TIME] = divided_times(known["timestamp"])
    columns = [
        as_written(known[field.name], field.type) if field.name in known else pa.nulls(count, field.type)
        for field in dead_letters.arrow_schema
    ]
    return pa.Table.from_arrays(columns, schema=dead_letters.arrow_schema)


def reason_columns(mismatches: Sequence[Mismatch]) -> dict[str, pa.Array]:
    """Returns the columns that give the reason of each dead letter, and the version that found it."""
    return {
        "error_class": pa.array([mismatch.kind for mismatch in mismatches], pa.string()),
        "message": pa.array([as_text(mismatch.reason) for mismatch in mismatches], pa.string()),
        "path": pa.array([as_text(mismatch.path) or None for mismatch in mismatches], pa.string()),
        "frazil_version": pa.repeat(pa.scalar(__version__), len(mismatches)),
    }


def named_schemas(reading: Reading, records: Mapping[str, pa.Array]) -> pa.Array:
    """Returns the id of the schema that each record names, as text `(n_records,)`; null where it names none that can be
    read.
    """
    values = records["value"]
    if not FORMATS.get(reading.format).needs_registry:
        return pa.nulls(len(values), pa.string())
    if reading.is_by_header:
        named = guids_of(records["headers"], reading.header)
        texts = [None if one.fault is not None else one.guid or str(one.id) for one in named.found]
        return pa.array([texts[code] if code >= 0 else None for code in named.codes.tolist()], pa.string())
    split = split_headers(values, reading.framing)
    is_named = (split.fault == 0) & (reading.framing != "none")
    return pa.array(split.ids, mask=~is_named).cast(pa.string())


def first_mismatches(decoded: Decoded) -> dict[int, Mismatch]:
    """Returns the first mismatch of each row, by row."""
    found: dict[int, Mismatch] = {}
    for mismatch in decoded.mismatches:
        found.setdefault(mismatch.row, mismatch)
    return found


def explain(rows: Sequence[int], known: Mapping[int, Mismatch], again: Decoded | None) -> list[Mismatch]:
    """Returns the mismatch of each of `rows`. again: these rows alone, decoded once more with every mismatch described;
    None where all of them are `known`.
    """
    if again is None:
        return [known[row] for row in rows]
    found = first_mismatches(again)
    return [known.get(row) or found.get(place, UNEXPLAINED) for place, row in enumerate(rows)]
