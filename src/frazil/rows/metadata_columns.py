"""Records in the columns that tasks receive, and columns that are not made from the record's value.

Such a column is a constant, or has the value of a header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BinaryType, IcebergType, NestedField, StringType

from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import inside_years, outside_years
from frazil.decode.plain import read_text
from frazil.decode.settings import Reading
from frazil.decode.wire_format import last_header
from frazil.error_classes import ErrorClass
from frazil.errors import SpecError
from frazil.kafka.port import FARTHEST_MS, ReadRecord
from frazil.literals import parse_constant
from frazil.rows.record_keys import HEADER_SCHEMA, decode_header
from frazil.schema.arrow import Bools, Records, arrow_type
from frazil.schema.projection import Shaping
from frazil.types import Offsets
from frazil.write.target import METADATA_TYPES, TableTarget

_DIGITS = r"^-?[0-9]{1,18}$"  # Numbers of up to 18 digits always fit 64 bits.
_MOST_DIGITS = 40
_HEADERS = "_headers"
"""The first part of paths of headers."""


def own_column(conversion: Conversion, shaping: Shaping, field: NestedField, records: Records) -> pa.Array:
    """Returns the values of a constant or header column. A header that is no value of the column's type is a type
    mismatch, as in any column.
    """
    constants, rows = dict(shaping.constants), conversion.row_count
    if field.name not in constants:
        return header_column(conversion, dict(shaping.headers)[field.name], field.field_type, records["headers"])
    try:
        value = parse_constant(constants[field.name], field.field_type)
    except SpecError as error:  # The table has had the column before, with another type.
        text = pa.repeat(pa.scalar(constants[field.name]), rows)
        bad, owner = np.ones(rows, np.bool_), np.arange(rows, dtype=np.int32)
        conversion.refuse(text, bad, owner, (field.name,), ErrorClass.TYPE_MISMATCH, error.message)
        return pa.nulls(rows, arrow_type(field.field_type))
    return pa.repeat(value, rows)


def header_column(conversion: Conversion, name: str, kind: IcebergType, headers: pa.ListArray) -> pa.Array:
    """Returns the last header `name` of each record: its bytes, its text, or the number that it contains in decimal
    digits.
    """
    raw = last_header(headers, name)
    if isinstance(kind, BinaryType):
        return raw
    path, owner = (_HEADERS, name), np.arange(len(raw), dtype=np.int32)
    texts = read_text(raw)
    if texts.fault.any():
        conversion.refuse(
            raw, texts.fault != 0, owner, path, ErrorClass.INVALID_TEXT, f"the header {name} is not UTF-8"
        )
    text = texts.arrays[0]
    if isinstance(kind, StringType):
        return text
    numbers, bad = _numbers(text, arrow_type(kind))
    if bad.any():
        reason = f"{{value}} is not a value of type {kind} in decimal digits"
        conversion.refuse(text, bad, owner, path, ErrorClass.TYPE_MISMATCH, reason)
    return numbers


def decoded_header(
    conversion: Conversion, reading: Reading, name: str, field: NestedField, headers: pa.ListArray
) -> tuple[pa.Array, set[str]]:
    """Returns the last header `name` of each record decoded as `reading` describes, and the ids of schemas that are
    missing.
    """
    raw = last_header(headers, name)
    decoded = decode_header(reading, f"{_HEADERS}.{name}", field.field_type, raw, conversion.limit_apart)
    missing = {f"{HEADER_SCHEMA}{field.name}:{schema_id}" for schema_id in decoded.missing}
    return conversion.take_entire(decoded, raw), missing


def _numbers(text: pa.StringArray, target: pa.DataType) -> tuple[pa.Array, Bools]:
    """Returns texts as numbers, and which texts are no numbers, bool of shape (n_records,)."""
    is_digits = pc.fill_null(pc.match_substring_regex(text, _DIGITS), False)
    numbers = pc.if_else(is_digits, text, None).cast(pa.int64())
    undecided = np.asarray(pc.and_(pc.is_valid(text), pc.invert(is_digits)))
    if undecided.any():
        numbers_by_row = {row: _number(text[row].as_py()) for row in np.flatnonzero(undecided).tolist()}
        numbers = pa.array(
            [numbers_by_row.get(row, number) for row, number in enumerate(numbers.to_pylist())], pa.int64()
        )
    if pa.types.is_int32(target):
        is_int = pc.and_(pc.greater_equal(numbers, -(2**31)), pc.less(numbers, 2**31))
        numbers = pc.if_else(is_int, numbers, None).cast(target)
    return numbers, np.asarray(pc.and_(pc.is_valid(text), pc.is_null(numbers)))


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


_FIELDS = frozenset(("timestamp", "deleted_at", "valid_from"))
"""Fields of metadata that contain the record's timestamp, always or as the fallback."""


def refuse_far_times(target: TableTarget, records: Records, decoded: Decoded, limit: int) -> Decoded:
    """Returns the result with the records refused whose timestamp is outside the years 1 to 9999, where the table has a
    column for it. limit: the number of mismatches that are kept.
    """
    if "timestamp" not in records or not _FIELDS & target.metadata_fields:
        return decoded
    outside = outside_years(records["timestamp"])
    if not outside.any():
        return decoded
    micros = records["timestamp"].cast(pa.int64())
    column = dict(target.metadata).get("timestamp", "timestamp")
    reason = "the record's timestamp of {} is outside the years 1 to 9999"
    mismatches = [
        Mismatch(row, column, ErrorClass.OUT_OF_RANGE, reason.format(_far_ms(micros[row].as_py() // 1000)))
        for row in np.flatnonzero(outside & ~decoded.refused)[:limit].tolist()
    ]
    return decoded.refusing(outside, mismatches, limit)


def _far_ms(time_ms: int) -> str:
    """Returns a timestamp for messages. Tasks have the nearest time in microseconds of one that they cannot hold."""
    if abs(time_ms) < FARTHEST_MS:
        return f"{time_ms} ms"
    return f"{time_ms} ms or {'later' if time_ms > 0 else 'earlier'}"


def divided_times(times: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the timestamps in microseconds, null for those that no reader of the dead-letter table could show, and
    the latter in milliseconds.
    """
    near = inside_years(times)[0]
    is_far = pc.and_(pc.is_null(near), pc.is_valid(times))
    far_ms = pc.divide(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)
    return near, pc.if_else(is_far, far_ms, pa.scalar(None, pa.int64()))


def undivided_times(near: pa.Array, far_ms: pa.Array) -> pa.Array:
    """Returns all timestamps in microseconds, from the two arrays of `divided_times`."""
    return pc.coalesce(near, pc.multiply(far_ms, 1000).cast(near.type))


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
