"""Records that wrap a change of their source, to the changes that they ask of the table.

An envelope is opened (`opened`), each image of the row in it is read as a record of its own, and what the operation needs is
looked for. A record that does not hold together is a bad one with a reason of its own; one that is no change of a row is
passed over and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField

from frazil.ingest.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.ingest.decode.columns import Decoded, Misfit
from frazil.ingest.decode.envelope_json import united
from frazil.ingest.decode.fit import Fitting, Place, require
from frazil.ingest.decode.opened import (
    BARE,
    FAULTS,
    IMAGES,
    MESSAGE,
    NO_AFTER,
    NO_BEFORE,
    NO_KEY,
    NO_OPERATION,
    PASSED_OVER,
    TOMBSTONE,
    UNKNOWN_OPERATION,
    needed_facts,
    opened_fields,
)
from frazil.ingest.decode.regroup import member_at
from frazil.ingest.decode.slices import MAX_MISFITS
from frazil.ingest.decode.values import decode_values
from frazil.ingest.envelope import OWN_TYPES, Envelope
from frazil.ingest.naming import Shaping, unfold
from frazil.ingest.rows import bindings_of, shape_columns
from frazil.ingest.selection import Path, Selection
from frazil.ingest.target import Reading, TableTarget, arrow_type

Records = Mapping[str, pa.Array]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]

CREATE, UPDATE, REMOVE, SNAPSHOT, EMPTY = range(5)
WORDS = ("c", "u", "d", "r", "t")
"""Operations by code, and how the column `_op` spells them."""
_UNKNOWN = 100
_OLD_KEY = "__debezium.oldkey"
_IMAGES_OF = ("after", "before")
_UNSENT = "the row was created under a new key without the value of {}, which is in the row of the old key alone"


@dataclass(frozen=True)
class _Opened:
    """Envelopes of a stretch: what each is and does, and the images that it has."""

    decoded: Decoded
    note: NDArray[np.int32]
    op: NDArray[np.int64]
    words: pa.Array
    after: pa.Array
    before: pa.Array | None
    unsent: Mapping[int, Bools]
    facts: Mapping[str, pa.Array]

    @property
    def has_after(self) -> Bools:
        """Which have the row after the change, or the row itself."""
        return np.asarray(self.after.is_valid())

    @property
    def has_before(self) -> Bools:
        """Which have the row before the change."""
        return np.zeros(self.note.size, np.bool_) if self.before is None else np.asarray(self.before.is_valid())


@dataclass(frozen=True)
class _Plan:
    """The changes to be: of each its record, what it does, and where its image is: `after`, `before`, or neither."""

    records: Rows
    ops: NDArray[np.int8]
    is_after: Bools
    is_before: Bools

    def only(self, kept: Bools) -> _Plan:
        """The changes that `kept` marks."""
        return _Plan(self.records[kept], self.ops[kept], self.is_after[kept], self.is_before[kept])


def read_envelope(target: TableTarget, records: Records, limit: int = MAX_MISFITS) -> Changes:
    """The changes that these records ask of the table. What is wanted is by the paths of fields in the row.

    Raises nothing for bad records: they make no change, and `decoded` tells of them. limit: how many misfits are noted.
    """
    assert target.envelope is not None
    envelope, own = target.envelope, frozenset(name for name, _ in target.metadata)
    row = target.fields if target.shaping is None else target.layout.fields
    opened = _open(target, row, needed_facts(envelope, own), records, limit)
    if target.shaping is not None and target.layout.unbound:
        seen = unfold(opened.decoded.wanted, target.shaping.depth)
        found = bindings_of(target.shaping, target.layout, seen)
        if found:  # The batch is planned again when it is known which fields feed these columns.
            return _nothing(target, replace(opened.decoded, wanted=found))
    check = _Check(opened, limit)
    _check_notes(check, opened, envelope)
    plan = _plan(envelope, opened, check.refused)
    changes = _shape(_Making(target, envelope, opened, row, records, check), plan)
    changes.own = own_values(_Facts(target, opened, records, own), changes)
    return changes


class _Check:
    """Bad records of a stretch, as they are found."""

    def __init__(self, opened: _Opened, limit: int) -> None:
        self.refused = opened.decoded.refused.copy()
        self.misfits = list(opened.decoded.misfits)
        self._limit = limit

    def refuse(self, bad: Bools, kind: str, reason: str, path: str = "") -> None:
        """These records are bad ones; of those that are already, nothing more is said."""
        rows = np.flatnonzero(bad & ~self.refused)
        self.misfits += [Misfit(row, path, kind, reason) for row in rows[: self._limit].tolist()]
        self.refused[rows] = True

    def take(self, decoded: Decoded, records: Rows) -> None:
        """What was wrong with changes is wrong with their records."""
        bad = np.zeros(self.refused.size, np.bool_)
        bad[records[decoded.refused]] = True
        new = bad & ~self.refused
        known = set()
        for misfit in decoded.misfits:
            row = int(records[misfit.row])
            if new[row] and (row, misfit.path) not in known:
                known.add((row, misfit.path))
                self.misfits.append(replace(misfit, row=row))
        self.refused |= bad

    def first(self) -> list[Misfit]:
        """As many as are noted, in the order of the records."""
        return sorted(self.misfits, key=lambda misfit: misfit.row)[: self._limit]


def _open(
    target: TableTarget, row: Sequence[NestedField], facts: Sequence[str], records: Records, limit: int
) -> _Opened:
    envelope = target.envelope
    assert envelope is not None
    known = replace(envelope, keys=tuple((name,) for name in _key_fields(target)))
    fields = opened_fields(known, row, facts)
    names = [field.name for field in fields]
    decoded = decode_values(_reading(target, envelope, names), fields, records, limit)
    decoded = _without_tombstones(decoded, np.asarray(records["value"].is_null()))
    columns = dict(zip(names, decoded.columns, strict=True))
    marks = columns["unavailable"]
    unsent = {}
    for n in range(len(row)):
        flags = marks.field(n)
        if flags.null_count < len(flags) and np.asarray(flags.fill_null(False)).any():
            unsent[n] = np.asarray(flags.fill_null(False))
    note = np.array(columns["note"].fill_null(0))
    note[np.asarray(records["value"].is_null())] = TOMBSTONE
    if envelope.kind == "debezium":
        note[(note <= BARE) & np.asarray(pc.fill_null(pc.equal(columns["op"], "m"), False))] = MESSAGE
    return _Opened(
        replace(decoded, wanted=united(_in_rows(decoded.wanted)), loosened=set()),
        note,
        _codes(envelope, columns["op"]),
        columns["op"],
        columns["after"],
        columns.get("before"),
        unsent,
        {name: columns[name] for name in facts},
    )


def _without_tombstones(decoded: Decoded, is_tombstone: Bools) -> Decoded:
    """Records without a value are no bad ones here: they follow a delete."""
    misfits = [misfit for misfit in decoded.misfits if not is_tombstone[misfit.row]]
    return replace(decoded, refused=decoded.refused & ~is_tombstone, misfits=misfits)


def _key_fields(target: TableTarget) -> list[str]:
    """The fields of the row that the key columns come from."""
    assert target.envelope is not None
    names = [path[0] for path in target.envelope.keys]
    return names if target.shaping is None else [target.layout.paths.get(name, (name,))[0] for name in names]


def _reading(target: TableTarget, envelope: Envelope, names: Sequence[str]) -> Reading:
    """The table's reading, its paths those of opened envelopes."""
    shaping, reading = target.shaping, target.reading
    units = target.layout.units if shaping is not None else reading.units
    taken = ("__op", "__deleted") if envelope.kind == "debezium" else (envelope.operation,)
    exclude = tuple(("after", name) for name in taken if name)
    keys = () if envelope.is_log else tuple(_key_fields(target))
    return replace(
        reading,
        envelope=envelope,
        selection=_selection(shaping, exclude, keys, [name for name in names if name not in _IMAGES_OF]),
        units=tuple(((image, *path), unit) for path, unit in units for image in _IMAGES_OF),
    )


def _selection(
    shaping: Shaping | None, exclude: tuple[Path, ...], keys: tuple[str, ...], others: Sequence[str]
) -> Selection:
    """What counts of opened envelopes: of the row what the table takes, of the one before its change the key, if that is
    known and no more is asked for.
    """
    asked = shaping.selection if shaping is not None else Selection()
    exclude += tuple((image, *path) for path in asked.exclude for image in _IMAGES_OF)
    if not asked.include and not keys:
        return Selection((), exclude)
    of_row = asked.include or ((),)
    include = [("after", *path) for path in of_row]
    include += [("before", key) for key in keys] or [("before", *path) for path in of_row]
    return Selection((*include, *((name,) for name in others)), exclude)


def _in_rows(wanted: Mapping[Path, Mapping[str, IcebergType]]) -> list[dict[Path, Mapping[str, IcebergType]]]:
    """What is wanted of the images, by the paths of fields in the row."""
    after = {path[1:]: members for path, members in wanted.items() if path[:1] == ("after",)}
    before = {path[1:]: members for path, members in wanted.items() if path[:1] == ("before",)}
    return [after, before]


def _codes(envelope: Envelope, op: pa.Array) -> NDArray[np.int64]:
    if envelope.kind == "operation":
        lists = (envelope.insert, envelope.update, envelope.delete)
        words = {word: code for code, words in enumerate(lists) for word in words}
    else:
        words = {word: code for code, word in enumerate(WORDS)}
    places = pc.index_in(op, pa.array(list(words), pa.string()))
    codes = pa.array([*words.values(), _UNKNOWN], pa.int64())
    return np.asarray(codes.take(pc.fill_null(places, len(words))))


def _nothing(target: TableTarget, decoded: Decoded) -> Changes:
    columns = [pa.nulls(0, arrow_type(field.field_type)) for field in target.fields]
    return Changes(columns, np.zeros(0, np.int8), np.zeros(0, np.int32), {}, decoded, None)


def _check_notes(check: _Check, opened: _Opened, envelope: Envelope) -> None:
    """Records whose envelope does not hold together."""
    for number in np.unique(opened.note[opened.note > BARE]).tolist():
        if number in FAULTS:
            check.refuse(opened.note == number, FAULTS[number].kind, FAULTS[number].message)
    change, op = opened.note <= BARE, opened.op
    for number, bad in (
        (NO_OPERATION, change & (op == _UNKNOWN) & np.asarray(opened.words.is_null())),
        (NO_AFTER, change & np.isin(op, (CREATE, UPDATE, SNAPSHOT)) & ~opened.has_after),
    ):
        check.refuse(bad, FAULTS[number].kind, FAULTS[number].message)
    unknown = change & (op == _UNKNOWN)
    for word in pc.unique(opened.words.filter(pa.array(unknown & ~check.refused))).to_pylist():
        fault = FAULTS[UNKNOWN_OPERATION]
        same = np.asarray(pc.fill_null(pc.equal(opened.words, word), False))
        check.refuse(unknown & same, fault.kind, f"{fault.message}: {json.dumps(word[:60], ensure_ascii=False)}")
    if envelope.is_upsert:
        gone = change & (op == REMOVE)
        check.refuse(
            gone & (opened.note == IMAGES) & ~opened.has_before, FAULTS[NO_BEFORE].kind, FAULTS[NO_BEFORE].message
        )
        check.refuse(gone & (opened.note == BARE) & ~opened.has_after, FAULTS[NO_AFTER].kind, FAULTS[NO_AFTER].message)


def _plan(envelope: Envelope, opened: _Opened, refused: Bools) -> _Plan:
    """The changes of good records, in their order: up to two of each, the one of the row before its update first."""
    good = (opened.note <= BARE) & ~refused
    op, has_before = opened.op, opened.has_before & (opened.note == IMAGES)
    writes = good & np.isin(op, (CREATE, UPDATE, SNAPSHOT))
    gone, emptied = good & (op == REMOVE), good & (op == EMPTY)
    if not (envelope.is_log or envelope.is_upsert):
        gone[:] = emptied[:] = False
    first = good & (op == UPDATE) & has_before & (envelope.is_log | envelope.is_upsert)
    count = first.astype(np.int64) + (writes | gone | emptied)
    records = np.repeat(np.arange(op.size), count)
    is_first = _leading(first, count, records)
    ops = np.full(records.size, UPSERT, np.int8)
    if envelope.is_upsert:
        ops[is_first | (gone[records] & (not envelope.marks_deletes))] = DELETE
        ops[emptied[records]] = TRUNCATE
    is_before = is_first | (gone[records] & has_before[records])
    is_after = ~is_before & ~emptied[records] & opened.has_after[records]
    return _Plan(records, ops, is_after, is_before)


def _leading(first: Bools, count: Rows, records: Rows) -> Bools:
    """Which changes are the first of the two of their record."""
    starts = np.cumsum(count) - count
    found = np.zeros(records.size, np.bool_)
    found[starts[first]] = True
    return found


@dataclass(frozen=True)
class _Making:
    """What changes are made of."""

    target: TableTarget
    envelope: Envelope
    opened: _Opened
    row: Sequence[NestedField]
    records: Records
    check: _Check


def _shape(making: _Making, plan: _Plan) -> Changes:
    """The columns of the changes, and those taken out whose rows turn out to be bad ones."""
    target, opened, check = making.target, making.opened, making.check
    rescued = opened.decoded.rescued
    count = plan.records.size
    own = Decoded(
        _images(opened, plan, making.row),
        np.zeros(count, np.bool_),
        rescued=None if rescued is None else rescued.take(pa.array(plan.records)),
    )
    unsent = _unsent(making, plan)
    shaped = own
    if target.shaping is not None:
        taken = {name: array.take(pa.array(plan.records)) for name, array in making.records.items()}
        shaped = shape_columns(target, target.shaping, own, taken, MAX_MISFITS)
        check.take(shaped, plan.records)
    _require(making, plan, shaped, unsent)
    keys = _key_arrays(target, shaped.columns)
    _check_keys(making, plan, keys)
    old_keys = _old_keys(making, plan, keys, unsent)
    kept = ~check.refused[plan.records] & ~_is_needless(plan, keys)
    columns = shaped.columns
    if not kept.all():
        mask = pa.array(kept)
        columns, plan = [column.filter(mask) for column in columns], plan.only(kept)
        unsent = {n: flags[kept] for n, flags in unsent.items()}
        old_keys = None if old_keys is None else [column.filter(mask) for column in old_keys]
    order = opened.facts["position"].take(pa.array(plan.records)) if making.envelope.by_position else None
    return Changes(
        columns=columns,
        ops=plan.ops,
        records=plan.records.astype(np.int32),
        unavailable={n: flags for n, flags in unsent.items() if flags.any()},
        decoded=_told(making, shaped),
        order=order,
        old_keys=old_keys,
        passed_over=_passed_over(making),
    )


def _told(making: _Making, shaped: Decoded) -> Decoded:
    """What there is to say of the records, none of their columns."""
    of_records, check = making.opened.decoded, making.check
    rescued = of_records.rescued
    return replace(
        of_records,
        columns=[],
        refused=check.refused,
        misfits=check.first(),
        wanted=united([of_records.wanted, shaped.wanted]),
        loosened=of_records.loosened | shaped.loosened,
        missing=of_records.missing | shaped.missing,
        refusals=of_records.refusals | shaped.refusals,
        dropped=_bare_paths(of_records.dropped) | shaped.dropped,
        rescued=rescued,
    )


def _bare_paths(paths: set[str]) -> set[str]:
    return {path.removeprefix("after.").removeprefix("before.") for path in paths}


def _images(opened: _Opened, plan: _Plan, row: Sequence[NestedField]) -> list[pa.Array]:
    """The fields of the row, of the image that each change has."""
    count = opened.note.size
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


def _unsent(making: _Making, plan: _Plan) -> dict[int, Bools]:
    """By column of the table the changes whose value of it was not sent."""
    target, opened = making.target, making.opened
    names = {making.row[n].name: flags for n, flags in opened.unsent.items()}
    found = {}
    for n, field in enumerate(target.fields):
        name = field.name
        if target.shaping is not None:
            name = target.layout.paths.get(name, ("",))[0]
        if name in names:
            found[n] = names[name][plan.records] & plan.is_after
    if making.envelope.is_upsert and making.envelope.marks_deletes:
        keys = {path[0] for path in making.envelope.keys}
        gone = opened.op[plan.records] == REMOVE
        for n, field in enumerate(target.fields):
            if field.name not in keys:
                found[n] = found.get(n, np.zeros(gone.size, np.bool_)) | gone
    return found


def _require(making: _Making, plan: _Plan, shaped: Decoded, unsent: Mapping[int, Bools]) -> None:
    """Rows that lack a value for a required column are bad ones."""
    fitting = Fitting(making.target.reading, "", plan.records.size, MAX_MISFITS)
    for n, field in enumerate(making.target.fields):
        if field.required:
            there = (plan.ops == UPSERT) & ~unsent.get(n, np.zeros(plan.ops.size, np.bool_))
            place = Place((), np.arange(plan.ops.size, dtype=np.int32), there)
            require(fitting, shaped.columns[n], place, (field.name,))
    shaped.loosened.update(fitting.loosened)
    making.check.take(Decoded([], fitting.refused, fitting.misfits), plan.records)


def _key_arrays(target: TableTarget, columns: Sequence[pa.Array]) -> list[pa.Array]:
    assert target.envelope is not None
    found = (member_at(target.fields, columns, path) for path in target.envelope.keys)
    return [one[0] for one in found if one is not None]


def _check_keys(making: _Making, plan: _Plan, keys: Sequence[pa.Array]) -> None:
    """Every row that is written or taken away has a key; the one before an update may be without, as it is then the same."""
    if not making.envelope.is_upsert:
        return
    needs = plan.is_after | (making.opened.op[plan.records] == REMOVE)
    for path, key in zip(making.envelope.keys, keys, strict=False):
        bad = np.zeros(making.check.refused.size, np.bool_)
        bad[plan.records[needs & np.asarray(key.is_null())]] = True
        making.check.refuse(bad, FAULTS[NO_KEY].kind, FAULTS[NO_KEY].message, ".".join(path))


def _is_needless(plan: _Plan, keys: Sequence[pa.Array]) -> Bools:
    """Deletes of the row before an update that has the same key, or no key at all."""
    count = plan.records.size
    is_first = np.zeros(count, np.bool_)
    is_first[:-1] = (plan.records[1:] == plan.records[:-1]) & (plan.ops[:-1] == DELETE)
    if not keys or not is_first.any():
        return is_first & np.False_
    here = np.flatnonzero(is_first)
    same, lacking = np.ones(here.size, np.bool_), np.zeros(here.size, np.bool_)
    for key in keys:
        old, new = key.take(pa.array(here)), key.take(pa.array(here + 1))
        lacking |= np.asarray(old.is_null())
        same &= np.asarray(pc.fill_null(pc.equal(old, new), False))
    is_first[here] = same | lacking
    return is_first


def _old_keys(
    making: _Making, plan: _Plan, keys: Sequence[pa.Array], unsent: Mapping[int, Bools]
) -> list[pa.Array] | None:
    """Keys that rows had before, where it takes the old row to know the new one's values."""
    if not making.envelope.is_upsert or not unsent or not keys:
        return None
    needs = np.zeros(plan.ops.size, np.bool_)
    for flags in unsent.values():
        needs |= flags
    moved = np.flatnonzero(needs & _follows_delete(plan, keys))
    olds: dict[int, list[Any]] = {int(n): [key[n - 1].as_py() for key in keys] for n in moved.tolist()}
    created = np.flatnonzero(needs & (making.opened.op[plan.records] == CREATE))
    for n in created.tolist():
        told = _told_old_key(making, int(plan.records[n]))
        if told is None:
            bad = np.zeros(making.check.refused.size, np.bool_)
            bad[plan.records[n]] = True
            name = next(making.target.fields[c].name for c, flags in unsent.items() if flags[n])
            making.check.refuse(bad, "unsent_value", _UNSENT.format(name), name)
        else:
            olds[n] = told
    if not olds:
        return None
    empty = [None] * len(keys)
    rows = [olds.get(n, empty) for n in range(plan.ops.size)]
    return [pa.array([row[k] for row in rows], key.type) for k, key in enumerate(keys)]


def _follows_delete(plan: _Plan, keys: Sequence[pa.Array]) -> Bools:
    """Rows whose record has them take the place of a row with another key."""
    found = np.zeros(plan.ops.size, np.bool_)
    found[1:] = (plan.records[1:] == plan.records[:-1]) & (plan.ops[:-1] == DELETE) & ~_is_needless(plan, keys)[:-1]
    return found


def _told_old_key(making: _Making, record: int) -> list[Any] | None:
    """The key that Debezium's header tells, in the order of the key columns; None without one that can be read."""
    headers = making.records["headers"][record].as_py() if "headers" in making.records else None
    raw = next((one["value"] for one in headers or [] if one["key"] == _OLD_KEY), None)
    try:
        told = json.loads(raw or b"")
        told = told["payload"] if isinstance(told, dict) and told.keys() == {"schema", "payload"} else told
        return [told[path[0]] for path in making.envelope.keys]
    except (ValueError, KeyError, TypeError):
        return None


def _passed_over(making: _Making) -> dict[str, int]:
    """How many records make no change, by what they are."""
    opened, envelope = making.opened, making.envelope
    well = ~making.check.refused
    found = {word: int(np.count_nonzero(well & (opened.note == number))) for number, word in PASSED_OVER.items()}
    if not (envelope.is_log or envelope.is_upsert):
        good = (opened.note <= BARE) & well
        found["delete"] = int(np.count_nonzero(good & (opened.op == REMOVE)))
        found["truncate"] = int(np.count_nonzero(good & (opened.op == EMPTY)))
    return {word: count for word, count in found.items() if count}


@dataclass(frozen=True)
class _Facts:
    """What columns of `metadata` are made of."""

    target: TableTarget
    opened: _Opened
    records: Records
    own: frozenset[str]


def own_values(facts: _Facts, changes: Changes) -> dict[str, pa.Array]:
    """The columns of `metadata` that come from the envelope, a row per change."""
    opened, rows = facts.opened, changes.records
    places = pa.array(rows)
    found = {name: array.take(places) for name, array in opened.facts.items() if name in facts.own}
    if "op" in facts.own:
        found["op"] = pa.array(WORDS).take(pa.array(opened.op[rows]))
    if "image" in facts.own:
        found["image"] = _image_words(opened, changes)
    if "unavailable" in facts.own:
        found["unavailable"] = _unsent_names(facts.target, changes)
    gone = opened.op[rows] == REMOVE
    if "deleted" in facts.own:
        found["deleted"] = pa.array(gone)
    if "deleted_at" in facts.own:
        times = opened.facts["source_ts"].take(places)
        if "timestamp" in facts.records:
            times = pc.coalesce(times, facts.records["timestamp"].take(places))
        found["deleted_at"] = pc.if_else(pa.array(gone), times, None)
    return found


def _image_words(opened: _Opened, changes: Changes) -> pa.Array:
    """`after`, `before`, or `identity`: a row before its change that lacks values, which the source may not have sent."""
    rows, op = changes.records, opened.op[changes.records]
    leads = np.zeros(rows.size, np.bool_)
    leads[:-1] = rows[1:] == rows[:-1]
    is_before = leads | (op == REMOVE)
    lacks = np.zeros(rows.size, np.bool_)
    for column in changes.columns:
        lacks |= np.asarray(column.is_null())
    kinds = opened.facts["connector"].take(pa.array(rows))
    may_lack = np.asarray(pc.fill_null(pc.equal(kinds, "postgresql"), opened.note.size == 0))
    may_lack |= np.asarray(kinds.is_null()) & (opened.note[rows] == BARE)
    words = np.where(is_before, np.where(lacks & may_lack, "identity", "before"), "after")
    nothing = (op == EMPTY) | ((op == REMOVE) & ~(opened.has_before | opened.has_after)[rows])
    return pa.array(words, pa.string(), mask=nothing)


def _unsent_names(target: TableTarget, changes: Changes) -> pa.Array:
    """The columns whose value was not sent; null where all were."""
    kind = arrow_type(OWN_TYPES["unavailable"])
    if not changes.unavailable:
        return pa.nulls(changes.records.size, kind)
    columns = list(changes.unavailable)
    flags = np.stack([changes.unavailable[n] for n in columns], axis=1)
    names = pa.array([target.fields[n].name for n in columns])
    counts = flags.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    items = names.take(pa.array(np.nonzero(flags)[1]))
    mask = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(kind, flags.shape[0], [mask, pa.py_buffer(offsets)], children=[items])
