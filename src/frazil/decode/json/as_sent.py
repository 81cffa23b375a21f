"""Objects and arrays in columns of text as they were sent, where the keys of their records have been spelt anew.

Spelling a key anew moves all that is behind it, so a place in the new text is one in the old text by what the keys before it
have lost or won.
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

# Possessive, and a string that does not end is one match: so no text takes more than one pass.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"(\s*+:)?|\\?\Z)', re.DOTALL)


def unescape_keys(value: bytes | None) -> bytes | None:
    """The same text with every key in canonical escapes, so that equal keys are equal bytes."""
    if value is None or b"\\" not in value:
        return value
    try:
        return _STRING.sub(_spell_key, value)
    except ValueError:
        return value  # It is no JSON, and the scan will say so.


def _spell_key(match: re.Match[bytes]) -> bytes:
    if match.group(1) is None:
        return match.group()
    key = json.loads(match.group()[: -len(match.group(1))].decode())
    return b'"' + escape_key(key) + b'"' + match.group(1)


def as_sent(texts: Texts, slices: Slices, written: pa.StringArray) -> pa.StringArray:
    """The column with its objects and arrays as they were sent. written: with their keys spelt anew."""
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
    """The place in the text as it was sent of what is at `at` in the one with its keys spelt anew, outside of texts."""
    moved = 0
    for match in _STRING.finditer(sent):
        if match.start() + moved >= at:
            break
        moved += len(_spell_key(match)) - len(match.group())
    return at - moved
