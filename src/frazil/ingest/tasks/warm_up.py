"""Loads modules and compiled loops before the first batch of a process, and compiles loops that are not on disk."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from pyiceberg.types import DoubleType, ListType

from frazil.decode import decimals
from frazil.decode.json.extended import find_scalars
from frazil.decode.json.records import decode_json
from frazil.decode.json.scan import scan_any
from frazil.decode.json.slices import Slices, group_equal
from frazil.kafka.fetch.records import warm_up as warm_up_reader
from frazil.plugins.registration import function_of
from frazil.plugins.tables import TABLE_KINDS
from frazil.queries.kernels import hashes, keys, text_numbers
from frazil.rows import writer_schemas
from frazil.rows.connect_messages import may_be_messages
from frazil.schema.evolve import new_schema
from frazil.upsert.arrival_order import ArrivalOrder
from frazil.write import digests

_SAMPLE = {"t": "text", "i": 1, "f": 1.5, "b": True, "n": None, "a": [1], "o": {"t": "text"}}
_MANY_KEYS = 100
_LONG_NUMBER = "0.12345678901234567890123"


def warm_up(compiles_all: bool = False) -> None:
    """Loads everything that the first batch needs: a quarter of a second where all loops are compiled.

    compiles_all: also compiles loops that few tables need, two minutes of one core where they are not on disk.
    """
    warm_up_reader()
    values = pa.array([json.dumps(_SAMPLE).encode()], pa.binary())
    fields = decode_json(values, ()).requested_fields.get((), {})
    decode_json(values, new_schema(fields.items()).fields)
    may_be_messages(values)
    decimals.warm_up(compiles_all)
    writer_schemas.warm_up(compiles_all)
    text_numbers.warm_up(compiles_all)
    keys.warm_up(compiles_all)
    hashes.warm_up(compiles_all)
    digests.warm_up()
    place, no_kind = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    group_equal(0, Slices(place, place, no_kind, place))
    find_scalars(0, place, place, no_kind, np.empty((1, 4), np.int32))
    if compiles_all:
        _compile_rest()


def _compile_rest() -> None:
    """Compiles the loops for objects with many keys, lists of numbers with many digits, keys with any JSON, changes behind
    rows of a snapshot, and the kinds of tables of packages.
    """
    columns = {f"c{n}": DoubleType() for n in range(_MANY_KEYS)}
    numbers = ListType(_MANY_KEYS + 1, DoubleType(), element_required=False)
    decode_json(
        pa.array([b'{"l": [%s]}' % _LONG_NUMBER.encode()]), new_schema([*columns.items(), ("l", numbers)]).fields
    )
    nothing, no_bytes = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    scan_any(0, nothing, nothing, no_bytes, no_bytes, no_bytes)
    later, is_so = np.array([2, 1]), np.ones(2, np.bool_)
    ArrivalOrder(np.zeros(2, int), np.zeros(2, int), np.arange(2), later, is_so, is_so, ~is_so).ranks_by_arrival()
    for kind in map(TABLE_KINDS.get, TABLE_KINDS.added()):
        if kind.compile_loops is not None:
            function_of(kind.compile_loops)()
