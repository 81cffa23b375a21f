"""Records that wrap a change of their source, to the changes of the table.

An envelope is opened (`cdc.envelope`), each image of the row in it is read as a record of its own, and the fields that
the operation needs are checked. An inconsistent record is a bad record with its own reason; one that is no change of a
row is ignored and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, NestedField

from frazil.cdc.change_keys import check_keys, check_named_keys, key_arrays, key_facts, note_parts, resolve_keys
from frazil.cdc.document_ids import fill_from_keys
from frazil.cdc.envelope import (
    BY_KEY,
    CREATE,
    FAULTS,
    IMAGES,
    MESSAGE,
    NO_AFTER,
    NO_BEFORE,
    NO_OPERATION,
    OPERATIONS,
    REMOVE,
    ROW,
    SNAPSHOT,
    TOMBSTONE,
    UNKNOWN_OPERATION,
    UPDATE,
    BadRecords,
    ChangeContext,
    Opened,
    Plan,
    find_ignored,
    gather,
    needed_facts,
    opened_fields,
    own_values,
    plan_changes,
    spread,
)
from frazil.decode.columns import Decoded, Fault
from frazil.decode.conversion import Conversion, ValuePlace, require
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.settings import Envelope, Reading
from frazil.rows.decoder import decode_messages, decode_values, has_value
from frazil.rows.project import bindings_of, shape_columns
from frazil.schema.arrow import Bools, Ints, Records, arrow_type
from frazil.schema.evolve import RequestedFields, merge_requested_fields
from frazil.schema.names import tops_of, under
from frazil.schema.parts import unfold
from frazil.schema.projection import Shaping
from frazil.schema.selection import Path, Selection
from frazil.stages.changes import UPSERT, Changes
from frazil.upsert.records.tombstones import FOLLOWS_DELETE, ends_of_runs
from frazil.write.target import TableTarget

_UNKNOWN = 100
_IMAGES_OF = ("after", "before")


def read_envelope(target: TableTarget, records: Records, limit: int = MAX_MISMATCHES) -> Changes:
    """Returns the changes of the table in these records; requested fields are by their paths in the row.

    Bad records raise nothing: they make no change, and `decoded` has their mismatches. limit: the number of mismatches
    that are kept.
    """
    assert target.envelope is not None
    row = target.fields if target.shaping is None else target.layout.fields
    facts = needed_facts({name for name, _ in target.metadata} | key_facts(target, records))
    opened = _open(target, row, facts, records, limit)
    if opened.owner is None:
        return _changes(target, row, opened, records, limit)
    changes = _changes(target, row, opened, spread(records, opened.owner), limit)
    return gather(changes, opened.owner, len(records["value"]))


def _changes(target: TableTarget, row: Sequence[NestedField], opened: Opened, records: Records, limit: int) -> Changes:
    envelope = target.envelope
    assert envelope is not None
    if target.shaping is not None and target.layout.unbound:
        seen = unfold(opened.decoded.requested_fields, target.shaping.depth)
        requested_fields = bindings_of(target.shaping, target.layout, seen)
        if requested_fields:  # The batch is planned again with the fields that feed these columns.
            columns = [pa.nulls(0, arrow_type(field.field_type)) for field in target.fields]
            decoded = replace(opened.decoded, requested_fields=requested_fields)
            return Changes(columns, np.zeros(0, np.int8), np.zeros(0, np.int32), {}, decoded, None)
    check = BadRecords(opened, limit)
    _refuse_inconsistent(check, opened, envelope)
    keys = check_named_keys(check, opened, target, records)
    plan = plan_changes(envelope, opened, check.refused)
    context = ChangeContext(target, envelope, opened, row, records, check)
    changes = _shape(context, plan)
    changes.own = {**changes.own, **own_values(context, changes)}
    changes.key_columns = keys
    note_parts(context, changes)
    if envelope.takes_tombstones and records.keys() >= {"key", "partition"}:
        changes.tombstones, changes.last_deletes = _tombstones(opened, records, check.refused)
    return changes


def _tombstones(opened: Opened, records: Records, refused: Bools) -> tuple[Bools, list[int]]:
    """Returns which records have no value, except those right after the delete of their key, which repeat it; and the
    deletes that are the last records of their partition here.
    """
    are_tombstones: Bools = np.asarray((opened.record_kind == TOMBSTONE) & ~refused, np.bool_)
    keys, partitions = records["key"], np.asarray(records["partition"])
    is_gone = (opened.record_kind <= ROW) & (opened.op == REMOVE) & ~refused
    ends = ends_of_runs(partitions)
    last_deletes: list[int] = ends[is_gone[ends] & np.asarray(keys.is_valid())[ends]].tolist()
    if are_tombstones.any():
        is_same = np.asarray(pc.fill_null(pc.equal(keys[1:], keys[:-1]), False)) & (partitions[1:] == partitions[:-1])
        are_tombstones[1:] &= ~(is_gone[:-1] & is_same)
        if FOLLOWS_DELETE in records:
            are_tombstones &= ~np.asarray(records[FOLLOWS_DELETE])
    return are_tombstones, last_deletes


def _open(
    target: TableTarget, row: Sequence[NestedField], facts: Sequence[str], records: Records, limit: int
) -> Opened:
    envelope = target.envelope
    assert envelope is not None
    keyed = replace(envelope, keys=tuple((name,) for name in _before_fields(target)))
    fields = opened_fields(keyed, row, facts)
    names = [field.name for field in fields]
    reading, owner = _reading(target, envelope, names), None
    nothing: Bools = ~has_value(target.reading, records["value"])
    if envelope.has_many_rows:
        messages = decode_messages(reading, fields, records, limit)
        decoded, owner = messages.decoded, messages.owner
        nothing = nothing[owner]
    else:
        decoded = decode_values(reading, fields, records, limit)
        if envelope.needs_keys:
            decoded = fill_from_keys(reading, target.record.before_key or Reading(), records, decoded, fields)
    # Records without a value are not bad ones here: they follow a delete.
    mismatches = [mismatch for mismatch in decoded.mismatches if not nothing[mismatch.row]]
    decoded = replace(decoded, refused=decoded.refused & ~nothing, mismatches=mismatches)
    columns = dict(zip(names, decoded.columns, strict=True))
    record_kind = np.array(columns["record_kind"].fill_null(0))
    is_by_key = record_kind == BY_KEY
    record_kind[is_by_key] = IMAGES
    record_kind[nothing] = TOMBSTONE
    if envelope.kind == "debezium":
        record_kind[(record_kind <= ROW) & np.asarray(pc.fill_null(pc.equal(columns["op"], "m"), False))] = MESSAGE
    return Opened(
        replace(
            decoded,
            requested_fields=_in_rows(decoded.requested_fields),
            made_optional=set(),
        ),
        record_kind,
        _codes(envelope, columns["op"]),
        columns["op"],
        columns["after"],
        columns.get("before"),
        _unsent_marks(columns["unavailable"]),
        {name: columns[name] for name in facts},
        is_by_key,
        owner,
    )


def _unsent_marks(marks: pa.Array) -> dict[int, Bools]:
    """Returns which records did not send the value, by position of the row's field."""
    unsent = {}
    for n in range(marks.type.num_fields):
        flags: Bools = np.asarray(marks.field(n).fill_null(False))
        if flags.any():
            unsent[n] = flags
    return unsent


def _key_paths(target: TableTarget) -> tuple[Path, ...]:
    """Returns the paths in the row of the fields that feed the key columns."""
    assert target.envelope is not None
    keys = target.envelope.keys
    if target.shaping is None:
        return keys
    return tuple((*target.layout.paths.get(path[0], path[:1]), *path[1:]) for path in keys)


def _before_fields(target: TableTarget) -> list[str]:
    """Returns the fields to read in the row before its change: the key's, where it is known, and the one that orders
    deletes that are marked.
    """
    names, changes = [path[0] for path in _key_paths(target)], target.changes
    if not names or changes is None or not (changes.marks_deletes and changes.order_by):
        return names
    paths = {} if target.shaping is None else target.layout.paths
    return [*names, paths.get(changes.order_by, (changes.order_by,))[0]]


def _reading(target: TableTarget, envelope: Envelope, names: Sequence[str]) -> Reading:
    """Returns the table's reading with paths of opened envelopes."""
    shaping, reading = target.shaping, target.reading
    declared = target.layout.declared if shaping is not None else reading.declared
    operation_fields = ("__op", "__deleted") if envelope.kind == "debezium" else (envelope.operation,)
    exclude = tuple(("after", name) for name in operation_fields if name)
    before = () if envelope.is_log else tuple(_before_fields(target))

    def in_images(path: Path) -> list[Path]:
        return [(image, *path) for image in _IMAGES_OF]

    return replace(
        reading,
        envelope=replace(envelope, keys=_key_paths(target)),
        selection=_selection(shaping, exclude, before, [name for name in names if name not in _IMAGES_OF]),
        declared=declared.moved(in_images),
        aliases=under(reading.aliases, *_IMAGES_OF) + under(tops_of(reading.aliases), "unavailable"),
        evolution=reading.evolution.moved(in_images),
        json=reading.json.moved(in_images),
    )


def _selection(
    shaping: Shaping | None, exclude: tuple[Path, ...], keys: tuple[str, ...], others: Sequence[str]
) -> Selection:
    """Returns the fields to take of opened envelopes: of the row after the change those of the table, of the row before
    it the key, if it is known and nothing more is needed.
    """
    requested = shaping.selection if shaping is not None else Selection()
    exclude += tuple((image, *path) for path in requested.exclude for image in _IMAGES_OF)
    kept = tuple((image, *path) for path in requested.kept for image in _IMAGES_OF)
    columns = replace(requested.columns, around=1) if requested.columns is not None else None
    if not requested.include and not keys:
        return Selection((), exclude, kept, columns)
    of_row = requested.include or ((),)
    include = [("after", *path) for path in of_row]
    include += [("before", key) for key in keys] or [("before", *path) for path in of_row]
    return Selection((*include, *((name,) for name in others)), exclude, kept, columns)


def _in_rows(requested_fields: RequestedFields) -> dict[Path, dict[str, IcebergType]]:
    """Returns the fields requested by images, by their paths in the row."""
    images = (
        {path[1:]: members for path, members in requested_fields.items() if path[:1] == (image,)}
        for image in _IMAGES_OF
    )
    return merge_requested_fields(images, keeps_first=True)


def _codes(envelope: Envelope, op: pa.Array) -> Ints:
    if envelope.kind == "operation":
        lists = (envelope.insert, envelope.update, envelope.delete)
        codes_of = {text: code for code, texts in enumerate(lists) for text in texts}
    else:
        codes_of = {text: code for code, text in enumerate(OPERATIONS)}
    places = pc.index_in(op, pa.array(list(codes_of), pa.string()))
    codes = pa.array([*codes_of.values(), _UNKNOWN], pa.int64())
    return np.asarray(codes.take(pc.fill_null(places, len(codes_of))))


def _refuse_inconsistent(check: BadRecords, opened: Opened, envelope: Envelope) -> None:
    """Refuses records whose envelope is inconsistent."""
    for number in np.unique(opened.record_kind[opened.record_kind > ROW]).tolist():
        if number in FAULTS:
            check.refuse(opened.record_kind == number, FAULTS[number])
    change, op = opened.record_kind <= ROW, opened.op
    unknown = change & (op == _UNKNOWN)
    check.refuse(unknown & np.asarray(opened.op_texts.is_null()), FAULTS[NO_OPERATION])
    check.refuse(change & np.isin(op, (CREATE, UPDATE, SNAPSHOT)) & ~opened.has_after, FAULTS[NO_AFTER])
    for text in pc.unique(opened.op_texts.filter(pa.array(unknown & ~check.refused))).to_pylist():
        fault = FAULTS[UNKNOWN_OPERATION]
        same = np.asarray(pc.fill_null(pc.equal(opened.op_texts, text), False))
        quoted = json.dumps(text[:60], ensure_ascii=False)
        check.refuse(unknown & same, Fault(fault.kind, f"{fault.message}: {quoted}"))
    if envelope.is_upsert:
        removals = change & (op == REMOVE)
        check.refuse(removals & (opened.record_kind == IMAGES) & ~opened.has_before, FAULTS[NO_BEFORE])
        check.refuse(removals & (opened.record_kind == ROW) & ~opened.has_after, FAULTS[NO_AFTER])
    if envelope.retracts:
        check.refuse(change & (op == UPDATE) & ((opened.record_kind == ROW) | ~opened.has_before), FAULTS[NO_BEFORE])


def _shape(context: ChangeContext, plan: Plan) -> Changes:
    """Returns the columns of the changes, without the changes of bad rows."""
    target, opened, check = context.target, context.opened, context.check
    count, places = plan.records.size, pa.array(plan.records)
    own = Decoded(
        _images(opened, plan, context.row),
        np.zeros(count, np.bool_),
        own={name: values.take(places) for name, values in opened.decoded.own.items()},
    )
    unsent = _unsent(context, plan)
    shaped = own
    if target.shaping is not None:
        records = {name: array.take(pa.array(plan.records)) for name, array in context.records.items()}
        shaped = shape_columns(target, target.shaping, own, records, MAX_MISMATCHES)
        check.take(shaped, plan.records)
    _require(context, plan, shaped, unsent)
    keys = key_arrays(target, shaped.columns)
    check_keys(context, plan, keys)
    carried, is_redundant = resolve_keys(context, plan, keys, unsent)
    kept = ~check.refused[plan.records] & ~is_redundant
    columns, of_columns = shaped.columns, shaped.own
    if not kept.all():
        mask = pa.array(kept)
        columns, plan = [column.filter(mask) for column in columns], plan.only(kept)
        of_columns = {name: values.filter(mask) for name, values in of_columns.items()}
        unsent = {n: flags[kept] for n, flags in unsent.items()}
        carried = None if carried is None else carried.take(pa.array(np.flatnonzero(kept)))
    return Changes(
        columns=columns,
        ops=plan.ops,
        records=plan.records.astype(np.int32),
        unavailable={n: flags for n, flags in unsent.items() if flags.any()},
        decoded=_without_columns(context, shaped),
        carried=carried,
        own=of_columns,
        ignored=find_ignored(context.envelope, opened),
    )


def _without_columns(context: ChangeContext, shaped: Decoded) -> Decoded:
    """Returns the result of the records, without columns."""
    of_records, check = context.opened.decoded, context.check
    return replace(
        of_records,
        columns=[],
        refused=check.refused,
        mismatches=check.first(),
        requested_fields=merge_requested_fields(
            [of_records.requested_fields, shaped.requested_fields], keeps_first=True
        ),
        made_optional=of_records.made_optional | shaped.made_optional,
        missing=of_records.missing | shaped.missing | check.missing,
        refusals=of_records.refusals | shaped.refusals,
        dropped={path.removeprefix("after.").removeprefix("before.") for path in of_records.dropped} | shaped.dropped,
        own={},
    )


def _images(opened: Opened, plan: Plan, row: Sequence[NestedField]) -> list[pa.Array]:
    """Returns the fields of the row, from the image that each change takes."""
    count = opened.record_kind.size
    is_plain = plan.is_after.all() and plan.records.size == count
    places = np.where(plan.is_before, plan.records + count, plan.records)
    indices = pa.array(places, mask=~(plan.is_after | plan.is_before))
    before = _members(opened.before)
    columns = []
    for n, field in enumerate(row):
        after = _member(opened.after, n)
        if is_plain:
            columns.append(after)
            continue
        kind = after.type
        other = before[field.name] if field.name in before else pa.nulls(count, kind)
        columns.append(pa.concat_arrays([after, other.cast(kind) if other.type != kind else other]).take(indices))
    return columns


def _members(images: pa.Array | None) -> dict[str, pa.Array]:
    if images is None:
        return {}
    return {images.type.field(n).name: _member(images, n) for n in range(images.type.num_fields)}


def _member(images: pa.Array, n: int) -> pa.Array:
    return pc.struct_field(images, [n]) if images.null_count or images.offset else images.field(n)


def _unsent(context: ChangeContext, plan: Plan) -> dict[int, Bools]:
    """Returns which changes were sent without the value, by column of the table."""
    target, opened = context.target, context.opened
    names = {context.row[n].name: flags for n, flags in opened.unsent.items()}
    unsent = {}
    for n, field in enumerate(target.fields):
        name = field.name
        if target.shaping is not None:
            name = target.layout.paths.get(name, ("",))[0]
        if name in names:
            unsent[n] = names[name][plan.records] & plan.is_after
    if context.envelope.is_upsert and context.envelope.marks_deletes:
        # A struct that contains a key column has other fields, which must stay too.
        keys = {path[0] for path in context.envelope.keys if len(path) == 1}
        removals = opened.op[plan.records] == REMOVE
        for n, field in enumerate(target.fields):
            if field.name not in keys:
                unsent[n] = unsent.get(n, np.zeros(removals.size, np.bool_)) | removals
    return unsent


def _require(context: ChangeContext, plan: Plan, shaped: Decoded, unsent: Mapping[int, Bools]) -> None:
    """Refuses rows that lack a value for a required column."""
    conversion = Conversion(context.target.reading, "", plan.records.size, MAX_MISMATCHES)
    for n, field in enumerate(context.target.fields):
        if field.required:
            is_sent = (plan.ops == UPSERT) & ~unsent.get(n, np.zeros(plan.ops.size, np.bool_))
            place = ValuePlace((), np.arange(plan.ops.size, dtype=np.int32), is_sent)
            require(conversion, shaped.columns[n], place, (field.name,))
    shaped.made_optional.update(conversion.made_optional)
    context.check.take(Decoded([], conversion.refused, conversion.mismatches), plan.records)
