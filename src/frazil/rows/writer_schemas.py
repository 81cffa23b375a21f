"""Records that name their schema: grouped by schema, decoded, converted to the columns, merged in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField, StructType

from frazil.cdc.envelope import opened_fields, opened_row
from frazil.cdc.envelope_columns import IMAGES_OF, has_documents, is_wrapped, open_columns, open_documents, row_of
from frazil.decode.avro.reader import AvroReader, avro_reader
from frazil.decode.columns import Bodies, Columns, Decoded, Fault, Group, Mismatch, Reader, in_order
from frazil.decode.connect.schema import as_declared, convert_logical_types, logical_types_of_avro
from frazil.decode.connect.values import LogicalType
from frazil.decode.conversion import Conversion
from frazil.decode.messages import FIRST, OWN_FORMS, Forms, forms_of, has_message_schemas, message_schemas, text_schemas
from frazil.decode.renames import FedColumns, Renames, find_renames
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.decode.wire_format import group_rows, guids_of, select_bodies, split_headers
from frazil.error_classes import ErrorClass
from frazil.registry.port import UnusableSchema
from frazil.rows.connect_messages import convert_written
from frazil.schema.arrow import Records, arrow_type
from frazil.schema.selection import Path

LATEST = "latest"
_WARM_TYPES: dict[str, Any] = {
    "i": "long",
    "s": "string",
    "m": {"type": "map", "values": "double"},
    "d": {"type": "bytes", "logicalType": "decimal", "precision": 4},
    "f": {"type": "fixed", "name": "F", "size": 2},
    "u": {"type": "string", "logicalType": "uuid"},
}
_WARM_AVRO = b"\2\2a\2\2k" + bytes(8) + b"\0\2\1ab\x48" + b"12345678-1234-5678-1234-567812345678"
_NOT_DECLARED = Reading()
_MAX_MISSING = 1000


@dataclass
class _Batch:
    """All records of an array while they are read."""

    reading: Reading
    #: The columns to return.
    fields: tuple[NestedField, ...]
    #: The number of mismatches that are kept.
    limit: int
    #: The bytes after the wire-format headers.
    bodies: Bodies
    #: The groups read so far.
    groups: list[Group] = field(default_factory=list)
    #: Ids of schemas that are missing.
    missing: set[str] = field(default_factory=set)

    def refuse(self, rows: NDArray[np.int32], fault: Fault) -> None:
        """Refuses these records for one reason."""
        refused = np.ones(rows.size, np.bool_)
        mismatches = [Mismatch(n, "", fault.kind, fault.message) for n in range(min(rows.size, self.limit))]
        nulls = [pa.nulls(rows.size, arrow_type(f.field_type)) for f in self.fields]
        self.groups.append(Group(rows, Decoded(nulls, refused, mismatches)))


def decode_with_schemas(reading: Reading, fields: tuple[NestedField, ...], records: Records, limit: int) -> Decoded:
    """Returns the columns `fields` of records in a format of the schema registry.

    Schemas that `reading` does not have are returned as missing, and their records are null until they are available.
    """
    values = records["value"]
    split = split_headers(values, reading.wire.framing)
    batch = _Batch(reading, fields, limit, split.bodies)
    for code in np.unique(split.fault[split.fault != 0]).tolist():
        batch.refuse(np.flatnonzero(split.fault == code).astype(np.int32), split.faults[code - 1])
    ids = split.ids
    if reading.wire.framing == "none":
        good = np.flatnonzero(split.fault == 0).astype(np.int32)
        if good.size:
            _read_by_header(batch, good, records)
    else:
        for number, rows in group_rows(ids):
            _read_group(batch, str(number), rows)
    if not batch.groups:
        return Decoded([pa.nulls(0, arrow_type(column.field_type)) for column in fields], np.zeros(0, np.bool_))
    return replace(in_order(batch.groups, fields, len(values), limit), missing=batch.missing)


def _read_by_header(batch: _Batch, rows: NDArray[np.int32], records: Records) -> None:
    """Reads records whose schema is named in a header, or is the subject's latest."""
    if not batch.reading.wire.is_by_header:
        _read_group(batch, LATEST, rows)
        return
    named = guids_of(records["headers"], batch.reading.wire.header)
    codes = named.codes[rows]
    without = rows[codes < 0]
    if without.size:
        batch.refuse(without, Fault(ErrorClass.NO_SCHEMA_ID, f"the record has no header {batch.reading.wire.header}"))
    for code, header in enumerate(named.headers):
        mine = rows[codes == code]
        if not mine.size:
            continue
        if header.fault is not None:
            batch.refuse(mine, header.fault)
        else:
            _read_group(batch, header.guid or str(header.id), mine, header.path)


def _read_group(batch: _Batch, schema_id: str, rows: NDArray[np.int32], path: bytes = b"") -> None:
    schema = batch.reading.schema(schema_id)
    if schema is None:
        if len(batch.missing) < _MAX_MISSING:
            batch.missing.add(schema_id)
        batch.refuse(rows, Fault(ErrorClass.UNKNOWN_SCHEMA_ID, f"schema {schema_id} has not been fetched yet"))
        return
    fault = _unusable(schema_id, schema, batch.reading)
    if fault is not None:
        batch.refuse(rows, fault)
        return
    bodies = select_bodies(batch.bodies, rows)
    if schema.kind == "json_schema":
        decoded = text_schemas().decode(bodies, batch.fields, batch.reading, schema_id, batch.limit)
        batch.groups.append(Group(rows, decoded))
    elif schema.kind == "avro":
        _read_columns(batch, schema_id, rows, bodies, partial(_avro, schema))
    else:
        _read_messages(batch, schema_id, schema, rows, bodies, path)


def _unusable(schema_id: str, schema: WriterSchema, reading: Reading) -> Fault | None:
    if schema.kind == "unknown":
        return Fault(ErrorClass.UNKNOWN_SCHEMA_ID, f"the schema registry has no schema {schema_id}")
    if schema.kind == "unusable":
        return Fault(ErrorClass.UNUSABLE_SCHEMA, f"schema {schema_id} cannot be used: {schema.text}")
    if schema.kind != reading.format:
        return Fault(
            ErrorClass.WRONG_SCHEMA, f"schema {schema_id} is {schema.kind}, and the table reads {reading.format}"
        )
    return None


def _read_messages(
    batch: _Batch, schema_id: str, schema: WriterSchema, rows: NDArray[np.int32], bodies: Bodies, path: bytes
) -> None:
    """Reads Protobuf records: a schema may define many messages, and each record names its own."""
    schemas, declared = message_schemas(), batch.reading.wire.message
    if batch.reading.wire.framing == "none":  # A header that names the schema names the message too.
        named = schemas.split_indexes(_bodies_of(path)).paths if path else []
        message = declared or (named or [FIRST])[0]
        _read_columns(batch, schema_id, rows, bodies, partial(schemas.reader, schema.descriptors, message))
        return
    indexed = schemas.split_indexes(bodies)
    for code in np.unique(indexed.fault[indexed.fault != 0]).tolist():
        batch.refuse(rows[indexed.fault == code], schemas.index_faults[code - 1])
    for code, indexes in enumerate(indexed.paths):
        mine = np.flatnonzero((indexed.path == code) & (indexed.fault == 0)).astype(np.int32)
        reader = partial(schemas.reader, schema.descriptors, declared or indexes)
        _read_columns(batch, schema_id, rows[mine], select_bodies(indexed.bodies, mine), reader)


def _bodies_of(raw: bytes) -> Bodies:
    return Bodies(np.frombuffer(raw, np.uint8), np.zeros(1, np.int32), np.full(1, len(raw), np.int32))


def _read_columns(
    batch: _Batch,
    schema_id: str,
    rows: NDArray[np.int32],
    bodies: Bodies,
    make_reader: Callable[[Forms], Reader],
) -> None:
    try:
        reader = make_reader(OWN_FORMS)
    except UnusableSchema as error:  # The schema is valid, but it has no such message.
        batch.refuse(rows, Fault(ErrorClass.UNUSABLE_SCHEMA, f"schema {schema_id} cannot be used: {error}"))
        return
    schemas = tuple(schema for _, schema in batch.reading.schemas)
    conversion = Conversion(batch.reading, schema_id, len(bodies), batch.limit)
    if isinstance(reader, AvroReader):
        conversion.renames, conversion.branches = _renames(schemas, reader.names or frozenset()), reader.branches
    forms = _forms_of(reader.struct, batch.reading.envelope, batch.fields, conversion.renames)
    if forms:
        reader = make_reader(forms)
    columns, struct, envelope = reader.read(bodies), reader.struct, batch.reading.envelope
    if envelope is not None and has_documents(envelope, struct):
        batch.groups.append(Group(rows, open_documents(conversion, struct, columns, batch.fields)))
        return
    if envelope is not None and not is_wrapped(envelope, [member.name for member in struct.fields]):
        # The row, which is the entire record, becomes the image after the change.
        conversion.renames = conversion.renames.inside("after")
        conversion.branches = {("after", *path): name for path, name in conversion.branches.items()}
    logical_types = _logical_types(batch.reading.schema(schema_id), reader, batch.fields, envelope)
    batch.groups.append(Group(rows, convert_written(conversion, struct, columns, logical_types, batch.fields)))


def _forms_of(struct: StructType, envelope: Envelope | None, fields: Sequence[NestedField], renames: Renames) -> Forms:
    """Returns the forms in which a writer's values are read. fields: of the table's rows, or with an envelope of
    `cdc.envelope`.
    """
    if envelope is not None and not is_wrapped(envelope, [member.name for member in struct.fields]):
        fields = opened_row(fields).fields
    return forms_of(struct, fields, renames)


def _logical_types(
    schema: WriterSchema | None, reader: Reader, columns: Sequence[NestedField], envelope: Envelope | None
) -> Mapping[Path, LogicalType]:
    """Returns the logical types of Kafka Connect in a schema, by path of the reader's fields. columns: of the table."""
    if schema is None:
        return {}
    if not isinstance(reader, AvroReader):
        return message_schemas().logical_types(reader, columns, envelope)
    logical_types = logical_types_of_avro(schema.text, tuple(text for _, text in schema.references))
    return (
        logical_types
        if reader.names is not None
        else {("value", *path): logical_type for path, logical_type in logical_types.items()}
    )


def _avro(schema: WriterSchema, forms: Forms = OWN_FORMS) -> AvroReader:
    return avro_reader(schema.text, tuple(text for _, text in schema.references), forms)


def struct_of(schema: WriterSchema, message: str | tuple[int, ...] = "", forms: Forms = OWN_FORMS) -> StructType:
    """Returns the Iceberg type of the records that a schema describes. forms: of values that are read in another form
    than the schema's own.

    Raises: UnusableSchema.
    """
    if schema.kind == "json_schema":
        return text_schemas().struct(schema)
    if schema.kind == "avro":
        return _avro(schema, forms).struct
    return message_schemas().reader(schema.descriptors, message or FIRST, forms).struct


@lru_cache(maxsize=256)
def _renames(schemas: tuple[WriterSchema, ...], names: frozenset[str]) -> Renames:
    """Returns the renames of fields between the known schemas. names: of the record whose fields these are; a field
    with such a name in another record is another field.
    """
    avro_schemas = [schema for schema in schemas if schema.kind == "avro"]
    if not any(
        '"aliases"' in text for schema in avro_schemas for text in (schema.text, *dict(schema.references).values())
    ):
        return Renames()
    readers = []
    for schema in avro_schemas:
        with suppress(UnusableSchema):  # Its records are bad records.
            readers.append(_avro(schema))
    same = _same_record(readers, names)
    others = [reader.struct for reader in readers if reader not in same]
    return find_renames([(reader.struct, reader.aliases) for reader in same], others)


def _same_record(readers: Sequence[AvroReader], names: frozenset[str]) -> list[AvroReader]:
    """Returns the readers of a record that has one of these names, now or by an alias."""
    while True:
        related = [reader for reader in readers if reader.names and reader.names & names]
        more = names.union(*(reader.names for reader in related if reader.names))
        if more == names:
            return related
        names = more


def row_renames(schema: WriterSchema, envelope: Envelope | None, struct: StructType) -> Renames:
    """Returns the names that fields of the rows had before, as far as the schema has aliases. struct: of the rows."""
    if schema.kind != "avro":
        return Renames()
    aliases = _avro(schema).aliases
    inside = {path[1:]: names for path, names in aliases.items() if path[0] == "after"} if envelope is not None else {}
    return find_renames([(struct, {**aliases, **inside})])


def row_branches(schema: WriterSchema, envelope: Envelope | None) -> Mapping[Path, str]:
    """Returns the names of a union's types, for the values in a schema's rows, by path."""
    if schema.kind != "avro":
        return {}
    branches = _avro(schema).branches
    inside = {path[1:]: name for path, name in branches.items() if path[0] == "after"} if envelope is not None else {}
    return {**branches, **inside}


def row_struct(
    schema: WriterSchema,
    envelope: Envelope | None,
    fields: Sequence[NestedField],
    message: str = "",
    reading: Reading = _NOT_DECLARED,
) -> StructType:
    """Returns the Iceberg type of the rows of records that a schema describes: of envelopes the row inside, without
    fields where it is no envelope. fields: of the table's rows; reading: with the units and zones of their columns.

    Raises: UnusableSchema.
    """
    struct = struct_of(schema, message)
    if schema.kind == "json_schema":
        return struct if envelope is None else row_of(envelope, struct)
    opened = opened_fields(envelope, fields, ()) if envelope is not None else fields
    renames = row_renames(schema, envelope, struct)
    forms = _forms_of(struct, envelope, opened, renames)
    struct = struct_of(schema, message, forms) if forms else struct
    reader: Reader = (
        _avro(schema) if schema.kind == "avro" else message_schemas().reader(schema.descriptors, message or FIRST)
    )
    logical_types = _logical_types(schema, reader, fields, envelope)
    nothing = Columns([pa.nulls(0, arrow_type(f.field_type)) for f in struct.fields], np.zeros(0, np.uint8), ())
    if envelope is None:
        fed = FedColumns(struct, fields, renames)
        logical_types = as_declared(logical_types, reading.unit_at, reading.zone_at, fed)
        return convert_logical_types(struct, nothing, logical_types, fed)[0]
    if not is_wrapped(envelope, [member.name for member in struct.fields]):
        renames = renames.inside("after")
    reading = replace(
        reading,
        envelope=envelope,
        declared=reading.declared.moved(lambda path: [(image, *path) for image in IMAGES_OF]),
    )
    images, _ = open_columns(reading, struct, nothing, logical_types, opened, renames)
    kind = next((field.field_type for field in images.fields if field.name == "after"), None)
    return kind if isinstance(kind, StructType) else StructType()


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled functions of Avro and Protobuf, for a process that others are forked from.

    compiles_all: also compiles those that few tables need; otherwise the first table that needs one compiles it.
    """
    if has_message_schemas():
        message_schemas().warm_up(compiles_all)
    fields = [{"name": name, "type": kind} for name, kind in _WARM_TYPES.items()]
    schema = json.dumps({"type": "record", "name": "Warm", "fields": fields})
    reading = Reading(format="avro", schemas=(("1", WriterSchema("avro", schema)),))
    decode_with_schemas(reading, (), {"value": pa.array([b"\0\0\0\0\1" + _WARM_AVRO], pa.binary())}, 1)
