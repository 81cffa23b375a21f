"""Keys of changes: that they exist and are the same in all records, and primary-key updates.

Also the old row of an updated key, and the keys of MongoDB documents, which record keys name differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import StructType

from frazil.cdc.document_ids import ID
from frazil.cdc.envelope import (
    CREATE,
    FAULTS,
    IMAGES,
    NO_BEFORE,
    NO_KEY,
    REMOVE,
    ROW,
    UPDATE,
    BadRecords,
    ChangeContext,
    Opened,
    Plan,
    change_times,
)
from frazil.cdc.json_members import MONGODB
from frazil.column_names import Spellings, fold_case
from frazil.decode.columns import Fault, member_at
from frazil.decode.settings import NEW_KEY, OLD_KEY
from frazil.error_classes import ErrorClass
from frazil.rows.connect_messages import payloads_of
from frazil.schema.arrow import Bools, Records
from frazil.schema.evolve import type_at
from frazil.stages.changes import DELETE, Changes
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.key_updates.old_rows import UpdatedKeys, updated_keys
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.key_fields import find_key_fields, leaves_of, name_columns, places_of
from frazil.write.target import TableTarget

_NONE = "the message names no primary key (`pkNames`): name the table's `key_columns`"
_NO_ID = "the document has no `_id`, which identifies its row"
_OTHER = "the message's primary key is {}, and the table's rows are identified by {}: name the table's `key_columns`"
_UNTOLD = (
    "the row before the change lacks {0}, and so does the record's key: it is unknown whether the row had another"
    " key, as with PostgreSQL without `REPLICA IDENTITY FULL`"
)
_UNSENT = "the row was created under a new key without the value of {}, which is in the row of the old key alone"


def key_facts(target: TableTarget, records: Records) -> set[str]:
    """Returns the values of changes that are read for their keys."""
    facts = set()
    if _has_key_updates(target, records):
        facts.add("position")
    if _takes_primary_keys(target):
        facts.add("primary_key")
    if _may_get_document_key(target):
        facts.add("connector")
    return facts


def check_named_keys(check: BadRecords, opened: Opened, target: TableTarget, records: Records) -> tuple[str, ...]:
    """Refuses changes whose record names no primary key or another one, and those whose old key is unknown. Returns the
    key columns that the records name, where the table has none yet.
    """
    assert target.envelope is not None
    keys = _check_primary_keys(check, opened, target) or _find_document_key(check, opened, target)
    if not target.envelope.retracts:
        _check_old_keys(check, opened, target, records)
    return keys


def resolve_keys(
    context: ChangeContext, plan: Plan, keys: Sequence[pa.Array], unsent: Mapping[int, Bools]
) -> tuple[UpdatedKeys | None, Bools]:
    """Returns the keys that rows had before, for the rooms that need them, and which changes of a row before its update
    change nothing, bool `(n_changes,)`. keys: the key columns of the changes. unsent: see Changes.unavailable.
    """
    if context.envelope.retracts:
        # Rows before an update without a key, whose records were refused when they came.
        lacks = np.zeros(plan.records.size, np.bool_)
        for key in keys:
            lacks |= np.asarray(key.is_null())
        is_alone = np.ones(plan.records.size, np.bool_)
        is_alone[:-1] = plan.records[1:] != plan.records[:-1]
        return None, lacks & plan.is_before & ~is_alone
    old_keys = _old_keys_of(context, plan, keys, unsent)
    return UpdatedKeys(tuple(old_keys)) if old_keys is not None else None, _find_redundant_deletes(plan, keys)


def note_parts(context: ChangeContext, changes: Changes) -> None:
    """Adds which records are parts of one update, with the positions and times in the source that pair them."""
    if not _has_key_updates(context.target, context.records):
        return
    opened, of_changes = context.opened, pa.array(changes.records)
    # Bad records are included.
    positions, is_change = opened.facts["position"], opened.record_kind <= ROW
    is_delete = is_change & (opened.op == REMOVE) & _has(context.records, NEW_KEY)
    is_insert = is_change & (opened.op == CREATE) & _has(context.records, OLD_KEY)
    is_key_update_part = (is_delete | is_insert) & np.asarray(positions.is_valid())
    rows = np.flatnonzero(is_key_update_part).tolist()
    parts = [(row, positions[row].as_py(), bool(is_delete[row])) for row in rows]
    changes.carried = replace(updated_keys(changes), parts=parts)
    changes.positions = opened.facts["position"].take(of_changes)
    if context.envelope.marks_deletes:
        changes.times = change_times(opened, context.records).take(of_changes)


def _takes_primary_keys(target: TableTarget) -> bool:
    """Whether the table's key columns are those that its records name."""
    is_named = target.envelope is not None and target.envelope.names_keys
    return is_named and target.changes is not None and target.changes.is_key_of_record


def _check_primary_keys(check: BadRecords, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """Refuses changes whose record names no primary key, or another one than the table's. Returns the key of the first
    change, where the table has no key columns yet.
    """
    if not _takes_primary_keys(target):
        return ()
    assert target.changes is not None
    primary_key = opened.facts["primary_key"]
    is_row: Bools = opened.are_of_one_row & ~check.refused
    check.refuse(is_row & np.asarray(primary_key.is_null()), Fault(ErrorClass.NO_KEY, _NONE))
    is_row &= ~check.refused
    texts = pc.unique(primary_key.filter(pa.array(is_row))).to_pylist()
    named = {text: tuple(_column(target, name) for name in json.loads(text)) for text in texts}
    key_columns = target.changes.key_columns
    expected = key_columns or next(iter(named.values()), ())
    for text, columns in named.items():
        if set(map(fold_case, columns)) != set(map(fold_case, expected)):
            same = np.asarray(pc.fill_null(pc.equal(primary_key, text), False))
            reason = _OTHER.format(", ".join(columns), ", ".join(expected))
            check.refuse(is_row & same, Fault(ErrorClass.KEY_MISMATCH, reason))
    return () if key_columns else expected


def _column(target: TableTarget, name: str) -> str:
    """Returns the column that a field of the row feeds."""
    if target.shaping is None:
        return name
    column = next((column for column, path in target.layout.paths.items() if path == (name,)), None)
    return column or target.shaping.column_name((name,), target.layout.names)


def _may_get_document_key(target: TableTarget) -> bool:
    """Whether the table's key columns are not known yet, and may be those of documents."""
    is_debezium = target.envelope is not None and target.envelope.kind == "debezium"
    changes = target.changes
    return is_debezium and changes is not None and changes.is_key_of_record and not changes.key_columns


def _find_document_key(check: BadRecords, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """Returns the key columns of a table whose changes are of MongoDB documents: their `_id`, or its members; empty
    where there are other changes, or the key is known.
    """
    if not _may_get_document_key(target):
        return ()
    is_document = np.asarray(pc.fill_null(pc.equal(opened.facts["connector"], MONGODB), False)) & (
        opened.record_kind <= ROW
    )
    if not (is_document & ~check.refused).any():
        return ()
    row = StructType(*(target.fields if target.shaping is None else target.layout.fields))
    kind = opened.decoded.requested_fields.get((), {}).get(ID) or type_at(row, (ID,))
    if kind is None:
        check.refuse(is_document, Fault(ErrorClass.NO_KEY, _NO_ID), ID)
        return ()
    return name_columns(target, [(ID, *path) for path in leaves_of(kind)])


def key_arrays(target: TableTarget, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Returns the columns of the key, as far as the table has them."""
    assert target.envelope is not None
    members = (member_at(target.fields, columns, path) for path in target.envelope.keys)
    return [member[0] for member in members if member is not None]


def check_keys(context: ChangeContext, plan: Plan, keys: Sequence[pa.Array]) -> None:
    """Refuses records with an insert, update or delete without a key. The row before an update may be without a key,
    which is then unchanged.
    """
    if not context.envelope.is_upsert:
        return
    needs = plan.is_after | (context.opened.op[plan.records] == REMOVE)
    for path, key in zip(context.envelope.keys, keys, strict=False):
        bad = np.zeros(context.check.refused.size, np.bool_)
        bad[plan.records[needs & np.asarray(key.is_null())]] = True
        context.check.refuse(bad, FAULTS[NO_KEY], ".".join(path))


def _check_old_keys(check: BadRecords, opened: Opened, target: TableTarget, records: Records) -> None:
    """Refuses updates without the old key, where the key may have changed: when a column of the record's key changes,
    Debezium sends a delete and an insert.
    """
    reading = target.changes
    if reading is None or reading.is_key_of_record or "key" not in records:
        return
    if not all(has_column(target, path) for path in reading.paths):
        return
    updates = (opened.record_kind == IMAGES) & (opened.op == UPDATE) & ~check.refused
    # A column that no field feeds, such as the topic or a constant, is the same before and after.
    own = {name for _, name in target.metadata} | (target.shaping.own if target.shaping is not None else set())
    fields = {path: places for path, places in places_of(target, reading).items() if path[0] not in own}
    untold = {path: updates & ~_is_there(opened.before, places[0], updates.size) for path, places in fields.items()}
    if not any(mask.any() for mask in untold.values()):
        return
    keys = find_key_fields(target, records)
    check.miss(keys.missing)
    listed = [set(map(fold_case, names)) for names in keys.names]
    for path, mask in untold.items():
        roots = {fold_case(place[0]) for place in fields[path]}
        # A key that cannot be read is accepted. The `_id` of a document never changes.
        is_listed = np.array([not roots.isdisjoint(names) for names in listed] + [True])[keys.codes] & ~keys.lacks
        name = ".".join(path)
        check.refuse(mask & ~is_listed & (ID not in roots), Fault(FAULTS[NO_BEFORE].kind, _UNTOLD.format(name)), name)


def _is_there(images: pa.Array | None, field: tuple[str, ...], count: int) -> Bools:
    """Returns which images of rows have a value in a field, bool of shape (n_records,)."""
    for name in field:
        if images is None or images.type.get_field_index(name) < 0:
            return np.zeros(count, np.bool_)
        images = pc.struct_field(images, name)
    assert images is not None
    return np.asarray(images.is_valid())


def _find_redundant_deletes(plan: Plan, keys: Sequence[pa.Array]) -> Bools:
    """Returns which deletes are of the row before an update that has the same key, or no key at all."""
    count = plan.records.size
    is_first = np.zeros(count, np.bool_)
    is_first[:-1] = (plan.records[1:] == plan.records[:-1]) & (plan.ops[:-1] == DELETE)
    if not keys or not is_first.any():
        return is_first & np.False_
    here = np.flatnonzero(is_first)
    olds = [key.take(pa.array(here)) for key in keys]
    lacking = np.logical_or.reduce([np.asarray(old.is_null()) for old in olds])
    codes = key_codes(
        [pa.concat_arrays([old, key.take(pa.array(here + 1))]) for old, key in zip(olds, keys, strict=True)]
    )
    is_first[here] = (codes[: here.size] == codes[here.size :]) | lacking
    return is_first


def _old_keys_of(
    context: ChangeContext, plan: Plan, keys: Sequence[pa.Array], unsent: Mapping[int, Bools]
) -> list[pa.Array] | None:
    """Returns the keys that rows had before, where the values of the new row depend on the old row; one array per key
    column. The row's own key is used for an old key in the record's header that cannot be read, as headers have no
    types: the delete at the same position has the key too.
    """
    if not context.envelope.is_upsert or not unsent or not keys:
        return None
    needs = np.zeros(plan.ops.size, np.bool_)
    for flags in unsent.values():
        needs |= flags
    moved = np.flatnonzero(needs & _follows_delete(plan, keys))
    places = np.full(plan.ops.size, -1, np.int64)
    places[moved] = moved - 1
    old_keys: list[list[pa.Scalar]] = []
    created = np.flatnonzero(needs & (context.opened.op[plan.records] == CREATE))
    for n in created.tolist():
        key = _old_key_in_header(context, int(plan.records[n]), [key.type for key in keys])
        if key is not None:
            places[n] = plan.ops.size + len(old_keys)
            old_keys.append(key)
        elif _has_old_key_header(context, int(plan.records[n])):
            places[n] = n
        else:
            bad = np.zeros(context.check.refused.size, np.bool_)
            bad[plan.records[n]] = True
            name = next(context.target.fields[c].name for c, flags in unsent.items() if flags[n])
            context.check.refuse(bad, Fault(ErrorClass.UNAVAILABLE_VALUE, _UNSENT.format(name)), name)
    if (places < 0).all():
        return None
    rows = pa.array(places, mask=places < 0)
    return [
        pa.concat_arrays([key, pa.array([old_key[k] for old_key in old_keys], key.type)]).take(rows)
        for k, key in enumerate(keys)
    ]


def _follows_delete(plan: Plan, keys: Sequence[pa.Array]) -> Bools:
    """Returns which changes are rows that replace a row with another key."""
    follows = np.zeros(plan.ops.size, np.bool_)
    follows[1:] = (
        (plan.records[1:] == plan.records[:-1]) & (plan.ops[:-1] == DELETE) & ~_find_redundant_deletes(plan, keys)[:-1]
    )
    return follows


def _has_old_key_header(context: ChangeContext, record: int) -> bool:
    """Whether the record has headers for another old key and for its position in the log."""
    positions = context.opened.facts.get("position")
    return positions is not None and positions[record].is_valid and bool(_headers(context, record, OLD_KEY))


def _headers(context: ChangeContext, record: int, name: str) -> list[bytes]:
    headers = context.records["headers"][record].as_py() if "headers" in context.records else None
    return [header["value"] for header in headers or [] if header["key"] == name]


def _old_key_in_header(context: ChangeContext, record: int, kinds: Sequence[pa.DataType]) -> list[pa.Scalar] | None:
    """Returns the old key in Debezium's header, in the order of the key columns; None without a readable one."""
    raw = next(iter(_headers(context, record, OLD_KEY)), None)
    try:
        fields = json.loads(payloads_of(pa.array([raw or b""], pa.binary()))[0].as_py())
        names, spellings = [_field_of(context.target, path[0]) for path in context.envelope.keys], Spellings(fields)
        return [pa.scalar(fields[spellings.find(name)], kind) for name, kind in zip(names, kinds, strict=True)]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        return None


def _field_of(target: TableTarget, column: str) -> str:
    """Returns the field that feeds a column: the source's name of the column."""
    return column if target.shaping is None else target.layout.paths.get(column, (column,))[0]


def _has_key_updates(target: TableTarget, records: Records) -> bool:
    """Whether a header announces that its record is part of a primary-key update."""
    if target.envelope is None or not target.envelope.needs_headers or "headers" not in records:
        return False
    names = records["headers"].flatten().field("key")
    return bool(pc.any(pc.is_in(names, pa.array([OLD_KEY, NEW_KEY]))).as_py())


def _has(records: Records, name: str) -> Bools:
    headers = records["headers"]
    has_header = np.zeros(len(headers), np.bool_)
    is_named = np.asarray(pc.fill_null(pc.equal(headers.flatten().field("key"), name), False))
    has_header[np.asarray(pc.list_parent_indices(headers))[is_named]] = True
    return has_header
