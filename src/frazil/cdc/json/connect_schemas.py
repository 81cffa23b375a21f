"""Envelopes in JSON that carry a schema of Kafka Connect's converter: read with its types, then opened by columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import StructType

from frazil.cdc.envelope_columns import has_documents, has_images, open_columns
from frazil.cdc.json.members import (
    EnvelopeBatch,
    Group,
)
from frazil.cdc.positions import IN_SOURCE, ORDER_FIELDS, ORIGINS, POSITION_FIELDS
from frazil.decode.cast import Conversion, convert_columns
from frazil.decode.columns import Columns, Decoded, Fault
from frazil.decode.connect.schema import ConnectSchema, parse_connect
from frazil.decode.json.columns import Findings, read_members
from frazil.decode.json.extended import find_scalars
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.slices import Slices, group_equal
from frazil.decode.regroup import select_columns
from frazil.registry.port import UnusableSchema
from frazil.schema.arrow import arrow_type

NAMES = (
    "op", "before", "after", "source", "ts_ms", "ts_us", "transaction", "message", "schema", "payload",
    "__op", "__deleted",
)  # fmt: skip
"""The members of Debezium's envelopes that are read."""
_SCHEMA = "schema"
_OF_SOURCE = ("ts_ms", "ts_us", "connector", *POSITION_FIELDS)


def open_with_schemas(
    batch: EnvelopeBatch, objects: Slices, schema: Slices, rows: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Opens the records that carry their schema, those of each schema together. Returns the rows of the remaining
    records: their images are JSON texts, which a schema does not describe.
    """
    texts, left = batch.texts, [np.zeros(0, np.int32)]
    written = _at(schema, rows)
    codes, firsts = group_equal(texts.base, written)
    for code, first in enumerate(firsts):
        mine = rows[codes == code]
        slices = _at(objects, mine)
        try:
            found = parse_connect(texts.buffer[written.start[first] : written.end[first]].tobytes())
            if has_documents(batch.envelope, found.struct):
                left.append(mine)
            else:
                _open_with_schema(batch, slices, found)
        except UnusableSchema as error:
            fault = Fault("unusable_schema", str(error))
            texts.refuse(slices, np.ones(mine.size, np.uint8), _SCHEMA, {1: fault})
            nulls = [pa.nulls(mine.size, arrow_type(one.field_type)) for one in batch.fields]
            batch.groups.append(Group(mine, Decoded(nulls, np.ones(mine.size, np.bool_))))
    return np.concatenate(left)


def _at(slices: Slices, rows: NDArray[np.int32]) -> Slices:
    return Slices(slices.start[rows], slices.end[rows], slices.kind[rows], slices.owner[rows])


def _open_with_schema(batch: EnvelopeBatch, slices: Slices, schema: ConnectSchema) -> None:
    """Opens the records of one schema: read with its types, then opened and converted as those of other formats."""
    texts, reading = batch.texts, batch.reading
    struct = _pruned(schema.struct, batch)
    error = np.zeros(len(slices), np.uint8)
    kept = texts.options
    texts.options = replace(kept, selection=None, is_rescuing=False, accepts_non_finite=True)
    findings = Findings("drop")
    arrays = read_members(texts, slices, struct.fields, findings, (), error)
    texts.options = kept
    refuse_objects(texts, slices, error, ())
    columns = Columns(arrays, np.zeros(len(slices), np.uint8), ())
    struct, columns = open_columns(batch.envelope, struct, columns, schema.logical_types, batch.fields)
    if reading.selection is not None:
        struct, columns = select_columns(reading.selection, struct, columns)
    decoded = convert_columns(Conversion(reading, "", len(slices), texts.options.limit), struct, columns, batch.fields)
    texts.refused[slices.owner] |= decoded.refused
    texts.mismatches += [replace(one, row=int(slices.owner[one.row])) for one in decoded.mismatches]
    dropped = {path for path in findings.dropped if path.startswith(("after.", "before."))}
    batch.groups.append(Group(slices.owner, replace(decoded, dropped=decoded.dropped | dropped)))


def _pruned(struct: StructType, batch: EnvelopeBatch) -> StructType:
    """Returns the fields of an envelope's schema that are read."""
    if not has_images([one.name for one in struct.fields]):
        return struct
    of_source: tuple[str, ...] = (
        (*_OF_SOURCE, *ORDER_FIELDS) if batch.type_of("commit_place") is not None else _OF_SOURCE
    )
    of_source += IN_SOURCE if any(batch.type_of(fact) is not None for fact in ORIGINS) else ()
    fields = []
    for one in struct.fields:
        if one.name == "source" and isinstance(one.field_type, StructType):
            inner = [member for member in one.field_type.fields if member.name in of_source]
            fields.append(one.model_copy(update={"field_type": StructType(*inner)}))
        elif one.name in NAMES and (one.name != "before" or batch.type_of("before") is not None):
            fields.append(one)
    return StructType(*fields)


def warm_up() -> None:
    """Loads the compiled functions that only envelopes need, for a process that others are forked from."""
    nothing = np.zeros(1, np.int32)
    no_kind = np.zeros(1, np.uint8)
    group_equal(0, Slices(nothing, nothing, no_kind, nothing))
    find_scalars(0, nothing, nothing, no_kind, np.empty((1, 4), np.int32))
