"""What envelopes in JSON tell of a change besides the images of its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.ingest.decode.envelope_columns import FACT_TYPES, POSITION_FIELDS, spell_position
from frazil.ingest.decode.envelope_parts import (
    Parts,
    Stretch,
    read_number,
    read_word,
)
from frazil.ingest.decode.json_grammar import ABSENT, ESCAPED, STRING
from frazil.ingest.decode.json_infer import refuse_objects
from frazil.ingest.decode.slices import Slices, take_keys


def read_facts(stretch: Stretch, parts: Parts, is_change: NDArray[np.bool_]) -> dict[str, pa.Array]:
    """What is asked of envelopes besides the images."""
    asked = [one.name for one in stretch.fields]
    found: dict[str, pa.Array | None] = {}
    if {"source_ts", "position", "connector"} & set(asked):
        names = ["ts_ms", "ts_us", "connector", *POSITION_FIELDS]
        source = members_of(stretch, parts, "source", names, is_change)
        found["source_ts"] = _moment(stretch, source)
        found["connector"] = read_word(stretch, source["connector"], "source.connector")
        texts = {name: _fact(stretch, source[name], name) for name in POSITION_FIELDS if "position" in asked}
        found["position"] = spell_position({name: one for name, one in texts.items() if one.null_count < len(one)})
    if "transaction_id" in asked or "total_order" in asked:
        transaction = members_of(stretch, parts, "transaction", ["id", "total_order"], is_change)
        found["transaction_id"] = read_word(stretch, transaction["id"], "transaction.id")
        found["total_order"] = read_number(stretch, transaction["total_order"], "transaction.total_order")
    if "connector_ts" in asked and parts.is_overlay is False:
        found["connector_ts"] = _moment(stretch, kept(parts, ("ts_ms", "ts_us"), is_change))
    if parts.is_overlay:
        found |= _maxwell_facts(stretch, kept(parts, ("ts", "xid"), is_change))
    return {name: array for name, array in found.items() if array is not None and name in asked}


def _maxwell_facts(stretch: Stretch, members: Mapping[str, Slices]) -> dict[str, pa.Array]:
    seconds = read_number(stretch, members["ts"], "ts")
    moments = pc.multiply(seconds, 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    return {"source_ts": moments, "transaction_id": read_number(stretch, members["xid"], "xid").cast(pa.string())}


def kept(parts: Parts, names: Sequence[str], is_change: NDArray[np.bool_]) -> dict[str, Slices]:
    """Members of the envelopes that are changes."""
    slices = {name: parts.slices(name) for name in names}
    return {name: replace(one, kind=np.where(is_change, one.kind, ABSENT)) for name, one in slices.items()}


def members_of(
    stretch: Stretch, parts: Parts, name: str, names: list[str], is_change: NDArray[np.bool_]
) -> dict[str, Slices]:
    """Members of an object in the envelopes that are changes."""
    around = kept(parts, (name,), is_change)[name]
    error = np.zeros(len(around), np.uint8)
    found = take_keys(stretch.texts, around, names, error)
    refuse_objects(stretch.texts, around, error, (name,))
    return dict(zip(names, found, strict=True))


def _fact(stretch: Stretch, slices: Slices, name: str) -> pa.Array:
    if name in FACT_TYPES and not np.isin(slices.kind, (STRING, ESCAPED)).any():
        return read_number(stretch, slices, f"source.{name}")
    return read_word(stretch, slices, f"source.{name}")


def _moment(stretch: Stretch, members: Mapping[str, Slices]) -> pa.Array:
    micros, millis = (read_number(stretch, members[name], name) for name in ("ts_us", "ts_ms"))
    return pc.coalesce(micros, pc.multiply(millis, 1000)).cast(pa.timestamp("us", tz="UTC"))
