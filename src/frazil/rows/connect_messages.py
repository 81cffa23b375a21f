"""JSON messages of Kafka Connect's JsonConverter with `schemas.enable=true`: `{"schema": …, "payload": …}`.

The payload is the record, and the schema gives its types, as a schema of the registry does. A message is recognised by
its members: an object with these two and no other, whose `schema` names a type of Kafka Connect, or is null where the
converter had none. Where records are Debezium's envelopes, anything with these two members and no operation is a
message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.cdc.envelope_columns import FLAT, has_documents, is_wrapped, open_columns, read_part
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded, Fault, Group, Mismatch, in_order, select_columns
from frazil.decode.connect.schema import (
    ConnectType,
    as_declared,
    convert_logical_types,
    names_connect_type,
    parse_connect_type,
    scales_of,
    with_keys,
)
from frazil.decode.connect.values import LogicalType
from frazil.decode.conversion import Conversion
from frazil.decode.json import scan
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.columns import read_members, read_value
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT, skip_space
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import open_texts
from frazil.decode.json.slices import Slices, Texts, group_equal, members_under
from frazil.decode.renames import FedColumns
from frazil.decode.settings import Envelope, Reading
from frazil.error_classes import ErrorClass
from frazil.raw_memory import COMPILED, load8
from frazil.registry.port import UnusableSchema
from frazil.schema.arrow import Bools, Ints, arrow_type, is_every
from frazil.schema.selection import Path

SCHEMA, PAYLOAD = "schema", "payload"
VALUE = "value"
"""The column for a payload that is no struct."""
_BRACE, _COLON = ord("{"), ord(":")
_FIRST_KEYS = np.array([list(b'"schema"'.ljust(10, b"\0")), list(b'"payload"'.ljust(10, b"\0"))], np.uint8)
_NULL_LAST, _NULL_FIRST = r'"payload"\s*:\s*null\s*\}\s*$', r'^\s*\{\s*"payload"\s*:\s*null\s*,'
_TOMBSTONE = Fault(ErrorClass.TOMBSTONE, "the message's payload is null (a tombstone), so it is not a row")
_NO_STRUCT = Fault(
    ErrorClass.NOT_AN_OBJECT, "the message's schema describes a struct, and its payload is not a JSON object"
)


def may_be_messages(values: pa.BinaryArray) -> Ints:
    """Returns the row numbers, int64 ascending, of texts whose first member is called `schema` or `payload`."""
    rows, buffer = len(values), values.buffers()[2]
    if not rows or buffer is None:
        return np.zeros(0, np.int64)
    # A copy: of what may be written to the loop has another form than of what may not.
    offsets = np.frombuffer(values.buffers()[1], np.int32, rows + 1, values.offset * 4).copy()
    rows_out = np.empty(rows, np.int64)
    return rows_out[: _find_messages(buffer.address, offsets, _FIRST_KEYS, rows_out)]


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_messages(base: int, offsets: NDArray[np.int32], keys: NDArray[np.uint8], rows_out: Ints) -> int:
    """Writes the row numbers to `rows_out` and returns their number. keys: one per row, padded with zeros."""
    count = 0
    for row in range(offsets.size - 1):
        i, end = base + offsets[row], base + offsets[row + 1]
        i = skip_space(i, end)
        if i == end or load8(i) != _BRACE:
            continue
        i = skip_space(i + 1, end)
        for key in range(keys.shape[0]):
            n = 0
            while keys[key, n] != 0 and i + n < end and load8(i + n) == keys[key, n]:
                n += 1
            if keys[key, n] == 0:
                after = skip_space(i + n, end)
                if after < end and load8(after) == _COLON:
                    rows_out[count] = row
                    count += 1
    return count


def payloads_of(values: pa.BinaryArray) -> pa.BinaryArray:
    """Returns the values, with the payload in place of a message. A value that is no JSON is returned unchanged, for its
    reader to refuse.
    """
    rows = may_be_messages(values)
    if rows.size:
        messages = _find((), None, *open_texts(_texts_at(values, rows)))
        for message in messages.groups:
            values = _with_payloads(values, rows[message.rows], messages, message.rows)
    return values


def are_null_messages(values: pa.BinaryArray) -> Bools:
    """Returns which texts, bool of shape (n_records,), are messages whose payload is null: the converter's form of a
    tombstone that has a schema. A record with more members than a message's, or another `schema`, is none.
    """
    are_null = np.zeros(len(values), np.bool_)
    rows = may_be_messages(values)
    if rows.size:
        texts = values.take(pa.array(rows))
        may_be = pc.or_(pc.match_substring_regex(texts, _NULL_LAST), pc.match_substring_regex(texts, _NULL_FIRST))
        rows = rows[np.asarray(pc.fill_null(may_be, False))]
    if rows.size:
        messages = _find((), None, *open_texts(_texts_at(values, rows)))
        places = np.concatenate([rows[:0], *(message.rows for message in messages.groups)])
        are_null[rows[places[messages.payload.kind[places] == NULL]]] = True
    return are_null


@dataclass(frozen=True)
class _Message:
    """Messages of one schema, or without a schema."""

    #: The indexes of the messages among all texts.
    rows: Ints
    #: The schema; None: the payloads are JSON as any other.
    schema: ConnectType | None
    #: Why the schema cannot be used.
    fault: Fault | None = None

    @property
    def has_type(self) -> bool:
        """Whether the messages have a schema, usable or not."""
        return self.schema is not None or self.fault is not None


@dataclass
class _Messages:
    """Texts that may be messages, after their members were read."""

    #: The texts being decoded.
    texts: Texts
    #: The payload of each text.
    payload: Slices
    #: The messages, by schema.
    groups: list[_Message]


def decode_records(
    values: pa.BinaryArray,
    fields: tuple[NestedField, ...],
    reading: Reading,
    limit: int,
    decode: Callable[[pa.BinaryArray], Decoded],
) -> Decoded:
    """Returns the columns `fields` of records in JSON, of which some, all or none are messages of Kafka Connect's
    converter. decode: reads the other records, and envelopes in messages without a schema.
    """
    names = [field.name for field in fields]
    groups, left, rest = _decode_messages(
        values, reading, partial(_find, names, reading.envelope), partial(_decode, fields, reading, limit)
    )
    if left.size or not groups:
        groups.append(Group(left, decode(rest)))
    return in_order(groups, fields, len(values), limit)


def decode_key_messages(
    keys: pa.BinaryArray, name: str, kind: IcebergType | None, reading: Reading, limit: int
) -> tuple[list[Group], Ints, pa.BinaryArray]:
    """Returns groups of keys that are messages with a schema, as the column `name`; the row numbers of all other keys;
    and these keys, with the payload in place of a message whose schema is null.

    kind: the type of the column; None while there is no column, and its type is requested.
    """
    decode = partial(_decode_key, name, kind, reading, limit)
    return _decode_messages(keys, reading, partial(_find, (), None), decode)


def _decode_messages(
    values: pa.BinaryArray,
    reading: Reading,
    find: Callable[[Texts, Slices, NDArray[np.uint8]], _Messages],
    decode: Callable[[_Messages, _Message], Decoded],
) -> tuple[list[Group], Ints, pa.BinaryArray]:
    """Returns the messages with a schema, decoded; and as `decode_key_messages` the other texts."""
    rows, every = may_be_messages(values), np.arange(len(values))
    if not rows.size:
        return [], every, values
    some, sent = _texts_at(values, rows), None
    for has_canonical_keys in (False, True):
        texts, objects, error = open_texts(some, Conversion(reading, "", len(some), 0), has_canonical_keys, sent)
        texts.is_connect = True
        messages = find(texts, objects, error)
        groups = [Group(rows[typed.rows], decode(messages, typed)) for typed in messages.groups if typed.has_type]
        if not texts.has_escaped_keys:
            break
        some, sent = pa.array([unescape_keys(value) for value in some.to_pylist()], pa.binary()), some
    for message in messages.groups:
        if not message.has_type:
            values = _with_payloads(values, rows[message.rows], messages, message.rows)
    left = np.setdiff1d(every, np.concatenate([every[:0], *(group.rows for group in groups)]))
    return groups, left, _texts_at(values, left)


def _texts_at(values: pa.BinaryArray, rows: Ints) -> pa.BinaryArray:
    return values if is_every(rows, len(values)) else values.take(pa.array(rows))


def _find(
    columns: Collection[str], envelope: Envelope | None, texts: Texts, objects: Slices, error: NDArray[np.uint8]
) -> _Messages:
    """Returns the messages. columns: of the table, which may have columns with the names of a message's members."""
    schema, payload, *own = members_under(texts, objects, (SCHEMA, PAYLOAD, "op", *FLAT), error)
    texts.has_escaped_keys |= bool((error == scan.ESCAPED_KEY).any()) and not texts.has_canonical_keys
    if envelope is not None and envelope.kind != "operation":
        has_own = np.logical_or.reduce([member.kind != ABSENT for member in own])
        # Tombstones, and payloads without a schema, are opened with the other envelopes.
        rows = np.flatnonzero((schema.kind == OBJECT) & (payload.kind == OBJECT) & ~has_own)
        groups = [
            message
            for message in _by_schema(texts, schema, rows, is_certain=True)
            if not _is_of_documents(envelope, message)
        ]
        return _Messages(texts, payload, groups)
    counts = np.zeros(len(objects), np.int32)
    good = objects.masked(error == scan.OK)
    scan.count_members(texts.base, good.start, good.end, good.kind, OBJECT, counts, texts.stack)
    is_message = (counts == 2) & (schema.kind != ABSENT) & (payload.kind != ABSENT)
    # Without a schema nothing else distinguishes a message from a record.
    is_own = SCHEMA in columns and PAYLOAD in columns
    without_type = np.flatnonzero(is_message & (schema.kind == NULL) & (not is_own))
    groups = [_Message(without_type, None)] if without_type.size else []
    groups += _by_schema(texts, schema, np.flatnonzero(is_message & (schema.kind == OBJECT)), is_certain=False)
    return _Messages(texts, payload, groups)


def _is_of_documents(envelope: Envelope, message: _Message) -> bool:
    """Whether the images are JSON texts, which a schema does not describe, or the schema describes nothing."""
    if message.schema is None:
        return message.fault is None
    return isinstance(message.schema.kind, StructType) and has_documents(envelope, message.schema.kind)


def _by_schema(texts: Texts, schema: Slices, rows: Ints, is_certain: bool) -> list[_Message]:
    """Returns the messages at `rows` by their schema. is_certain: also those whose schema is none of Kafka Connect."""
    if not rows.size:
        return []
    codes, firsts = group_equal(texts.base, schema.take(rows))
    groups = []
    for code, first in enumerate(firsts):
        mine, place = rows[codes == code], rows[first]
        text = texts.buffer[schema.start[place] : schema.end[place]].tobytes()
        if not (is_certain or names_connect_type(text)):
            continue
        try:
            connect_type = parse_connect_type(text)
            if is_certain and not isinstance(connect_type.kind, StructType):
                raise UnusableSchema("the member `schema` describes no struct")
            has_types = not isinstance(connect_type.kind, StructType) or bool(connect_type.kind.fields)
            groups.append(_Message(mine, connect_type if has_types else None))
        except UnusableSchema as error:
            groups.append(_Message(mine, None, Fault(ErrorClass.UNUSABLE_SCHEMA, str(error))))
    return groups


def _with_payloads(values: pa.BinaryArray, rows: Ints, messages: _Messages, places: Ints) -> pa.BinaryArray:
    """Returns the texts with the payloads of the messages at `places` in place of the messages."""
    start, end = messages.payload.start[places].tolist(), messages.payload.end[places].tolist()
    payloads = [messages.texts.buffer[at:to].tobytes() for at, to in zip(start, end, strict=True)]
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), pa.array(payloads, pa.binary()))


def _decode(
    fields: Sequence[NestedField], reading: Reading, limit: int, messages: _Messages, message: _Message
) -> Decoded:
    """Returns messages of one schema as columns of the table."""
    if message.schema is None:
        return _refused(message, fields)
    kind, envelope = message.schema.kind, reading.envelope
    if envelope is not None and isinstance(kind, StructType):
        kind = read_part(envelope, kind, [field.name for field in fields])
    # A payload that is not a struct is a record with one field.
    if isinstance(message.schema.kind, StructType):
        logical_types = {path: logical_type for path, logical_type in message.schema.logical_types.items() if path}
    else:
        logical_types = _below(VALUE, message.schema)
    conversion = Conversion(reading, "", message.rows.size, limit)
    is_record = isinstance(kind, StructType)
    struct = kind if isinstance(kind, StructType) else StructType(NestedField(0, VALUE, kind, required=False))
    columns = _read(messages, message.rows, conversion, logical_types, struct, is_record)
    if envelope is not None and is_wrapped(envelope, [field.name for field in struct.fields]):
        conversion.dropped = {path for path in conversion.dropped if path.startswith(("after.", "before."))}
    is_unread = conversion.refused.all()
    decoded = convert_written(conversion, struct, columns, logical_types, fields)
    return replace(decoded, requested_fields={}) if is_unread else decoded


def convert_written(
    conversion: Conversion,
    struct: StructType,
    columns: Columns,
    logical_types: Mapping[Path, LogicalType],
    fields: Sequence[NestedField],
) -> Decoded:
    """Returns the columns `fields` of records that were read with the types of their schema: an envelope is opened, and
    values of Kafka Connect's logical types become what they mean.
    """
    reading = conversion.reading
    if reading.envelope is not None:
        struct, columns = open_columns(reading, struct, columns, logical_types, fields, conversion.renames)
    elif logical_types:
        fed = FedColumns(struct, fields, conversion.renames)
        logical_types = as_declared(logical_types, reading.unit_at, reading.zone_at, fed)
        logical_types = with_keys(logical_types, reading.keys, fed)
        struct, columns = convert_logical_types(struct, columns, logical_types, fed)
    if reading.selection is not None:
        conversion.renames, selection = conversion.renames.selecting(reading.selection)
        struct, columns = select_columns(selection, struct, columns)
    return convert_columns(conversion, struct, columns, fields)


def _decode_key(
    name: str, kind: IcebergType | None, reading: Reading, limit: int, messages: _Messages, message: _Message
) -> Decoded:
    """Returns keys of one schema as the column `name`."""
    column = () if kind is None else (NestedField(0, name, kind, required=False),)
    if message.schema is None:
        return _refused(message, column)
    schema, conversion = message.schema, Conversion(reading, "", message.rows.size, limit)
    written = StructType(NestedField(0, name, schema.kind, required=False))
    fed = FedColumns(written, column)
    logical_types = as_declared(_below(name, schema), reading.unit_at, reading.zone_at, fed)
    logical_types = with_keys(logical_types, reading.keys, fed)
    columns = _read(messages, message.rows, conversion, logical_types, written, is_record=False)
    columns = replace(columns, fault=np.zeros_like(columns.fault))  # A key may be null.
    is_unread = conversion.refused.all()
    struct, columns = convert_logical_types(written, columns, logical_types, fed, row_depth=None)
    decoded = convert_columns(conversion, struct, columns, column)
    if kind is None:
        decoded = replace(decoded, requested_fields={(): {name: struct.fields[0].field_type}})
    return replace(decoded, requested_fields={} if is_unread else decoded.requested_fields, dropped=set())


def _below(name: str, schema: ConnectType) -> dict[Path, LogicalType]:
    return {(name, *path): logical_type for path, logical_type in schema.logical_types.items()}


def _refused(message: _Message, fields: Sequence[NestedField]) -> Decoded:
    fault, count = message.fault, message.rows.size
    assert fault is not None
    mismatches = [Mismatch(row, SCHEMA, fault.kind, fault.message) for row in range(count)]
    return Decoded(
        [pa.nulls(count, arrow_type(field.field_type)) for field in fields], np.ones(count, np.bool_), mismatches
    )


def _read(
    messages: _Messages,
    rows: Ints,
    conversion: Conversion,
    logical_types: Mapping[Path, LogicalType],
    struct: StructType,
    is_record: bool,
) -> Columns:
    """Returns the payloads of these messages as the columns `struct`, whatever the table takes of them. is_record: whether
    a payload is an object with these columns, and not the value of the only one.
    """
    texts, payload = messages.texts, messages.payload.take(rows)
    reading = replace(conversion.reading, unknown_fields="drop", selection=None, is_rescuing=False)
    texts.conversion = Conversion(reading, "", texts.conversion.row_count, conversion.limit)
    texts.scales = scales_of(logical_types)
    fault = (payload.kind == NULL).astype(np.uint8)
    if is_record:
        error = np.zeros(len(payload), np.uint8)
        fault[(payload.kind != OBJECT) & (payload.kind > NULL)] = 2
        arrays = read_members(texts, payload, struct.fields, (), error)
        refuse_objects(texts, payload, error, ())
    else:
        arrays = [read_value(texts, payload, struct.fields[0].field_type, (struct.fields[0].name,))]
    owner = np.full(texts.conversion.row_count, -1, np.int64)
    owner[rows] = np.arange(rows.size)
    conversion.take(texts.conversion, owner)
    return Columns(arrays, fault, (_TOMBSTONE, _NO_STRUCT))
