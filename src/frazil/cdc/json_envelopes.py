"""Envelopes in JSON opened: the JSON scan finds the images of the row, which are read in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import NestedField, StructType

from frazil.cdc.envelope import (
    IGNORED,
    IMAGES,
    NO_ENVELOPE,
    NO_MEMBER,
    OPERATIONS,
    ROW,
    TOMBSTONE,
    TRANSACTION,
    UNKNOWN_OPERATION,
)
from frazil.cdc.envelope_columns import FLAT, IMAGES_OF, NAMES, RECORD_SHAPES, operation_of
from frazil.cdc.json_members import (
    EnvelopeBatch,
    EnvelopeMembers,
    kept,
    mark_changes_without_image,
    marks_of,
    read_code,
    read_facts,
    read_image,
    read_string,
    watcher,
)
from frazil.decode.columns import Decoded
from frazil.decode.conversion import Conversion
from frazil.decode.json import scan
from frazil.decode.json.grammar import ABSENT, FALSE, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, read_objects
from frazil.decode.json.slices import Slices, Texts, members_under
from frazil.decode.settings import Reading
from frazil.plugins.formats import ENVELOPES, Members
from frazil.rows.connect_messages import decode_records
from frazil.schema.arrow import Bools, arrow_type

_IGNORED_KINDS = {name: number for number, name in IGNORED.items()}


def open_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, one envelope per value. Bad records raise nothing."""
    assert reading.envelope is not None
    if reading.envelope.kind in ("debezium", "none"):
        return decode_records(values, fields, reading, limit, lambda rest: _open(rest, fields, reading, limit))
    return _open(values, fields, reading, limit)


def _open(values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns of envelopes without a schema."""
    conversion = Conversion(reading, "", len(values), limit)
    columns, texts, _, error = read_objects(values, conversion, partial(_open_objects, reading, fields))
    texts.conversion.refuse_records(error, FAULTS)
    return replace(texts.conversion.decoded(columns), refusals=set(), untyped=texts.untyped)


def _open_objects(
    reading: Reading, fields: tuple[NestedField, ...], texts: Texts, slices: Slices, error: NDArray[np.uint8]
) -> list[pa.Array]:
    batch, is_tombstone = EnvelopeBatch(texts, reading, fields), error == scan.TOMBSTONE
    error[is_tombstone] = scan.OK
    is_debezium = batch.envelope.kind in ("debezium", "none")
    return (_open_debezium if is_debezium else _open_others)(batch, slices, error, is_tombstone)


def _open_debezium(
    batch: EnvelopeBatch, objects: Slices, error: NDArray[np.uint8], is_tombstone: Bools
) -> list[pa.Array]:
    texts = batch.texts
    members = dict(zip(NAMES, members_under(texts, objects, NAMES, error), strict=True))
    payload, schema = members["payload"], members["schema"]
    is_wrapped = (payload.kind != ABSENT) & (members["op"].kind == ABSENT) & ~_is_flat(members)
    is_wrapped &= (schema.kind != ABSENT) | (batch.envelope.kind != "none")
    if is_wrapped.any():
        inside = payload.masked(is_wrapped)
        is_tombstone = is_tombstone | (inside.kind == NULL)
        faults = np.zeros(len(objects), np.uint8)
        inner = members_under(texts, inside, NAMES, faults)
        refuse_objects(texts, inside, faults, ("payload",))
        members = {name: members[name].replaced(is_wrapped, slices) for name, slices in zip(NAMES, inner, strict=True)}
        objects = objects.replaced(is_wrapped, inside)
    good = _faultless(error, batch)
    envelopes = _debezium_members(batch, objects, members, good)
    envelopes.record_kind[is_tombstone] = TOMBSTONE
    return _read_changes(batch, envelopes, good)


def _is_flat(members: Mapping[str, Slices]) -> Bools:
    """Returns which records are rows that Debezium unwrapped. The fields it added show this, whatever the names of the
    row's own fields.
    """
    return np.asarray((members["__op"].kind > NULL) | (members["__deleted"].kind > NULL))


def _faultless(error: NDArray[np.uint8], batch: EnvelopeBatch) -> Bools:
    """Returns which records can be read at least in part; for the others only the fault of their text is reported."""
    return np.asarray((error == scan.OK) & ~batch.texts.conversion.refused)


def _debezium_members(
    batch: EnvelopeBatch, objects: Slices, members: dict[str, Slices], good: Bools
) -> EnvelopeMembers:
    """Returns the kind of each record, from its members. good: which records can be read."""
    is_flat = _is_flat(members) if batch.envelope.kind != "none" else objects.kind == OBJECT
    if is_flat.any():
        # Fields of unwrapped rows may have the names of an envelope's members.
        members = {name: column if name in FLAT else column.masked(~is_flat) for name, column in members.items()}
    op = read_string(batch, members["op"], "op")
    record_kind = np.full(len(objects), NO_ENVELOPE, np.int32)
    named = members["op"].kind != ABSENT
    record_kind[named] = IMAGES
    is_other = ~named & ~is_flat & (objects.kind == OBJECT) & good
    if is_other.any():
        _find_record_kinds(batch, objects, is_other, record_kind)
    if is_flat.any():
        record_kind[is_flat] = ROW
        members["after"] = members["after"].replaced(is_flat, objects)
        op = pc.if_else(pa.array(is_flat), _flat_operation(batch, members, is_flat), op)
    return EnvelopeMembers(members, record_kind, op)


def _find_record_kinds(batch: EnvelopeBatch, objects: Slices, is_other: Bools, record_kind: NDArray[np.int32]) -> None:
    """Sets the kind of records that are no changes of rows. They have exactly the members of their kind: a row may have
    some of these names too.
    """
    texts = batch.texts
    around = objects.masked(is_other)
    counts = np.zeros(len(around), np.int32)
    scan.count_members(texts.base, around.start, around.end, around.kind, OBJECT, counts, texts.stack)
    names = sorted({name for shape in RECORD_SHAPES.values() for name in (*shape.needed, *shape.others)})
    members = dict(zip(names, members_under(texts, around, names, np.zeros(len(around), np.uint8)), strict=True))
    are_present = {name: slices.kind != ABSENT for name, slices in members.items()}
    for number, shape in RECORD_SHAPES.items():
        of_kind = np.sum([are_present[name] for name in (*shape.needed, *shape.others)], axis=0)
        has_needed = np.all([are_present[name] for name in shape.needed], axis=0) & (
            members[shape.needed[0]].kind > NULL
        )
        record_kind[is_other & has_needed & (of_kind == counts)] = number
    status = read_string(batch, members["status"].only(STRING), "status")
    has_text = np.asarray(pc.is_in(status, pa.array(["BEGIN", "END"])))
    record_kind[(record_kind == TRANSACTION) & ~has_text] = NO_ENVELOPE


def _flat_operation(batch: EnvelopeBatch, members: Mapping[str, Slices], is_flat: Bools) -> pa.Array:
    """Returns the operation that Debezium's unwrap transform added to the row; `d` and `u` where only deletions are
    marked.
    """
    deleted = members["__deleted"]
    has_text = is_flat & ~np.isin(deleted.kind, (TRUE, FALSE))
    text = read_string(batch, deleted.masked(has_text), "__deleted")
    text = pc.if_else(pa.array((deleted.kind == TRUE) & is_flat), "true", text)
    return operation_of(text, read_string(batch, members["__op"].masked(is_flat), "__op"))


def _open_others(
    batch: EnvelopeBatch, objects: Slices, error: NDArray[np.uint8], is_tombstone: Bools
) -> list[pa.Array]:
    """Opens envelopes by their declared members, and rows with a field that names the operation."""
    declared = ENVELOPES.get(batch.envelope.kind).members
    if declared is not None:
        members = _members_at(batch, objects, declared.names, error)
        envelopes = _declared_members(batch, declared, members)
    else:
        name = batch.envelope.operation
        (operation,) = members_under(batch.texts, objects, [name], error)
        op = read_code(batch, operation, name)
        envelopes = EnvelopeMembers({"after": objects}, np.full(len(objects), ROW, np.int32), op)
    envelopes.record_kind[is_tombstone] = TOMBSTONE
    return _read_changes(batch, envelopes, _faultless(error, batch))


def _members_at(
    batch: EnvelopeBatch, objects: Slices, names: tuple[str, ...], error: NDArray[np.uint8]
) -> dict[str, Slices]:
    """Returns the members of these names, of which a dot leads into a member."""
    inside: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        top, _, inner = name.partition(".")
        inside.setdefault(top, []).extend([inner] if inner else [])
    members = dict(zip(inside, members_under(batch.texts, objects, tuple(inside), error), strict=True))
    for top, inner_names in inside.items():
        if inner_names:
            fault = np.zeros(len(objects), np.uint8)
            inner_slices = members_under(batch.texts, members[top].only(OBJECT), inner_names, fault)
            refuse_objects(batch.texts, members[top], fault, (top,))
            members |= {f"{top}.{name}": slices for name, slices in zip(inner_names, inner_slices, strict=True)}
    return members


def _declared_members(batch: EnvelopeBatch, declared: Members, members: dict[str, Slices]) -> EnvelopeMembers:
    operation, after = members[declared.operation], members[declared.after]
    before = members[declared.before] if declared.before else after.only()
    kind = read_string(batch, operation, declared.operation)
    codes = pc.index_in(kind, pa.array(list(declared.operations), pa.string()))
    op = pa.array(list(declared.operations.values()), pa.string()).take(codes)
    record_kind, is_whole = np.full(len(kind), IMAGES, np.int32), declared.before_has == "all"
    if not is_whole:
        record_kind[np.asarray(pc.equal(op, "d").fill_null(False))] = ROW
    if declared.before_has == "some":
        record_kind[before.kind <= NULL] = ROW
    for text, name in declared.ignored.items():
        record_kind[np.asarray(pc.fill_null(pc.equal(kind, text), False))] = _IGNORED_KINDS[name]
    is_other = np.asarray(codes.is_null()) & (record_kind <= ROW)
    record_kind[is_other & np.asarray(pc.is_in(kind, pa.array(OPERATIONS)))] = UNKNOWN_OPERATION
    op = pc.coalesce(op, kind)  # An unknown operation keeps its own name.
    lacks = (after.kind == ABSENT) & ((before.kind == ABSENT) | (not is_whole)) & ~is_other
    record_kind[(operation.kind <= NULL) | (lacks & (record_kind <= ROW))] = NO_ENVELOPE
    for name in declared.required:
        record_kind[(members[name].kind <= NULL) & (record_kind <= ROW) & ~is_other] = NO_MEMBER
    members |= {"after": after, "before": before}
    is_overlay = declared.before_has == "changed" or (declared.before_has == "some" and not batch.envelope.is_log)
    return EnvelopeMembers(members, record_kind, op, is_overlay=is_overlay, declared=declared)


def _read_changes(batch: EnvelopeBatch, envelopes: EnvelopeMembers, good: Bools) -> list[pa.Array]:
    """Returns the columns of the images and of the other values."""
    is_change, count = (envelopes.record_kind <= ROW) & good, len(good)
    columns: dict[str, pa.Array] = {"op": envelopes.op}
    marks: dict[str, Bools] = {}
    seen: dict[str, Slices] = {}
    for name in IMAGES_OF:
        kind = batch.type_of(name)
        if isinstance(kind, StructType):
            slices = kept(envelopes, (name,), is_change)[name]
            batch.texts.watched = {(name,): watcher(batch, envelopes, name, marks, seen)}
            columns[name] = read_image(batch, slices, kind, name, envelopes)
            if batch.envelope.kind == "debezium":
                mark_changes_without_image(batch, envelopes, name, is_change)
    batch.texts.watched = {}
    columns["unavailable"] = marks_of(batch, marks, count)
    columns |= read_facts(batch, envelopes, is_change)
    columns["record_kind"] = pa.array(envelopes.record_kind)
    return [
        columns[field.name] if field.name in columns else pa.nulls(count, arrow_type(field.field_type))
        for field in batch.fields
    ]
