"""JSON messages of Kafka Connect's JsonConverter with `schemas.enable=true`: `{"schema": …, "payload": …}`.

The payload is the record, and the schema gives its types, as a schema of the registry does. A message is recognised by
its members: an object with these two and no other, whose `schema` names a type of Kafka Connect, or is null where the
converter had none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.cdc.envelope_columns import open_columns
from frazil.decode.cast import Conversion, convert_columns
from frazil.decode.columns import Columns, Decoded, Fault, Group, Mismatch, in_order
from frazil.decode.connect.schema import (
    ConnectType,
    convert_logical_types,
    names_connect_type,
    parse_connect_type,
    with_keys,
    without_units,
)
from frazil.decode.connect.values import LogicalType
from frazil.decode.json import scan
from frazil.decode.json.columns import Findings, read_members, read_value
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import JsonOptions, text_slices, texts_of, unescape_keys, unreadable
from frazil.decode.json.slices import Slices, Texts, group_equal, members_under
from frazil.decode.memory import COMPILED, load8
from frazil.decode.regroup import select_columns
from frazil.decode.settings import Reading
from frazil.registry.port import UnusableSchema
from frazil.schema.arrow import arrow_type
from frazil.schema.evolve import type_at
from frazil.schema.selection import Path

SCHEMA, PAYLOAD = "schema", "payload"
VALUE = "value"
"""The column for a payload that is no struct."""
_BRACE, _COLON = ord("{"), ord(":")
_FIRST_KEYS = np.array([list(b'"schema"'.ljust(10, b"\0")), list(b'"payload"'.ljust(10, b"\0"))], np.uint8)
_NULL_LAST, _NULL_FIRST = r'"payload"\s*:\s*null\s*\}\s*$', r'^\s*\{\s*"payload"\s*:\s*null\s*,'
_TOMBSTONE = Fault("tombstone", "the message's payload is null (a tombstone), so it is no row")
_NO_STRUCT = Fault("not_an_object", "the message's schema describes a struct, and its payload is no JSON object")


def may_be_messages(values: pa.BinaryArray) -> NDArray[np.int64]:
    """Returns the row numbers, int64 ascending, of texts whose first member is called `schema` or `payload`."""
    rows, buffer = len(values), values.buffers()[2]
    if not rows or buffer is None:
        return np.zeros(0, np.int64)
    # A copy: of what may be written to the loop has another form than of what may not.
    offsets = np.frombuffer(values.buffers()[1], np.int32, rows + 1, values.offset * 4).copy()
    found = np.empty(rows, np.int64)
    return found[: _find_messages(buffer.address, offsets, _FIRST_KEYS, found)]


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_messages(base: int, offsets: NDArray[np.int32], keys: NDArray[np.uint8], found: NDArray[np.int64]) -> int:
    """Writes the row numbers to `found` and returns their number. keys: one per row, padded with zeros."""
    count = 0
    for row in range(offsets.size - 1):
        i, end = base + offsets[row], base + offsets[row + 1]
        i = _skip_space(i, end)
        if i == end or load8(i) != _BRACE:
            continue
        i = _skip_space(i + 1, end)
        for key in range(keys.shape[0]):
            n = 0
            while keys[key, n] != 0 and i + n < end and load8(i + n) == keys[key, n]:
                n += 1
            if keys[key, n] == 0:
                after = _skip_space(i + n, end)
                if after < end and load8(after) == _COLON:
                    found[count] = row
                    count += 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip_space(i: int, end: int) -> int:
    while i < end and (load8(i) == 0x20 or (load8(i) >= 0x09 and load8(i) <= 0x0D)):
        i += 1
    return i


def are_null_messages(values: pa.BinaryArray) -> NDArray[np.bool_]:
    """Returns which texts, bool of shape (n_records,), are messages whose payload is null: the converter's form of a
    tombstone that has a schema.
    """
    found = np.zeros(len(values), np.bool_)
    rows = may_be_messages(values)
    if rows.size:
        texts = values.take(pa.array(rows))
        is_null = pc.or_(pc.match_substring_regex(texts, _NULL_LAST), pc.match_substring_regex(texts, _NULL_FIRST))
        found[rows] = np.asarray(pc.fill_null(is_null, False))
    return found


@dataclass(frozen=True)
class _Message:
    """Messages of one schema, or without a schema."""

    #: The indexes of the messages among all texts.
    rows: NDArray[np.int64]
    #: The schema; None: the payloads are JSON as any other.
    schema: ConnectType | None
    #: Why the schema cannot be used.
    fault: Fault | None = None


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
    options: JsonOptions,
    decode: Callable[[pa.BinaryArray], Decoded],
) -> Decoded:
    """Returns the columns `fields` of records in JSON, of which some, all or none are messages of Kafka Connect's
    converter. The records are rows, or have a field that names the operation. decode: reads the other records.
    """
    rows = may_be_messages(values)
    found = _find(values, rows, options, [one.name for one in fields]) if rows.size else None
    if found is None or not found.groups:
        return decode(values)
    groups = [Group(rows[one.rows], _decode(found, one, fields, reading)) for one in found.groups if _has_type(one)]
    without_type = [one for one in found.groups if not _has_type(one)]
    typed = np.concatenate([np.zeros(0, np.int64), *(group.rows for group in groups)])
    left = np.setdiff1d(np.arange(len(values)), typed)
    if left.size:
        unwrapped = values
        for one in without_type:
            unwrapped = _with_payloads(unwrapped, rows[one.rows], found, one.rows)
        some = unwrapped if left.size == len(values) else unwrapped.take(pa.array(left))
        groups.append(Group(left, decode(some)))
    return in_order(groups, fields, len(values), options.limit)


def decode_key_messages(
    keys: pa.BinaryArray, name: str, kind: IcebergType | None, reading: Reading, options: JsonOptions
) -> tuple[list[Group], NDArray[np.int64], pa.BinaryArray]:
    """Returns groups of keys that are messages with a schema, as the column `name`; the row numbers of all other keys;
    and these keys, with the payload in place of a message whose schema is null.

    kind: the type of the column; None while there is no column, and its type is requested.
    """
    rows = may_be_messages(keys)
    if not rows.size:
        return [], np.arange(len(keys)), keys
    found, groups = _find(keys, rows, options, frozenset()), []
    for one in found.groups:
        if _has_type(one):
            groups.append(Group(rows[one.rows], _decode_key(found, one, name, kind, reading)))
        else:
            keys = _with_payloads(keys, rows[one.rows], found, one.rows)
    typed = np.concatenate([np.zeros(0, np.int64), *(group.rows for group in groups)])
    left = np.setdiff1d(np.arange(len(keys)), typed)
    return groups, left, keys.take(pa.array(left))


def _has_type(message: _Message) -> bool:
    return message.schema is not None or message.fault is not None


def _find(values: pa.BinaryArray, rows: NDArray[np.int64], options: JsonOptions, columns: Collection[str]) -> _Messages:
    """Returns the messages among the texts at `rows`. columns: of the table, which may have columns with the names of a
    message's members.
    """
    some = values if rows.size == len(values) else values.take(pa.array(rows))
    found = _read_members(some, options, columns)
    if found is None:
        some = pa.array([unescape_keys(value) for value in some.to_pylist()], pa.binary())
        found = _read_members(some, options, columns, has_canonical_keys=True)
    assert found is not None
    return found


def _read_members(
    values: pa.BinaryArray, options: JsonOptions, columns: Collection[str], has_canonical_keys: bool = False
) -> _Messages | None:
    """Returns the messages; None where escaped keys must be replaced first."""
    texts, error, objects = texts_of(values, options, has_canonical_keys), unreadable(values), text_slices(values)
    texts.options = replace(options, selection=None, is_rescuing=False, accepts_non_finite=True)
    scan.scan_texts(texts.base, objects.start, objects.end, objects.kind, error)
    schema, payload = members_under(texts, objects, (SCHEMA, PAYLOAD), error)
    if (error == scan.ESCAPED_KEY).any() and not has_canonical_keys:
        return None
    counts = np.zeros(len(objects), np.int32)
    good = replace(objects, kind=np.where(error == scan.OK, objects.kind, ABSENT).astype(np.uint8))
    scan.count_members(texts.base, good.start, good.end, good.kind, OBJECT, counts, texts.stack)
    is_message = (counts == 2) & (schema.kind != ABSENT) & (payload.kind != ABSENT)
    is_own = (
        SCHEMA in columns and PAYLOAD in columns
    )  # Without a schema nothing else distinguishes a message from a record.
    without_type = np.flatnonzero(is_message & (schema.kind == NULL) & (not is_own))
    groups = [_Message(without_type, None)] if without_type.size else []
    groups += _by_schema(texts, schema, np.flatnonzero(is_message & (schema.kind == OBJECT)))
    return _Messages(texts, payload, groups)


def _by_schema(texts: Texts, schema: Slices, rows: NDArray[np.int64]) -> list[_Message]:
    if not rows.size:
        return []
    codes, firsts = group_equal(texts.base, _at(schema, rows))
    groups = []
    for code, first in enumerate(firsts):
        mine, place = rows[codes == code], rows[first]
        text = texts.buffer[schema.start[place] : schema.end[place]].tobytes()
        if not names_connect_type(text):
            continue
        try:
            found = parse_connect_type(text)
            has_types = not isinstance(found.kind, StructType) or bool(found.kind.fields)
            groups.append(_Message(mine, found if has_types else None))
        except UnusableSchema as error:
            groups.append(_Message(mine, None, Fault("unusable_schema", str(error))))
    return groups


def _at(slices: Slices, rows: NDArray[np.int64]) -> Slices:
    return Slices(slices.start[rows], slices.end[rows], slices.kind[rows], slices.owner[rows])


def _with_payloads(
    values: pa.BinaryArray, rows: NDArray[np.int64], found: _Messages, places: NDArray[np.int64]
) -> pa.BinaryArray:
    """Returns the texts with the payloads of the messages at `places` in place of the messages."""
    start, end = found.payload.start[places].tolist(), found.payload.end[places].tolist()
    payloads = [found.texts.buffer[at:to].tobytes() for at, to in zip(start, end, strict=True)]
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), pa.array(payloads, pa.binary()))


def _decode(found: _Messages, message: _Message, fields: Sequence[NestedField], reading: Reading) -> Decoded:
    """Returns messages of one schema as columns of the table."""
    if message.schema is None:
        return _refused(message, fields)
    struct, columns, dropped = _read(found, message.rows, message.schema)
    table, logical_types = StructType(*fields), _paths_of(message.schema)
    if reading.envelope is not None:
        struct, columns = open_columns(reading.envelope, struct, columns, logical_types, fields)
    else:
        logical_types = with_keys(without_units(logical_types, reading.unit_at), reading.keys)
        struct, columns = convert_logical_types(struct, columns, logical_types, lambda path: type_at(table, path))
    if reading.selection is not None:
        struct, columns = select_columns(reading.selection, struct, columns)
    conversion = Conversion(reading, "", message.rows.size, found.texts.options.limit)
    return _with_mismatches(found, message.rows, convert_columns(conversion, struct, columns, fields), dropped)


def _decode_key(found: _Messages, message: _Message, name: str, kind: IcebergType | None, reading: Reading) -> Decoded:
    """Returns keys of one schema as the column `name`."""
    column = () if kind is None else (NestedField(0, name, kind, required=False),)
    if message.schema is None:
        return _refused(message, column)
    schema, texts = message.schema, found.texts
    payload = _at(found.payload, message.rows)
    array = read_value(texts, payload, schema.kind, Findings("drop"), (name,))
    written = StructType(NestedField(0, name, schema.kind, required=False))
    columns = Columns([array], np.zeros(message.rows.size, np.uint8), ())
    table = StructType(*column)
    logical_types = with_keys(_below(name, schema), reading.keys)
    struct, columns = convert_logical_types(written, columns, logical_types, lambda path: type_at(table, path))
    decoded = convert_columns(Conversion(reading, "", message.rows.size, texts.options.limit), struct, columns, column)
    requested_fields = decoded.requested_fields
    if kind is None:
        requested_fields = {(): {name: struct.fields[0].field_type}}
    return _with_mismatches(
        found, message.rows, replace(decoded, requested_fields=requested_fields, dropped=set()), set()
    )


def _below(name: str, schema: ConnectType) -> dict[Path, LogicalType]:
    return {(name, *path): logical_type for path, logical_type in schema.logical_types.items()}


def _paths_of(schema: ConnectType) -> Mapping[Path, LogicalType]:
    """Returns the logical types by path in the record; a payload that is no struct is a record with one field."""
    if isinstance(schema.kind, StructType):
        return {path: logical_type for path, logical_type in schema.logical_types.items() if path}
    return _below(VALUE, schema)


def _refused(message: _Message, fields: Sequence[NestedField]) -> Decoded:
    fault, count = message.fault, message.rows.size
    assert fault is not None
    mismatches = [Mismatch(row, SCHEMA, fault.kind, fault.message) for row in range(count)]
    return Decoded(
        [pa.nulls(count, arrow_type(one.field_type)) for one in fields], np.ones(count, np.bool_), mismatches
    )


def _read(found: _Messages, rows: NDArray[np.int64], schema: ConnectType) -> tuple[StructType, Columns, set[str]]:
    """Returns the payloads of these messages with the types of their schema, and the paths of members that the schema
    does not have.
    """
    texts, payload, findings = found.texts, _at(found.payload, rows), Findings("drop")
    fault = np.where(payload.kind == NULL, 1, 0).astype(np.uint8)
    if not isinstance(schema.kind, StructType):
        kind = StructType(NestedField(0, VALUE, schema.kind, required=False))
        arrays = [read_value(texts, payload, schema.kind, findings, (VALUE,))]
        return kind, Columns(arrays, fault, (_TOMBSTONE, _NO_STRUCT)), findings.dropped
    fault[(payload.kind != OBJECT) & (payload.kind > NULL)] = 2
    error = np.zeros(len(payload), np.uint8)
    arrays = read_members(texts, payload, schema.kind.fields, findings, (), error)
    refuse_objects(texts, payload, error, ())
    return schema.kind, Columns(arrays, fault, (_TOMBSTONE, _NO_STRUCT)), findings.dropped


def _with_mismatches(found: _Messages, rows: NDArray[np.int64], decoded: Decoded, dropped: set[str]) -> Decoded:
    """Returns the columns with the mismatches found when the payloads were read. Where no payload can be read, no
    fields are requested.
    """
    texts = found.texts
    place = np.full(texts.refused.size, -1, np.int64)
    place[rows] = np.arange(rows.size)
    mismatches = [replace(one, row=int(place[one.row])) for one in texts.mismatches if place[one.row] >= 0]
    refused = decoded.refused | texts.refused[rows]
    return replace(
        decoded,
        refused=refused,
        mismatches=sorted([*decoded.mismatches, *mismatches], key=lambda mismatch: mismatch.row)[: texts.options.limit],
        requested_fields={} if texts.refused[rows].all() else decoded.requested_fields,
        dropped=decoded.dropped | dropped,
    )
