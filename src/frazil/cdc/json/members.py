"""Envelopes in JSON while they are opened: the text slice of each member, and the values other than the
images of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from frazil.cdc.envelope import FLAT_TIMES, ROW
from frazil.cdc.positions import (
    FACT_TYPES,
    FLAT_ORIGINS,
    IN_SOURCE,
    ORDER_FIELDS,
    ORIGINS,
    POSITION_FIELDS,
    flat_origins_of,
    format_commit_position,
    format_position,
    format_source_order,
    format_transaction,
    origins_of,
)
from frazil.decode.columns import Decoded, Fault
from frazil.decode.epochs import from_numbers
from frazil.decode.json.columns import Findings, read_value
from frazil.decode.json.grammar import ABSENT, ESCAPED, INT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import JsonOptions
from frazil.decode.json.slices import Slices, Texts, members_under
from frazil.decode.settings import Envelope, Reading
from frazil.plugins.envelopes import Members
from frazil.schema.arrow import arrow_type


@dataclass
class EnvelopeMembers:
    """The members of envelopes, one slice per record and name."""

    #: Record numbers, int32 of shape (n_rows,).
    rows: NDArray[np.int32]
    #: The slices of each member by name.
    members: dict[str, Slices]
    #: The kind of each record, a code of `cdc.envelope`.
    record_kind: NDArray[np.int32]
    #: The operation of each record.
    op: pa.Array
    #: Whether `before` has only the changed values.
    is_overlay: bool = False
    #: The declared members of the envelope; None where it is opened by other rules.
    declared: Members | None = None

    def slices(self, name: str) -> Slices:
        """Returns the slices of a member that not every kind of envelope has."""
        found = self.members.get(name)
        if found is not None:
            return found
        nothing = np.zeros(self.rows.size, np.int32)
        return Slices(nothing, nothing, np.zeros(self.rows.size, np.uint8), self.rows)


@dataclass
class Group:
    """Records that were opened together."""

    #: Record numbers, int32 of shape (n_group,).
    rows: NDArray[np.int32]
    #: Their columns and mismatches.
    decoded: Decoded


@dataclass
class EnvelopeBatch:
    """All records while they are opened."""

    texts: Texts
    reading: Reading
    #: The columns to return.
    fields: tuple[NestedField, ...]
    #: The records opened so far.
    groups: list[Group] = field(default_factory=list)

    @property
    def envelope(self) -> Envelope:
        """The envelope that the table declares."""
        assert self.reading.envelope is not None
        return self.reading.envelope

    def type_of(self, name: str) -> IcebergType | None:
        """Returns the type of a column to return; None for other columns."""
        return next((one.field_type for one in self.fields if one.name == name), None)


def read_string(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, StringType(), Findings(), (name,)).cast(pa.string())


def read_code(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member, with integers as written; another value is a mismatch at `name`."""
    others = replace(slices, kind=np.where(slices.kind == INT, ABSENT, slices.kind).astype(np.uint8))
    texts, numbers = read_string(batch, others, name), read_number(batch, slices.only(INT), name)
    return pc.coalesce(texts, numbers.cast(pa.string()))


def read_number(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the integers of a member of the envelope; another value is a mismatch at `name`."""
    return read_value(batch.texts, slices, LongType(), Findings(), (name,))


def where(slices: Slices, mask: NDArray[np.bool_]) -> Slices:
    """Returns the slices that `mask` marks; the others are absent."""
    return Slices(slices.start[mask], slices.end[mask], slices.kind[mask], slices.owner[mask])


def either(choice: NDArray[np.bool_], one: Slices, other: Slices) -> Slices:
    """Returns the slices of `one` where `choice` is true, else those of `other`."""
    return Slices(
        np.where(choice, one.start, other.start),
        np.where(choice, one.end, other.end),
        np.where(choice, one.kind, other.kind),
        other.owner,
    )


def json_options(reading: Reading, limit: int, is_extended: bool = False) -> JsonOptions:
    """Returns how rows in JSON are read. is_extended: they are MongoDB documents."""
    return JsonOptions(
        reading.unknown_fields,
        reading.is_rescuing,
        limit,
        reading.selection,
        reading.units,
        reading.rejected_at,
        is_extended,
        reading.coerced,
        reading.numbers,
        row_depth=0 if reading.envelope is None else 1,
        hints=reading.hints,
        zones=reading.zones,
        infers_times=reading.infers_times,
    )


_NO_TIME = {1: Fault("out_of_range", "{value} is a time outside of the years 1 to 9999")}
_IN_SOURCE = ("source_ts", "position", "connector", "source_order")
_IN_TRANSACTION = ("transaction_id", "total_order", "collection_order", "source_order")
_ORDERS = {"total_order": "total_order", "collection_order": "data_collection_order"}


def read_facts(batch: EnvelopeBatch, envelopes: EnvelopeMembers, is_change: NDArray[np.bool_]) -> dict[str, pa.Array]:
    """Returns the requested values of envelopes other than the images, by name."""
    requested = [one.name for one in batch.fields]
    found: dict[str, pa.Array | None] = {}
    in_source, in_transaction = set(_IN_SOURCE) & set(requested), set(_IN_TRANSACTION) & set(requested)
    if in_transaction:
        transaction = members_of(batch, envelopes, "transaction", ["id", *_ORDERS.values()], is_change)
        found["transaction_id"] = read_string(batch, transaction["id"], "transaction.id")
        found |= {
            fact: read_number(batch, transaction[name], f"transaction.{name}")
            for fact, name in _ORDERS.items()
            if fact != "collection_order" or fact in requested
        }
    if in_source:
        names = ["ts_ms", "ts_us", "connector", *POSITION_FIELDS]
        source = members_of(batch, envelopes, "source", names, is_change)
        found["source_ts"] = _moment(batch, source)
        found["connector"] = read_string(batch, source["connector"], "source.connector")
        if in_source & {"position", "source_order"}:
            texts = {name: _fact(batch, source[name], name) for name in POSITION_FIELDS}
            position_fields = {name: one for name, one in texts.items() if one.null_count < len(one)}
            found["position"] = format_position(position_fields)
            found["source_order"] = format_source_order(position_fields, found.get("total_order"))
    if "commit_place" in requested:
        source = members_of(batch, envelopes, "source", list(ORDER_FIELDS), is_change)
        texts = {name: _fact(batch, source[name], name) for name in ORDER_FIELDS}
        order = {name: one for name, one in texts.items() if one.null_count < len(one)}
        found |= {"commit_place": format_commit_position(order), "source_transaction": format_transaction(order)}
    found |= _origins(batch, envelopes, is_change, requested)
    if "connector_ts" in requested and envelopes.declared is None:
        found["connector_ts"] = _moment(batch, kept(envelopes, ("ts_ms", "ts_us"), is_change))
    if batch.envelope.kind == "debezium":
        _add_flat_times(batch, envelopes, is_change, found, requested)
    if envelopes.declared is not None:
        found |= _declared_facts(batch, envelopes, envelopes.declared, is_change)
    return {name: array for name, array in found.items() if array is not None and name in requested}


def _origins(
    batch: EnvelopeBatch, envelopes: EnvelopeMembers, is_change: NDArray[np.bool_], requested: Sequence[str]
) -> dict[str, pa.Array]:
    """Returns the origin of changes, from Debezium's `source`."""
    if ORIGINS.keys().isdisjoint(requested) or batch.envelope.kind != "debezium":
        return {}
    source = members_of(batch, envelopes, "source", list(IN_SOURCE), is_change)
    return origins_of(requested, lambda name: _text(batch, source[name], f"source.{name}"))


def _add_flat_times(
    batch: EnvelopeBatch,
    envelopes: EnvelopeMembers,
    is_change: NDArray[np.bool_],
    found: dict[str, pa.Array | None],
    requested: Sequence[str],
) -> None:
    """Adds the times of unwrapped rows, which are fields next to their values."""
    is_flat = is_change & (envelopes.record_kind == ROW)
    if not is_flat.any():
        return
    for fact, names in FLAT_TIMES.items():
        if fact in requested:
            flat_members = members_of(batch, envelopes, "after", list(names), is_flat)
            times = {name[-5:]: one.only(INT) for name, one in flat_members.items()}
            moments = _moment(batch, times)
            other = found.get(fact)
            found[fact] = moments if other is None else pc.coalesce(other, moments)
    others = [name for fact, names in FLAT_ORIGINS.items() if fact in requested for name in names]
    if others:
        flat_members = members_of(batch, envelopes, "after", others, is_flat)
        texts = {name: _text(batch, one, name) for name, one in flat_members.items()}
        for fact, array in flat_origins_of(requested, texts.get).items():
            found[fact] = array if (other := found.get(fact)) is None else pc.coalesce(other, array)


def _declared_facts(
    batch: EnvelopeBatch, envelopes: EnvelopeMembers, declared: Members, is_change: NDArray[np.bool_]
) -> dict[str, pa.Array]:
    found = {}
    for fact, (name, how) in declared.metadata.items():
        slices, kind = kept(envelopes, (name,), is_change)[name], batch.type_of(fact)
        if how == "text":
            found[fact] = _text(batch, slices, name)
        else:
            array = read_number(batch, slices, name) if how == "number" else times_of(batch, slices, name, how)
            found[fact] = array if kind is None else array.cast(arrow_type(kind))
    return found


def kept(envelopes: EnvelopeMembers, names: Sequence[str], is_change: NDArray[np.bool_]) -> dict[str, Slices]:
    """Returns members of the envelopes that are changes."""
    slices = {name: envelopes.slices(name) for name in names}
    return {name: replace(one, kind=np.where(is_change, one.kind, ABSENT)) for name, one in slices.items()}


def members_of(
    batch: EnvelopeBatch, envelopes: EnvelopeMembers, name: str, names: list[str], is_change: NDArray[np.bool_]
) -> dict[str, Slices]:
    """Returns members of an object in the envelopes that are changes."""
    around = kept(envelopes, (name,), is_change)[name]
    error = np.zeros(len(around), np.uint8)
    found = members_under(batch.texts, around, names, error)
    refuse_objects(batch.texts, around, error, (name,))
    return dict(zip(names, found, strict=True))


def _fact(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    if name in FACT_TYPES and not np.isin(slices.kind, (STRING, ESCAPED)).any():
        return read_number(batch, slices, f"source.{name}")
    return read_string(batch, slices, f"source.{name}")


def _text(batch: EnvelopeBatch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member; null for another value."""
    return read_string(batch, slices.only(STRING, ESCAPED), name)


def _moment(batch: EnvelopeBatch, members: Mapping[str, Slices]) -> pa.Array:
    micros, millis = (times_of(batch, members[f"ts_{unit}"], f"ts_{unit}", unit) for unit in ("us", "ms"))
    return pc.coalesce(micros, millis).cast(pa.timestamp("us", tz="UTC"))


def times_of(batch: EnvelopeBatch, slices: Slices, name: str, unit: str) -> pa.Array:
    """Returns microseconds since 1970, from numbers that count `unit`; times outside the years 1 to 9999 make a bad
    record.
    """
    moments = from_numbers(read_number(batch, slices, name), unit)
    batch.texts.refuse(slices, moments.is_outside.astype(np.uint8), name, _NO_TIME)
    return moments.micros
