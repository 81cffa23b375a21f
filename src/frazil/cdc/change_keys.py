"""Keys of changes: that they are there, when they change, and where the old row of a moved one is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.change_parts import (
    CREATE,
    REMOVE,
    UPDATE,
    Bools,
    Check,
    Making,
    Opened,
    Plan,
    Records,
)
from frazil.cdc.document_ids import ID
from frazil.cdc.envelope import (
    FAULTS,
    IMAGES,
    NO_BEFORE,
    NO_KEY,
)
from frazil.decode.envelope import OLD_KEY
from frazil.decode.regroup import member_at
from frazil.upsert.changes import DELETE
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.key_fields import find_key_fields
from frazil.upsert.key_names import places_of
from frazil.upsert.live_rows import has_column
from frazil.write.target import TableTarget

_UNTOLD = (
    "the row before the change lacks {0}, and so does the record's key: it is unknown whether the row had another"
    " key, as with PostgreSQL without `REPLICA IDENTITY FULL`"
)
_UNSENT = "the row was created under a new key without the value of {}, which is in the row of the old key alone"


def key_arrays(target: TableTarget, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """The columns of the key, as far as the table has them."""
    assert target.envelope is not None
    found = (member_at(target.fields, columns, path) for path in target.envelope.keys)
    return [one[0] for one in found if one is not None]


def check_keys(making: Making, plan: Plan, keys: Sequence[pa.Array]) -> None:
    """Every row that is written or taken away has a key; the one before an update may be without, as it is then the same."""
    if not making.envelope.is_upsert:
        return
    needs = plan.is_after | (making.opened.op[plan.records] == REMOVE)
    for path, key in zip(making.envelope.keys, keys, strict=False):
        bad = np.zeros(making.check.refused.size, np.bool_)
        bad[plan.records[needs & np.asarray(key.is_null())]] = True
        making.check.refuse(bad, FAULTS[NO_KEY].kind, FAULTS[NO_KEY].message, ".".join(path))


def check_old_keys(check: Check, opened: Opened, target: TableTarget, records: Records) -> None:
    """Refuses updates that do not tell which key the row had, where it may have had another: when a column changes that the
    record's key has, a delete and an insert are told.
    """
    reading = target.changes
    if reading is None or reading.is_key_of_record or "key" not in records:
        return
    if not all(has_column(target, path) for path in reading.paths):
        return
    updates = (opened.note == IMAGES) & (opened.op == UPDATE) & ~check.refused
    # What no field feeds, such as the topic or a constant, is the same before and after.
    own = {name for _, name in target.metadata} | (target.shaping.own if target.shaping is not None else set())
    fields = {path: places for path, places in places_of(target, reading).items() if path[0] not in own}
    untold = {path: updates & ~_is_there(opened.before, places[0], updates.size) for path, places in fields.items()}
    if not any(mask.any() for mask in untold.values()):
        return
    keys = find_key_fields(target, records)
    check.miss(keys.missing)
    for path, mask in untold.items():
        roots = {place[0] for place in fields[path]}
        # What cannot be read is believed. Of a document its `_id` never changes.
        is_told = np.array([not roots.isdisjoint(names) for names in keys.names] + [True])[keys.codes] & ~keys.lacks
        name = ".".join(path)
        check.refuse(mask & ~is_told & (ID not in roots), FAULTS[NO_BEFORE].kind, _UNTOLD.format(name), name)


def _is_there(images: pa.Array | None, field: tuple[str, ...], count: int) -> Bools:
    """Which images of rows have a value in a field."""
    for name in field:
        if images is None or images.type.get_field_index(name) < 0:
            return np.zeros(count, np.bool_)
        images = pc.struct_field(images, name)
    assert images is not None
    return np.asarray(images.is_valid())


def is_needless(plan: Plan, keys: Sequence[pa.Array]) -> Bools:
    """Deletes of the row before an update that has the same key, or no key at all."""
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


def old_keys_of(
    making: Making, plan: Plan, keys: Sequence[pa.Array], unsent: Mapping[int, Bools]
) -> list[pa.Array] | None:
    """Keys that rows had before, where it takes the old row to know the new one's values. The row's own key stands for one
    that its record tells and that cannot be read, as headers do not tell types: the delete at its position has the key too.
    """
    if not making.envelope.is_upsert or not unsent or not keys:
        return None
    needs = np.zeros(plan.ops.size, np.bool_)
    for flags in unsent.values():
        needs |= flags
    moved = np.flatnonzero(needs & _follows_delete(plan, keys))
    places = np.full(plan.ops.size, -1, np.int64)
    places[moved] = moved - 1
    told: list[list[pa.Scalar]] = []
    created = np.flatnonzero(needs & (making.opened.op[plan.records] == CREATE))
    for n in created.tolist():
        key = _told_old_key(making, int(plan.records[n]), [key.type for key in keys])
        if key is not None:
            places[n] = plan.ops.size + len(told)
            told.append(key)
        elif _is_told_elsewhere(making, int(plan.records[n])):
            places[n] = n
        else:
            bad = np.zeros(making.check.refused.size, np.bool_)
            bad[plan.records[n]] = True
            name = next(making.target.fields[c].name for c, flags in unsent.items() if flags[n])
            making.check.refuse(bad, "unavailable_value", _UNSENT.format(name), name)
    if (places < 0).all():
        return None
    rows = pa.array(places, mask=places < 0)
    return [
        pa.concat_arrays([key, pa.array([one[k] for one in told], key.type)]).take(rows) for k, key in enumerate(keys)
    ]


def _follows_delete(plan: Plan, keys: Sequence[pa.Array]) -> Bools:
    """Rows whose record has them take the place of a row with another key."""
    found = np.zeros(plan.ops.size, np.bool_)
    found[1:] = (plan.records[1:] == plan.records[:-1]) & (plan.ops[:-1] == DELETE) & ~is_needless(plan, keys)[:-1]
    return found


def _is_told_elsewhere(making: Making, record: int) -> bool:
    """Whether the record says that its row had another key, and where in the log that was."""
    positions = making.opened.facts.get("position")
    return positions is not None and positions[record].is_valid and bool(_headers(making, record, OLD_KEY))


def _headers(making: Making, record: int, name: str) -> list[bytes]:
    headers = making.records["headers"][record].as_py() if "headers" in making.records else None
    return [one["value"] for one in headers or [] if one["key"] == name]


def _told_old_key(making: Making, record: int, kinds: Sequence[pa.DataType]) -> list[pa.Scalar] | None:
    """The key that Debezium's header tells, in the order of the key columns; None without one that can be read."""
    raw = next(iter(_headers(making, record, OLD_KEY)), None)
    try:
        told = json.loads(raw or b"")
        told = told["payload"] if isinstance(told, dict) and told.keys() == {"schema", "payload"} else told
        names = [_field_of(making.target, path[0]) for path in making.envelope.keys]
        return [pa.scalar(told[name], kind) for name, kind in zip(names, kinds, strict=True)]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        return None


def _field_of(target: TableTarget, column: str) -> str:
    """The field that feeds a column: the source's name of it."""
    return column if target.shaping is None else target.layout.paths.get(column, (column,))[0]
