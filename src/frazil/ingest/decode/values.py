"""Record values to the table's columns, whatever their format."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.types import NestedField

from frazil.ingest.decode.columns import Decoded
from frazil.ingest.decode.framed import decode_framed
from frazil.ingest.decode.json import JsonOptions, decode_json
from frazil.ingest.decode.plain import decode_plain
from frazil.ingest.decode.slices import MAX_MISFITS
from frazil.ingest.target import Reading


def decode_values(
    reading: Reading, fields: tuple[NestedField, ...], records: Mapping[str, pa.Array], limit: int = MAX_MISFITS
) -> Decoded:
    """The columns `fields` of these records. limit: how many misfits are noted."""
    if reading.format in ("avro", "protobuf", "json_schema"):
        return decode_framed(reading, fields, records, limit)
    if reading.format in ("text", "raw"):
        return decode_plain(reading, fields, records["value"], limit)
    options = JsonOptions(reading.undeclared, reading.is_rescuing, limit, reading.selection, reading.units)
    return decode_json(records["value"], fields, options)
