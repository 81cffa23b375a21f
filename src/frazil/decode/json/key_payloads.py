"""Record keys in JSON that Kafka Connect's converter wrote with their schema: `{"schema": …, "payload": …}`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.json import scan
from frazil.decode.json.grammar import ABSENT
from frazil.decode.json.records import JsonOptions, text_slices, texts_of, unreadable
from frazil.decode.json.slices import members_under


def payloads_of(keys: pa.Array) -> pa.Array:
    """Returns the keys without the schema, where they have one. A key that is no JSON is returned unchanged, for the
    reader of the keys to refuse.
    """
    if not np.asarray(pc.fill_null(pc.match_substring(keys.cast(pa.binary()), b'"payload"'), False)).any():
        return keys
    texts, objects, error = texts_of(keys, JsonOptions("drop")), text_slices(keys), unreadable(keys)
    scan.scan_texts(texts.base, objects.start, objects.end, objects.kind, error)
    schema, payload = members_under(texts, objects, ("schema", "payload"), error)
    wrapped = np.flatnonzero((schema.kind != ABSENT) & (payload.kind != ABSENT) & (error == scan.OK))
    payloads = keys.to_pylist()
    for row in wrapped.tolist():
        payloads[row] = texts.buffer[payload.start[row] : payload.end[row]].tobytes()
    return pa.array(payloads, pa.binary())
