"""The ids of MongoDB documents in record keys: they are called `id` there, and are in another JSON mode.

A key is in relaxed Extended JSON, a document in the strict mode: a long is `7` in the one, `{"$numberLong": "7"}` in
the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, NestedField, StringType, StructType

from frazil.cdc.envelope import BY_KEY
from frazil.cdc.json_members import replace_rows
from frazil.decode.columns import Decoded
from frazil.decode.json.records import decode_json
from frazil.decode.settings import EXTENDED_JSON, Reading
from frazil.rows.connect_messages import payloads_of
from frazil.rows.record_keys import decode_keys
from frazil.schema.arrow import Records, pick, structs_where
from frazil.schema.evolve import type_at

ID = "_id"
"""The field of a document that identifies it."""
_KEY = StructType(NestedField(0, "id", StringType(), required=False))
_OTHERWISE = ("$numberLong", "$date", "$binary")
"""The types whose values have another form in a key."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fill_from_keys(
    reading: Reading,
    before_key: Reading,
    records: Records,
    opened: Decoded,
    fields: Sequence[NestedField],
) -> Decoded:
    """Returns opened envelopes with the row before the change filled in from the record's key, for deletes without it.
    before_key: how keys are read.
    """
    names = [field.name for field in fields]
    record_kind, before = (opened.columns[names.index(name)] for name in ("record_kind", "before"))
    lacks = np.asarray(pc.fill_null(pc.equal(record_kind, BY_KEY), False))
    if not lacks.any() or "key" not in records:
        return opened
    kind = fields[names.index("before")].field_type
    assert isinstance(kind, StructType)
    keys = read_ids(before_key, pick(records, np.flatnonzero(lacks)), type_at(kind, (ID,)))
    opened = replace(opened, missing=opened.missing | keys.missing)
    lacks[lacks] = np.asarray(keys.columns[0].is_valid())
    decoded = decode_json(
        keys.columns[0].drop_null(), kind.fields, Reading(unknown_fields=reading.unknown_fields, json=EXTENDED_JSON)
    )
    rows = np.flatnonzero(lacks)
    image = structs_where([field.name for field in kind.fields], decoded.columns, rows.size)
    refused = opened.refused.copy()
    refused[rows[decoded.refused]] = True
    mismatches = [
        replace(mismatch, row=int(rows[mismatch.row]), path=".".join(filter(None, ("before", mismatch.path))))
        for mismatch in decoded.mismatches
    ]
    columns = list(opened.columns)
    columns[names.index("before")] = replace_rows(before, lacks, image)
    requested_fields = dict(opened.requested_fields)
    for path, members in decoded.requested_fields.items():
        requested_fields[("before", *path)] = {**members, **requested_fields.get(("before", *path), {})}
    return replace(
        opened,
        columns=columns,
        refused=refused,
        mismatches=[*opened.mismatches, *mismatches],
        requested_fields=requested_fields,
    )


def read_ids(reading: Reading, records: Records, kind: IcebergType | None) -> Decoded:
    """Returns one column: for each record a document with its `_id` alone, as JSON text; null where the key has no
    `id`. kind: the type of `_id`, where it is known.
    """
    if reading.format == "json":
        records = {**records, "key": payloads_of(records["key"])}
    decoded = decode_keys(replace(reading, unknown_fields="drop"), "key", _KEY, records, 0)
    ids = pc.struct_field(decoded.columns[0], [0])
    if _has_other_forms(kind):
        ids = pa.array([None if text is None else _as_in_document(text, kind) for text in ids.to_pylist()], pa.string())
    documents = pc.binary_join_element_wise(f'{{"{ID}":', ids, "}", "").cast(pa.binary())
    return replace(decoded, columns=[documents])


def _has_other_forms(kind: IcebergType | None) -> bool:
    """Whether values of the type may have another form in a key than in a document."""
    if kind is None:
        return True
    if isinstance(kind, ListType):
        return _has_other_forms(kind.element_type)
    members = kind.fields if isinstance(kind, StructType) else ()
    return any(field.name in _OTHERWISE or _has_other_forms(field.field_type) for field in members)


def _as_in_document(text: str, kind: IcebergType | None) -> str:
    """Returns a JSON text in relaxed mode in the strict mode; text that is no JSON is returned unchanged."""
    try:
        strict = json.dumps(_strict(json.loads(text), kind), ensure_ascii=False)
        strict.encode()  # JSON may escape a single surrogate, which no text has.
        return strict
    except (ValueError, TypeError, OverflowError, RecursionError):
        return text


def _strict(value: Any, kind: IcebergType | None) -> Any:
    members = {field.name: field.field_type for field in kind.fields} if isinstance(kind, StructType) else {}
    if type(value) is int and "$numberLong" in members:
        return {"$numberLong": str(value)}
    if isinstance(value, list):
        return [_strict(element, kind.element_type if isinstance(kind, ListType) else None) for element in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("$date"), str):
        return {"$date": (datetime.fromisoformat(value["$date"]) - _EPOCH) // timedelta(milliseconds=1)}
    if isinstance(value.get("$binary"), dict) and not isinstance(members.get("$binary"), StructType):
        return {"$binary": value["$binary"].get("base64"), "$type": value["$binary"].get("subType")}
    return {name: _strict(member, members.get(name)) for name, member in value.items()}
