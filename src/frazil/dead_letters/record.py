"""The rows of a dead-letter table, and its columns: all that Kafka had of a bad record, and why it was refused.

So a dead letter can be replayed. A task writes them while it reads, as files that the commit of the batch will name.

The bytes of records of a table with a key for them are encrypted, so that only who has the key reads them. The names of
headers stay as they are. Dead letters from before the table had the key are plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyiceberg.types import IcebergType, IntegerType, LongType, StringType

from frazil import __version__
from frazil.clock import SystemClock
from frazil.decode.columns import Decoded, Mismatch, as_text
from frazil.decode.settings import Reading
from frazil.decode.wire_format import guids_of, split_headers
from frazil.error_classes import ErrorClass
from frazil.plugins.formats import FORMATS
from frazil.rows.metadata_columns import divided_times
from frazil.schema.arrow import Records, as_written, pick, unsliced, with_children
from frazil.stages.record_key import RecordKey, unsealed
from frazil.types import BadRecord, DataFile
from frazil.write.target import METADATA_TYPES, TableTarget
from frazil.write.write import FileWriter

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
HELD_AT = "held_at"
"""Column with the time since which a record waits for its row of a reference table: of tables whose lookups have `wait`."""
SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
"""The columns of a record that its dead letter needs."""
UNEXPLAINED = Mismatch(0, "", ErrorClass.TYPE_MISMATCH, "the value does not fit the table")
"""The mismatch of a record whose fault is not known."""


def sealed(records: Mapping[str, pa.Array], key: RecordKey | None) -> dict[str, pa.Array]:
    """Returns records with their keys, values and header values encrypted, each for its place; as they are without a key."""
    return dict(records) if key is None else _each(records, key.seal)


def opened(records: Mapping[str, pa.Array], key: RecordKey | None) -> dict[str, pa.Array]:
    """Returns the records that were given to `sealed`.

    Raises: SpecError where they are encrypted with another key.
    """
    return _each(records, partial(unsealed, key=key))


def _each(records: Mapping[str, pa.Array], change: Callable[[bytes, str], bytes]) -> dict[str, pa.Array]:
    """Returns the records with each value of their bytes changed; null stays null."""
    topics, partitions, offsets = (records[name].to_pylist() for name in ("topic", "partition", "offset"))
    places = [
        f"topic {topic}, partition {partition}, offset {offset}"
        for topic, partition, offset in zip(topics, partitions, offsets, strict=True)
    ]
    changed = {
        name: _changed(records[name], [f"{place}, {name}" for place in places], change) for name in ("key", "value")
    }
    return {**records, **changed, "headers": _headers(records["headers"], places, change)}


def _headers(headers: pa.Array, places: list[str], change: Callable[[bytes, str], bytes]) -> pa.Array:
    headers = unsliced(headers)
    names, values = headers.values.field(0), headers.values.field(1)
    ends = np.asarray(headers.offsets).tolist()
    mine = [
        f"{place}, header {n}"
        for place, (start, end) in zip(places, pairwise(ends), strict=True)
        for n in range(end - start)
    ]
    entries = pa.StructArray.from_arrays([names, _changed(values, mine, change)], fields=list(headers.type.value_type))
    return with_children(headers, headers.type, [entries])


def _changed(values: pa.Array, places: list[str], change: Callable[[bytes, str], bytes]) -> pa.Array:
    changed = (
        None if value is None else change(value, place) for value, place in zip(values.to_pylist(), places, strict=True)
    )
    return pa.array(changed, pa.binary())


def dead_letter_rows(
    dead_letters: TableTarget,
    records: Mapping[str, pa.Array],
    mismatches: Sequence[Mismatch],
    schema_ids: pa.Array | None = None,
) -> pa.Table:
    """Returns one row per record in the schema of the dead-letter table; their bytes are encrypted with its key.

    records: the source's columns of the bad records alone. mismatches: the mismatch of each record, in the same order.
    """
    count = len(mismatches)
    values = {**sealed(records, dead_letters.record_key), **reason_columns(mismatches)}
    values["retries"] = pa.repeat(pa.scalar(0, pa.int32()), count)
    values[HELD_AT] = held_since(mismatches)
    if schema_ids is not None:
        values["schema_id"] = schema_ids
    if "timestamp" in values:
        values["timestamp"], values[FAR_TIME] = divided_times(values["timestamp"])
    columns = [
        as_written(values[field.name], field.type) if field.name in values else pa.nulls(count, field.type)
        for field in dead_letters.arrow_schema
    ]
    return pa.Table.from_arrays(columns, schema=dead_letters.arrow_schema)


def held_since(mismatches: Sequence[Mismatch]) -> pa.Array:
    """Returns the current time for each record that waits for a row of a reference table; null for the others."""
    now_us = SystemClock().now_ms() * 1000
    times = [now_us if mismatch.kind == ErrorClass.LOOKUP_WAITING else None for mismatch in mismatches]
    return pa.array(times, pa.timestamp("us", "UTC"))


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
    if reading.wire.is_by_header:
        named = guids_of(records["headers"], reading.wire.header)
        texts = [
            None if schema_id.fault is not None else schema_id.guid or str(schema_id.id) for schema_id in named.headers
        ]
        return pa.array([texts[code] if code >= 0 else None for code in named.codes.tolist()], pa.string())
    split = split_headers(values, reading.wire.framing)
    is_named = (split.fault == 0) & (reading.wire.framing != "none")
    return pa.array(split.ids, mask=~is_named).cast(pa.string())


def first_mismatches(decoded: Decoded) -> dict[int, Mismatch]:
    """Returns the first mismatch of each row, by row."""
    by_row: dict[int, Mismatch] = {}
    for mismatch in decoded.mismatches:
        by_row.setdefault(mismatch.row, mismatch)
    return by_row


def explain(rows: Sequence[int], first_reasons: Mapping[int, Mismatch], again: Decoded | None) -> list[Mismatch]:
    """Returns the mismatch of each of `rows`. again: these rows alone, decoded once more with every mismatch described;
    None where all of them are `first_reasons`.
    """
    if again is None:
        return [first_reasons[row] for row in rows]
    described = first_mismatches(again)
    return [first_reasons.get(row) or described.get(place, UNEXPLAINED) for place, row in enumerate(rows)]


class DeadLetterFiles:
    """Writes bad records to files of the dead-letter table; none before the first, and none where there is no table."""

    def __init__(self, target: TableTarget | None) -> None:
        """target: the dead-letter table; None where bad records are not dead letters."""
        self._target = target
        self._writer: FileWriter | None = None

    def write_refused(
        self, records: Records, decoded: Decoded, reading: Reading, read_again: Callable[[Records], Decoded]
    ) -> None:
        """Writes the refused ones of the records. read_again: reads bad records once more, with a mismatch for each."""
        if self._target is None or not decoded.refused.any():
            return
        rows = np.flatnonzero(decoded.refused)
        bad, reasons = pick(records, rows), first_mismatches(decoded)
        again = None if reasons.keys() >= set(rows.tolist()) else read_again(bad)
        mismatches = explain(rows.tolist(), reasons, again)
        self._write(dead_letter_rows(self._target, bad, mismatches, named_schemas(reading, bad)))

    def write_unread(self, topic: str, records: Mapping[str, pa.Array], bad_records: Sequence[BadRecord]) -> None:
        """Writes records of a topic that are not read because they crash the task which reads them. bad_records: of each."""
        if self._target is None:
            return
        mismatches = [
            Mismatch(row, bad_record.path, bad_record.kind, bad_record.reason)
            for row, bad_record in enumerate(bad_records)
        ]
        columns = {"topic": pa.repeat(pa.scalar(topic), len(bad_records)), **records}
        self._write(dead_letter_rows(self._target, columns, mismatches))

    def _write(self, rows: pa.Table) -> None:
        if self._writer is None:
            assert self._target is not None
            self._writer = FileWriter(self._target)
        self._writer.write(rows)

    def finish(self) -> tuple[DataFile, ...]:
        """Ends the files and returns them."""
        return tuple(self._writer.finish()) if self._writer is not None else ()

    def abandon(self) -> None:
        """Deletes the files of this attempt."""
        if self._writer is not None:
            self._writer.abandon()
