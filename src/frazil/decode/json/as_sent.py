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
from frazil.raw_memory import I32

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
    rows = rows[np.argsort(slices.owner[rows], kind="stable")]
    sent_by_row: dict[int, str] = {}
    for mine in np.split(rows, np.flatnonzero(np.diff(slices.owner[rows])) + 1) if rows.size else ():
        record = int(slices.owner[mine[0]])
        sent, first = texts.sent[record].as_py(), int(texts.starts[record])
        if sent is not None and b"\\" in sent:
            starts, ends = (_places(sent, at[mine] - first) for at in (slices.start, slices.end))
            sent_by_row |= {
                row: sent[start:end].decode() for row, start, end in zip(mine.tolist(), starts, ends, strict=True)
            }
    if not sent_by_row:
        return written
    mask = np.zeros(len(written), np.bool_)
    mask[list(sent_by_row)] = True
    return pc.replace_with_mask(
        written, pa.array(mask), pa.array([sent_by_row[row] for row in sorted(sent_by_row)], pa.string())
    )


def _places(sent: bytes, canonical: I32) -> list[int]:
    """Returns the positions in the text as it was sent, from positions outside keys and strings in the text with
    canonical keys: one pass over the text, however many positions there are.
    """
    strings, moved = [], [0]
    for match in _STRING.finditer(sent):
        strings.append(match.start() + moved[-1])
        moved.append(moved[-1] + len(_spell_key(match)) - len(match.group()))
    moves = np.array(moved, np.int64)[np.searchsorted(strings, canonical)]
    places: list[int] = (canonical - moves).tolist()
    return places
