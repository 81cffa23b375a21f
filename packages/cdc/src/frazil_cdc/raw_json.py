"""The parts of objects and lists in JSON as they are written.

Python's reader makes other numbers of fractions with many digits, and refuses integers of more than 4,300.
"""

from __future__ import annotations

import json
import re

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\n\r]*")


def elements(text: str) -> list[str]:
    """Returns the texts of the elements of a list.

    Raises: ValueError or RecursionError where the text is not a list.
    """
    return _parts(text, "[", "]", (",",))


def members(text: str) -> list[tuple[str, str]]:
    """Returns the names of an object with the texts of their values.

    Raises: ValueError or RecursionError where the text is not an object.
    """
    in_turn = _parts(text, "{", "}", (":", ","))
    names = map(json.loads, in_turn[::2])
    return [(str(name), value) for name, value in zip(names, in_turn[1::2], strict=True)]


def _parts(text: str, opening: str, closing: str, separators: tuple[str, ...]) -> list[str]:
    """Returns the texts between the brackets. separators: in turn, of which the last is not behind the last text."""
    place, parts = _after_space(text, 0), list[str]()
    if text[place : place + 1] != opening:
        raise ValueError(f"the text does not begin with {opening}")
    place = _after_space(text, place + 1)
    while text[place : place + 1] != closing or parts:
        end = _DECODER.raw_decode(text, place)[1]
        parts.append(text[place:end])
        place = _after_space(text, end)
        if text[place : place + 1] == closing:
            break
        if text[place : place + 1] != separators[(len(parts) - 1) % len(separators)]:
            raise ValueError(f"a separator is missing at {place}")
        place = _after_space(text, place + 1)
    if _after_space(text, place + 1) != len(text):
        raise ValueError("text follows the last bracket")
    return parts


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match is not None else place
