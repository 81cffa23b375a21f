"""Images of rows in JSON envelopes: objects, or the JSON texts that MongoDB's connector writes.

Values that were not sent are found here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import StringType, StructType

from frazil.cdc.envelope import BY_KEY, IMAGES, NO_DOCUMENT, NO_OBJECT
from frazil.cdc.json.members import (
    EnvelopeBatch,
    EnvelopeMembers,
    either,
    json_options,
    members_of,
    pick_slices,
    read_string,
)
from frazil.cdc.placeholders import json_forms, remove_unsent
from frazil.decode.json import scan
from frazil.decode.json.columns import Findings, read_members, read_value
from frazil.decode.json.extended import quote_bare_words
from frazil.decode.json.grammar import ABSENT, ESCAPED, NULL, OBJECT, STRING
from frazil.decode.json.infer import refuse_objects
from frazil.decode.json.records import FAULTS, text_slices, texts_of, unescape_keys, unreadable
from frazil.decode.json.slices import Slices, Texts
from frazil.decode.rescue import unknown_values
from frazil.schema.arrow import Bools, as_written, structs_where
from frazil.schema.evolve import widest

MONGODB = "mongodb"
"""The connector whose rows are documents: JSON texts in every message format."""


def read_image(
    batch: EnvelopeBatch, slices: Slices, kind: StructType, findings: Findings, name: str, envelopes: EnvelopeMembers
) -> pa.Array:
    """Returns one image of the row per record, null where there is none."""
    is_text = np.isin(slices.kind, (STRING, ESCAPED))
    envelopes.record_kind[(slices.kind > NULL) & (slices.kind != OBJECT) & ~is_text] = NO_OBJECT
    image = _read_struct(batch.texts, slices, kind, findings, name)
    if not is_text.any():
        return image
    texts = pick_slices(slices, is_text)
    raw = read_value(batch.texts, texts, StringType(), Findings(), (name,)).cast(pa.binary())
    return replace_rows(image, is_text, read_documents(batch, raw, texts.owner, kind, findings, name))


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


def _read_struct(texts: Texts, slices: Slices, kind: StructType, findings: Findings, name: str) -> pa.Array:
    error = np.zeros(len(slices), np.uint8)
    image = _read_members(texts, slices, kind, findings, name, error)
    refuse_objects(texts, slices, error, (name,))
    return image


def _read_members(
    texts: Texts, slices: Slices, kind: StructType, findings: Findings, name: str, error: NDArray[np.uint8]
) -> pa.Array:
    there = slices.kind == OBJECT
    arrays = read_members(texts, slices, kind.fields, findings, (name,), error)
    return structs_where([one.name for one in kind.fields], arrays, len(slices), there)


def read_documents(
    batch: EnvelopeBatch, raw: pa.Array, owner: NDArray[np.int32], kind: StructType, findings: Findings, name: str
) -> pa.Array:
    """Returns images that are JSON texts, as MongoDB's connector writes them. owner: the record of each."""
    outer = batch.texts
    read = partial(_read_texts, batch, kind=kind, findings=findings, name=name)
    image, inner, found, is_malformed = read(raw, has_canonical_keys=False)
    quoted = quote_bare_words(raw) if is_malformed else None
    if quoted is not None:
        raw = quoted
        image, inner, found, _ = read(raw, has_canonical_keys=False)
    if inner.has_escaped_keys:
        canonical = pa.array([unescape_keys(value) for value in raw.to_pylist()], pa.binary())
        image, inner, found, _ = read(canonical, has_canonical_keys=True, sent=raw)
    outer.refused[owner] |= inner.refused
    for some, mine in ((inner.mismatches, outer.mismatches), ([*inner.rescued, *unknown_values(inner)], outer.rescued)):
        mine += [replace(one, row=int(owner[one.row])) for one in some]
    findings.dropped |= found.dropped
    for path, members in found.requested_fields.items():
        requested_fields = findings.requested_fields.setdefault(path, {})
        requested_fields |= {member: widest(requested_fields.get(member, of), of) for member, of in members.items()}
    return image


def _read_texts(
    batch: EnvelopeBatch,
    raw: pa.Array,
    *,
    has_canonical_keys: bool,
    kind: StructType,
    findings: Findings,
    name: str,
    sent: pa.Array | None = None,
) -> tuple[pa.Array, Texts, Findings, bool]:
    """Returns the images, their texts, the requested fields and mismatches found, and whether some texts are no JSON."""
    found = Findings(findings.unknown_fields, rejected=findings.rejected)
    options = json_options(batch.reading, batch.texts.options.limit, is_extended=True)
    texts = texts_of(raw, options, has_canonical_keys, sent)
    objects, error = text_slices(raw), unreadable(raw)
    scan.scan_texts(texts.base, objects.start, objects.end, objects.kind, error)
    image = _read_members(texts, objects, kind, found, name, error)
    is_slow = error == scan.ESCAPED_KEY
    texts.has_escaped_keys |= bool(is_slow.any())
    texts.refuse(objects, np.where(is_slow, np.uint8(0), error), name, FAULTS)
    return image, texts, found, bool((error == scan.MALFORMED).any())


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
                columns[n] = either((column.kind == ABSENT), seen[member], column)
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
    names = [one.name for one in kind.fields]
    flags = [pa.array(marks[name]) if name in marks else pa.nulls(rows, pa.bool_()) for name in names]
    return structs_where(names, flags, rows)
