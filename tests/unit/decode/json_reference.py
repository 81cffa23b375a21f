"""Writes docs/reference/json.md from what the decoder does: `make docs`. The tests compare the two."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from tests.unit.decode.columns import decode

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "json.md"

_KINDS = ("null", "true", "1", "1.5", '"text"', "[1]", '{"a": 1}')
_INTEGERS = (
    "0", "-0", "-1", "1.0", "1e3", "12e-1", "2147483647", "2147483648", "9007199254740993e0",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616",
    "9.223372036854775807e18", "1e400", '"12"',
)  # fmt: skip
_NUMBERS = (
    "-0", "1e3", "0.1", "3.4028235e38", "3.4028236e38", "1.7976931348623157e308", "5e-324", "1e-400", "1e400", "-1e400",
    "9007199254740993", "18446744073709551616", "0.30000000000000004", "123456789.12345679", '"1.5"', '"NaN"',
)  # fmt: skip
_MOMENTS = (
    '"2026-01-31T12:30:00"', '"2026-01-31 12:30:00.123456"', '"2026-01-31T12:30"', '"2026-01-31"',
    '"2026-01-31T12:30:00Z"', '"2026-01-31T12:30:00.5+02:00"', '"2026-01-31T12:30:00+0200"',
    '"2026-01-31T12:30:00.123456789"', '"2026-01-31T12:30:00.123456789Z"', '"2026-02-30T00:00:00"', "1769862600123",
    '"2026-01-31t12:30:00z"', '"2026-01-31T12:30:00+02:00:30"',
    '"+2026-01-31T12:30:00Z"', '"-2026-01-31T12:30:00Z"', '"+012026-01-31"',
    "-1", "0", "1769862600123.5", "1.769862600123e12", "1769862600123456", "253402300800000", '"1769862600123"',
)  # fmt: skip
EDGES: dict[str, tuple[str, ...]] = {
    "boolean": ("false", "0", '"true"'),
    "int": _INTEGERS,
    "long": _INTEGERS,
    "float": _NUMBERS,
    "double": _NUMBERS,
    "decimal(9,2)": (
        "12.50", "12.5", "12.500", "12.505", "-0", "1e3", "125e-1", "1234567.89", "12345678.9", "1e400",
        "1.00000000000000000000000000000000000000", '"12.50"', '"+12.5"', '"12,50"', '" 12.5"', '""', '"NaN"',
    ),
    "decimal(38,10)": ("9999999999999999999999999999.9999999999", "99999999999999999999999999999", "0.00000000001"),
    "date": (
        '"2026-01-31"', '"2024-02-29"', '"2026-02-29"', '"2026-1-31"', '"20260131"', '"2026-01-31T00:00:00"',
        '"9999-12-31"', '"10000-01-01"', "20484",
    ),
    "time": (
        '"12:30:00"', '"12:30"', '"12"', '"1230"', '"12:30:00.123456"', '"12:30:00.1234567"', '"24:00:00"', '"12:30:00Z"',
        "45000",
    ),
    "timestamp": _MOMENTS,
    "timestamptz": _MOMENTS,
    "string": ('""', '"12"', r'"tab\t, quote\", slash\/, é \u00e9 \ud83d\ude00"', r'"\u0000"', r'"\ud800"',
               r'"\udc00\ud800"'),
    "uuid": (
        '"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"', '"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"',
        '"f81d4fae7dec11d0a76500a0c91e6bf6"', '"{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}"',
    ),
    "binary": ('"AP8="', '""', '"AP8"', '"AP 8="', '"_-8="'),
    "fixed[2]": ('"AP8="', '"AA=="', '""'),
    "list<long>": ("[]", "[1, null, 3]", "[1, 2.5]", "[[1]]", '"[1]"'),
    "map<string,long>": (
        "{}", '{"x": 1, "y": null}', '{"": 1}', r'{"\u0061": 1}', r'{"a": 1, "\u0061": 2}', '{"x": 1, "x": 1}',
        '{"x": "1"}', r'{"\ud800": 1}',
    ),
    "struct<a: long, b: struct<c: string>>": (
        "{}", '{"a": null}', '{"b": {"c": "x"}}', r'{"\u0061": 1}', '{"a": 1, "A": 2}', '{"a": 1, "a": 1}',
        '{"b": {"c": "x", "c": "x"}}', '{"b": [1]}',
    ),
    "list<struct<a: long>>": ('[{"a": 1}, {}, null]', '[{"a": 1}, 2]', '[{"a": 1, "a": 1}]'),
}  # fmt: skip

TROUBLES: tuple[tuple[str, bytes | None], ...] = (
    ("no value (a tombstone)", None),
    ("no bytes", b""),
    ("white space only", b" \n"),
    ("`{}`", b"{}"),
    ("`[]`", b"[]"),
    ("`null`", b"null"),
    ("`12`", b"12"),
    ("a Confluent wire format header (a zero byte and a schema id) before the object", b'\x00\x00\x00\x00\x01{"a": 1}'),
    ("white space and line ends around and inside", b' \r\n{ "a"\n:\t1 }\n'),
    ("a UTF-8 byte order mark first", b'\xef\xbb\xbf{"a": 1}'),
    ("UTF-16", '{"a": 1}'.encode("utf-16-le")),
    ("a byte that is not UTF-8", b'{"a": 1, "b": "\xff"}'),
    ("a UTF-8 surrogate (CESU-8)", b'{"a": 1, "b": "\xed\xa0\x80"}'),
    ("a value of 1 MiB", b'{"a": 1, "b": "' + b"x" * 2**20 + b'"}'),
    ("nested 512 levels deep", b'{"a": 1, "b": ' + b"[" * 511 + b"]" * 511 + b"}"),
    ("nested 100,000 levels deep", b'{"a": 1, "b": ' + b"[" * 99_999 + b"]" * 99_999 + b"}"),
    ('`{"a": 1, "a": 1}`', b'{"a": 1, "a": 1}'),
    ('`{"a": 1, "b": 2, "b": 2}`: a key that no column has', b'{"a": 1, "b": 2, "b": 2}'),
    ('`{"a": 1, "b": {"c": 1, "c": 1}}`', b'{"a": 1, "b": {"c": 1, "c": 1}}'),
    ('`{"a": 1, "b": [{"c": 1, "c": 1}]}`', b'{"a": 1, "b": [{"c": 1, "c": 1}]}'),
    (r'`{"a": 1, "\u0061": 1}`: the same key through an escape', rb'{"a": 1, "\u0061": 1}'),
    (r'`{"\u0061": 1}`', rb'{"\u0061": 1}'),
    (r'`{"a": 1, "\ud800": 1}`: a key that is not text', rb'{"a": 1, "\ud800": 1}'),
    ("`{'a': 1}`", b"{'a': 1}"),
    ("`{a: 1}`", b"{a: 1}"),
    ('`{"a": 1,}`', b'{"a": 1,}'),
    ('`{"a": NaN}`', b'{"a": NaN}'),
    ('`{"a": -Infinity}`', b'{"a": -Infinity}'),
    ('`{"a": 01}`, `{"a": +1}`, `{"a": .5}`', b'{"a": 01}'),
    ('`{"a": 1} // note`', b'{"a": 1} // note'),
    ("a second object after the first", b'{"a": 1}{"a": 2}'),
    ("a zero byte at the end", b'{"a": 1}\x00'),
    ("truncated", b'{"a": 1'),
    ("a line end inside a string, unescaped", b'{"a": 1, "b": "x\ny"}'),
)

_NOTE = "\nGenerated from the decoder by `make docs`; a test verifies it."

_INTRODUCTION = """\
# JSON conversions

A record's value is one JSON object (RFC 8259, UTF-8); each member is a value of the column with the same name
([case](../guides/names.md#capitals) is ignored). A value is rejected, with its record, if it cannot be converted
losslessly to the column's type. Two conversions are approximate: a number becomes the nearest `float` or `double`, and
times are truncated to microseconds, towards the past, because Go, Java and .NET write seven to nine digits of a second.
A null or absent member is null.

A column can be declared to accept more: [other values as text](../guides/declare-columns.md#other-values-as-text), and
[numbers as days and times of day](../guides/declare-columns.md#days-and-times-as-numbers). The tables below apply to
columns without these declarations.

A rejected record is a bad record: a dead letter, unless `on_bad_record` is set otherwise. It affects no other record.

## Values"""
_TROUBLES_TITLE = """
## Whole records

The table has one column, `a long`. Fields without a column are added as columns (`unknown_fields: add`), with the type of
all values of the batch. With `unknown_fields: drop` such fields are skipped: only their JSON grammar is validated, not
duplicate keys."""


def page() -> str:
    """The page as it should be."""
    return "\n".join([_INTRODUCTION, *_types(), _TROUBLES_TITLE, *_troubles(), _NOTE]) + "\n"


def _types() -> Iterator[str]:
    for kind, edges in EDGES.items():
        texts = list(dict.fromkeys([*_KINDS, *edges]))
        decoded = decode([f'{{"v": {text}}}' for text in texts], "drop", v=kind)
        reasons = {mismatch.row: mismatch.reason for mismatch in reversed(decoded.mismatches)}
        assert decoded.mismatch_count <= 20, "the decoder describes only the first mismatches: use fewer values"
        yield f"\n### `{kind}`\n\n| JSON | stored |\n|---|---|"
        for row, (text, stored) in enumerate(zip(texts, decoded.columns[0], strict=True)):
            outcome = (
                f"rejected: {_cell(re.split(': a new table|: a column|: where|: `columns', reasons[row])[0])}"
                if row in reasons
                else _cell(_words(stored.as_py()))
            )
            yield f"| `{_cell(text)}` | {outcome} |"


def _troubles() -> Iterator[str]:
    yield "\n| value | result |\n|---|---|"
    for words, value in TROUBLES:
        decoded = decode([value], a="long")
        stored = f"a row: `a` is {_words(decoded.columns[0][0].as_py())}"
        requested_fields = [
            f"`{name or '(empty)'} {kind}`" for name, kind in decoded.requested_fields.get((), {}).items()
        ]
        added = f"; adds {', '.join(requested_fields)}" if requested_fields else ""
        refused = decoded.mismatches[0] if decoded.mismatches else None
        outcome = f"rejected: {_cell(refused.reason)}" if refused else stored + added
        yield f"| {_cell(words)} | {outcome} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _words(value: Any) -> str:
    if isinstance(value, bytes):
        return f"bytes `{value.hex()}`"
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, str):
        return f"`{json.dumps(value, ensure_ascii=False)}`"
    if isinstance(value, (dict, list)):
        return f"`{json.dumps(value)}`"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value)


def main() -> None:
    """Writes the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
