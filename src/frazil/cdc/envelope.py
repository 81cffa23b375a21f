"""The opened envelope: the columns that every kind of envelope is brought to, in every format.

Changes are made of it; between the two are the planned changes and the bad records found so far.

A record is one row of these columns. `record_kind` is the kind of record; the other columns are null where it is no change.
A message that has several rows is spread to rows, and their changes are gathered by records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    BooleanType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from frazil.cdc.positions import mark_snapshot_rows
from frazil.decode.columns import Decoded, Fault, Mismatch, first_mismatches
from frazil.decode.settings import OWN_TYPES, Envelope
from frazil.error_classes import ErrorClass
from frazil.plugins.formats import ENVELOPES
from frazil.schema.arrow import Bools, Ints, Records, arrow_type, spread_mask
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes, as_versions
from frazil.write.target import TableTarget

IMAGES, ROW = 0, 1
"""Kinds of records: a change with images of the row before and after it; the row itself with its operation."""
BY_KEY = 7
"""The kind of a delete whose row only the record's key identifies, as of MongoDB documents."""
IGNORED = {
    2: "tombstone", 3: "heartbeat", 4: "transaction", 5: "schema_change", 6: "message", 8: "delete",
    9: "update_without_document", 10: "notification",
}  # fmt: skip
"""Kinds of records that make no change of a row, with their names in counts."""
TOMBSTONE, HEARTBEAT, TRANSACTION, SCHEMA_CHANGE, MESSAGE, _, NO_DOCUMENT, NOTIFICATION = IGNORED
(
    NO_ENVELOPE, NO_OPERATION, NO_OBJECT, UNKNOWN_OPERATION, NO_AFTER, NO_BEFORE, NO_KEY, NO_ROWS, OTHER_ROWS,
    NO_MEMBER, OTHER_FORMAT, OTHER_DATA, BAD_HEADER,
) = range(16, 29)  # fmt: skip
FAULTS = {
    NO_ENVELOPE: Fault(
        ErrorClass.NOT_AN_ENVELOPE, "the record has none of the fields of the envelope that the table expects"
    ),
    NO_OPERATION: Fault(ErrorClass.UNKNOWN_OPERATION, "the record names no operation"),
    NO_OBJECT: Fault(
        ErrorClass.NOT_AN_ENVELOPE, "the row before or after the change, or the data of the event, is not an object"
    ),
    UNKNOWN_OPERATION: Fault(ErrorClass.UNKNOWN_OPERATION, "the envelope has no such operation"),
    NO_AFTER: Fault(ErrorClass.MISSING_IMAGE, "the operation needs the row after the change, and the record lacks it"),
    NO_BEFORE: Fault(
        ErrorClass.MISSING_IMAGE, "the operation needs the row before the change, and the record lacks it"
    ),
    NO_KEY: Fault(ErrorClass.MISSING_KEY, "the row of the change has no value for a column of the key"),
    NO_ROWS: Fault(
        ErrorClass.MISSING_IMAGE, "the message has no rows, as from a source that does not log rows (`binlog_format`)"
    ),
    OTHER_ROWS: Fault(
        ErrorClass.MISSING_IMAGE,
        "`old` and `data` have different numbers of rows, so the old values cannot be assigned to rows",
    ),
    NO_MEMBER: Fault(ErrorClass.NOT_AN_ENVELOPE, "the record lacks a member that every record of its envelope has"),
    OTHER_FORMAT: Fault(
        ErrorClass.NOT_AN_ENVELOPE,
        "the record is a batch of CloudEvents, or one in another event format than JSON: let the producer write each"
        " event as a record of its own, as `application/cloudevents+json` or in binary mode",
    ),
    OTHER_DATA: Fault(
        ErrorClass.NOT_AN_ENVELOPE, "the event's data is not JSON, by its content type or as `data_base64`"
    ),
    BAD_HEADER: Fault(ErrorClass.NOT_AN_ENVELOPE, "a header of the event, or its key, is not UTF-8"),
}
"""The faults of inconsistent envelopes, by kind of record."""

_FACTS: dict[str, IcebergType] = {
    "source_ts": TimestamptzType(),
    "connector_ts": TimestamptzType(),
    "transaction_id": StringType(),
    "total_order": LongType(),
    "position": StringType(),
    "source_database": StringType(),
    "source_schema": StringType(),
    "source_table": StringType(),
    "connector": StringType(),
    "commit_place": StringType(),
    "source_transaction": StringType(),
    "collection_order": LongType(),
    "source_order": StringType(),
    "primary_key": StringType(),
    **{name: kind for name, kind in OWN_TYPES.items() if name.startswith(("ce_", "event_", "aggregate_"))},
}
CREATE, UPDATE, REMOVE, SNAPSHOT, EMPTY = range(5)
OPERATIONS = ("c", "u", "d", "r", "t")
"""The values of the column `_op`, by the code of the operation."""


def needed_facts(own: Collection[str]) -> tuple[str, ...]:
    """Returns the values of a change to read besides its images. own: the fields of `metadata` that the table has."""
    wanted = set(own)
    if not wanted.isdisjoint(("deleted_at", "valid_from")):
        wanted.add("source_ts")
    if "image" in wanted:
        wanted.add("connector")
    return tuple(name for name in _FACTS if name in wanted)


def needs_before(envelope: Envelope) -> bool:
    """Whether images of rows before their change are needed."""
    return envelope.is_log or envelope.is_upsert


def opened_fields(envelope: Envelope, row: Sequence[NestedField], facts: Collection[str]) -> tuple[NestedField, ...]:
    """Returns the columns of opened envelopes for rows with these fields."""
    loose = tuple(field.model_copy(update={"required": False}) for field in row)
    keys = {path[0] for path in envelope.keys}
    is_brief = bool(keys) and not envelope.is_log
    before = tuple(field for field in loose if field.name in keys) if is_brief else loose
    marks = (NestedField(0, field.name, BooleanType(), required=False) for field in row)
    kinds: dict[str, IcebergType] = {
        "record_kind": IntegerType(),
        "op": StringType(),
        "after": StructType(*loose),
        "before": StructType(*before),
        "unavailable": StructType(*marks),
        **{name: _FACTS[name] for name in facts},
    }
    if not needs_before(envelope):
        del kinds["before"]
    return tuple(NestedField(0, name, kind, required=False) for name, kind in kinds.items())


def opened_row(fields: Sequence[NestedField]) -> StructType:
    """Returns the row in the columns `fields` of opened envelopes."""
    row = next((member.field_type for member in fields if member.name == "after"), StructType())
    assert isinstance(row, StructType)
    return row


def own_values(context: ChangeContext, changes: Changes) -> dict[str, pa.Array]:
    """Returns the columns of `metadata` that come from the envelope, a row per change."""
    target, opened, rows = context.target, context.opened, changes.records
    own, places = frozenset(name for name, _ in target.metadata), pa.array(rows)
    values = {name: array.take(places) for name, array in opened.facts.items() if name in own}
    is_removal = opened.op[rows] == REMOVE
    if "source_order" in values and "partition" in context.records:
        is_read, partitions = pa.array(opened.op[rows] == SNAPSHOT), context.records["partition"].take(places)
        values["source_order"] = mark_snapshot_rows(values["source_order"], is_read, partitions)
    if "op" in own:
        values["op"] = pa.array(OPERATIONS).take(pa.array(opened.op[rows]))
    if "image" in own:
        values["image"] = _image_names(context, changes)
    if "unavailable" in own:
        values["unavailable"] = unsent_names(target, changes)
    if "deleted" in own:
        values["deleted"] = pa.array(is_removal)
    if "deleted_at" in own:
        times = change_times(opened, context.records).take(places)
        values["deleted_at"] = pc.if_else(pa.array(is_removal), times, None)
    if "valid_from" in own:
        values |= as_versions(change_times(opened, context.records).take(places))
    return values


def change_times(opened: Opened, records: Records) -> pa.Array:
    """Returns when the source made the change of each record; without this, when the record was sent."""
    times = opened.facts["source_ts"]
    return pc.coalesce(times, records["timestamp"]) if "timestamp" in records else times


def _image_names(context: ChangeContext, changes: Changes) -> pa.Array:
    """Returns `after`, `before`, or `identity`: a row before its change that lacks values, which the source may not
    have sent.
    """
    opened = context.opened
    rows, op = changes.records, opened.op[changes.records]
    leads = np.zeros(rows.size, np.bool_)
    leads[:-1] = rows[1:] == rows[:-1]
    is_before = leads | (op == REMOVE)
    lacks = np.zeros(rows.size, np.bool_)
    for column in changes.columns:
        lacks |= np.asarray(column.is_null())
    kinds = opened.facts["connector"].take(pa.array(rows))
    may_lack = np.asarray(pc.fill_null(pc.equal(kinds, "postgresql"), opened.record_kind.size == 0))
    may_lack |= opened.is_by_key[rows]
    may_lack |= np.asarray(kinds.is_null()) & (opened.record_kind[rows] == ROW)
    members = ENVELOPES.get(context.envelope.kind).members
    may_lack |= members is not None and members.before_has == "some"
    names = np.where(is_before, np.where(lacks & may_lack, "identity", "before"), "after")
    nothing = (op == EMPTY) | ((op == REMOVE) & ~(opened.has_before | opened.has_after)[rows])
    return pa.array(names, pa.string(), mask=nothing)


def unsent_names(target: TableTarget, changes: Changes) -> pa.Array:
    """Returns the names of the columns whose value was not sent; null where all were sent."""
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


@dataclass(frozen=True)
class Opened:
    """Envelopes of a stretch, opened to columns."""

    #: The result per record, without columns of the table.
    decoded: Decoded
    #: The kind of each record, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The operation of each change, an index of OPERATIONS.
    op: Ints
    #: The operation as the record has it.
    op_texts: pa.Array
    #: The row after the change, a struct.
    after: pa.Array
    #: The row before the change, a struct; None where no record has it.
    before: pa.Array | None
    #: By position of the row's field, which records did not send its value.
    unsent: Mapping[int, Bools]
    #: Other values of the envelope, by name.
    facts: Mapping[str, pa.Array]
    #: Which records have of the row before the change only what the record's key has.
    is_by_key: Bools
    #: The record of each row, of messages that have several rows; None where each record has one.
    owner: NDArray[np.int32] | None = None

    @property
    def has_after(self) -> Bools:
        """Which records have the row after the change, or the row itself."""
        return np.asarray(self.after.is_valid())

    @property
    def has_before(self) -> Bools:
        """Which records have the row before the change."""
        return np.zeros(self.record_kind.size, np.bool_) if self.before is None else np.asarray(self.before.is_valid())

    @property
    def are_of_one_row(self) -> Bools:
        """Which records are changes of a row, and not of all rows."""
        return np.asarray((self.record_kind <= ROW) & (self.op != EMPTY), np.bool_)


@dataclass(frozen=True)
class Plan:
    """The planned changes."""

    #: The record of each change: shape (n_changes,).
    records: Ints
    #: The operation of each change.
    ops: NDArray[np.int8]
    #: Which changes take the image after the change.
    is_after: Bools
    #: Which changes take the image before the change.
    is_before: Bools

    def only(self, kept: Bools) -> Plan:
        """Returns the changes that `kept` marks."""
        return Plan(self.records[kept], self.ops[kept], self.is_after[kept], self.is_before[kept])


class BadRecords:
    """The bad records of a stretch found so far. refused: which records are bad; missing: ids of schemas that must be
    fetched.
    """

    def __init__(self, opened: Opened, limit: int) -> None:
        self.refused = opened.decoded.refused.copy()
        self.mismatches = list(opened.decoded.mismatches)
        self.missing: frozenset[str] = frozenset()
        self._limit = limit

    def miss(self, missing: frozenset[str]) -> None:
        """Adds ids of schemas that are missing."""
        self.missing |= missing

    def refuse(self, bad: Bools, fault: Fault, path: str = "") -> None:
        """Marks these records as bad; a record that is bad already keeps its first reason."""
        rows = np.flatnonzero(bad & ~self.refused)
        self.mismatches += [Mismatch(row, path, fault.kind, fault.message) for row in rows[: self._limit].tolist()]
        self.refused[rows] = True

    def take(self, decoded: Decoded, records: Ints) -> None:
        """Marks the records of refused changes as bad."""
        bad = np.zeros(self.refused.size, np.bool_)
        bad[records[decoded.refused]] = True
        new = bad & ~self.refused
        reported = set()
        for mismatch in decoded.mismatches:
            row = int(records[mismatch.row])
            if new[row] and (row, mismatch.path) not in reported:
                reported.add((row, mismatch.path))
                self.mismatches.append(replace(mismatch, row=row))
        self.refused |= bad

    def first(self) -> list[Mismatch]:
        """Returns the mismatches to keep, in the order of the records."""
        return first_mismatches(self.mismatches, self._limit)


@dataclass(frozen=True)
class ChangeContext:
    """The inputs from which changes are made."""

    target: TableTarget
    envelope: Envelope
    opened: Opened
    #: The fields of the row in the images.
    row: Sequence[NestedField]
    #: The records' columns, as read from Kafka.
    records: Records
    #: The bad records found so far.
    check: BadRecords


def plan_changes(envelope: Envelope, opened: Opened, refused: Bools) -> Plan:
    """Returns the changes of good records in their order: up to two per record, with the change of the row before an
    update first.
    """
    good = (opened.record_kind <= ROW) & ~refused
    op, has_before = opened.op, opened.has_before & (opened.record_kind == IMAGES)
    writes = good & np.isin(op, (CREATE, UPDATE, SNAPSHOT))
    removals, emptied = good & (op == REMOVE), good & (op == EMPTY)
    if not needs_before(envelope):
        removals[:] = emptied[:] = False
    first = good & (op == UPDATE) & has_before & needs_before(envelope)
    count = first.astype(np.int64) + (writes | removals | emptied)
    records = np.repeat(np.arange(op.size), count)
    is_first = np.zeros(records.size, np.bool_)  # The first of the two changes of its record.
    is_first[(np.cumsum(count) - count)[first]] = True
    ops = np.full(records.size, UPSERT, np.int8)
    if envelope.is_upsert:
        ops[is_first | (removals[records] & (not envelope.marks_deletes))] = DELETE
        ops[emptied[records]] = TRUNCATE
    is_before = is_first | (removals[records] & has_before[records])
    is_after = ~is_before & ~emptied[records] & opened.has_after[records]
    return Plan(records, ops, is_after, is_before)


def find_ignored(envelope: Envelope, opened: Opened) -> dict[str, Bools]:
    """Returns which records make no change, by kind of record."""
    ignored: dict[str, Bools] = {text: opened.record_kind == number for number, text in IGNORED.items()}
    if not needs_before(envelope):
        is_change = opened.record_kind <= ROW
        ignored["delete"] |= is_change & (opened.op == REMOVE)
        ignored["truncate"] = is_change & (opened.op == EMPTY)
    return {text: mask for text, mask in ignored.items() if mask.any()}


Owner = NDArray[np.int32]
"""The record of each row: shape (n_rows,)."""


@dataclass(frozen=True)
class MessageRows:
    """The rows of messages."""

    #: The result per row, in the order of their messages, with one row for each message that has none.
    decoded: Decoded
    #: The record of each row: shape (n_rows,).
    owner: Owner


def spread(records: Records, owner: Owner) -> dict[str, pa.Array]:
    """Returns the records' columns with one row for each of their rows. Values are read already, and are left out."""
    places = pa.array(owner)
    spread_columns = {name: array.take(places) for name, array in records.items() if name != "value"}
    return {**spread_columns, "value": pa.nulls(owner.size, pa.binary())}


def gather(changes: Changes, owner: Owner, count: int) -> Changes:
    """Returns the changes by their records, of which there are `count`. Where one row of a message is bad, the entire
    message is.
    """
    decoded = changes.decoded
    decoded = replace(
        decoded,
        refused=spread_mask(decoded.refused, owner, count),
        mismatches=[replace(mismatch, row=int(owner[mismatch.row])) for mismatch in decoded.mismatches],
    )
    gathered = replace(
        changes,
        records=owner[changes.records],
        decoded=decoded,
        ignored={kind: spread_mask(mask, owner, count) for kind, mask in changes.ignored.items()},
    )
    return gathered.without_refused()
