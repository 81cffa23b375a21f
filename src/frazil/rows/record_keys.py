"""Record keys, and values of headers, as a column: text, JSON of any type, or a format of the registry.

A null key gives null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.types import BinaryType, IcebergType, NestedField, StringType, StructType

from frazil.cdc.envelope import opened_fields
from frazil.decode.avro.reader import avro_reader
from frazil.decode.columns import Decoded, Group, Mismatch, in_order
from frazil.decode.conversion import Conversion
from frazil.decode.json.any import decode_any
from frazil.decode.limits import refusal
from frazil.decode.plain import read_text
from frazil.decode.settings import Reading, WriterSchema
from frazil.error_classes import ErrorClass
from frazil.rows.connect_messages import decode_key_messages
from frazil.rows.decoder import decode_values
from frazil.rows.writer_schemas import decode_with_schemas
from frazil.schema.arrow import Records, arrow_type
from frazil.schema.projection import KEY_ROOT
from frazil.schema.selection import Path

KEY_SCHEMA = "key:"
HEADER_SCHEMA = "header:"
"""The prefix of the ids of headers' schemas among those of values; the column's name follows."""


def decode_keys(reading: Reading, name: str, kind: IcebergType | None, records: Records, limit: int) -> Decoded:
    """Returns the column `name` made from the keys of all records; no column while the table lacks it (`kind` is None).

    Paths of mismatches begin with `name`, those of requested fields with KEY_ROOT; ids of missing schemas with
    KEY_SCHEMA.
    """
    headers = records["headers"] if reading.wire.is_by_header else None
    evolution = reading.evolution.moved(lambda path: [(name, *path[1:])])
    reading = replace(reading, is_key_column=True, evolution=evolution)
    decoded = _decode_present(reading, name, kind, {"value": records["key"], "headers": headers}, limit, "key")
    return replace(
        decoded,
        requested_fields={
            (KEY_ROOT, *path[1:]) if path else (): _at_root(path, of) for path, of in decoded.requested_fields.items()
        },
        missing={KEY_SCHEMA + schema_id for schema_id in decoded.missing},
    )


def decode_header(reading: Reading, name: str, kind: IcebergType, values: pa.BinaryArray, limit: int) -> Decoded:
    """Returns a column of the type `kind` made from one header of each record. Paths of mismatches begin with `name`."""
    return _decode_present(reading, name, kind, {"value": values, "headers": None}, limit, "header")


def _decode_present(
    reading: Reading, name: str, kind: IcebergType | None, records: Records, limit: int, what: str
) -> Decoded:
    """Returns the column for all records; the values that are not null are decoded."""
    raw = records["value"]
    present_rows = np.flatnonzero(np.asarray(raw.is_valid()))
    unread = refusal()
    if unread is not None:
        mismatches = [Mismatch(row, name, unread.kind, unread.message) for row in present_rows.tolist()]
        nulls = [] if kind is None else [pa.nulls(len(raw), arrow_type(kind))]
        return Decoded(nulls, np.asarray(raw.is_valid()), mismatches)
    rows = pa.array(present_rows)
    taken = {label: None if array is None else array.take(rows) for label, array in records.items()}
    return _decode(reading, name, kind, taken, limit, what).spread(present_rows, len(raw))


def _at_root(path: Path, members: Mapping[str, IcebergType]) -> dict[str, IcebergType]:
    """Returns the members of a struct in the key; the only column of a key that is one value is the root itself."""
    return dict(members) if path else dict(zip((KEY_ROOT,), members.values(), strict=True))


def _decode(reading: Reading, name: str, kind: IcebergType | None, records: Records, limit: int, what: str) -> Decoded:
    """Returns the column for values that are not null; paths of requested fields begin with `name`."""
    if reading.envelope is not None:
        assert isinstance(kind, StructType)
        return _read_rows(reading, kind, records, limit)
    if reading.format == "json":
        return _read_json(reading, name, kind, records["value"], limit, what)
    if reading.format == "text":
        return _read_text(name, kind or StringType(), records["value"], limit, what)
    return _read_with_schemas(reading, name, kind, records, limit, what)


def _read_json(
    reading: Reading, name: str, kind: IcebergType | None, raw: pa.BinaryArray, limit: int, what: str
) -> Decoded:
    """Returns the column for JSON of any type; messages of Kafka Connect's converter have the types of their schema."""
    groups, others, rest = decode_key_messages(raw, name, kind, reading, limit)
    if others.size or not groups:
        conversion = Conversion(reading, "", len(rest), limit)
        groups.append(Group(others, decode_any(rest, name, kind, conversion, f"the {what}")))
    column = () if kind is None else (NestedField(0, name, kind, required=False),)
    decoded = in_order(groups, column, len(raw), limit)
    # Refused changes are named from the key downwards, as those of the other formats are.
    return replace(decoded, refusals={_below(refusal, name) for refusal in decoded.refusals})


def _below(refusal: str, name: str) -> str:
    path, _, what = refusal.removeprefix("column ").partition(": ")
    return f"column {path.removeprefix(name).removeprefix('.')}: {what}"


def _read_rows(reading: Reading, kind: StructType, records: Records, limit: int) -> Decoded:
    """Returns keys read as rows, with the logical types of their schemas."""
    assert reading.envelope is not None
    fields = opened_fields(reading.envelope, kind.fields, ())
    decoded = decode_values(
        reading, fields, {name: array for name, array in records.items() if array is not None}, limit
    )
    place = next(n for n, field in enumerate(fields) if field.name == "after")
    return replace(decoded, columns=[decoded.columns[place]], requested_fields={}, made_optional=set())


def _read_text(name: str, kind: IcebergType, keys: pa.BinaryArray, limit: int, what: str) -> Decoded:
    texts = read_text(keys)
    rows = np.flatnonzero(texts.fault)[:limit].tolist()
    mismatches = [Mismatch(row, name, ErrorClass.INVALID_TEXT, f"the {what} is not UTF-8") for row in rows]
    if isinstance(kind, StringType | BinaryType):
        return Decoded([texts.arrays[0].cast(arrow_type(kind))], texts.fault != 0, mismatches)
    reason = f"the {what} is text, and its column has the type {kind}: numbers and booleans take `format: json`"
    mismatches = [Mismatch(row, name, ErrorClass.TYPE_MISMATCH, reason) for row in range(min(len(keys), limit))]
    return Decoded([pa.nulls(len(keys), arrow_type(kind))], np.ones(len(keys), np.bool_), mismatches)


def _read_with_schemas(
    reading: Reading, name: str, kind: IcebergType | None, records: Records, limit: int, what: str
) -> Decoded:
    is_record = isinstance(kind, StructType) if kind is not None else has_record(reading)
    schemas = tuple((schema_id, _usable_schema(schema, is_record, name, what)) for schema_id, schema in reading.schemas)
    fields: tuple[NestedField, ...] = ()
    if isinstance(kind, StructType):
        fields = kind.fields
    elif kind is not None:
        fields = (NestedField(0, "value", kind, required=False),)

    def in_value(path: Path) -> list[Path]:
        return [path[1:] if is_record else ("value", *path[1:])]

    inside = replace(
        reading,
        schemas=schemas,
        evolution=reading.evolution.moved(in_value),
        declared=reading.declared.moved(in_value),
    )
    decoded = decode_with_schemas(inside, fields, records, limit)
    columns = decoded.columns
    if isinstance(kind, StructType):
        arrow = [pa.field(field.name, column.type) for field, column in zip(fields, columns, strict=True)]
        columns = [pa.StructArray.from_arrays(columns, fields=arrow)]
    return replace(
        decoded,
        columns=columns,
        mismatches=[replace(mismatch, path=_path(name, mismatch.path, is_record)) for mismatch in decoded.mismatches],
        requested_fields=_wanted(decoded.requested_fields, name, kind, is_record),
    )


def _path(name: str, path: str, is_record: bool) -> str:
    inner = path if is_record else path.removeprefix("value").removeprefix(".")
    return f"{name}.{inner}" if inner else name


def _wanted(
    requested_fields: Mapping[Path, Mapping[str, IcebergType]], name: str, kind: IcebergType | None, is_record: bool
) -> dict[Path, dict[str, IcebergType]]:
    if not is_record:
        return {
            (name, *path[1:]) if path else (): dict(members) if path else {name: members["value"]}
            for path, members in requested_fields.items()
        }
    if kind is not None:
        return {(name, *path): dict(members) for path, members in requested_fields.items()}
    members = [NestedField(0, field, of, required=False) for field, of in requested_fields.get((), {}).items()]
    return {(): {name: StructType(*members)}} if members else {}


def has_record(reading: Reading) -> bool:
    """Whether the first known schema describes records."""
    return next((is_record(schema) for _, schema in reading.schemas if schema.kind == reading.format), True)


def _usable_schema(schema: WriterSchema, expects_record: bool, name: str, what: str) -> WriterSchema:
    """Returns the schema, or an unusable one where it describes records and the column holds single values, or the
    reverse.
    """
    if schema.kind in ("unknown", "unusable") or is_record(schema) == expects_record:
        return schema
    quoted = ("are not records", "holds records") if expects_record else ("are records", "holds none")
    return WriterSchema("unusable", f"its {what}s {quoted[0]}, and the column {name} {quoted[1]}")


def is_record(schema: WriterSchema) -> bool:
    """Whether a schema describes records, and not single values, as those of keys often do."""
    if schema.kind != "avro":
        return True
    # By the name that it refers to them with.
    return avro_reader(schema.text, tuple(text for _, text in schema.references)).names is not None
