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
    BARE,
    HEARTBEAT,
    IMAGES,
    NO_ENVELOPE,
    SCHEMA_CHANGE,
    TOMBSTONE,
    TRANSACTION,
)
from frazil.cdc.envelope_columns import FLAT, SIGNS, operation_of
from frazil.cdc.json.attributes import read_facts
from frazil.cdc.json.connect_schemas import NAMES, open_with_schemas
from frazil.cdc.json.members import (
    Group,
    Parts,
    Stretch,
    either,
    json_options,
    read_code,
    read_word,
    where,
)
from frazil.cdc.json.row_images import marks_of, note_told_by_keys, read_image, watcher
from frazil.decode.columns import Decoded
from frazil.decode.json import scan
from frazil.decode.json.columns import Findings
from frazil.decode.json.grammar import ABSENT, FALSE, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, texts_of, unescape_keys, unreadable, whole_slices
from frazil.decode.json.slices import Slices, take_keys
from frazil.decode.rescue import join_members, rescued_column
from frazil.decode.settings import Reading
from frazil.schema.arrow import arrow_type, as_written
from frazil.schema.evolve import widest

_MAXWELL = ("type", "data", "old", "ts", "xid", "database", "table")
_MAXWELL_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_MAXWELL_NOTES = {"bootstrap-start": HEARTBEAT, "bootstrap-complete": HEARTBEAT, "heartbeat": HEARTBEAT} | {
    f"{what}-{change}": SCHEMA_CHANGE for what in ("table", "database") for change in ("create", "alter", "drop")
}


def open_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, one envelope per value. Bad records raise nothing."""
    decoded = _open(values, Stretch(texts_of(values, json_options(reading, limit)), reading, fields))
    if decoded is None:
        sent, values = values, pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        texts = texts_of(values, json_options(reading, limit), spelt_out=True, sent=sent)
        decoded = _open(values, Stretch(texts, reading, fields))
    assert decoded is not None
    return decoded


def _open(values: pa.BinaryArray, stretch: Stretch) -> Decoded | None:
    """Returns the columns; None where escaped keys must be replaced first."""
    texts = stretch.texts
    error, slices = unreadable(values), whole_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    is_tombstone = error == scan.TOMBSTONE
    error[is_tombstone] = scan.OK
    if stretch.envelope.kind in ("debezium", "none"):
        _open_debezium(stretch, slices, error, is_tombstone)
    else:
        _open_others(stretch, slices, error, is_tombstone)
    if (texts.has_slow_keys or (error == scan.SLOW_KEY).any()) and not texts.spelt_out:
        return None
    texts.refuse(slices, error, "", FAULTS)
    return put_together(stretch, len(values), texts.limit)


def _open_debezium(stretch: Stretch, whole: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]) -> None:
    texts = stretch.texts
    members = dict(zip(NAMES, take_keys(texts, whole, NAMES, error), strict=True))
    payload, schema = members["payload"], members["schema"]
    is_wrapped = (payload.kind != ABSENT) & (members["op"].kind == ABSENT) & ~_is_flat(members)
    is_wrapped &= (schema.kind != ABSENT) | (stretch.envelope.kind != "none")
    if is_wrapped.any():
        inside = replace(payload, kind=np.where(is_wrapped, payload.kind, ABSENT).astype(np.uint8))
        is_tombstone = is_tombstone | (inside.kind == NULL)
        faults = np.zeros(len(whole), np.uint8)
        inner = take_keys(texts, inside, NAMES, faults)
        refuse_objects(texts, inside, faults, ("payload",))
        members = {name: either(is_wrapped, one, members[name]) for name, one in zip(NAMES, inner, strict=True)}
        whole = either(is_wrapped, inside, whole)
    has_schema = is_wrapped & (schema.kind == OBJECT) & ~is_tombstone & (whole.kind == OBJECT)
    rows = np.arange(len(whole), dtype=np.int32)
    if has_schema.any():
        has_schema[open_with_schemas(stretch, whole, schema, rows[has_schema])] = False
        rows, whole, members = _only(~has_schema, rows, whole, members)
        is_tombstone, error = is_tombstone[~has_schema], error[~has_schema]
    good = _faultless(error, stretch, rows)
    parts = _debezium_parts(stretch, rows, whole, members, good)
    parts.note[is_tombstone] = TOMBSTONE
    _read_parts(stretch, parts, good)


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
    mask: NDArray[np.bool_], rows: NDArray[np.int32], whole: Slices, members: Mapping[str, Slices]
) -> tuple[NDArray[np.int32], Slices, dict[str, Slices]]:
    return rows[mask], where(whole, mask), {name: where(one, mask) for name, one in members.items()}


def _faultless(error: NDArray[np.uint8], stretch: Stretch, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns which records can be read at least in part; for the others only the fault of their text is reported."""
    return np.asarray((error == scan.OK) & ~stretch.texts.refused[rows])


def _debezium_parts(
    stretch: Stretch, rows: NDArray[np.int32], whole: Slices, members: dict[str, Slices], good: NDArray[np.bool_]
) -> Parts:
    """Returns the kind of each record, from its members. good: which records can be read."""
    is_flat = _is_flat(members) if stretch.envelope.kind != "none" else whole.kind == OBJECT
    if is_flat.any():
        members = _without_row(members, is_flat)
    op = read_word(stretch, members["op"], "op")
    note = np.full(rows.size, NO_ENVELOPE, np.int32)
    named = members["op"].kind != ABSENT
    note[named] = IMAGES
    is_other = ~named & ~is_flat & (whole.kind == OBJECT) & good
    if is_other.any():
        _note_others(stretch, whole, is_other, note)
    if is_flat.any():
        note[is_flat] = BARE
        members["after"] = either(is_flat, whole, members["after"])
        op = pc.if_else(pa.array(is_flat), _flat_operation(stretch, members, is_flat), op)
    return Parts(rows, members, note, op)


def _note_others(stretch: Stretch, whole: Slices, is_other: NDArray[np.bool_], note: NDArray[np.int32]) -> None:
    """Sets the note of records that are no changes of rows. They have exactly the members of their kind: a row may have
    some of these names too.
    """
    texts = stretch.texts
    around = replace(whole, kind=np.where(is_other, OBJECT, ABSENT).astype(np.uint8))
    counts = np.zeros(len(around), np.int32)
    scan.count_members(texts.base, around.start, around.end, around.kind, OBJECT, counts, texts.stack)
    names = sorted({name for sign in SIGNS.values() for name in (*sign.needed, *sign.others)})
    members = dict(zip(names, take_keys(texts, around, names, np.zeros(len(around), np.uint8)), strict=True))
    there = {name: one.kind != ABSENT for name, one in members.items()}
    for number, sign in SIGNS.items():
        of_kind = np.sum([there[name] for name in (*sign.needed, *sign.others)], axis=0)
        is_whole = np.all([there[name] for name in sign.needed], axis=0) & (members[sign.needed[0]].kind > NULL)
        note[is_other & is_whole & (of_kind == counts)] = number
    status = read_word(stretch, members["status"].only(STRING), "status")
    is_told = np.asarray(pc.is_in(status, pa.array(["BEGIN", "END"])))
    note[(note == TRANSACTION) & ~is_told] = NO_ENVELOPE


def _flat_operation(stretch: Stretch, members: Mapping[str, Slices], is_flat: NDArray[np.bool_]) -> pa.Array:
    """Returns the operation that Debezium's unwrap transform added to the row; `d` and `u` where only deletions are
    marked.
    """
    deleted = members["__deleted"]
    is_told = is_flat & ~np.isin(deleted.kind, (TRUE, FALSE))
    word = read_word(stretch, replace(deleted, kind=np.where(is_told, deleted.kind, ABSENT)), "__deleted")
    word = pc.if_else(pa.array((deleted.kind == TRUE) & is_flat), "true", word)
    told = members["__op"]
    op = read_word(stretch, replace(told, kind=np.where(is_flat, told.kind, ABSENT)), "__op")
    return operation_of(word, op)


def _open_others(stretch: Stretch, whole: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]) -> None:
    """Opens Maxwell's envelopes, and rows with a field that names the operation."""
    texts, rows = stretch.texts, np.arange(len(whole), dtype=np.int32)
    if stretch.envelope.kind == "maxwell":
        members = dict(zip(_MAXWELL, take_keys(texts, whole, _MAXWELL, error), strict=True))
        parts = _maxwell_parts(stretch, rows, members)
    else:
        name = stretch.envelope.operation
        (told,) = take_keys(texts, whole, [name], error)
        op = read_code(stretch, told, name)
        parts = Parts(rows, {"after": whole}, np.full(rows.size, BARE, np.int32), op)
    parts.note[is_tombstone] = TOMBSTONE
    _read_parts(stretch, parts, _faultless(error, stretch, rows))


def _maxwell_parts(stretch: Stretch, rows: NDArray[np.int32], members: dict[str, Slices]) -> Parts:
    kind = read_word(stretch, members["type"], "type")
    words = pa.array(_MAXWELL_OPS)
    codes = pc.index_in(kind, words)
    op = pa.array(list(_MAXWELL_OPS.values())).take(codes)
    note = np.full(rows.size, IMAGES, np.int32)
    note[np.asarray(pc.equal(op, "d").fill_null(False))] = BARE
    for word, number in _MAXWELL_NOTES.items():
        note[np.asarray(pc.fill_null(pc.equal(kind, word), False))] = number
    op = pc.coalesce(op, kind)  # An unknown operation keeps its own name.
    note[(members["type"].kind <= NULL) | ((members["data"].kind == ABSENT) & (note <= BARE))] = NO_ENVELOPE
    members |= {"after": members["data"], "before": members["old"]}
    return Parts(rows, members, note, op, is_overlay=True)


def _read_parts(stretch: Stretch, parts: Parts, good: NDArray[np.bool_]) -> None:
    """Reads the images and the other values of records without a schema."""
    findings = Findings(stretch.reading.unknown_fields, rejected=stretch.reading.rejected_at)
    is_change = (parts.note <= BARE) & good
    found: dict[str, pa.Array] = {"note": pa.array(parts.note), "op": parts.op}
    marks: dict[str, NDArray[np.bool_]] = {}
    seen: dict[str, Slices] = {}
    for name in ("after", "before"):
        kind = stretch.asks(name)
        if isinstance(kind, StructType):
            slices = parts.slices(name)
            slices = replace(slices, kind=np.where(is_change, slices.kind, ABSENT).astype(np.uint8))
            stretch.texts.watched = {(name,): watcher(stretch, parts, name, marks, seen)}
            found[name] = read_image(stretch, slices, kind, findings, name, parts)
            if name == "before" and stretch.envelope.kind == "debezium":
                note_told_by_keys(stretch, parts, found[name], is_change)
    stretch.texts.watched = {}
    found["unavailable"] = marks_of(stretch, marks, parts.rows.size)
    found |= read_facts(stretch, parts, is_change)
    found["note"] = pa.array(parts.note)
    columns = [found.get(one.name, None) for one in stretch.fields]
    arrays = [
        pa.nulls(parts.rows.size, arrow_type(one.field_type)) if array is None else array
        for one, array in zip(stretch.fields, columns, strict=True)
    ]
    nothing = np.zeros(parts.rows.size, np.bool_)
    stretch.groups.append(
        Group(
            parts.rows, Decoded(arrays, nothing, requested_fields=findings.requested_fields, dropped=findings.dropped)
        )
    )


def put_together(stretch: Stretch, count: int, limit: int) -> Decoded:
    """Returns one array per field, in the order of the records."""
    texts, groups = stretch.texts, stretch.groups
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
            for n, one in enumerate(stretch.fields)
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
        requested_fields=united([one.requested_fields for one in decoded]),
        made_optional=set().union(*(one.made_optional for one in decoded)),
        dropped=set().union(*(one.dropped for one in decoded)),
        rescued=join_objects(rescued, count),
        refusals=set().union(*(one.refusals for one in decoded)),
    )


def united(
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
