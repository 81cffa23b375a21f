"""Record values to the table's columns, for every format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from frazil.cdc.envelope import MessageRows
from frazil.cdc.json_envelopes import open_json
from frazil.decode import limits
from frazil.decode.aliased import join_aliases
from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.json.records import are_null, decode_json
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.settings import Reading
from frazil.decode.wire_format import split_headers
from frazil.error_classes import ErrorClass
from frazil.plugins.formats import ENVELOPES, FORMATS
from frazil.printable import plural
from frazil.rows.connect_messages import are_null_messages, decode_records, may_be_messages
from frazil.schema.arrow import Bools, Ints, Records, pick
from frazil.schema.conflicts import growth
from frazil.schema.evolve import NameConflict, RequestedFields, extend_schema
from frazil.schema.names import with_aliases
from frazil.schema.projection import extend_shaped
from frazil.write.target import TableTarget

_MAX_TRIES = 500
"""The limit on decoding parts of a batch to find the few records that add too many columns."""


class _TooManyWideRecords(Exception):
    """Too many records add too many columns: no single record is at fault."""


def has_value(reading: Reading, values: pa.Array) -> Bools:
    """Returns which records have a value, bool of shape (n_records,). The JSON text `null` is no value, nor is a
    message of Kafka Connect's converter with the payload null: converters write them for a tombstone that has a schema.
    """
    are_present: Bools = np.asarray(values.is_valid())
    if reading.format in ("json", "json_schema"):
        are_present &= ~are_null(
            split_headers(values, "none" if reading.format == "json" else reading.wire.framing).bodies
        )
    return are_present & ~are_null_messages(values) if reading.format == "json" else are_present


def decode_values(
    reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int = MAX_MISMATCHES
) -> Decoded:
    """Returns the columns `fields` of these records. limit: the number of mismatches that are kept."""
    if not reading.aliases:
        return _decode_values(reading, fields, records, limit)
    decoded = _decode_values(reading, with_aliases(fields, reading.aliases), records, limit)
    return join_aliases(reading, fields, decoded, limit)


def _decode_values(reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int) -> Decoded:
    kept, unread = _without_large(reading, records)
    decoded = _decode(reading, fields, kept, limit)
    if _growth(reading, fields, decoded.requested_fields) > reading.evolution.columns_left:
        wide: list[Mismatch] = []
        with suppress(_TooManyWideRecords):  # Otherwise all of the records count, and the table stops.
            wide = _find_wide_records(reading, fields, kept, np.arange(len(kept["value"])), itertools.count(1))
        kept = _without(kept, [mismatch.row for mismatch in wide])
        decoded, unread = _decode(reading, fields, kept, limit) if wide else decoded, unread + wide
    if not unread:
        return decoded
    rows = {mismatch.row for mismatch in unread}
    others = [mismatch for mismatch in decoded.mismatches if mismatch.row not in rows]
    is_unread = np.isin(np.arange(decoded.refused.size), list(rows))
    return replace(decoded, mismatches=others).refusing(is_unread, unread, limit)


def decode_messages(
    reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int = MAX_MISMATCHES
) -> MessageRows:
    """Returns the columns `fields` of the rows of these records, which have several rows each."""
    assert reading.envelope is not None
    open_rows: Callable[..., MessageRows] = ENVELOPES.get(reading.envelope.kind).rows_opener
    kept, large = _without_large(reading, records)
    if not reading.aliases:
        return open_rows(kept, fields, reading, limit, large)
    rows = open_rows(kept, with_aliases(fields, reading.aliases), reading, limit, large)
    return replace(rows, decoded=join_aliases(reading, fields, rows.decoded, limit))


def _without_large(reading: Reading, records: Records) -> tuple[Records, list[Mismatch]]:
    """Returns the records without the values that are too large, and a mismatch for each of these."""
    refusal = limits.refusal()
    if refusal is not None:
        rows = np.flatnonzero(np.asarray(records["value"].is_valid())).tolist()
        return _without(records, rows), [Mismatch(row, "", refusal.kind, refusal.message) for row in rows]
    is_large = pc.greater(pc.binary_length(records["value"]), reading.max_record_bytes)
    rows = np.flatnonzero(np.asarray(pc.fill_null(is_large, False))).tolist()
    if not rows:
        return records, []
    reason = f"the value is larger than the {reading.max_record_bytes} bytes that `limits.record_size` allows"
    return _without(records, rows), [Mismatch(row, "", ErrorClass.TOO_LARGE, reason) for row in rows]


def _without(records: Records, rows: Sequence[int]) -> dict[str, pa.Array]:
    """Returns the records with null in place of the values of `rows`."""
    is_out = np.zeros(len(records["value"]), np.bool_)
    is_out[list(rows)] = True
    return {**records, "value": pc.if_else(pa.array(is_out), pa.scalar(None, pa.binary()), records["value"])}


def _growth(reading: Reading, fields: tuple[NestedField, ...], requested_fields: RequestedFields) -> int:
    """Returns the number of columns that the table would gain. The row before a change adds the same columns as the row
    after it.
    """
    if not requested_fields:
        return 0
    is_shaped = reading.selection is not None
    if reading.envelope is None:
        return growth(fields, requested_fields, is_shaped)
    images = (
        {path: of for path, of in requested_fields.items() if path[:1] == (image,)} for image in ("after", "before")
    )
    return max(growth(fields, image, is_shaped) for image in images)


def _find_wide_records(
    reading: Reading,
    fields: tuple[NestedField, ...],
    records: Records,
    rows: Ints,
    tries: Iterator[int],
) -> list[Mismatch]:
    """Returns a mismatch for each record that adds more columns than the table may still get; found by bisection.

    Raises: _TooManyWideRecords.
    """
    if next(tries) > _MAX_TRIES:
        raise _TooManyWideRecords
    some = {name: column.take(pa.array(rows)) for name, column in records.items()}
    brought = _growth(reading, fields, _decode(reading, fields, some, 0).requested_fields)
    if brought <= reading.evolution.columns_left:
        return []
    if rows.size > 1:
        halves = (rows[: rows.size // 2], rows[rows.size // 2 :])
        return [mismatch for half in halves for mismatch in _find_wide_records(reading, fields, records, half, tries)]
    left = reading.evolution.columns_left
    reason = f"the record brings {plural(brought, 'new column')}, and `limits: columns` lets the table get {left} more"
    return [Mismatch(int(rows[0]), "", ErrorClass.TOO_MANY_FIELDS, reason)]


def _decode(reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int) -> Decoded:
    decoded: Decoded = FORMATS.get(reading.format).decoder(reading, fields, records, limit)
    return decoded


def decode_json_values(reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int) -> Decoded:
    """Returns the columns `fields` of records' values in JSON without a schema, in the table's envelope or without."""
    values = records["value"]
    if reading.envelope is None:
        if not may_be_messages(values).size:
            return decode_json(values, fields, reading, limit)
        return decode_records(values, fields, reading, limit, lambda rest: decode_json(rest, fields, reading, limit))
    if reading.envelope.kind == "operation":
        return decode_records(values, fields, reading, limit, lambda rest: open_json(rest, fields, reading, limit))
    if reading.envelope.has_events:
        events: Decoded = ENVELOPES.get(reading.envelope.kind).events_opener(records, fields, reading, limit)
        return events
    return open_json(values, fields, reading, limit)


ReadRows = Callable[[TableTarget, Records], Decoded]
"""Reads records as rows of a table, for the requested fields alone."""
_MAX_SINGLE_READS = 32


def fields_requested_by_rows(target: TableTarget, records: Records, decoded: Decoded, read_rows: ReadRows) -> Decoded:
    """Returns the result with only the schema changes of records that become rows.

    A record that needs a change to become a row, such as a wider type, is no bad record. While a table has no columns
    and no record is a row, the changes are those of the bad records: dead letters need a table.
    """
    # The fields that feed some columns are not known yet.
    is_waiting = target.shaping is not None and bool(target.layout.unbound)
    if decoded.missing or is_waiting or not (decoded.requested_fields or decoded.made_optional):
        return decoded
    try:
        # Whether a record has a key is not known while the table lacks the key's column.
        is_found_later = target.changes is not None and read_rows(_with_changes(target, decoded), records).refused.any()
        good = (
            _of_good_records(target, records, decoded, read_rows)
            if decoded.refused.any() or is_found_later
            else decoded
        )
    except NameConflict:  # The evolution of the table reports the conflict.
        return decoded
    return (
        decoded
        if good is None
        else replace(decoded, requested_fields=good.requested_fields, made_optional=good.made_optional)
    )


def _of_good_records(target: TableTarget, records: Records, decoded: Decoded, read_rows: ReadRows) -> Decoded | None:
    """Returns the result for the records that become rows; None where there are none and the table has no columns."""
    refused = np.flatnonzero(decoded.refused)
    bad = [
        row
        for row in refused[:_MAX_SINGLE_READS].tolist()
        if _are_bad(target, pick(records, np.array([row])), read_rows).any()
    ]
    left = refused[_MAX_SINGLE_READS:]
    if left.size:
        bad += left[_are_bad(target, pick(records, left), read_rows)].tolist()
    rows = np.setdiff1d(np.arange(decoded.refused.size), bad)
    # The remaining records may differ in the type of a field: then the type of the earlier ones counts.
    again = _are_bad(target, pick(records, rows), read_rows)
    good = rows[~again]
    wanted = read_rows(target, pick(records, good)) if good.size else None
    if wanted is None or not (wanted.requested_fields or wanted.made_optional):
        # Records that only a column of their own would refuse: without it they would be rows without its values.
        unjudged = np.setdiff1d(np.flatnonzero(~decoded.refused), good)
        if unjudged.size:
            return read_rows(target, pick(records, np.union1d(good, unjudged)))
    if wanted is None and target.fields:
        return Decoded([], np.zeros(0, np.bool_))
    return wanted


def _are_bad(target: TableTarget, records: Records, read_rows: ReadRows) -> Bools:
    """Returns which records cannot become rows even with the schema changes that they request, bool of shape
    (n_records,).
    """
    if not len(records["value"]):
        return np.zeros(0, np.bool_)
    first = read_rows(target, records)
    if not (first.requested_fields or first.made_optional):
        return first.refused
    return read_rows(_with_changes(target, first), records).refused


def _with_changes(target: TableTarget, decoded: Decoded) -> TableTarget:
    """Returns the table with the schema changes that its records request.

    Raises: NameConflict.
    """
    made_optional, may_widen = decoded.made_optional - target.fixed, target.reading.evolution.may_widen
    if target.shaping is None:
        schema = extend_schema(target.schema, decoded.requested_fields, made_optional, may_widen)
    else:
        own = [column for _, column in target.metadata]
        schema = extend_shaped(target.schema, target.shaping, own, decoded.requested_fields, made_optional, may_widen)
    return target.with_schema(schema)
