"""Envelopes in JSON opened: the JSON scan finds the images of the row, which are read in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.cdc.envelope import (
    HEARTBEAT,
    IMAGES,
    NO_ENVELOPE,
    ROW,
    SCHEMA_CHANGE,
    TOMBSTONE,
    TRANSACTION,
)
from frazil.cdc.envelope_columns import FLAT, RECORD_SHAPES, operation_of
from frazil.cdc.json.connect_schemas import NAMES, open_with_schemas
from frazil.cdc.json.members import (
    EnvelopeBatch,
    EnvelopeMembers,
    Group,
    either,
    json_options,
    read_code,
    read_facts,
    read_string,
    where,
)
from frazil.cdc.json.row_images import mark_deletes_by_key, marks_of, read_image, watcher
from frazil.decode.columns import Decoded
from frazil.decode.json import scan
from frazil.decode.json.columns import Findings
from frazil.decode.json.grammar import ABSENT, FALSE, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, text_slices, texts_of, unescape_keys, unreadable
from frazil.decode.json.slices import Slices, members_under
from frazil.decode.json_schema.types import refused_changes
from frazil.decode.rescue import join_members, rescued_column
from frazil.decode.settings import Envelope, Reading
from frazil.name_length import drop_long_names
from frazil.schema.arrow import arrow_type, as_written
from frazil.schema.conflicts import without_rejected
from frazil.schema.evolve import find_missing_fields, merge_requested_fields, type_at, widest

_MAXWELL = ("type", "data", "old", "ts", "xid", "database", "table")
_MAXWELL_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_MAXWELL_RECORD_KINDS = {"bootstrap-start": HEARTBEAT, "bootstrap-complete": HEARTBEAT, "heartbeat": HEARTBEAT} | {
    f"{what}-{change}": SCHEMA_CHANGE for what in ("table", "database") for change in ("create", "alter", "drop")
}


def open_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, one envelope per value. Bad records raise nothing."""
    decoded = _open(values, EnvelopeBatch(texts_of(values, json_options(reading, limit)), reading, fields))
    if decoded is None:
        sent, values = values, pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        texts = texts_of(values, json_options(reading, limit), has_canonical_keys=True, sent=sent)
        decoded = _open(values, EnvelopeBatch(texts, reading, fields))
    assert decoded is not None
    return decoded


def _open(values: pa.BinaryArray, batch: EnvelopeBatch) -> Decoded | None:
    """Returns the columns; None where escaped keys must be replaced first."""
    texts = batch.texts
    error, slices = unreadable(values), text_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    is_tombstone = error == scan.TOMBSTONE
    error[is_tombstone] = scan.OK
    if batch.envelope.kind in ("debezium", "none"):
        _open_debezium(batch, slices, error, is_tombstone)
    else:
        _open_others(batch, slices, error, is_tombstone)
    if (texts.has_escaped_keys or (error == scan.ESCAPED_KEY).any()) and not texts.has_canonical_keys:
        return None
    texts.refuse(slices, error, "", FAULTS)
    return merge_groups(batch, len(values), texts.options.limit)


def _open_debezium(
    batch: EnvelopeBatch, objects: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]
) -> None:
    texts = batch.texts
    members = dict(zip(NAMES, members_under(texts, objects, NAMES, error), strict=True))
    payload, schema = members["payload"], members["schema"]
    is_wrapped = (payload.kind != ABSENT) & (members["op"].kind == ABSENT) & ~_is_flat(members)
    is_wrapped &= (schema.kind != ABSENT) | (batch.envelope.kind != "none")
    if is_wrapped.any():
        inside = replace(payload, kind=np.where(is_wrapped, payload.kind, ABSENT).astype(np.uint8))
        is_tombstone = is_tombstone | (inside.kind == NULL)
        faults = np.zeros(len(objects), np.uint8)
        inner = members_under(texts, inside, NAMES, faults)
        refuse_objects(texts, inside, faults, ("payload",))
        members = {name: either(is_wrapped, one, members[name]) for name, one in zip(NAMES, inner, strict=True)}
        objects = either(is_wrapped, inside, objects)
    has_schema = is_wrapped & (schema.kind == OBJECT) & ~is_tombstone & (objects.kind == OBJECT)
    rows = np.arange(len(objects), dtype=np.int32)
    if has_schema.any():
        has_schema[open_with_schemas(batch, objects, schema, rows[has_schema])] = False
        rows, objects, members = _only(~has_schema, rows, objects, members)
        is_tombstone, error = is_tombstone[~has_schema], error[~has_schema]
    good = _faultless(error, batch, rows)
    envelopes = _debezium_members(batch, rows, objects, members, good)
    envelopes.record_kind[is_tombstone] = TOMBSTONE
    _read_changes(batch, envelopes, good)


def _is_flat(members: Mapping[str, Slices]) -> NDArray[np.bool_]:
    """Returns which records are rows that Debezium unwrapped. The fields it added show this, whatever the names of the
    row's own fields.
    """
    return np.asarray((members["__op"].kind > NULL) | (members["__deleted"].kind > NULL))


def _without_row(members: Mapping[str, Slices], is_flat: NDArray[np.bool_]) -> dict[str, Slices]:
    """Returns the members without those of unwrapped rows, whose fields may have the names of an envelope's."""
    return {
        name: one if name in FLAT else replace(one, kind=np.where(is_flat, ABSENT, one.kind).astype(np.uint8))
        for name, one in members.items()
    }


def _only(
    mask: NDArray[np.bool_], rows: NDArray[np.int32], objects: Slices, members: Mapping[str, Slices]
) -> tuple[NDArray[np.int32], Slices, dict[str, Slices]]:
    return rows[mask], where(objects, mask), {name: where(one, mask) for name, one in members.items()}


def _faultless(error: NDArray[np.uint8], batch: EnvelopeBatch, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns which records can be read at least in part; for the others only the fault of their text is reported."""
    return np.asarray((error == scan.OK) & ~batch.texts.refused[rows])


def _debezium_members(
    batch: EnvelopeBatch, rows: NDArray[np.int32], objects: Slices, members: dict[str, Slices], good: NDArray[np.bool_]
) -> EnvelopeMembers:
    """Returns the kind of each record, from its members. good: which records can be read."""
    is_flat = _is_flat(members) if batch.envelope.kind != "none" else objects.kind == OBJECT
    if is_flat.any():
        members = _without_row(members, is_flat)
    op = read_string(batch, members["op"], "op")
    record_kind = np.full(rows.size, NO_ENVELOPE, np.int32)
    named = members["op"].kind != ABSENT
    record_kind[named] = IMAGES
    is_other = ~named & ~is_flat & (objects.kind == OBJECT) & good
    if is_other.any():
        _find_record_kinds(batch, objects, is_other, record_kind)
    if is_flat.any():
        record_kind[is_flat] = ROW
        members["after"] = either(is_flat, objects, members["after"])
        op = pc.if_else(pa.array(is_flat), _flat_operation(batch, members, is_flat), op)
    return EnvelopeMembers(rows, members, record_kind, op)


def _find_record_kinds(
    batch: EnvelopeBatch, objects: Slices, is_other: NDArray[np.bool_], record_kind: NDArray[np.int32]
) -> None:
    """Sets the kind of records that are no changes of rows. They have exactly the members of their kind: a row may have
    some of these names too.
    """
    texts = batch.texts
    around = replace(objects, kind=np.where(is_other, OBJECT, ABSENT).astype(np.uint8))
    counts = np.zeros(len(around), np.int32)
    scan.count_members(texts.base, around.start, around.end, around.kind, OBJECT, counts, texts.stack)
    names = sorted({name for shape in RECORD_SHAPES.values() for name in (*shape.needed, *shape.others)})
    members = dict(zip(names, members_under(texts, around, names, np.zeros(len(around), np.uint8)), strict=True))
    there = {name: one.kind != ABSENT for name, one in members.items()}
    for number, shape in RECORD_SHAPES.items():
        of_kind = np.sum([there[name] for name in (*shape.needed, *shape.others)], axis=0)
        has_needed = np.all([there[name] for name in shape.needed], axis=0) & (members[shape.needed[0]].kind > NULL)
        record_kind[is_other & has_needed & (of_kind == counts)] = number
    status = read_string(batch, members["status"].only(STRING), "status")
    has_text = np.asarray(pc.is_in(status, pa.array(["BEGIN", "END"])))
    record_kind[(record_kind == TRANSACTION) & ~has_text] = NO_ENVELOPE


def _flat_operation(batch: EnvelopeBatch, members: Mapping[str, Slices], is_flat: NDArray[np.bool_]) -> pa.Array:
    """Returns the operation that Debezium's unwrap transform added to the row; `d` and `u` where only deletions are
    marked.
    """
    deleted = members["__deleted"]
    has_text = is_flat & ~np.isin(deleted.kind, (TRUE, FALSE))
    text = read_string(batch, replace(deleted, kind=np.where(has_text, deleted.kind, ABSENT)), "__deleted")
    text = pc.if_else(pa.array((deleted.kind == TRUE) & is_flat), "true", text)
    operation = members["__op"]
    op = read_string(batch, replace(operation, kind=np.where(is_flat, operation.kind, ABSENT)), "__op")
    return operation_of(text, op)


def _open_others(
    batch: EnvelopeBatch, objects: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]
) -> None:
    """Opens Maxwell's envelopes, and rows with a field that names the operation."""
    texts, rows = batch.texts, np.arange(len(objects), dtype=np.int32)
    if batch.envelope.kind == "maxwell":
        members = dict(zip(_MAXWELL, members_under(texts, objects, _MAXWELL, error), strict=True))
        envelopes = _maxwell_members(batch, rows, members)
    else:
        name = batch.envelope.operation
        (operation,) = members_under(texts, objects, [name], error)
        op = read_code(batch, operation, name)
        envelopes = EnvelopeMembers(rows, {"after": objects}, np.full(rows.size, ROW, np.int32), op)
    envelopes.record_kind[is_tombstone] = TOMBSTONE
    _read_changes(batch, envelopes, _faultless(error, batch, rows))


def _maxwell_members(batch: EnvelopeBatch, rows: NDArray[np.int32], members: dict[str, Slices]) -> EnvelopeMembers:
    kind = read_string(batch, members["type"], "type")
    texts = pa.array(_MAXWELL_OPS)
    codes = pc.index_in(kind, texts)
    op = pa.array(list(_MAXWELL_OPS.values())).take(codes)
    record_kind = np.full(rows.size, IMAGES, np.int32)
    record_kind[np.asarray(pc.equal(op, "d").fill_null(False))] = ROW
    for text, number in _MAXWELL_RECORD_KINDS.items():
        record_kind[np.asarray(pc.fill_null(pc.equal(kind, text), False))] = number
    op = pc.coalesce(op, kind)  # An unknown operation keeps its own name.
    record_kind[(members["type"].kind <= NULL) | ((members["data"].kind == ABSENT) & (record_kind <= ROW))] = (
        NO_ENVELOPE
    )
    members |= {"after": members["data"], "before": members["old"]}
    return EnvelopeMembers(rows, members, record_kind, op, is_overlay=True)


def _read_changes(batch: EnvelopeBatch, envelopes: EnvelopeMembers, good: NDArray[np.bool_]) -> None:
    """Reads the images and the other values of records without a schema."""
    findings = Findings(batch.reading.unknown_fields, rejected=batch.reading.rejected_at)
    is_change = (envelopes.record_kind <= ROW) & good
    found: dict[str, pa.Array] = {"record_kind": pa.array(envelopes.record_kind), "op": envelopes.op}
    marks: dict[str, NDArray[np.bool_]] = {}
    seen: dict[str, Slices] = {}
    for name in ("after", "before"):
        kind = batch.type_of(name)
        if isinstance(kind, StructType):
            slices = envelopes.slices(name)
            slices = replace(slices, kind=np.where(is_change, slices.kind, ABSENT).astype(np.uint8))
            batch.texts.watched = {(name,): watcher(batch, envelopes, name, marks, seen)}
            found[name] = read_image(batch, slices, kind, findings, name, envelopes)
            if name == "before" and batch.envelope.kind == "debezium":
                mark_deletes_by_key(batch, envelopes, found[name], is_change)
    batch.texts.watched = {}
    found["unavailable"] = marks_of(batch, marks, envelopes.rows.size)
    found |= read_facts(batch, envelopes, is_change)
    found["record_kind"] = pa.array(envelopes.record_kind)
    columns = [found.get(one.name, None) for one in batch.fields]
    arrays = [
        pa.nulls(envelopes.rows.size, arrow_type(one.field_type)) if array is None else array
        for one, array in zip(batch.fields, columns, strict=True)
    ]
    nothing = np.zeros(envelopes.rows.size, np.bool_)
    batch.groups.append(
        Group(
            envelopes.rows,
            Decoded(arrays, nothing, requested_fields=findings.requested_fields, dropped=findings.dropped),
        )
    )


def merge_groups(batch: EnvelopeBatch, count: int, limit: int) -> Decoded:
    """Returns one array per field, in the order of the records."""
    texts, groups = batch.texts, batch.groups
    rescued = [rescued_column(texts, count)] if texts.rescued or texts.unknown_fields else []
    columns = groups[0].decoded.columns
    if len(groups) > 1 or groups[0].rows.size != count:
        order = np.concatenate([group.rows for group in groups])
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        columns = [
            pa.concat_arrays(
                [as_written(group.decoded.columns[n], arrow_type(one.field_type)) for group in groups]
            ).take(pa.array(place))
            for n, one in enumerate(batch.fields)
        ]
        for group in groups:
            if group.decoded.rescued is not None:
                places = np.full(count, -1, np.int64)
                places[group.rows] = np.arange(group.rows.size)
                rescued.append(group.decoded.rescued.take(pa.array(places, mask=places < 0)))
    elif groups[0].decoded.rescued is not None:
        rescued.append(groups[0].decoded.rescued)
    decoded = [group.decoded for group in groups]
    return Decoded(
        columns=columns,
        refused=texts.refused,
        mismatches=sorted(texts.mismatches, key=lambda mismatch: mismatch.row)[:limit],
        requested_fields=merge_widest([one.requested_fields for one in decoded]),
        made_optional=set().union(*(one.made_optional for one in decoded)),
        dropped=set().union(*(one.dropped for one in decoded)),
        rescued=join_objects(rescued, count),
        refusals=set().union(*(one.refusals for one in decoded)),
    )


def merge_widest(
    many: Sequence[Mapping[tuple[str, ...], Mapping[str, IcebergType]]],
) -> dict[tuple[str, ...], dict[str, IcebergType]]:
    """Returns the requested fields of all, in the widest type; of two types that no type holds, the first."""
    found: dict[tuple[str, ...], dict[str, IcebergType]] = {}
    for requested_fields in many:
        for path, members in requested_fields.items():
            mine = found.setdefault(path, {})
            for name, kind in members.items():
                mine[name] = widest(mine[name], kind) if name in mine else kind
    return found


def join_objects(objects: list[pa.Array], count: int) -> pa.Array | None:
    """Returns one JSON object per record with the members of all; None where there are none."""
    if len(objects) < 2:
        return objects[0] if objects else None
    return join_members([pc.utf8_slice_codeunits(one, 1, -1) for one in objects], count)


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
