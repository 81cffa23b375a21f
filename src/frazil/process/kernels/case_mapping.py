"""Lower and upper case by Unicode 16, as Spark's ICU has it, whatever version this Python has."""

from __future__ import annotations

import re

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


def lower(text: str) -> str:
    """Returns a text in lower case."""
    text = text.translate(_PAIRS)
    if "Σ" not in text or not _NEW.search(text):
        return text.lower()
    # Known characters of the same kind give the sigmas their forms; a piece is as long as its characters, one by one.
    known = _NEW.sub(lambda new: "\u0301" if new[1] else "a" if new[2] else "-", text).lower()
    pieces, start = [], 0
    for number, piece in enumerate(re.split(f"([{_IGNORABLE}{_CASED}{_OTHER}])", text)):
        end = start + sum(len(one.lower()) for one in piece)
        pieces.append(piece if number % 2 else known[start:end])
        start = end
    return "".join(pieces)


def upper(text: str) -> str:
    """Returns a text in upper case."""
    return text.translate(_UPPER).upper()
