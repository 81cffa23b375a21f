"""Messages of Canal opened: each has a list of rows, whose values are texts, and the types of their columns.

The opened form has a line for each row; a message without rows has one too. Source: Canal's flat messages, as its
`MQMessageUtils` makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.cdc.envelope import (
    HEARTBEAT,
    IMAGES,
    MESSAGE,
    NO_ENVELOPE,
    NO_OBJECT,
    NO_ROWS,
    OPERATIONS,
    OTHER_ROWS,
    SCHEMA_CHANGE,
    TOMBSTONE,
    TRANSACTION,
    MessageRows,
)
from frazil.cdc.json_members import EnvelopeBatch, read_number, read_string
from frazil.cdc.positions import IN_MESSAGES
from frazil.decode.columns import Decoded, Fault, Mismatch, in_order
from frazil.decode.conversion import Conversion
from frazil.decode.epochs import from_numbers
from frazil.decode.json import scan
from frazil.decode.json.grammar import ARRAY, ESCAPED, NULL, OBJECT, STRING, TRUE
from frazil.decode.json.records import FAULTS, read_objects
from frazil.decode.json.slices import Slices, Texts, elements_of, group_equal, members_under
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import Bools, Ints, Records, spread_places
from frazil_cdc.canal.rows import ImageRows, group_rows, read_group

_NAMES = ("type", "isDdl", "data", "old", "mysqlType", "pkNames", "es", "ts", *IN_MESSAGES.values())
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "TRUNCATE": "t"}
_CODES = (*OPERATIONS, "m")
_RECORD_KINDS = {
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), TRANSACTION),
    **dict.fromkeys(("MHEARTBEAT", "TIDB_WATERMARK"), HEARTBEAT),
    "QUERY": MESSAGE,
}
_NO_TIME = {1: Fault(ErrorClass.OUT_OF_RANGE, "{value} is not a time in milliseconds")}


@dataclass
class _Messages:
    """Messages while they are opened."""

    batch: EnvelopeBatch
    #: The members of each message by name.
    members: Mapping[str, Slices]
    #: The kind of each message, a code of `cdc.envelope`: int32 of shape (n_messages,).
    record_kind: NDArray[np.int32]
    #: The operation of each message.
    op: pa.Array
    #: Which messages can be read at least in part.
    good: Bools
    #: The number of the first row of each message.
    starts: Ints
    #: The number of rows of each message.
    counts: Ints

    def has_op(self, type_name: str) -> Bools:
        """Returns which messages have this operation, bool of shape (n_messages,)."""
        is_so: Bools = (
            np.asarray(pc.fill_null(pc.equal(self.op, type_name), False)) & (self.record_kind == IMAGES) & self.good
        )
        return is_so

    def lists(self, name: str, mask: Bools) -> tuple[Ints, Slices]:
        """Returns the number of elements of the list under a name in the messages that `mask` marks, and all these
        elements.
        """
        offsets, elements = elements_of(self.batch.texts, self.members[name].masked(mask).only(ARRAY))
        return np.diff(offsets).astype(np.int64), elements


def open_canal(
    records: Records, fields: tuple[NestedField, ...], reading: Reading, limit: int, large: list[Mismatch]
) -> MessageRows:
    """Returns the columns `fields` of `cdc.envelope` for the rows of these messages. Bad records raise nothing.

    large: mismatches for values that were left out for their size.
    """
    values, whole = records["value"], replace(reading, is_rescuing=False, selection=None)
    conversion = Conversion(whole, "", len(values), limit)
    return read_objects(values, conversion, partial(_open, fields, reading, large))[0]


def _open(
    fields: tuple[NestedField, ...],
    reading: Reading,
    large: list[Mismatch],
    texts: Texts,
    objects: Slices,
    error: NDArray[np.uint8],
) -> MessageRows:
    conversion = texts.conversion
    conversion.refused[[mismatch.row for mismatch in large]] = True
    conversion.mismatches += large
    is_tombstone = error == scan.TOMBSTONE
    error[is_tombstone] = scan.OK
    members = dict(zip(_NAMES, members_under(texts, objects, _NAMES, error), strict=True))
    messages = _judge(EnvelopeBatch(texts, reading, fields), members, (error == scan.OK) & ~conversion.refused)
    messages.record_kind[is_tombstone] = TOMBSTONE
    rows = _rows(messages)
    facts = _facts(messages)
    is_read = error != scan.ESCAPED_KEY  # The others are read again.
    conversion.refuse_records(error * is_read, FAULTS)
    groups = list(group_rows(texts, messages.members["mysqlType"], messages.counts > 0, rows.owner))
    inner = _inner(messages, rows)
    columns = {name: array.take(pa.array(rows.owner)) for name, array in facts.items()}
    columns |= {"record_kind": pa.array(rows.record_kind), "op": messages.op.take(pa.array(rows.owner))}
    read = [read_group(inner, rows, places, types, columns) for places, types in groups]
    texts.has_escaped_keys |= inner.texts.has_escaped_keys
    decoded = in_order(read, fields, rows.owner.size, conversion.limit)
    return MessageRows(_with_texts(decoded, inner.texts.conversion), rows.owner)


def _with_texts(decoded: Decoded, conversion: Conversion) -> Decoded:
    """Returns the result with that of reading the texts."""
    of_texts = Decoded([], conversion.refused, conversion.mismatches)
    both = of_texts.refusing(decoded.refused, decoded.mismatches, conversion.limit)
    return conversion.added_to(replace(decoded, refused=both.refused, mismatches=both.mismatches), is_first=True)


def _judge(batch: EnvelopeBatch, members: Mapping[str, Slices], good: Bools) -> _Messages:
    """Returns the kind and the operation of each message, from its members."""
    kind = read_string(batch, members["type"], "type")
    is_ddl = members["isDdl"].kind == TRUE
    code = pc.index_in(kind, pa.array(_OPS))
    # Other operations keep their own names, which are no codes.
    named = pc.if_else(pc.is_in(kind, pa.array(_CODES)), pc.binary_join_element_wise("type ", kind, ""), kind)
    op = pc.coalesce(pa.array(list(_OPS.values())).take(code), named)
    record_kind = np.full(good.size, IMAGES, np.int32)
    record_kind[is_ddl & np.asarray(code.is_null())] = SCHEMA_CHANGE
    for type_name, number in _RECORD_KINDS.items():
        record_kind[np.asarray(pc.fill_null(pc.equal(kind, type_name), False)) & ~is_ddl] = number
    record_kind[members["type"].kind <= NULL] = NO_ENVELOPE
    nothing = np.zeros(good.size, np.int64)
    return _Messages(batch, members, record_kind, op, good, nothing, nothing)


def _rows(messages: _Messages) -> ImageRows:
    """Returns the rows of all messages. A list without rows, or with another number of rows than its companion, makes
    its message a bad record.
    """
    record_kind, data, old = messages.record_kind, messages.members["data"], messages.members["old"]
    is_update, is_delete = messages.has_op("u"), messages.has_op("d")
    is_change = is_update | is_delete | messages.has_op("c")
    counts, elements = messages.lists("data", is_change)
    old_counts, old_elements = messages.lists("old", is_update)
    record_kind[is_change & (counts == 0)] = NO_ROWS
    record_kind[is_update & (old.kind == ARRAY) & (old_counts != counts)] = OTHER_ROWS
    for slices, mask in ((data, is_change), (old, is_update)):
        record_kind[mask & (slices.kind > NULL) & (slices.kind != ARRAY)] = NO_OBJECT
    messages.counts = np.where(is_change & (record_kind == IMAGES), counts, 0)
    sizes = np.maximum(messages.counts, 1)
    messages.starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(record_kind.size, dtype=np.int32), sizes)
    has_rows = messages.counts > 0
    after = _placed(elements, has_rows, owner)
    before = _placed(old_elements, has_rows & (old_counts > 0), owner)
    rows = ImageRows(owner, record_kind[owner], after, before, is_update[owner], is_delete[owner])
    rows.record_kind[has_rows[owner] & (after.kind != OBJECT)] = NO_OBJECT
    rows.record_kind[(before.kind > NULL) & (before.kind != OBJECT)] = NO_OBJECT
    return rows


def _placed(elements: Slices, has_rows: Bools, owner: NDArray[np.int32]) -> Slices:
    """Returns the elements of these messages' lists, each at its row; absent for the other rows."""
    kept, has_image = elements.take(has_rows[elements.owner]), has_rows[owner]
    start, end = np.zeros((2, owner.size), np.int32)
    kind = np.zeros(owner.size, np.uint8)
    start[has_image], end[has_image], kind[has_image] = kept.start, kept.end, kept.kind
    return Slices(start, end, kind, np.arange(owner.size, dtype=np.int32))


def _inner(messages: _Messages, rows: ImageRows) -> EnvelopeBatch:
    """Returns the rows as a stretch to read, with the faults of their messages."""
    outer, reading = messages.batch.texts, Reading(is_rescuing=messages.batch.reading.is_rescuing)
    conversion = Conversion(reading, "", rows.owner.size, outer.conversion.limit)
    conversion.take(outer.conversion, messages.starts)
    texts = Texts(outer.buffer, conversion, outer.has_canonical_keys)
    return EnvelopeBatch(texts, messages.batch.reading, messages.batch.fields)


def _facts(messages: _Messages) -> dict[str, pa.Array]:
    """Returns the requested columns of messages other than their rows."""
    requested = {field.name for field in messages.batch.fields}
    is_change = (messages.record_kind == IMAGES) & messages.good
    facts = {}
    for fact, name in (("source_ts", "es"), ("connector_ts", "ts")):
        if fact in requested:
            slices = messages.members[name].masked(is_change)
            moments = from_numbers(read_number(messages.batch, slices, name), "ms")
            messages.batch.texts.refuse(slices, moments.is_outside.astype(np.uint8), name, _NO_TIME)
            facts[fact] = moments.micros.cast(pa.timestamp("us", tz="UTC"))
    for fact, name in IN_MESSAGES.items():
        if fact in requested:
            texts = messages.members[name].masked(is_change).only(STRING, ESCAPED)
            facts[fact] = read_string(messages.batch, texts, name)
    if "primary_key" in requested:
        facts["primary_key"] = _primary_keys(messages.batch.texts, messages.members["pkNames"].masked(is_change))
    return facts


def _primary_keys(texts: Texts, slices: Slices) -> pa.Array:
    """Returns a JSON list of the primary-key columns for each message; null where it names none."""
    rows = np.flatnonzero(slices.kind == ARRAY)
    codes, firsts = group_equal(texts.base, slices.take(slices.kind == ARRAY))
    formatted = [_names(texts.text(slices, int(rows[first]))) for first in firsts]
    names = pa.array(formatted, pa.string()).take(pa.array(codes))
    return names.take(spread_places(rows, len(slices)))


def _names(text: str) -> str | None:
    names = json.loads(text, parse_int=float)  # Python refuses integers of very many digits.
    return json.dumps(names) if names and all(isinstance(name, str) for name in names) else None
