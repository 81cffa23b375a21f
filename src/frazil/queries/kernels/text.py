"""Functions of texts.

Lengths and positions count code points. Lower and upper case are those of Unicode 16, as Spark's ICU has them, whatever
version this Python has.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.queries.kernels.values import Bools, Kernel, Value, as_array, by_row, by_value, rows_of
from frazil.queries.program import Call

# Characters with a case since Unicode 15 to 16, the upper before the lower; some of the lower ones are older.
_PAIRS = {
    0x1C89: 0x1C8A,
    0xA7CB: 0x0264,
    0xA7CC: 0xA7CD,
    0xA7DA: 0xA7DB,
    0xA7DC: 0x019B,
    **{upper: upper + 0x20 for upper in range(0x10D50, 0x10D66)},
}
_UPPER = {lower: upper for upper, lower in _PAIRS.items()}
# New characters that neither begin nor end a word for the form of a sigma (Case_Ignorable), and those with a case (Cased).
_IGNORABLE = (
    "\u0897\u0ece\U00010d4e\U00010d69-\U00010d6d\U00010d6f\U00010efc-\U00010eff\U00011241\U000113bb-\U000113c0\U000113ce"
    "\U000113d0\U000113d2\U000113e1-\U000113e2\U00011f00-\U00011f01\U00011f36-\U00011f3a\U00011f40\U00011f42"
    "\U00011f5a\U00013439-\U00013440\U00013447-\U00013455\U0001611e-\U00016129\U0001612d-\U0001612f"
    "\U00016d40-\U00016d42\U00016d6b-\U00016d6c\U0001e030-\U0001e06d\U0001e08f\U0001e4eb-\U0001e4ef\U0001e5ee-\U0001e5ef"
)
_CASED = "\u1c8a\ua7cd\ua7db\U00010d70-\U00010d85\U0001df25-\U0001df2a"
# A mark that was ignorable, and is not.
_OTHER = "\U0001171e"
_NEW = re.compile(f"([{_IGNORABLE}])|([{_CASED}])|{_OTHER}")
_MOST = 10_000
"""The greatest length to which a literal may lengthen a text."""


def lower(text: str) -> str:
    """Returns a text in lower case."""
    text = text.translate(_PAIRS)
    if "Σ" not in text or not _NEW.search(text):
        return text.lower()
    # Known characters of the same kind give the sigmas their forms; a piece is as long as its characters, one by one.
    lowered = _NEW.sub(lambda new: "\u0301" if new[1] else "a" if new[2] else "-", text).lower()
    pieces, start = [], 0
    for number, piece in enumerate(re.split(f"([{_IGNORABLE}{_CASED}{_OTHER}])", text)):
        end = start + sum(len(character.lower()) for character in piece)
        pieces.append(piece if number % 2 else lowered[start:end])
        start = end
    return "".join(pieces)


def upper(text: str) -> str:
    """Returns a text in upper case."""
    return text.translate(_UPPER).upper()


def _literal(call: Call, place: int) -> Any:
    argument = call.arguments[place]
    return getattr(argument, "value", None)


def _beyond_ascii(texts: pa.Array) -> Bools:
    """Returns which texts have other signs than ASCII's."""
    raw = texts.buffers()[2]
    if raw is None or not (np.frombuffer(raw, np.uint8) & 0x80).any():
        return np.zeros(len(texts), np.bool_)
    return ~np.asarray(pc.string_is_ascii(texts).fill_null(True))


def _lower(_: Call, texts: pa.Array) -> pa.Array:
    return by_row(texts, pc.ascii_lower(texts), _beyond_ascii(texts), lower)


def _upper(_: Call, texts: pa.Array) -> pa.Array:
    return by_row(texts, pc.ascii_upper(texts), _beyond_ascii(texts), upper)


def _substring(_: Call, texts: pa.Array, position: pa.Scalar, length: pa.Scalar) -> pa.Array:
    return _slice(texts, position.as_py(), length.as_py())


def _slice(texts: pa.Array, position: int, length: int) -> pa.Array:
    if length <= 0:
        return pc.if_else(texts.is_valid(), "", texts)
    if position >= 0:
        start = max(position - 1, 0)
        return pc.utf8_slice_codeunits(texts, start, min(start + length, 2**31 - 1))
    if position + length >= 0:
        return pc.utf8_slice_codeunits(texts, position)
    return pc.utf8_slice_codeunits(texts, position, position + length)


def _left(_: Call, texts: pa.Array, length: pa.Scalar) -> pa.Array:
    return _slice(texts, 1, length.as_py())


def _right(_: Call, texts: pa.Array, length: pa.Scalar) -> pa.Array:
    count = length.as_py()
    return _slice(texts, -count if count > 0 else 1, max(count, 0))


def _concat(_: Call, *values: Value) -> pa.Array:
    return pc.binary_join_element_wise(*values, pa.scalar("", values[0].type), null_handling="emit_null")


def _concat_ws(_: Call, separator: pa.Scalar, *values: Value) -> pa.Array:
    """Each value that is not null with a separator before it, without the first of these. (Arrow's own way of skipping
    nulls returns another row's text where all are null.)
    """
    rows = rows_of(*values)
    parts = [_concat(_, separator, as_array(value, rows)).fill_null("") for value in values]
    return pc.utf8_slice_codeunits(_concat(_, *parts), len(separator.as_py()))


def _trim(trim: Any) -> Any:
    def run(_: Call, texts: pa.Array, signs: pa.Scalar | None = None) -> pa.Array:
        removed = " " if signs is None else signs.as_py()
        return trim(texts, removed) if removed else texts

    return run


def _replace(_: Call, texts: pa.Array, search: pa.Scalar, by: pa.Scalar) -> pa.Array:
    return pc.replace_substring(texts, search.as_py(), by.as_py()) if search.as_py() else texts


def _pad(call: Call, texts: pa.Array, length: pa.Scalar, pad: pa.Scalar) -> pa.Array:
    count, fill = max(length.as_py(), 0), pad.as_py()
    is_left = call.function == "StringLPad"

    def padded(text: str) -> Any:
        missing = count - len(text)
        if missing <= 0 or not fill:
            return text[:count]
        more = (fill * (missing // len(fill) + 1))[:missing]
        return more + text if is_left else text + more

    return by_value(texts, pa.string(), padded)


def _too_long(call: Call) -> str:
    return "" if _literal(call, 1) <= _MOST else f"it makes texts longer than {_MOST}"


def _split_part(_: Call, texts: pa.Array, separator: pa.Scalar, number: pa.Scalar) -> pa.Array:
    place, by = number.as_py(), separator.as_py()

    def part(text: str) -> str:
        parts = text.split(by) if by else [text]
        return parts[place - (place > 0)] if -len(parts) <= place <= len(parts) else ""

    return by_value(texts, pa.string(), part)


def _like(call: Call, texts: pa.Array, pattern: pa.Scalar) -> pa.Array:
    return pc.match_substring_regex(
        texts, _expression(pattern.as_py(), str(dict(call.options).get("escapeChar", "\\")))
    )


def _expression(pattern: str, escape: str) -> str:
    """Returns a LIKE pattern as a regular expression of RE2."""
    out, n = "", 0
    while n < len(pattern):
        sign = pattern[n]
        if sign == escape:
            n += 1
            out += re.escape(pattern[n])
        else:
            out += {"%": "(?s:.*)", "_": "(?s:.)"}.get(sign, re.escape(sign))
        n += 1
    return rf"\A{out}\z"


def _has_valid_escapes(call: Call) -> str:
    pattern, escape = _literal(call, 1), str(dict(call.options).get("escapeChar", "\\"))
    rest = re.sub(re.escape(escape) + "[%_" + re.escape(escape) + "]", "", pattern)
    return "its pattern has an escape before another character" if escape in rest or "\0" in pattern else ""


def _no_zero(call: Call) -> str:
    return "" if _literal(call, 2) else "parts are counted from 1"


def _match(function: Any) -> Kernel:
    return Kernel(("text, text!",), lambda _, texts, part: function(texts, part.as_py()))


KERNELS = {
    "Lower": Kernel(("text",), _lower),
    "Upper": Kernel(("text",), _upper),
    "Length": Kernel(("text", "binary"), lambda _, value: _length(value)),
    "Substring": Kernel(("text, int!, int!",), _substring),
    "Left": Kernel(("text, int!",), _left),
    "Right": Kernel(("text, int!",), _right),
    "Concat": Kernel(("text, ...",), _concat, is_eager=True),
    "ConcatWs": Kernel(("text!, text, ...",), _concat_ws, is_eager=True),
    "StringTrim": Kernel(("text", "text, text!"), _trim(pc.utf8_trim)),
    "StringTrimLeft": Kernel(("text", "text, text!"), _trim(pc.utf8_ltrim)),
    "StringTrimRight": Kernel(("text", "text, text!"), _trim(pc.utf8_rtrim)),
    "StringReplace": Kernel(("text, text!, text!",), _replace),
    "StringLPad": Kernel(("text, int!, text!",), _pad, objection=_too_long),
    "StringRPad": Kernel(("text, int!, text!",), _pad, objection=_too_long),
    "StartsWith": _match(pc.starts_with),
    "EndsWith": _match(pc.ends_with),
    "Contains": _match(pc.match_substring),
    "SplitPart": Kernel(("text, text!, int!",), _split_part, objection=_no_zero),
    "Like": Kernel(("text, text!",), _like, objection=_has_valid_escapes),
}


def _length(value: pa.Array) -> pa.Array:
    return pc.utf8_length(value) if pa.types.is_string(value.type) else pc.binary_length(value)
