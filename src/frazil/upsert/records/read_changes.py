"""Records of a topic read as changes of an upsert table, each with its key.

Without an envelope, a record's value is the row of its key, and a record without a value deletes that row. An envelope
carries the operation itself (`cdc.changes`), and its record's key only names the columns that identify a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, NestedField, StringType, StructType, UUIDType

from frazil.cdc.changes import read_envelope
from frazil.decode.columns import Decoded, Mismatch
from frazil.error_classes import ErrorClass
from frazil.rows.decoder import has_value
from frazil.rows.project import decode_rows, shape_rows
from frazil.rows.tombstones import read_others
from frazil.schema.arrow import Bools, Records, arrow_type, as_written, one_array, pick, spread_mask
from frazil.schema.evolve import RequestedFields, TypesDiffer, merge_requested_fields, type_at
from frazil.schema.selection import Path
from frazil.stages.changes import DELETE, UPSERT, Changes, ReadRecords, as_versions
from frazil.types import Place
from frazil.upsert.change_notes import REFUSED
from frazil.upsert.lookup.live_rows import has_column, member
from frazil.upsert.records.key_fields import check_key_fields, first_alike, name_columns
from frazil.upsert.records.record_keys import Keys, put_keys, read_keys
from frazil.upsert.records.tombstones import take_tombstones
from frazil.write.target import TableTarget

SOURCE_TABLE = "_source_table"
"""The column of the source table of a row, unless the file gives it another name."""
_NO_FIELDS = "the record's key has no field, and the table has no key columns yet"


def read_upserts(target: TableTarget, records: Records, limit: int) -> Changes:
    """Returns the changes of records of an upsert table. limit: the number of mismatches that are kept."""
    return read_others(_read_plain if target.envelope is None else _read_enveloped, target, records, limit)


def _read_plain(target: TableTarget, records: Records, limit: int) -> Changes:
    """Returns the changes of records without an envelope."""
    reading = target.changes
    assert reading is not None
    has_row = has_value(target.reading, records["value"])
    decoded = _rows_there(target, records, has_row, limit)
    needs_key = np.ones(has_row.size, np.bool_) if reading.is_key_of_record else ~has_row
    is_known = bool(reading.key_columns)
    keys = read_keys(target, records, needs_key if is_known else first_alike(target, records, needs_key), limit)
    decoded = _with_mismatches(decoded, keys, reading.key.format, limit)
    columns = [_in_table(*pair) for pair in zip(target.fields, decoded.columns, strict=False)]
    decoded = replace(decoded, columns=columns)
    if reading.key_columns and columns:
        if reading.is_key_of_record:
            decoded = _refuse_other_keys(target, decoded, keys, has_row, limit)
        columns = [
            put_keys(field_, column, keys, needs_key) for field_, column in zip(target.fields, columns, strict=True)
        ]
    rows = np.arange(has_row.size, dtype=np.int32)
    ops = np.where(has_row, UPSERT, DELETE).astype(np.int8)
    changes = Changes(
        columns=columns,
        ops=ops,
        records=rows,
        unavailable={},
        decoded=replace(decoded, columns=[], own={}),
        key_columns=name_columns(target, keys.fields),
        own=decoded.own,
    )
    if reading.marks_deletes:
        _mark(target, changes, ~has_row, records["timestamp"])
    if reading.history is not None:
        changes.own = {**changes.own, **as_versions(records["timestamp"])}
    if reading.order_by:
        changes.order = ordering_values(target, changes.columns, records)
    return changes


def _read_enveloped(target: TableTarget, records: Records, limit: int) -> Changes:
    """Returns the changes of records with an envelope. For a table whose key columns are not known yet, the fields of
    the records' keys are returned as key columns.
    """
    changes = read_envelope(target, records, limit)
    reading = target.changes
    assert reading is not None
    if reading.paths:
        return take_tombstones(target, records, check_key_fields(target, records, changes, limit))
    is_named = changes.key_columns or (target.envelope is not None and target.envelope.names_keys)
    if not changes.ops.size or is_named:
        return changes
    has_key = np.zeros(len(changes.decoded.refused), np.bool_)
    has_key[changes.records[changes.have_keys]] = True
    keys = read_keys(target, records, first_alike(target, records, has_key), limit)
    decoded_keys = keys.decoded
    decoded = changes.decoded.refusing(decoded_keys.refused, decoded_keys.mismatches, limit)
    decoded = replace(decoded, missing=decoded.missing | decoded_keys.missing)
    fields = dict.fromkeys(_as_in_row(target, changes.decoded.requested_fields, path) for path in keys.fields)
    return replace(changes, decoded=decoded, key_columns=name_columns(target, tuple(fields)))


def _as_in_row(target: TableTarget, requested_fields: RequestedFields, path: Path) -> Path:
    """Returns the path of a key field in the row, where a parent may be a plain value: an Oracle number is a struct in
    both, and its digits in the table.
    """
    row = StructType(*(target.fields if target.shaping is None else target.layout.fields))
    for cut in range(1, len(path)):
        kind = requested_fields.get(path[: cut - 1], {}).get(path[cut - 1]) or type_at(row, path[:cut])
        if kind is not None and not isinstance(kind, StructType):
            return path[:cut]
    return path


def _mark(target: TableTarget, changes: Changes, is_gone: Bools, times: pa.Array) -> None:
    """Turns deletes into rows that are marked as deleted, with the time of the delete; every other value of the row is
    kept.
    """
    assert target.changes is not None
    # A struct that contains a key has other members too, which are kept.
    keys = {path[0] for path in target.changes.paths if len(path) == 1}
    changes.ops[:] = UPSERT
    changes.own = {
        **changes.own,
        "deleted": pa.array(is_gone),
        "deleted_at": pc.if_else(pa.array(is_gone), times, None),
    }
    if is_gone.any():
        changes.unavailable = {n: is_gone for n, column in enumerate(target.fields) if column.name not in keys}


def _refuse_other_keys(target: TableTarget, decoded: Decoded, keys: Keys, has_row: Bools, limit: int) -> Decoded:
    """Refuses records whose value contradicts their key: one of the two is wrong."""
    refused, mismatches = decoded.refused, []
    by_name = {field_.name: column for field_, column in zip(target.fields, decoded.columns, strict=True)}
    for path, key in keys.columns.items():
        if path[0] in by_name:
            own = member(by_name[path[0]], path[1:])
            differs = _differ(own, key.cast(own.type)) & has_row & ~refused
            name = ".".join(path)
            reason = f"the field {name} of the value is not that of the key"
            mismatches += [
                Mismatch(row, name, ErrorClass.KEY_MISMATCH, reason) for row in np.flatnonzero(differs)[:limit].tolist()
            ]
            refused = refused | differs
    return decoded.refusing(refused, mismatches, limit)


def _differ(own: pa.Array, key: pa.Array) -> Bools:
    """Returns which values differ; NaN equals NaN."""
    differ = pc.not_equal(own, key)
    if pa.types.is_floating(own.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(own), pc.is_nan(key)))
    return np.asarray(pc.fill_null(differ, False))


def ordering_values(target: TableTarget, columns: Sequence[pa.Array], records: Records) -> pa.Array | None:
    """Returns the values of the `order_by` column per change; None while the table lacks the column. records: one value
    per change.
    """
    assert target.changes is not None
    name = target.changes.order_by
    for field_, column in zip(target.fields, columns, strict=True):
        if field_.name == name:
            return column
    return next((records[source] for source, column in target.metadata if column == name), None)


def _in_table(field: NestedField, column: pa.Array) -> pa.Array:
    """Returns the values with the table's names of members, which differ from the records' with `column_case`."""
    return as_written(column, arrow_type(field.field_type)) if pa.types.is_struct(column.type) else column


def _rows_there(target: TableTarget, records: Records, has_row: Bools, limit: int) -> Decoded:
    """Returns the rows of the records that have a value; null for the others."""
    if has_row.all():
        return decode_rows(target, records, limit)
    rows = np.flatnonzero(has_row)
    return decode_rows(target, pick(records, rows), limit).spread(rows, has_row.size)


def _with_mismatches(decoded: Decoded, keys: Keys, key_format: str, limit: int) -> Decoded:
    decoded_keys = keys.decoded
    return replace(
        decoded.refusing(decoded_keys.refused, decoded_keys.mismatches, limit),
        requested_fields=_united(decoded.requested_fields, decoded_keys.requested_fields, key_format),
        missing=decoded.missing | decoded_keys.missing,
        refusals=decoded.refusals | decoded_keys.refusals,
        dropped=decoded.dropped | decoded_keys.dropped,
    )


def _united(of_rows: RequestedFields, of_keys: RequestedFields, key_format: str) -> dict[Path, dict[str, IcebergType]]:
    """Returns the schema requests of rows and keys together. Where they contradict each other, a schema decides over
    JSON, which has text for UUIDs, times and bytes; a record that does not match is a bad record.
    """
    has_schema = key_format in ("avro", "protobuf", "json_schema")
    try:
        both = merge_requested_fields([of_rows, of_keys])
    except TypesDiffer:
        both = merge_requested_fields([of_keys, of_rows] if has_schema else [of_rows, of_keys], keeps_first=True)
    for path, members in of_keys.items() if has_schema else ():
        for name, kind in members.items():
            if isinstance(kind, UUIDType) and isinstance(both[path][name], StringType):  # Text would store both.
                both[path][name] = kind
    return both


def check_keys(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of an upsert table with their ordering values; a record without a key or an ordering value is a
    bad record.
    """
    reading, records, limit = target.changes, read.columns, read.limit
    if reading is None or not changes.ops.size or not reading.is_key_known:
        return changes
    if not reading.paths or not all(has_column(target, path) for path in reading.paths):
        return _without_key_columns(target, changes, limit)
    of_change = pick(records, changes.records)
    mismatches = _without_key(target, shape_rows(target, changes, of_change), changes, limit)
    if reading.order_by:
        of_change = {**of_change, **changes.own}
        order = changes.order if changes.order is not None else ordering_values(target, changes.columns, of_change)
        changes = replace(changes, order=order, unavailable=without_ordered(target, changes, order))
        mismatches += _without_order(target, changes, limit)
    mismatches += _refuse_noted(target, read.topic, records, changes, limit)
    if not mismatches:
        return changes
    return replace(changes, decoded=changes.decoded.refusing(changes.decoded.refused, mismatches, limit))


def _without_key_columns(target: TableTarget, changes: Changes, limit: int) -> Changes:
    """Returns the changes of a table that lacks a key column or does not know its key yet. Where the records bring the
    column, the batch is planned again; otherwise they are refused, because their rows could not be found again.
    """
    decoded, reading = changes.decoded, target.changes
    assert reading is not None
    if not target.schema_json or decoded.requested_fields or decoded.missing or changes.key_columns:
        return changes
    if not target.fields:  # No record has had a value yet, so there is nothing to delete.
        is_delete = spread_mask(changes.ops == DELETE, changes.records, decoded.refused.size)
        ignored = {**changes.ignored, "delete": changes.ignored.get("delete", np.False_) | is_delete}
        changes = replace(changes, ignored=ignored).only(changes.ops != DELETE)
    name = next((name for name in reading.key_columns if not has_column(target, tuple(name.split(".")))), "")
    reason = _lacking(target, name) if name else _NO_FIELDS
    mismatches = refuse(changes, changes.have_keys, name, ErrorClass.NO_KEY, reason, limit)
    return replace(changes, decoded=decoded.refusing(decoded.refused, mismatches, limit))


def _lacking(target: TableTarget, name: str) -> str:
    """Returns why changes of a table without this key column are refused, with the column that the name may stand for."""
    if column := _made_of(target, name):
        return f"the table has no key column {name}: write `{column}` under `key_columns`, the column of that field"
    reading = target.changes
    assert reading is not None
    if reading.is_key_of_record and target.envelope is not None and target.envelope.kind == "debezium":
        key_columns = [
            key_column for key_column in reading.key_columns if has_column(target, tuple(key_column.split(".")))
        ]
        return f"the record's key has the field {name}, and its row does not: {apart_by_table(key_columns)}"
    return f"the table has no key column {name}, and the record does not have it"


def apart_by_table(key_columns: Iterable[str]) -> str:
    """Returns the advice for a topic whose record keys have a field that rows lack, for the source table of the row.
    key_columns: the fields of the keys that rows have.
    """
    columns = ", ".join((SOURCE_TABLE, *key_columns))
    return (
        "where it names the row's table, as ByLogicalTableRouter lets it, write `metadata: [source_table]` and"
        f" `key_columns: [{columns}]`, which keeps rows of several tables apart"
    )


def _made_of(target: TableTarget, name: str) -> str:
    """Returns the column of the field that a name may stand for, where that is not the column itself; else nothing."""
    (column,) = name_columns(target, (tuple(name.split(".")),))
    return column if column != name and has_column(target, tuple(column.split("."))) else ""


def _without_key(target: TableTarget, rows: pa.Table, changes: Changes, limit: int) -> list[Mismatch]:
    """Refuses the records of changes that lack a value in a key column: their rows could not be found again."""
    assert target.changes is not None
    mismatches: list[Mismatch] = []
    for path, name in zip(target.changes.paths, target.changes.key_columns, strict=True):
        lacks = np.asarray(key_of(rows, path).is_null()) & changes.have_keys
        mismatches += _refuse_empty(changes, lacks, name, ErrorClass.NO_KEY, f"the key column {name}", limit)
    return mismatches


def without_ordered(target: TableTarget, changes: Changes, order: pa.Array | None) -> dict[int, Bools]:
    """Returns `unavailable` without the ordering values of marked deletes that have one: an older change that arrives
    after such a delete must not restore the row.
    """
    assert target.changes is not None
    unavailable = dict(changes.unavailable)
    for n, field_ in enumerate(target.fields):
        if order is not None and n in unavailable and field_.name == target.changes.order_by:
            unavailable[n] = unavailable[n] & np.asarray(order.is_null())
    return unavailable


def _without_order(target: TableTarget, changes: Changes, limit: int) -> list[Mismatch]:
    assert target.changes is not None
    name, lacks = target.changes.order_by, changes.ops == UPSERT
    if changes.order is not None:
        lacks &= np.asarray(changes.order.is_null())
    elif column := _made_of(target, name):
        reason = f"the table has no column {name}: write `{column}` under `order_by`, the column of that field"
        return refuse(changes, lacks, name, ErrorClass.NO_ORDER_VALUE, reason, limit)
    return _refuse_empty(
        changes, lacks, name, ErrorClass.NO_ORDER_VALUE, f"the column {name}, which orders the changes,", limit
    )


def _refuse_empty(changes: Changes, lacks: Bools, name: str, kind: ErrorClass, what: str, limit: int) -> list[Mismatch]:
    """Refuses changes whose column is empty: the record has no value, or the value does not fit."""
    unfit = lacks & changes.mismatched(name)
    mismatches = refuse(changes, unfit, name, kind, f"{what} has a value that does not fit its type", limit)
    return mismatches + refuse(changes, lacks, name, kind, f"{what} has no value", limit)


def _refuse_noted(target: TableTarget, topic: str, records: Records, changes: Changes, limit: int) -> list[Mismatch]:
    """Refuses records that the driver has found to be bad in an earlier attempt."""
    mismatches: list[Mismatch] = []
    for name, (kind, reason) in REFUSED.items():
        lost = _are_among(target.known.of(name), topic, records)[changes.records]
        mismatches += refuse(changes, lost, "", kind, reason, limit)
    return mismatches


def _are_among(lost: Sequence[Place], topic: str, records: Records) -> Bools:
    """Returns which records are at these places. topic: the topic of all records; empty matches any."""
    mine = {(partition, offset) for name, partition, offset in lost if name == topic or not topic}
    if not mine:
        return np.zeros(len(records["value"]), np.bool_)
    places = zip(records["partition"].to_pylist(), records["offset"].to_pylist(), strict=True)
    return np.fromiter((place in mine for place in places), np.bool_, len(records["partition"]))


def refuse(changes: Changes, lacks: Bools, path: str, kind: ErrorClass, reason: str, limit: int) -> list[Mismatch]:
    """Refuses the records of these changes, all for one reason."""
    refused = changes.decoded.refused
    is_bad = np.zeros(refused.size, np.bool_)
    is_bad[changes.records[lacks]] = True
    rows = np.flatnonzero(is_bad & ~refused)
    refused[rows] = True
    return [Mismatch(row, path, kind, reason) for row in rows[:limit].tolist()]


def keys_of(target: TableTarget, rows: pa.Table) -> tuple[pa.Array, ...]:
    """Returns the key columns of rows in the schema of the files; null where the table lacks a key column, as for a
    delete of all rows.
    """
    assert target.changes is not None
    return tuple(
        key_of(rows, path) if has_column(target, path) else pa.nulls(rows.num_rows, pa.string())
        for path in target.changes.paths
    )


def key_of(rows: pa.Table, path: Path) -> pa.Array:
    """Returns one key column of rows in the schema of the files."""
    return member(one_array(rows.column(path[0])), path[1:])
