"""Objects and arrays in text columns as they were sent, where escaped keys in their records were replaced.

Replacing a key moves everything behind it, so a position in the new text is converted to one in the old text by the
lengths of the keys before it.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.json.grammar import ARRAY, OBJECT
from frazil.decode.json.keys import escape_key
from frazil.decode.json.slices import Slices, Texts

# Possessive, and an unterminated string is one match: so no text takes more than one pass.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"(\s*+:)?|\\?\Z)', re.DOTALL)


def unescape_keys(value: bytes | None) -> bytes | None:
    """Returns the text with every key in canonical escapes, so that equal keys are equal bytes."""
    if value is None or b"\\" not in value:
        return value
    try:
        return _STRING.sub(_spell_key, value)
    except ValueError:
        return value  # It is no JSON, which the scan reports.


def _spell_key(match: re.Match[bytes]) -> bytes:
    if match.group(1) is None:
        return match.group()
    key = json.loads(match.group()[: -len(match.group(1))].decode())
    return b'"' + escape_key(key) + b'"' + match.group(1)


def as_sent(texts: Texts, slices: Slices, written: pa.StringArray) -> pa.StringArray:
    """Returns the column with its objects and arrays as they were sent. written: with canonical keys."""
    if texts.sent is None or texts.starts is None:
        return written
    rows = np.flatnonzero(np.isin(slices.kind, (OBJECT, ARRAY)))
    found: dict[int, str] = {}
    for row in rows.tolist():
        record = int(slices.owner[row])
        sent = texts.sent[record].as_py()
        if sent is not None and b"\\" in sent:
            first = int(texts.starts[record])
            start, end = (_place(sent, int(at) - first) for at in (slices.start[row], slices.end[row]))
            found[row] = sent[start:end].decode()
    if not found:
        return written
    mask = np.zeros(len(written), np.bool_)
    mask[list(found)] = True
    return pc.replace_with_mask(written, pa.array(mask), pa.array(list(found.values()), pa.string()))


def _place(sent: bytes, at: int) -> int:
    """Returns the position in the text as it was sent, from the position `at`, outside keys and strings, in the text
    with canonical keys.
    """
    moved = 0
    for match in _STRING.finditer(sent):
        if match.start() + moved >= at:
            break
        moved += len(_spell_key(match)) - len(match.group())
    return at - moved
