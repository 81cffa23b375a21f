"""Payloads of JSON messages of Kafka Connect's converter whose schema is not needed.

They are those of keys, whose fields have the types of the row, and of events.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.cdc.json.members import masked, pick_slices
from frazil.decode.connect.schema import names_connect_type
from frazil.decode.json import scan
from frazil.decode.json.grammar import ABSENT, NULL, OBJECT
from frazil.decode.json.records import JsonOptions, text_slices, texts_of, unreadable
from frazil.decode.json.slices import Slices, Texts, group_equal, members_under
from frazil.schema.arrow import Bools

_PAYLOAD = b'"payload"'


def payloads_of(values: pa.Array) -> pa.Array:
    """Returns the values, with the payload in place of a message. A value that is no JSON is returned unchanged, for its
    reader to refuse.
    """
    if not may_have_payloads(values):
        return values
    texts, objects, error = texts_of(values, JsonOptions("drop")), text_slices(values), unreadable(values)
    scan.scan_texts(texts.base, objects.start, objects.end, objects.kind, error)
    is_message, payload = find_payloads(texts, masked(objects, error == scan.OK), error)
    payloads = values.to_pylist()
    for row in np.flatnonzero(is_message).tolist():
        payloads[row] = texts.buffer[payload.start[row] : payload.end[row]].tobytes()
    return pa.array(payloads, pa.binary())


def may_have_payloads(values: pa.Array) -> bool:
    """Whether one of the values may be a message."""
    return bool(np.asarray(pc.fill_null(pc.match_substring(values.cast(pa.binary()), _PAYLOAD), False)).any())


def find_payloads(texts: Texts, objects: Slices, error: NDArray[np.uint8]) -> tuple[Bools, Slices]:
    """Returns which objects are messages, bool of shape (n_objects,), and the payload of each object. A message has the
    members `schema` and `payload` and no other, and its schema names a type of Kafka Connect or is null.
    """
    schema, payload = members_under(texts, objects, ("schema", "payload"), error)
    counts = np.zeros(len(objects), np.int32)
    scan.count_members(texts.base, objects.start, objects.end, objects.kind, OBJECT, counts, texts.stack)
    is_message = (counts == 2) & (schema.kind != ABSENT) & (payload.kind != ABSENT) & (error == scan.OK)
    rows = np.flatnonzero(is_message & (schema.kind == OBJECT))
    is_message &= schema.kind == NULL
    codes, firsts = group_equal(texts.base, pick_slices(schema, rows))
    schemas = (texts.buffer[schema.start[row] : schema.end[row]].tobytes() for row in rows[firsts].tolist())
    is_message[rows] = np.array([names_connect_type(text) for text in schemas], np.bool_)[codes]
    return is_message, payload
