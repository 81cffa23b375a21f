"""Images of rows in JSON envelopes: objects, or the JSON texts that MongoDB's connector writes.

Values that were not sent are found here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import StringType, StructType

from frazil.cdc.envelope import BY_KEY, IMAGES, NO_DOCUMENT, NO_OBJECT
from frazil.cdc.json.members import (
    EnvelopeBatch,
    EnvelopeMembers,
    members_of,
    read_string,
)
from frazil.cdc.placeholders import json_forms, remove_unsent
from frazil.decode.conversion import Conversion
from frazil.decode.json.columns import read_members, read_value
from frazil.decode.json.grammar import ABSENT, ESCAPED, NULL, OBJECT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, read_objects
from frazil.decode.json.slices import Slices, Texts
from frazil.schema.arrow import Bools, as_written, structs_where

MONGODB = "mongodb"
"""The connector whose rows are documents: JSON texts in every message format."""


def read_image(
    batch: EnvelopeBatch, slices: Slices, kind: StructType, name: str, envelopes: EnvelopeMembers
) -> pa.Array:
    """Returns one image of the row per record, null where there is none."""
    is_text = np.isin(slices.kind, (STRING, ESCAPED))
    envelopes.record_kind[(slices.kind > NULL) & (slices.kind != OBJECT) & ~is_text] = NO_OBJECT
    error = np.zeros(len(slices), np.uint8)
    image = _read_members(batch.texts, slices, kind, name, error)
    refuse_objects(batch.texts, slices, error, (name,))
    if not is_text.any():
        return image
    texts = slices.take(is_text)
    raw = read_value(batch.texts, texts, StringType(), (name,)).cast(pa.binary())
    return replace_rows(image, is_text, read_documents(batch.texts.conversion, raw, texts.owner, kind, name))


def replace_rows(image: pa.Array, mask: Bools, other: pa.Array) -> pa.Array:
    """Returns the image with other values where `mask` is true."""
    order = np.arange(len(image))
    order[mask] = len(image) + np.arange(len(other))
    return pa.concat_arrays([image, as_written(other, image.type)]).take(pa.array(order))


def mark_changes_without_image(batch: EnvelopeBatch, envelopes: EnvelopeMembers, image: str, is_change: Bools) -> None:
    """Sets the record kind of changes of MongoDB documents that lack an image: BY_KEY for deletes without the row before
    them, NO_DOCUMENT for updates without the row after them.
    """
    op, kind = ("u", NO_DOCUMENT) if image == "after" else ("d", BY_KEY)
    lacks = is_change & (envelopes.record_kind == IMAGES) & (envelopes.slices(image).kind <= NULL)
    lacks &= np.asarray(pc.fill_null(pc.equal(envelopes.op, op), False))
    if lacks.any():
        source = members_of(batch, envelopes, "source", ["connector"], lacks)
        connector = read_string(batch, source["connector"], "source.connector")
        envelopes.record_kind[lacks & np.asarray(pc.fill_null(pc.equal(connector, MONGODB), False))] = kind


def _read_members(texts: Texts, slices: Slices, kind: StructType, name: str, error: NDArray[np.uint8]) -> pa.Array:
    is_object = slices.kind == OBJECT
    arrays = read_members(texts, slices, kind.fields, (name,), error)
    return structs_where([field.name for field in kind.fields], arrays, len(slices), is_object)


def read_documents(outer: Conversion, raw: pa.Array, owner: NDArray[np.int32], kind: StructType, name: str) -> pa.Array:
    """Returns images that are JSON texts, as MongoDB's connector writes them. owner: the record of each."""

    def read(texts: Texts, slices: Slices, error: NDArray[np.uint8]) -> pa.Array:
        return _read_members(texts, slices, kind, name, error)

    reading = replace(outer.reading, json=replace(outer.reading.json, is_extended=True))
    image, texts, slices, error = read_objects(raw, Conversion(reading, "", len(raw), outer.limit), read)
    texts.refuse(slices, error, name, FAULTS)
    outer.take(texts.conversion, owner)
    return image


def watcher(
    batch: EnvelopeBatch,
    envelopes: EnvelopeMembers,
    name: str,
    marks: dict[str, Bools],
    seen: dict[str, Slices],
) -> Callable[[list[str], list[Slices]], None]:
    """Returns a function that is called with the members of an image before they are read: it records and removes
    values that were not sent; where `before` has only the changed values, it fills in the others from `after`.
    """
    forms = json_forms(batch.envelope.placeholder)

    def watch(names: list[str], columns: list[Slices]) -> None:
        for n, (member, column) in enumerate(zip(names, columns, strict=True)):
            if name == "after":
                seen[member] = replace(column)
            elif envelopes.is_overlay and member in seen:
                columns[n] = column.replaced(column.kind == ABSENT, seen[member])
            if batch.envelope.kind != "debezium":
                continue
            unsent = remove_unsent(batch.texts.buffer, column, forms)
            if unsent is not None and name == "after":
                marks[member] = unsent

    return watch


def marks_of(batch: EnvelopeBatch, marks: Mapping[str, Bools], rows: int) -> pa.Array:
    """Returns the column of values that were not sent."""
    kind = batch.type_of("unavailable")
    assert isinstance(kind, StructType)
    names = [field.name for field in kind.fields]
    flags = [pa.array(marks[name]) if name in marks else pa.nulls(rows, pa.bool_()) for name in names]
    return structs_where(names, flags, rows)
