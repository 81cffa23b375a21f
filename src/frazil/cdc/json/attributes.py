"""The values of envelopes in JSON other than the images of the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.cdc.envelope import BARE, FLAT_MOMENTS
from frazil.cdc.json.members import (
    Parts,
    Stretch,
    read_number,
    read_word,
)
from frazil.cdc.source.commit_order import ORDER_FIELDS, format_commit_position, format_transaction
from frazil.cdc.source.origins import (
    BESIDE,
    IN_MESSAGES,
    IN_SOURCE,
    ORIGINS,
    flat_origins_of,
    origins_of,
)
from frazil.cdc.source.positions import FACT_TYPES, POSITION_FIELDS, format_position, format_source_order
from frazil.decode.columns import Fault
from frazil.decode.epochs import from_numbers
from frazil.decode.json.grammar import ABSENT, ESCAPED, INT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.slices import Slices, take_keys

_NO_TIME = {1: Fault("out_of_range", "{value} is a time outside of the years 1 to 9999")}
_IN_SOURCE = ("source_ts", "position", "connector", "source_order")
_IN_TRANSACTION = ("transaction_id", "total_order", "collection_order", "source_order")
_ORDERS = {"total_order": "total_order", "collection_order": "data_collection_order"}


def read_facts(stretch: Stretch, parts: Parts, is_change: NDArray[np.bool_]) -> dict[str, pa.Array]:
    """Returns the requested values of envelopes other than the images, by name."""
    asked = [one.name for one in stretch.fields]
    found: dict[str, pa.Array | None] = {}
    in_source, in_transaction = set(_IN_SOURCE) & set(asked), set(_IN_TRANSACTION) & set(asked)
    if in_transaction:
        transaction = members_of(stretch, parts, "transaction", ["id", *_ORDERS.values()], is_change)
        found["transaction_id"] = read_word(stretch, transaction["id"], "transaction.id")
        found |= {
            fact: read_number(stretch, transaction[name], f"transaction.{name}")
            for fact, name in _ORDERS.items()
            if fact != "collection_order" or fact in asked
        }
    if in_source:
        names = ["ts_ms", "ts_us", "connector", *POSITION_FIELDS]
        source = members_of(stretch, parts, "source", names, is_change)
        found["source_ts"] = _moment(stretch, source)
        found["connector"] = read_word(stretch, source["connector"], "source.connector")
        if in_source & {"position", "source_order"}:
            texts = {name: _fact(stretch, source[name], name) for name in POSITION_FIELDS}
            told = {name: one for name, one in texts.items() if one.null_count < len(one)}
            found["position"] = format_position(told)
            found["source_order"] = format_source_order(told, found.get("total_order"))
    if "commit_place" in asked:
        source = members_of(stretch, parts, "source", list(ORDER_FIELDS), is_change)
        texts = {name: _fact(stretch, source[name], name) for name in ORDER_FIELDS}
        order = {name: one for name, one in texts.items() if one.null_count < len(one)}
        found |= {"commit_place": format_commit_position(order), "source_transaction": format_transaction(order)}
    found |= _origins(stretch, parts, is_change, asked)
    if "connector_ts" in asked and parts.is_overlay is False:
        found["connector_ts"] = _moment(stretch, kept(parts, ("ts_ms", "ts_us"), is_change))
    if stretch.envelope.kind == "debezium":
        _add_flat_moments(stretch, parts, is_change, found, asked)
    if parts.is_overlay:
        found |= _maxwell_facts(stretch, kept(parts, ("ts", "xid"), is_change))
        named = kept(parts, tuple(IN_MESSAGES.values()), is_change)
        found |= {fact: _text(stretch, named[name], name) for fact, name in IN_MESSAGES.items() if fact in asked}
    return {name: array for name, array in found.items() if array is not None and name in asked}


def _origins(stretch: Stretch, parts: Parts, is_change: NDArray[np.bool_], asked: Sequence[str]) -> dict[str, pa.Array]:
    """Returns the origin of changes, from Debezium's `source`."""
    if ORIGINS.keys().isdisjoint(asked) or stretch.envelope.kind != "debezium":
        return {}
    source = members_of(stretch, parts, "source", list(IN_SOURCE), is_change)
    return origins_of(asked, lambda name: _text(stretch, source[name], f"source.{name}"))


def _add_flat_moments(
    stretch: Stretch,
    parts: Parts,
    is_change: NDArray[np.bool_],
    found: dict[str, pa.Array | None],
    asked: Sequence[str],
) -> None:
    """Adds the times of unwrapped rows, which are fields next to their values."""
    is_flat = is_change & (parts.note == BARE)
    if not is_flat.any():
        return
    for fact, names in FLAT_MOMENTS.items():
        if fact in asked:
            beside = members_of(stretch, parts, "after", list(names), is_flat)
            told = {name[-5:]: one.only(INT) for name, one in beside.items()}
            moments = _moment(stretch, told)
            other = found.get(fact)
            found[fact] = moments if other is None else pc.coalesce(other, moments)
    others = [name for fact, words in BESIDE.items() if fact in asked for name in words]
    if others:
        beside = members_of(stretch, parts, "after", others, is_flat)
        texts = {name: _text(stretch, one, name) for name, one in beside.items()}
        for fact, array in flat_origins_of(asked, texts.get).items():
            found[fact] = array if (other := found.get(fact)) is None else pc.coalesce(other, array)


def _maxwell_facts(stretch: Stretch, members: Mapping[str, Slices]) -> dict[str, pa.Array]:
    moments = moments_of(stretch, members["ts"], "ts", "s").cast(pa.timestamp("us", tz="UTC"))
    return {"source_ts": moments, "transaction_id": read_number(stretch, members["xid"], "xid").cast(pa.string())}


def kept(parts: Parts, names: Sequence[str], is_change: NDArray[np.bool_]) -> dict[str, Slices]:
    """Returns members of the envelopes that are changes."""
    slices = {name: parts.slices(name) for name in names}
    return {name: replace(one, kind=np.where(is_change, one.kind, ABSENT)) for name, one in slices.items()}


def members_of(
    stretch: Stretch, parts: Parts, name: str, names: list[str], is_change: NDArray[np.bool_]
) -> dict[str, Slices]:
    """Returns members of an object in the envelopes that are changes."""
    around = kept(parts, (name,), is_change)[name]
    error = np.zeros(len(around), np.uint8)
    found = take_keys(stretch.texts, around, names, error)
    refuse_objects(stretch.texts, around, error, (name,))
    return dict(zip(names, found, strict=True))


def _fact(stretch: Stretch, slices: Slices, name: str) -> pa.Array:
    if name in FACT_TYPES and not np.isin(slices.kind, (STRING, ESCAPED)).any():
        return read_number(stretch, slices, f"source.{name}")
    return read_word(stretch, slices, f"source.{name}")


def _text(stretch: Stretch, slices: Slices, name: str) -> pa.Array:
    """Returns the texts of a member; null for another value."""
    return read_word(stretch, slices.only(STRING, ESCAPED), name)


def _moment(stretch: Stretch, members: Mapping[str, Slices]) -> pa.Array:
    micros, millis = (moments_of(stretch, members[f"ts_{unit}"], f"ts_{unit}", unit) for unit in ("us", "ms"))
    return pc.coalesce(micros, millis).cast(pa.timestamp("us", tz="UTC"))


def moments_of(stretch: Stretch, slices: Slices, name: str, unit: str) -> pa.Array:
    """Returns microseconds since 1970, from numbers that count `unit`; times outside the years 1 to 9999 make a bad
    record.
    """
    moments = from_numbers(read_number(stretch, slices, name), unit)
    stretch.texts.refuse(slices, moments.is_outside.astype(np.uint8), name, _NO_TIME)
    return moments.micros
