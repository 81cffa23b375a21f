"""Envelopes in JSON whose wire-format header names a JSON Schema: read as other JSON, and the schema gives the types of
new columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.cdc.json.envelopes import open_json
from frazil.decode.columns import Decoded
from frazil.decode.envelope import Envelope
from frazil.decode.json_schema.refusals import refused_changes
from frazil.decode.settings import Reading
from frazil.name_length import drop_long_names
from frazil.schema.conflicts import without_rejected
from frazil.schema.evolve import find_missing_fields, merge_requested_fields, type_at

_IMAGES = ("after", "before")
_FLAT = ("__op", "__deleted")


def open_with_json_schema(
    reading: Reading,
    fields: tuple[NestedField, ...],
    values: pa.BinaryArray,
    written: tuple[str, StructType],
    limit: int,
) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, for values of one schema. written: the id of the schema and the
    type it describes.
    """
    schema_id, struct = written
    decoded = open_json(values, fields, reading, limit)
    assert reading.envelope is not None
    row, table = _selected(reading, row_of(reading.envelope, struct)), _of_table(fields)
    refusals = refused_changes(reading, table, row, schema_id)
    known = {refusal.split(": ")[1] for refusal in refusals}
    # Fields that are not in the schema are refused too.
    refusals |= {
        f"schema {schema_id}: {refusal}" for refusal in decoded.refusals if refusal.split(": ")[0] not in known
    }
    decoded = replace(decoded, refusals=refusals)
    if reading.unknown_fields != "add":
        return decoded
    row = drop_long_names(row)
    requested_fields: dict[tuple[str, ...], Mapping[str, IcebergType]] = {
        path: {name: type_at(row, (*path[1:], name)) or kind for name, kind in members.items()}
        for path, members in decoded.requested_fields.items()
    }
    row = without_rejected(row, reading.rejected_at, ("after",))
    lacking = {
        ("after", *path): members for path, members in find_missing_fields(table, row, reading.may_widen).items()
    }
    return replace(
        decoded, requested_fields=merge_requested_fields([requested_fields, lacking] if lacking else [requested_fields])
    )


def row_of(envelope: Envelope, struct: StructType) -> StructType:
    """Returns the row in an envelope of this schema; one without fields where it is no envelope."""
    members = {field.name: field.field_type for field in struct.fields}
    if envelope.kind == "none":
        return struct
    if envelope.kind != "operation" and "op" in members:
        images = (members[name] for name in _IMAGES if name in members)
        return next((image for image in images if isinstance(image, StructType)), StructType())
    operation_fields = (envelope.operation,) if envelope.kind == "operation" else _FLAT
    if not any(name in members for name in operation_fields):
        return StructType()
    return StructType(*(field for field in struct.fields if field.name not in operation_fields))


def _selected(reading: Reading, row: StructType) -> StructType:
    """Returns the fields of the row that the table takes."""
    if reading.selection is None:
        return row
    pruned = reading.selection.prune(row, ("after",))
    return pruned if isinstance(pruned, StructType) else StructType()


def _of_table(fields: tuple[NestedField, ...]) -> StructType:
    """Returns the row as the table has it."""
    kind = next(field.field_type for field in fields if field.name == "after")
    assert isinstance(kind, StructType)
    return kind
