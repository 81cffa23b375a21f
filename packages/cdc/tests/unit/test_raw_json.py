"""The parts of objects and lists in JSON are kept as they are written."""

from __future__ import annotations

import json

import pytest

from frazil_cdc.maxwell import flat_keys
from frazil_cdc.raw_json import elements, members
from tests.unit.cdc.envelope_reference import records_of

_DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[]", []),
        (
            ' [ 1.10 ,\n-1e400, [1, {}], {"a": 2}, "x]", null ] ',
            ["1.10", "-1e400", "[1, {}]", '{"a": 2}', '"x]"', "null"],
        ),
        (f"[{_DIGITS}]", [_DIGITS]),
    ],
)
def test_elements_of_a_list(text: str, parts: list[str]) -> None:
    assert elements(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{}", []),
        ('{ "a" : 1.10,"\\u00e9":[1], "": "}" , "a": null}', [("a", "1.10"), ("é", "[1]"), ("", '"}"'), ("a", "null")]),
    ],
)
def test_members_of_an_object(text: str, parts: list[tuple[str, str]]) -> None:
    assert members(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        '"[]"',
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "[1 2]",
        "[1:2]",
        "[] []",
        "{",
        '{"a"',
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        '{"a",1}',
        "[" * 10**6,
    ],
)
def test_what_is_neither_is_refused(text: str) -> None:
    for read in (elements, members):
        with pytest.raises((ValueError, RecursionError)):
            read(text)


def test_keys_that_are_lists_keep_their_numbers() -> None:
    """A decimal of many digits in a primary key would be another number, and the row of another key."""
    digits = "12345678901234567890.12"
    keys = [
        f'["shop", "t", [{{"id": 7}}, {{"at": {digits}}}]]'.encode(),
        b'["shop", "t", [{"id": 7}]',
        b'["shop", "t", {"id": 7}]',
        None,
    ]
    flat, *others = flat_keys(records_of(keys)["value"]).to_pylist()
    assert flat == f'{{"database":"shop","table":"t","pk.id":7,"pk.at":{digits}}}'.encode()
    assert others == keys[1:]
    assert json.loads(flat)["pk.id"] == 7
