"""Envelopes in JSON opened: the scan that reads any JSON finds the images of the row, and they are read where they lie.

Messages with the schema of Kafka Connect's converter in them are read with its types; images that are texts of JSON
themselves, as MongoDB's are, are read as texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from frazil.ingest.decode import json_scan as scan
from frazil.ingest.decode.columns import Columns, Decoded, Fault
from frazil.ingest.decode.connect_schema import parse_connect
from frazil.ingest.decode.envelope_columns import FACT_TYPES, POSITION_FIELDS, open_columns, spell_position
from frazil.ingest.decode.fit import Fitting, fit_columns
from frazil.ingest.decode.json import FAULTS, JsonOptions, spell_out, texts_of, unreadable, whole_slices
from frazil.ingest.decode.json_columns import Findings, read_members, read_value
from frazil.ingest.decode.json_grammar import ABSENT, ESCAPED, NULL, OBJECT, STRING, TRUE
from frazil.ingest.decode.json_infer import refuse_objects
from frazil.ingest.decode.opened import (
    BARE,
    HEARTBEAT,
    IMAGES,
    NO_ENVELOPE,
    NO_OBJECT,
    SCHEMA_CHANGE,
    TOMBSTONE,
    TRANSACTION,
)
from frazil.ingest.decode.placeholders import json_forms, take_unsent
from frazil.ingest.decode.regroup import select_columns
from frazil.ingest.decode.rescue import join_members, rescued_column
from frazil.ingest.decode.same_texts import group_same
from frazil.ingest.decode.slices import Slices, Texts, presence, take_apart
from frazil.ingest.envelope import Envelope
from frazil.ingest.evolve import widest
from frazil.ingest.shape import as_written
from frazil.ingest.target import Reading, arrow_type
from frazil.registry.port import UnusableSchema

_DEBEZIUM = (
    "op", "before", "after", "source", "ts_ms", "ts_us", "transaction", "message", "schema", "payload",
    "__op", "__deleted", "status", "event_count", "databaseName", "ddl", "tableChanges",
)  # fmt: skip
_MAXWELL = ("type", "data", "old", "ts", "xid", "database", "table")
_MAXWELL_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_MAXWELL_NOTES = {"bootstrap-start": HEARTBEAT, "bootstrap-complete": HEARTBEAT, "heartbeat": HEARTBEAT} | {
    f"{what}-{change}": SCHEMA_CHANGE for what in ("table", "database") for change in ("create", "alter", "drop")
}
_SCHEMA = "schema"
_OF_SOURCE = ("ts_ms", "ts_us", "connector", *POSITION_FIELDS)


@dataclass
class _Parts:
    """The members of envelopes, one slice per record and name; `note` as in `opened`."""

    rows: NDArray[np.int32]
    members: dict[str, Slices]
    note: NDArray[np.int32]
    op: pa.Array
    is_overlay: bool = False

    def slices(self, name: str) -> Slices:
        """Of a member that not every kind of envelope has."""
        found = self.members.get(name)
        if found is not None:
            return found
        nothing = np.zeros(self.rows.size, np.int32)
        return Slices(nothing, nothing, np.zeros(self.rows.size, np.uint8), self.rows)


@dataclass
class _Group:
    """Records that were opened together: their columns, and what else there is to say of them."""

    rows: NDArray[np.int32]
    decoded: Decoded


@dataclass
class _Stretch:
    """All records while they are opened."""

    texts: Texts
    reading: Reading
    fields: tuple[NestedField, ...]
    groups: list[_Group] = field(default_factory=list)

    @property
    def envelope(self) -> Envelope:
        assert self.reading.envelope is not None
        return self.reading.envelope

    def asks(self, name: str) -> IcebergType | None:
        return next((one.field_type for one in self.fields if one.name == name), None)


def open_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int) -> Decoded:
    """The columns `fields`, which are those of `opened`, of one envelope per value. Raises nothing for bad records."""
    return _open(values, fields, reading, limit, is_spelt=False)


def _open(
    values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int, is_spelt: bool
) -> Decoded:
    texts = texts_of(values, _options(reading, limit), is_spelt)
    stretch = _Stretch(texts, reading, fields)
    error, slices = unreadable(values), whole_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    is_tombstone = error == scan.TOMBSTONE
    error[is_tombstone] = scan.OK
    if reading.envelope is not None and reading.envelope.kind == "debezium":
        _open_debezium(stretch, slices, error, is_tombstone)
    else:
        _open_others(stretch, slices, error, is_tombstone)
    if (texts.has_slow_keys or (error == scan.SLOW_KEY).any()) and not is_spelt:
        spelt = pa.array([spell_out(value) for value in values.to_pylist()], pa.binary())
        return _open(spelt, fields, reading, limit, is_spelt=True)
    texts.refuse(slices, error, "", FAULTS)
    return _put_together(stretch, len(values), limit)


def _options(reading: Reading, limit: int) -> JsonOptions:
    return JsonOptions(reading.undeclared, reading.is_rescuing, limit, reading.selection, reading.units)


def _open_debezium(stretch: _Stretch, whole: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]) -> None:
    texts = stretch.texts
    members = dict(zip(_DEBEZIUM, take_apart(texts, whole, list(_DEBEZIUM), error).columns, strict=True))
    payload, schema = members["payload"], members["schema"]
    is_wrapped = (payload.kind != ABSENT) & (members["op"].kind == ABSENT)
    if is_wrapped.any():
        inside = replace(payload, kind=np.where(is_wrapped, payload.kind, ABSENT).astype(np.uint8))
        is_tombstone = is_tombstone | (inside.kind == NULL)
        faults = np.zeros(len(whole), np.uint8)
        inner = take_apart(texts, inside, list(_DEBEZIUM), faults).columns
        refuse_objects(texts, inside, faults, ("payload",))
        members = {name: _either(is_wrapped, one, members[name]) for name, one in zip(_DEBEZIUM, inner, strict=True)}
        whole = _either(is_wrapped, inside, whole)
    has_schema = is_wrapped & (schema.kind == OBJECT) & ~is_tombstone & (whole.kind == OBJECT)
    rows = np.arange(len(whole), dtype=np.int32)
    if has_schema.any():
        _open_with_schemas(stretch, whole, schema, rows[has_schema])
        rows, whole, members = _only(~has_schema, rows, whole, members)
        is_tombstone, error = is_tombstone[~has_schema], error[~has_schema]
    parts = _debezium_parts(stretch, rows, whole, members)
    parts.note[is_tombstone] = TOMBSTONE
    _read_parts(stretch, parts, _faultless(error, stretch, rows))


def _either(choice: NDArray[np.bool_], one: Slices, other: Slices) -> Slices:
    """Slices of the one where `choice` says so, else of the other."""
    return Slices(
        np.where(choice, one.start, other.start),
        np.where(choice, one.end, other.end),
        np.where(choice, one.kind, other.kind),
        other.owner,
    )


def _only(
    mask: NDArray[np.bool_], rows: NDArray[np.int32], whole: Slices, members: Mapping[str, Slices]
) -> tuple[NDArray[np.int32], Slices, dict[str, Slices]]:
    return rows[mask], _where(whole, mask), {name: _where(one, mask) for name, one in members.items()}


def _where(slices: Slices, mask: NDArray[np.bool_]) -> Slices:
    return Slices(slices.start[mask], slices.end[mask], slices.kind[mask], slices.owner[mask])


def _faultless(error: NDArray[np.uint8], stretch: _Stretch, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Records of which something can be read at all; of others more is not said than what is wrong with their text."""
    return np.asarray((error == scan.OK) & ~stretch.texts.refused[rows])


def _debezium_parts(stretch: _Stretch, rows: NDArray[np.int32], whole: Slices, members: dict[str, Slices]) -> _Parts:
    """What each record is, by the members that it has."""
    there = {name: one.kind > NULL for name, one in members.items()}
    op = _text(stretch, members["op"], "op")
    note = np.full(rows.size, NO_ENVELOPE, np.int32)
    named = members["op"].kind != ABSENT
    is_flat = ~named & (there["__op"] | there["__deleted"])
    note[~named & there["ts_ms"] & ~there["source"]] = HEARTBEAT
    note[~named & there["status"] & (members["event_count"].kind != ABSENT)] = TRANSACTION
    note[~named & (there["ddl"] | there["tableChanges"]) & (members["databaseName"].kind != ABSENT)] = SCHEMA_CHANGE
    note[named] = IMAGES
    if is_flat.any():
        note[is_flat] = BARE
        members["after"] = _either(is_flat, whole, members["after"])
        op = pc.if_else(pa.array(is_flat), _flat_operation(stretch, members, is_flat), op)
    return _Parts(rows, members, note, op)


def _flat_operation(stretch: _Stretch, members: Mapping[str, Slices], is_flat: NDArray[np.bool_]) -> pa.Array:
    """The operation that Debezium's unwrap transform left beside the row; of a deletion alone `d` and `u`."""
    deleted = members["__deleted"]
    is_word = np.isin(deleted.kind, (STRING, ESCAPED)) & is_flat
    word = _text(stretch, replace(deleted, kind=np.where(is_word, deleted.kind, ABSENT)), "__deleted")
    is_deleted = pc.or_(pc.fill_null(pc.equal(word, "true"), False), pa.array((deleted.kind == TRUE) & is_flat))
    told = members["__op"]
    op = _text(stretch, replace(told, kind=np.where(is_flat, told.kind, ABSENT)), "__op")
    return pc.if_else(is_deleted, "d", pc.fill_null(op, "u"))


def _text(stretch: _Stretch, slices: Slices, name: str) -> pa.Array:
    return read_value(stretch.texts, slices, StringType(), Findings(), (name,)).cast(pa.string())


def _open_others(stretch: _Stretch, whole: Slices, error: NDArray[np.uint8], is_tombstone: NDArray[np.bool_]) -> None:
    """Maxwell's envelope, and rows with a field that names the operation."""
    texts, rows = stretch.texts, np.arange(len(whole), dtype=np.int32)
    if stretch.envelope.kind == "maxwell":
        members = dict(zip(_MAXWELL, take_apart(texts, whole, list(_MAXWELL), error).columns, strict=True))
        parts = _maxwell_parts(stretch, rows, members)
    else:
        name = stretch.envelope.operation
        (told,) = take_apart(texts, whole, [name], error).columns
        op = _text(stretch, told, name)
        parts = _Parts(rows, {"after": whole}, np.full(rows.size, BARE, np.int32), op)
    parts.note[is_tombstone] = TOMBSTONE
    _read_parts(stretch, parts, _faultless(error, stretch, rows))


def _maxwell_parts(stretch: _Stretch, rows: NDArray[np.int32], members: dict[str, Slices]) -> _Parts:
    kind = _text(stretch, members["type"], "type")
    words = pa.array(_MAXWELL_OPS)
    codes = pc.index_in(kind, words)
    op = pa.array(list(_MAXWELL_OPS.values())).take(codes)
    note = np.full(rows.size, IMAGES, np.int32)
    note[np.asarray(pc.equal(op, "d").fill_null(False))] = BARE
    for word, number in _MAXWELL_NOTES.items():
        note[np.asarray(pc.fill_null(pc.equal(kind, word), False))] = number
    op = pc.coalesce(op, kind)  # What is none of them is an unknown operation, by its own name.
    note[(members["type"].kind <= NULL) | ((members["data"].kind == ABSENT) & (note <= BARE))] = NO_ENVELOPE
    members |= {"after": members["data"], "before": members["old"]}
    return _Parts(rows, members, note, op, is_overlay=True)


def _read_parts(stretch: _Stretch, parts: _Parts, good: NDArray[np.bool_]) -> None:
    """Reads the images and the facts of records without a schema."""
    findings = Findings(stretch.reading.undeclared)
    is_change = (parts.note <= BARE) & good
    found: dict[str, pa.Array] = {"note": pa.array(parts.note), "op": parts.op}
    marks: dict[str, NDArray[np.bool_]] = {}
    seen: dict[str, Slices] = {}
    for name in ("after", "before"):
        kind = stretch.asks(name)
        if isinstance(kind, StructType):
            slices = parts.slices(name)
            slices = replace(slices, kind=np.where(is_change, slices.kind, ABSENT).astype(np.uint8))
            stretch.texts.watched = {(name,): _watcher(stretch, parts, name, marks, seen)}
            found[name] = _read_image(stretch, slices, kind, findings, name, parts)
    stretch.texts.watched = {}
    found["unavailable"] = _marks(stretch, marks, parts.rows.size)
    found |= _facts(stretch, parts, is_change)
    found["note"] = pa.array(parts.note)
    columns = [found.get(one.name, None) for one in stretch.fields]
    arrays = [
        pa.nulls(parts.rows.size, arrow_type(one.field_type)) if array is None else array
        for one, array in zip(stretch.fields, columns, strict=True)
    ]
    nothing = np.zeros(parts.rows.size, np.bool_)
    stretch.groups.append(
        _Group(parts.rows, Decoded(arrays, nothing, wanted=findings.wanted, dropped=findings.dropped))
    )


def _watcher(
    stretch: _Stretch, parts: _Parts, name: str, marks: dict[str, NDArray[np.bool_]], seen: dict[str, Slices]
) -> Callable[[list[str], list[Slices]], None]:
    """What is done with the members of an image before they are read: those that were not sent are noted and taken away;
    where `before` has only what changed, the others are those of `after`.
    """
    forms = json_forms(stretch.envelope.placeholder)

    def watch(names: list[str], columns: list[Slices]) -> None:
        for n, (member, column) in enumerate(zip(names, columns, strict=True)):
            if name == "after":
                seen[member] = replace(column)
            elif parts.is_overlay and member in seen:
                columns[n] = _either((column.kind == ABSENT), seen[member], column)
            if stretch.envelope.kind != "debezium":
                continue
            unsent = take_unsent(stretch.texts.buffer, column, forms)
            if unsent is not None and name == "after":
                marks[member] = unsent

    return watch


def _read_image(
    stretch: _Stretch, slices: Slices, kind: StructType, findings: Findings, name: str, parts: _Parts
) -> pa.Array:
    """One image of the row per record, null where there is none."""
    is_text = np.isin(slices.kind, (STRING, ESCAPED))
    parts.note[(slices.kind > NULL) & (slices.kind != OBJECT) & ~is_text] = NO_OBJECT
    image = _read_struct(stretch.texts, slices, kind, findings, name)
    if not is_text.any():
        return image
    inner = _read_text_image(stretch, _where(slices, is_text), kind, findings, name)
    order = np.arange(parts.rows.size)
    order[is_text] = parts.rows.size + np.arange(int(is_text.sum()))
    return pa.concat_arrays([image, as_written(inner, image.type)]).take(pa.array(order))


def _read_struct(texts: Texts, slices: Slices, kind: StructType, findings: Findings, name: str) -> pa.Array:
    error = np.zeros(len(slices), np.uint8)
    image = _read_members(texts, slices, kind, findings, name, error)
    refuse_objects(texts, slices, error, (name,))
    return image


def _read_members(
    texts: Texts, slices: Slices, kind: StructType, findings: Findings, name: str, error: NDArray[np.uint8]
) -> pa.Array:
    validity, nulls, _ = presence(slices, OBJECT)
    arrays = read_members(texts, slices, kind.fields, findings, (name,), error)
    arrow = pa.struct([pa.field(f.name, a.type) for f, a in zip(kind.fields, arrays, strict=True)])
    return pa.Array.from_buffers(arrow, len(slices), [validity], null_count=nulls, children=arrays)


def _read_text_image(stretch: _Stretch, slices: Slices, kind: StructType, findings: Findings, name: str) -> pa.Array:
    """Images that are texts of JSON, as MongoDB's connector writes them."""
    outer = stretch.texts
    raw = read_value(outer, slices, StringType(), Findings(), (name,)).cast(pa.binary())
    inner = texts_of(raw, _options(stretch.reading, outer.limit), outer.spelt_out)
    whole = whole_slices(raw)
    error = unreadable(raw)
    scan.scan_texts(inner.base, whole.start, whole.end, whole.kind, error)
    image = _read_members(inner, whole, kind, findings, name, error)
    inner.refuse(whole, error, name, FAULTS)
    outer.has_slow_keys |= inner.has_slow_keys
    outer.refused[slices.owner] |= inner.refused
    for found, mine in ((inner.misfits, outer.misfits), (inner.rescued, outer.rescued)):
        mine += [replace(one, row=int(slices.owner[one.row])) for one in found]
    return image


def _marks(stretch: _Stretch, marks: Mapping[str, NDArray[np.bool_]], rows: int) -> pa.Array:
    kind = stretch.asks("unavailable")
    assert isinstance(kind, StructType)
    children = [pa.array(marks[one.name]) if one.name in marks else pa.nulls(rows, pa.bool_()) for one in kind.fields]
    arrow = pa.struct([pa.field(one.name, pa.bool_()) for one in kind.fields])
    return pa.Array.from_buffers(arrow, rows, [None], children=children)


def _facts(stretch: _Stretch, parts: _Parts, is_change: NDArray[np.bool_]) -> dict[str, pa.Array]:
    """What is asked of envelopes besides the images."""
    asked = [one.name for one in stretch.fields]
    found: dict[str, pa.Array | None] = {}
    if {"source_ts", "position", "connector"} & set(asked):
        names = ["ts_ms", "ts_us", "connector", *POSITION_FIELDS]
        source = _members(stretch, parts, "source", names, is_change)
        found["source_ts"] = _moment(stretch, source)
        found["connector"] = _text(stretch, source["connector"], "source.connector")
        texts = {name: _fact(stretch, source[name], name) for name in POSITION_FIELDS if "position" in asked}
        found["position"] = spell_position({name: one for name, one in texts.items() if one.null_count < len(one)})
    if "transaction_id" in asked or "total_order" in asked:
        transaction = _members(stretch, parts, "transaction", ["id", "total_order"], is_change)
        found["transaction_id"] = _text(stretch, transaction["id"], "transaction.id")
        found["total_order"] = _number(stretch, transaction["total_order"], "transaction.total_order")
    if "connector_ts" in asked and parts.is_overlay is False:
        found["connector_ts"] = _moment(stretch, _kept(parts, ("ts_ms", "ts_us"), is_change))
    if parts.is_overlay:
        found |= _maxwell_facts(stretch, _kept(parts, ("ts", "xid"), is_change))
    return {name: array for name, array in found.items() if array is not None and name in asked}


def _maxwell_facts(stretch: _Stretch, members: Mapping[str, Slices]) -> dict[str, pa.Array]:
    seconds = _number(stretch, members["ts"], "ts")
    moments = pc.multiply(seconds, 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    return {"source_ts": moments, "transaction_id": _number(stretch, members["xid"], "xid").cast(pa.string())}


def _kept(parts: _Parts, names: Sequence[str], is_change: NDArray[np.bool_]) -> dict[str, Slices]:
    slices = {name: parts.slices(name) for name in names}
    return {name: replace(one, kind=np.where(is_change, one.kind, ABSENT)) for name, one in slices.items()}


def _members(
    stretch: _Stretch, parts: _Parts, name: str, names: list[str], is_change: NDArray[np.bool_]
) -> dict[str, Slices]:
    around = _kept(parts, (name,), is_change)[name]
    error = np.zeros(len(around), np.uint8)
    found = take_apart(stretch.texts, around, names, error).columns
    refuse_objects(stretch.texts, around, error, (name,))
    return dict(zip(names, found, strict=True))


def _number(stretch: _Stretch, slices: Slices, name: str) -> pa.Array:
    return read_value(stretch.texts, slices, LongType(), Findings(), (name,))


def _fact(stretch: _Stretch, slices: Slices, name: str) -> pa.Array:
    if name in FACT_TYPES and not np.isin(slices.kind, (STRING, ESCAPED)).any():
        return _number(stretch, slices, f"source.{name}")
    return _text(stretch, slices, f"source.{name}")


def _moment(stretch: _Stretch, members: Mapping[str, Slices]) -> pa.Array:
    micros, millis = (_number(stretch, members[name], name) for name in ("ts_us", "ts_ms"))
    return pc.coalesce(micros, pc.multiply(millis, 1000)).cast(pa.timestamp("us", tz="UTC"))


def _open_with_schemas(stretch: _Stretch, whole: Slices, schema: Slices, rows: NDArray[np.int32]) -> None:
    """Records that carry their schema, those of each schema together."""
    texts = stretch.texts
    written = _at(schema, rows)
    codes, firsts = group_same(texts.base, written)
    for code, first in enumerate(firsts):
        mine = rows[codes == code]
        slices = _at(whole, mine)
        try:
            _open_with_schema(stretch, slices, texts.buffer[written.start[first] : written.end[first]].tobytes())
        except UnusableSchema as error:
            fault = Fault("bad_schema", str(error))
            texts.refuse(slices, np.ones(mine.size, np.uint8), _SCHEMA, {1: fault})
            nulls = [pa.nulls(mine.size, arrow_type(one.field_type)) for one in stretch.fields]
            stretch.groups.append(_Group(mine, Decoded(nulls, np.ones(mine.size, np.bool_))))


def _at(slices: Slices, rows: NDArray[np.int32]) -> Slices:
    return Slices(slices.start[rows], slices.end[rows], slices.kind[rows], slices.owner[rows])


def _open_with_schema(stretch: _Stretch, slices: Slices, text: bytes) -> None:
    """Records of one schema: read with its types, then opened and fitted as those of other formats are."""
    schema = parse_connect(text)
    texts, reading = stretch.texts, stretch.reading
    struct = _pruned(schema.struct, stretch)
    error = np.zeros(len(slices), np.uint8)
    kept, texts.selection = texts.selection, None
    rescues, texts.is_rescuing = texts.is_rescuing, False
    findings = Findings("drop")
    arrays = read_members(texts, slices, struct.fields, findings, (), error)
    texts.selection, texts.is_rescuing = kept, rescues
    refuse_objects(texts, slices, error, ())
    columns = Columns(arrays, np.zeros(len(slices), np.uint8), ())
    struct, columns = open_columns(stretch.envelope, struct, columns, schema.meanings, stretch.fields)
    if reading.selection is not None:
        struct, columns = select_columns(reading.selection, struct, columns)
    decoded = fit_columns(Fitting(reading, "", len(slices), texts.limit), struct, columns, stretch.fields)
    texts.refused[slices.owner] |= decoded.refused
    texts.misfits += [replace(one, row=int(slices.owner[one.row])) for one in decoded.misfits]
    dropped = {path for path in findings.dropped if path.startswith(("after.", "before."))}
    stretch.groups.append(_Group(slices.owner, replace(decoded, dropped=decoded.dropped | dropped)))


def _pruned(struct: StructType, stretch: _Stretch) -> StructType:
    """Of an envelope's schema what is looked at."""
    names = {one.name for one in struct.fields}
    if "op" not in names:
        return struct
    fields = []
    for one in struct.fields:
        if one.name == "source" and isinstance(one.field_type, StructType):
            inner = [member for member in one.field_type.fields if member.name in _OF_SOURCE]
            fields.append(one.model_copy(update={"field_type": StructType(*inner)}))
        elif one.name in _DEBEZIUM and (one.name != "before" or stretch.asks("before") is not None):
            fields.append(one)
    return StructType(*fields)


def _put_together(stretch: _Stretch, count: int, limit: int) -> Decoded:
    """One array per field, in the order of the records."""
    texts, groups = stretch.texts, stretch.groups
    rescued = [rescued_column(texts, count)] if texts.rescued or texts.undeclared else []
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
        misfits=sorted(texts.misfits, key=lambda misfit: misfit.row)[:limit],
        wanted=united([one.wanted for one in decoded]),
        loosened=set().union(*(one.loosened for one in decoded)),
        dropped=set().union(*(one.dropped for one in decoded)),
        rescued=join_objects(rescued, count),
        refusals=set().union(*(one.refusals for one in decoded)),
    )


def united(
    many: Sequence[Mapping[tuple[str, ...], Mapping[str, IcebergType]]],
) -> dict[tuple[str, ...], dict[str, IcebergType]]:
    """What all of them want, in the widest type; of two that no type holds the first."""
    found: dict[tuple[str, ...], dict[str, IcebergType]] = {}
    for wanted in many:
        for path, members in wanted.items():
            mine = found.setdefault(path, {})
            for name, kind in members.items():
                mine[name] = widest(mine[name], kind) if name in mine else kind
    return found


def join_objects(objects: list[pa.Array], count: int) -> pa.Array | None:
    """One JSON object per record with the members of all; None where there are none."""
    if len(objects) < 2:
        return objects[0] if objects else None
    return join_members([pc.utf8_slice_codeunits(one, 1, -1) for one in objects], count)
