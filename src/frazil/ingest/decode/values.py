"""Record values to the table's columns, whatever their format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.ingest.decode.columns import Decoded, Misfit
from frazil.ingest.decode.envelopes.canal import open_canal
from frazil.ingest.decode.envelopes.json import open_json
from frazil.ingest.decode.envelopes.message_rows import MessageRows
from frazil.ingest.decode.framed import decode_framed
from frazil.ingest.decode.json.records import JsonOptions, decode_json
from frazil.ingest.decode.json.slices import MAX_MISFITS
from frazil.ingest.decode.plain import decode_plain
from frazil.ingest.target import Reading


def decode_values(
    reading: Reading, fields: tuple[NestedField, ...], records: Mapping[str, pa.Array], limit: int = MAX_MISFITS
) -> Decoded:
    """The columns `fields` of these records. limit: how many misfits are noted."""
    kept, large = _without_large(reading, records)
    if not large:
        return _decode(reading, fields, records, limit)
    decoded = _decode(reading, fields, kept, limit)
    refused, rows = decoded.refused.copy(), {misfit.row for misfit in large}
    refused[sorted(rows)] = True
    others = [misfit for misfit in decoded.misfits if misfit.row not in rows]
    in_order = sorted([*large, *others], key=lambda misfit: misfit.row)[:limit]
    return replace(decoded, refused=refused, misfits=in_order)


def decode_messages(
    reading: Reading, fields: tuple[NestedField, ...], records: Mapping[str, pa.Array], limit: int = MAX_MISFITS
) -> MessageRows:
    """The columns `fields` of the rows of these records, which have several each."""
    kept, large = _without_large(reading, records)
    return open_canal(kept, fields, reading, limit, large)


def _without_large(reading: Reading, records: Mapping[str, pa.Array]) -> tuple[Mapping[str, pa.Array], list[Misfit]]:
    """The records without the values that are too large, and those."""
    lengths = _lengths(records["value"])
    if lengths.size == 0 or lengths.max() <= reading.max_record_bytes:
        return records, []
    too_large = lengths > reading.max_record_bytes
    kept = pc.if_else(pa.array(too_large), pa.scalar(None, pa.binary()), records["value"])
    reason = f"the value is larger than the {reading.max_record_bytes} bytes that `limits` lets one have"
    misfits = [Misfit(n, "", "too_large", reason) for n in np.flatnonzero(too_large).tolist()]
    return {**records, "value": kept}, misfits


def _decode(reading: Reading, fields: tuple[NestedField, ...], records: Mapping[str, pa.Array], limit: int) -> Decoded:
    if reading.format in ("avro", "protobuf", "json_schema"):
        return decode_framed(reading, fields, records, limit)
    if reading.format in ("text", "raw"):
        return decode_plain(reading, fields, records["value"], limit)
    if reading.envelope is not None:
        return open_json(records["value"], fields, reading, limit)
    options = JsonOptions(reading.undeclared, reading.is_rescuing, limit, reading.selection, reading.units)
    return decode_json(records["value"], fields, options)


def _lengths(values: pa.BinaryArray) -> NDArray[np.int32]:
    if not len(values):
        return np.zeros(0, np.int32)
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    return offsets[1:] - offsets[:-1]
