"""Envelopes with a schema opened: from a record's columns to those of `cdc.envelope`.

They are in Avro, Protobuf, or JSON of Kafka Connect's converter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BooleanType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
)

from frazil.cdc.envelope import (
    BY_KEY,
    HEARTBEAT,
    IMAGES,
    MESSAGE,
    NO_DOCUMENT,
    NO_ENVELOPE,
    NOTIFICATION,
    ROW,
    SCHEMA_CHANGE,
    TRANSACTION,
)
from frazil.cdc.json_members import read_documents
from frazil.cdc.placeholders import find_unsent
from frazil.cdc.positions import facts_of, source_fields
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded, Fault, TextBytes, read_utf8
from frazil.decode.connect.schema import as_declared, convert_logical_types, with_keys
from frazil.decode.connect.values import LogicalType
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import from_numbers
from frazil.decode.renames import NO_RENAMES, FedColumns, Renames, fed_members
from frazil.decode.settings import Envelope, Reading
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools, arrow_type, as_written, spread_places, structs_where
from frazil.schema.selection import Path

_FAR = Fault(ErrorClass.OUT_OF_RANGE, "{value} is a time outside the years 1 to 9999")
FLAT = ("__op", "__deleted")
"""The fields that Debezium's unwrap transform (`ExtractNewRecordState`) adds to a row."""

NAMES = (
    "op", "before", "after", "source", "ts_ms", "ts_us", "transaction", "message", "schema", "payload", *FLAT,
)  # fmt: skip
"""The members of Debezium's messages that are read."""


@dataclass(frozen=True)
class RecordShape:
    """The fields by which a record that is no change is recognised."""

    #: The fields that it has.
    needed: tuple[str, ...]
    #: The fields that it may have in addition.
    others: tuple[str, ...] = ()


RECORD_SHAPES = {
    HEARTBEAT: RecordShape(("ts_ms",)),
    TRANSACTION: RecordShape(("status", "id", "event_count"), ("data_collections", "ts_ms")),
    NOTIFICATION: RecordShape(("id", "aggregate_type", "type"), ("additional_data", "timestamp")),
    SCHEMA_CHANGE: RecordShape(("source", "databaseName", "ddl"), ("position", "ts_ms", "schemaName", "tableChanges")),
}
"""The fields of each kind of record."""
IMAGES_OF = ("after", "before")
"""The fields of an envelope that contain the row."""


@dataclass
class _Opened:
    """The columns of opened envelopes while they are collected."""

    #: The number of records.
    rows: int
    #: The columns so far.
    fields: list[NestedField]
    #: Their values.
    arrays: list[pa.Array]
    #: The reason by record, for times outside the years 1 to 9999.
    far: dict[int, str] = field(default_factory=dict)

    def add(self, name: str, kind: IcebergType, array: pa.Array) -> None:
        self.fields.append(NestedField(0, name, kind, required=False))
        self.arrays.append(array)

    def add_record_kind(self, number: int) -> None:
        self.add("record_kind", IntegerType(), pa.array(np.full(self.rows, number, np.int32)))


def open_columns(
    reading: Reading,
    struct: StructType,
    columns: Columns,
    logical_types: Mapping[Path, LogicalType],
    requested_columns: Sequence[NestedField],
    renames: Renames = NO_RENAMES,
) -> tuple[StructType, Columns]:
    """Returns the columns of opened envelopes, as far as the records have them. reading: with an envelope, and paths in
    opened envelopes. requested_columns: the columns to return. renames: of the fields in images.
    """
    envelope = reading.envelope
    assert envelope is not None
    requested = {field.name: field.field_type for field in requested_columns}
    names = [field.name for field in struct.fields]
    opened = _Opened(columns.fault.size, [], [])
    is_envelope = is_wrapped(envelope, names)
    if envelope.kind == "operation":
        is_flat = envelope.operation in names
    else:
        is_flat = envelope.kind == "none" or any(name in names for name in FLAT)
    if not (is_envelope or is_flat):
        opened.add_record_kind(record_kind_of(names))
        return StructType(*opened.fields), replace(columns, arrays=opened.arrays)
    operation_fields = FLAT if envelope.kind != "operation" else (envelope.operation,)
    if is_envelope:
        kept = [n for n, field in enumerate(struct.fields) if field.name != "before" or "before" in requested]
        columns = replace(columns, arrays=[columns.arrays[n] for n in kept])
        struct = StructType(*(struct.fields[n] for n in kept))
    else:
        struct, columns = _as_image(struct, columns, operation_fields)
    # A placeholder is in the type as written: a day or a UUID read from one looks like any other.
    columns, unsent = _without_unsent(envelope, struct, columns)
    if logical_types:
        images = [NestedField(0, image, requested["after"], required=False) for image in IMAGES_OF]
        fed = FedColumns(struct, images, renames)
        logical_types = _under_image(logical_types, is_envelope)
        logical_types = as_declared(logical_types, reading.unit_at, reading.zone_at, fed)
        logical_types = _with_keys(envelope, logical_types, fed)
        depth = None if envelope.kind == "none" else 1
        struct, columns = convert_logical_types(struct, columns, logical_types, fed, depth)
    opened.add_record_kind(IMAGES if is_envelope else ROW)
    _add_columns(opened, envelope, (struct, columns), requested)
    if unsent:
        after = next(field.field_type for field in struct.fields if field.name == "after")
        opened.add("unavailable", *_marks(unsent, after, requested["unavailable"], renames))
    return StructType(*opened.fields), _without_far(replace(columns, arrays=opened.arrays), opened.far)


def _without_far(columns: Columns, far: Mapping[int, str]) -> Columns:
    """Returns the columns with the records refused that have times outside the years 1 to 9999."""
    rows = [row for row in far if columns.fault[row] == 0]
    if not rows:
        return columns
    fault, values = columns.fault.copy(), {**columns.values, **{row: far[row] for row in rows}}
    fault[rows] = len(columns.faults) + 1
    return replace(columns, fault=fault, faults=[*columns.faults, _FAR], values=values)


def is_wrapped(envelope: Envelope, names: Collection[str]) -> bool:
    """Whether records with these fields contain their rows, and are not rows themselves."""
    return envelope.kind not in ("operation", "none") and has_images(names)


def has_images(names: Collection[str]) -> bool:
    """Whether records with these fields are envelopes. An unwrapped row may have fields with any names."""
    return "op" in names and ("after" in names or "before" in names) and not any(name in names for name in FLAT)


def has_documents(envelope: Envelope, struct: StructType) -> bool:
    """Whether records of this schema are envelopes whose images are texts: MongoDB documents in JSON."""
    kinds = {field.name: field.field_type for field in struct.fields}
    is_envelope = envelope.kind == "debezium" and has_images(kinds)
    return is_envelope and any(isinstance(kinds.get(name), StringType) for name in IMAGES_OF)


def row_of(envelope: Envelope, struct: StructType) -> StructType:
    """Returns the row in records of this schema; one without fields where it is no envelope."""
    if envelope.kind == "none":
        return struct
    members = {field.name: field.field_type for field in struct.fields}
    if envelope.kind != "operation" and "op" in members:
        images = (members[name] for name in IMAGES_OF if name in members)
        return next((image for image in images if isinstance(image, StructType)), StructType())
    operation_fields = (envelope.operation,) if envelope.kind == "operation" else FLAT
    if not any(name in members for name in operation_fields):
        return StructType()
    return StructType(*(field for field in struct.fields if field.name not in operation_fields))


def read_part(envelope: Envelope, struct: StructType, requested: Collection[str]) -> StructType:
    """Returns the fields of a schema that are read of its records: of an envelope those that make the requested columns."""
    if not is_wrapped(envelope, [column.name for column in struct.fields]):
        return struct
    of_source = source_fields(requested)
    fields = []
    for column in struct.fields:
        if column.name == "source" and isinstance(column.field_type, StructType):
            inner = [member for member in column.field_type.fields if member.name in of_source]
            fields.append(column.model_copy(update={"field_type": StructType(*inner)}))
        elif column.name in NAMES and (column.name != "before" or "before" in requested):
            fields.append(column)
    return StructType(*fields)


def record_kind_of(names: Sequence[str]) -> int:
    """Returns the kind of records of a schema that is no envelope's."""
    if "message" in names and "op" in names:
        return MESSAGE
    for record_kind, shape in RECORD_SHAPES.items():
        if set(shape.needed) <= set(names) <= {*shape.needed, *shape.others}:
            return record_kind
    return NO_ENVELOPE


def _as_image(struct: StructType, columns: Columns, operation_fields: Sequence[str]) -> tuple[StructType, Columns]:
    """Returns the row itself as the image after the change, with the fields for the operation."""
    inside = [n for n, field in enumerate(struct.fields) if field.name not in operation_fields]
    members = [columns.arrays[n] for n in inside]
    fields = [struct.fields[n] for n in inside]
    has_row = columns.fault == 0
    image = structs_where([column.name for column in fields], members, has_row.size, has_row)
    outside = [n for n, field in enumerate(struct.fields) if field.name in operation_fields]
    image_fields = [NestedField(0, "after", StructType(*fields), required=False), *(struct.fields[n] for n in outside)]
    return StructType(*image_fields), replace(columns, arrays=[image, *(columns.arrays[n] for n in outside)])


def _under_image(logical_types: Mapping[Path, LogicalType], is_envelope: bool) -> Mapping[Path, LogicalType]:
    if is_envelope:
        return {
            path: logical_type for path, logical_type in logical_types.items() if path[:1] in (("after",), ("before",))
        }
    return {("after", *path): logical_type for path, logical_type in logical_types.items() if path}


def _with_keys(
    envelope: Envelope, logical_types: Mapping[Path, LogicalType], fed: FedColumns
) -> Mapping[Path, LogicalType]:
    """Returns the logical types, with a mark for the fields that identify rows. A schema without an envelope is a
    record key's.
    """
    if envelope.kind == "none":
        return with_keys(logical_types, [()], fed)
    keys = {(image, *path) for path in envelope.keys for image in IMAGES_OF} if envelope.is_upsert else ()
    return with_keys(logical_types, keys, fed)


def _add_columns(
    opened: _Opened, envelope: Envelope, read: tuple[StructType, Columns], requested: Mapping[str, IcebergType]
) -> None:
    struct, columns = read
    named = {field.name: (field.field_type, array) for field, array in zip(struct.fields, columns.arrays, strict=True)}
    opened.add("op", StringType(), _operation(envelope, named))
    for name in IMAGES_OF:
        kind, array = named.get(name, (None, None))
        if isinstance(kind, StructType) and name in requested:
            opened.add(name, kind, array)
    is_flat = not is_wrapped(envelope, named)
    for name, fact in facts_of(_ColumnValues(named, is_flat, opened.far), requested).items():
        opened.add(name, requested[name], fact.cast(arrow_type(requested[name])))


def _without_unsent(envelope: Envelope, struct: StructType, columns: Columns) -> tuple[Columns, dict[str, Bools]]:
    """Returns the images with null for values that were not sent, and which values of the row after the change these
    are, by field.
    """
    arrays, unsent = list(columns.arrays), dict[str, Bools]()
    for n, image in enumerate(struct.fields):
        if image.name in IMAGES_OF and isinstance(image.field_type, StructType):
            arrays[n], marks = _without_placeholders(envelope.placeholder, image.field_type, arrays[n])
            unsent |= marks if image.name == "after" else {}
    return replace(columns, arrays=arrays), unsent


def _without_placeholders(placeholder: str, kind: StructType, array: pa.Array) -> tuple[pa.Array, dict[str, Bools]]:
    """Returns the rows with null for values that were not sent, and which values these are, by field."""
    if array.offset:
        array = pa.concat_arrays([array])
    children = [array.field(n) for n in range(len(kind.fields))]
    marks = {}
    for n, child in enumerate(children):
        unsent = find_unsent(child, placeholder)
        if unsent is not None:
            marks[kind.fields[n].name] = unsent
            children[n] = child.take(pa.array(np.arange(len(child)), mask=unsent))
    if not marks:
        return array, {}
    rows = pa.Array.from_buffers(array.type, len(array), array.buffers()[:1], array.null_count, children=children)
    return rows, marks


def _marks(
    marks: Mapping[str, Bools], row: IcebergType, requested: IcebergType, renames: Renames
) -> tuple[StructType, pa.Array]:
    """Returns which values were not sent, by the column that the field of the row feeds."""
    assert isinstance(row, StructType)
    assert isinstance(requested, StructType)
    fed = fed_members(row, requested.fields, renames, ("after",))
    unsent = {fed[name].name: pa.array(mask) for name, mask in marks.items() if name in fed}
    kind = StructType(*(NestedField(0, name, BooleanType(), required=False) for name in unsent))
    return kind, structs_where(list(unsent), list(unsent.values()), len(next(iter(marks.values()))))


_NamedColumns = Mapping[str, tuple[IcebergType, pa.Array]]


def _operation(envelope: Envelope, named: _NamedColumns) -> pa.Array:
    """Returns the operations as the records have them; `d` and `u` where only deletions are marked."""
    if envelope.kind == "none":
        return pa.nulls(len(named["after"][1]), pa.string())
    name = "op" if "op" in named else "__op"
    if envelope.kind == "operation":
        name = envelope.operation
    if name in named:
        array = named[name][1]
        return array if pa.types.is_string(array.type) else _as_strings(array)
    deleted = named["__deleted"][1]
    text = deleted if pa.types.is_string(deleted.type) else _as_strings(deleted)
    return operation_of(text, pa.nulls(len(text), pa.string()))


def operation_of(deleted: pa.Array, op: pa.Array) -> pa.Array:
    """Returns the operations of unwrapped rows, from the texts that mark a deletion and those of `op`. A text that is
    neither `true` nor `false` is an unknown operation.
    """
    strange = pc.and_(deleted.is_valid(), pc.invert(pc.is_in(deleted, pa.array(["true", "false"]))))
    known_op = pc.if_else(strange, deleted, pc.fill_null(op, "u"))
    return pc.if_else(pc.fill_null(pc.equal(deleted, "true"), False), "d", known_op)


def _as_strings(array: pa.Array) -> pa.Array:
    if pa.types.is_binary(array.type):
        return read_utf8(array)
    try:
        return array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(array), pa.string())


class _ColumnValues:
    """See EnvelopeValues. far: receives the times that are outside the years 1 to 9999."""

    def __init__(self, named: _NamedColumns, is_flat: bool, far: dict[int, str]) -> None:
        self._named, self._is_flat, self._far = named, is_flat, far

    def member(self, path: Path) -> pa.Array | None:
        named_column = self._named.get(path[0])
        if named_column is None:
            return None
        kind, array = named_column
        for name in path[1:]:
            names = [field.name for field in kind.fields] if isinstance(kind, StructType) else []
            if name not in names:
                return None
            assert isinstance(kind, StructType)
            n = names.index(name)
            array, kind = pc.struct_field(array, [n]), kind.fields[n].field_type
        return read_utf8(array) if isinstance(kind, TextBytes) else array

    def time(self, path: Path, unit: str) -> pa.Array | None:
        array = self.member(path)
        if array is None or not pa.types.is_integer(array.type):
            return None
        moments = from_numbers(array.cast(pa.int64()), unit)
        for row in np.flatnonzero(moments.is_outside).tolist():
            self._far[row] = str(array[row].as_py())
        return moments.micros

    def flat_member(self, name: str) -> pa.Array | None:
        return self.member(("after", name)) if self._is_flat else None

    def flat_time(self, name: str, unit: str) -> pa.Array | None:
        return self.time(("after", name), unit) if self._is_flat else None


def open_documents(
    conversion: Conversion, struct: StructType, columns: Columns, fields: Sequence[NestedField]
) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, for envelopes in columns whose images are JSON texts."""
    reading, rows = conversion.reading, conversion.row_count
    assert reading.envelope is not None
    raw = {
        field.name: array.cast(pa.binary())
        for field, array in zip(struct.fields, columns.arrays, strict=True)
        if field.name in IMAGES_OF and isinstance(field.field_type, StringType)
    }
    others = [field for field in fields if field.name not in IMAGES_OF]
    decoded = convert_columns(conversion, *open_columns(reading, struct, columns, {}, fields), others)
    columns_by_name = {field.name: array for field, array in zip(others, decoded.columns, strict=True)}
    conversion.requested_fields = {}
    for column in fields:
        if column.name in IMAGES_OF:
            columns_by_name[column.name] = _document_image(conversion, raw.get(column.name), column)
            op, kind = ("u", NO_DOCUMENT) if column.name == "after" else ("d", BY_KEY)
            texts = raw.get(column.name)
            has_text = np.zeros(rows, np.bool_) if texts is None else np.asarray(texts.is_valid())
            lacks = np.asarray(pc.fill_null(pc.equal(columns_by_name["op"], op), False)) & ~has_text
            columns_by_name["record_kind"] = pc.if_else(
                pa.array(lacks), pa.scalar(kind, pa.int32()), columns_by_name["record_kind"]
            )
    return conversion.decoded([columns_by_name[field.name] for field in fields])


def _document_image(conversion: Conversion, raw: pa.Array | None, field: NestedField) -> pa.Array:
    """Returns one image of the row per record, null where there is none."""
    kind, rows = field.field_type, conversion.row_count
    assert isinstance(kind, StructType)
    if raw is None:
        return pa.nulls(rows, arrow_type(kind))
    present_rows = np.flatnonzero(np.asarray(raw.is_valid())).astype(np.int32)
    image = read_documents(conversion, raw.drop_null(), present_rows, kind, field.name)
    return as_written(image, arrow_type(kind)).take(spread_places(present_rows, rows))
