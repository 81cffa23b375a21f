"""What a later part of a record takes the place of: as far as Protobuf's own parser looks at it, so do we."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from packages.protobuf.tests.unit.protobuf_rows import NoRowError, plain, row_of
from packages.protobuf.tests.unit.protobuf_schemas import CHECKS, SHOP, WORDS, fault_of, read, reader_of, rows_of


def part(number: int, *inside: bytes) -> bytes:
    """A field with a length."""
    raw, tag = b"".join(inside), number << 3 | 2
    return bytes([tag] if tag < 0x80 else [tag & 0x7F | 0x80, tag >> 7]) + bytes([len(raw)]) + raw


def inner(*inside: bytes) -> bytes:
    """An `Inner` of WORDS with what it requires."""
    return b"".join(inside) + b"\x10\x05"


BAD, GOOD = b"\xff", b"good"
LATE = b"\x08\x80\x90\xca\xd2\xc6\x0e"  # A Timestamp of 500 billion seconds.
NAN = b"\x11\x00\x00\x00\x00\x00\x00\xf8\x7f"  # A Value that is NaN.
KEY = part(1, b"k")

KEPT = [
    ("a field", part(1, BAD) + part(1, GOOD)),
    ("a map's value", part(3, KEY, part(2, BAD)) + part(3, KEY, part(2, GOOD))),
    ("a map's value, between others", part(3, part(2, GOOD)) + part(3, KEY, part(2, BAD)) + part(3, KEY)),
    ("inside of an entry", part(3, part(1, BAD), KEY, part(2, BAD), part(2, GOOD))),
    ("a message in a map", part(4, part(2, inner(part(1, BAD)))) + part(4, part(2, inner()))),
    ("a message in a map that lacks a field", part(4, part(2)) + part(4, part(2, inner()))),
    ("an entry without a message that lacks a field", part(4) + part(4, part(2, inner()))),
    ("a oneof's text by a number", part(5, BAD) + b"\x38\x01"),
    ("a oneof's text by itself", part(5, BAD) + part(5, GOOD)),
    ("a oneof's text by itself, others between", part(5, BAD) + b"\x38\x01" + part(5, GOOD)),
    ("a oneof's text by a message", part(5, BAD) + part(6, inner())),
    ("a oneof's message by a text", part(6, inner(part(1, BAD))) + part(5, GOOD)),
    ("a message in two parts", part(8, inner(part(1, BAD))) + part(8, part(1, GOOD))),
    ("a oneof's message in two parts", part(6, inner(part(1, BAD))) + part(6, part(1, GOOD))),
    ("a message that becomes JSON", part(10, part(1, BAD)) + part(10, part(1, GOOD))),
    ("a map's value in what becomes JSON", part(10, part(3, KEY, part(2, BAD)), part(3, KEY, part(2, GOOD)))),
    (
        "a map in a replaced entry",
        part(4, part(2, inner(part(3, KEY, part(2, part(1, BAD)))))) + part(4, part(2, inner())),
    ),
    (
        "an entry of a map in an entry",
        part(4, part(2, inner(part(3, KEY, part(2, part(1, BAD))), part(3, KEY, part(2, part(1, GOOD)))))),
    ),
    ("a list in a replaced entry", part(4, part(2, inner(part(4, BAD)))) + part(4, part(2, inner()))),
    ("a moment that is none", part(11, KEY, part(2, part(2, LATE))) + part(11, KEY)),
    ("a value that has no JSON", part(11, KEY, part(2, part(3, NAN))) + part(11, KEY)),
]
REFUSED = [
    ("a field", part(1, GOOD) + part(1, BAD), "a"),
    ("an element", part(2, BAD) + part(2, GOOD), "b"),
    ("a map's value", part(3, KEY, part(2, GOOD)) + part(3, KEY, part(2, BAD)), "c.value"),
    ("a map's value of another key", part(3, KEY, part(2, BAD)) + part(3, part(2, GOOD)), "c.value"),
    ("a map's key, twice", part(3, part(1, BAD)) + part(3, part(1, BAD)), "c.key"),
    ("a oneof's text", b"\x38\x01" + part(5, BAD), "f"),
    ("a message in two parts", part(8, inner(part(1, GOOD))) + part(8, part(1, BAD)), "i.x"),
    ("a message in a list", part(9, inner(part(1, BAD))) + part(9, inner(part(1, GOOD))), "j.element.x"),
    ("a message in a map", part(4, part(2, inner())) + part(4, part(2, inner(part(1, BAD)))), "d.value.x"),
    ("a message that becomes JSON", part(10, part(1, GOOD)) + part(10, part(1, BAD)), "k"),
    ("a message in a map that lacks a field", part(4, part(2, inner())) + part(4, part(2)), "d.value.y"),
    # What the parser refuses counts wherever it is.
    ("a text of proto3", part(11, KEY, part(2, part(3, part(3, BAD)))) + part(11, KEY), "m.value.v"),
    ("no message", part(11, KEY, part(2, part(3, part(3) + b"\x08"))) + part(11, KEY), "m.value.v"),
    ("cut short", part(4, part(2, b"\x0a\x05ab")) + part(4, part(2, inner())), "d.value.x"),
]


def _expected(text: str, name: str, raw: bytes) -> object:
    try:
        return plain(row_of(text, name, raw))
    except (DecodeError, NoRowError):
        return None


@pytest.mark.parametrize(("what", "record"), KEPT)
def test_what_is_replaced_need_not_be_what_a_row_holds(what: str, record: bytes) -> None:
    reader = reader_of(WORDS)
    columns = read(reader, [part(1, BAD), record, part(1, GOOD)])
    assert fault_of(columns, 1) is None, what
    assert repr(plain(rows_of(reader, columns)[1])) == repr(_expected(WORDS, "words.Top", record))


@pytest.mark.parametrize(("what", "record", "path"), REFUSED)
def test_what_is_left_must_be(what: str, record: bytes, path: str) -> None:
    columns = read(reader_of(WORDS), [part(1, GOOD), record, part(1, GOOD)])
    assert (columns.fault.astype(bool).tolist(), columns.paths) == ([False, True, False], {1: path}), what
    assert _expected(WORDS, "words.Top", record) is None


@pytest.mark.parametrize(
    ("text", "name", "record", "path"),
    [
        (SHOP, "shop.Order", part(14, BAD) + part(14, GOOD), "n"),
        (SHOP, "shop.Order", part(30, part(2, BAD)) + part(30, part(2, GOOD)), "by_int.value"),
        (CHECKS, "checks.Top", part(1, BAD) + part(1, GOOD), None),
        (CHECKS, "checks.Top", part(1, GOOD) + part(1, BAD), "a"),
        (CHECKS, "checks.Top", part(2, BAD) + part(2, GOOD), "b"),
        (CHECKS, "checks.Top", part(3, KEY, part(2, BAD)) + part(3, KEY), None),
        (CHECKS, "checks.Top", part(3, KEY) + part(3, KEY, part(2, BAD)), "c.value"),
        (CHECKS, "checks.Top", part(4, KEY, part(2, BAD)) + part(4, KEY), "d.value"),
        (CHECKS, "checks.Top", part(5, GOOD) + part(5, BAD), "e"),
    ],
)
def test_which_texts_are_looked_at_at_once_is_the_schema_s_to_say(
    text: str, name: str, record: bytes, path: str | None
) -> None:
    reader = reader_of(text, name)
    columns = read(reader, [record])
    assert columns.paths == ({} if path is None else {0: path})
    expected = _expected(text, name, record)
    assert (fault_of(columns, 0) is None) == (expected is not None)
    if expected is not None:
        assert repr(plain(rows_of(reader, columns)[0])) == repr(expected)
