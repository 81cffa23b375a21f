"""What each of MySQL's types becomes from Maxwell's messages (docs/reference/maxwell.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.stages.changes import Changes
from tests.unit.cdc.envelope_reference import records_of, target_for

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "maxwell.md"
_AT = datetime(2026, 11, 22, 0, 16, 29, 123456, tzinfo=UTC)
KINDS: tuple[tuple[str, str, str, Any, str, Any], ...] = (
    ("int", "7", "long", 7, "int", 7),
    ("bigint unsigned", "18446744073709551615", "", None, "decimal(20,0)", Decimal(2**64 - 1)),
    ("decimal(30,9)", "12345678901234567890.123456789", "double", 1.2345678901234567e19, "decimal(30,9)",
     Decimal("12345678901234567890.123456789")),
    ("float", "1.1", "double", 1.1, "float", 1.100000023841858),
    ("double", "1.0E10", "double", 1e10, "", None),
    ("bit(8)", "200", "long", 200, "", None),
    ("year", "2026", "long", 2026, "int", 2026),
    ("date", '"2026-11-22"', "string", "2026-11-22", "date", date(2026, 11, 22)),
    ("time(6)", '"23:59:59.999999"', "string", "23:59:59.999999", "time", time(23, 59, 59, 999999)),
    ("datetime(6)", '"2026-11-22 00:16:29.123456"', "string", "2026-11-22 00:16:29.123456", "timestamp",
     _AT.replace(tzinfo=None)),
    ("timestamp(6)", '"2026-11-22 00:16:29.123456"', "string", "2026-11-22 00:16:29.123456", "timestamp",
     _AT.replace(tzinfo=None)),
    ("varchar(20)", '"Grüße"', "string", "Grüße", "", None),
    ("blob", '"AQI="', "string", "AQI=", "binary", b"\1\2"),
    ("json", '{"a":1}', "struct<a: long>", {"a": 1}, "", None),
    ("enum('a','b')", '"b"', "string", "b", "", None),
    ("set('a','b')", '["a","b"]', "list<string>", ["a", "b"], "", None),
    ("point", '"POINT (1 2)"', "string", "POINT (1 2)", "", None),
)  # fmt: skip


def _read(columns: Mapping[str, str], *texts: str) -> Changes:
    raw = [
        f'{{"database":"d","table":"t","type":"insert","ts":1477053217,"xid":23396,"commit":true,"data":{{"v":{text}}}}}'
        for text in texts
    ]
    return read_envelope(target_for(Envelope("maxwell"), columns), records_of([one.encode() for one in raw]))


@pytest.mark.parametrize("row", KINDS, ids=[one[0] for one in KINDS])
def test_a_type_of_mysql(row: tuple[str, str, str, Any, str, Any]) -> None:
    _, text, becomes, value, declared, exact = row
    found = _read({}, text).decoded
    assert [_spelt(kind) for kind in found.requested_fields[()].values()] == [becomes or "long"]
    assert [one.kind for one in found.mismatches] == ([] if becomes else ["out_of_range"])
    for kind, expected in ((becomes, value), (declared, exact)):
        if kind:
            changes = _read({"v": kind}, text, "null")
            assert (changes.columns[0].to_pylist(), changes.decoded.mismatches) == ([expected, None], [])


def _spelt(kind: Any) -> str:
    return re.sub(r"\d+: (\S+): optional ", r"\1: ", str(kind)).replace(", ", ",")


def test_the_page_has_every_type() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \| (?:`([^`]+)`|refused) \| (?:`([^`]+)`)? ?\|", PAGE.read_text(), re.M
    )
    assert rows == [(name, text, becomes, declared) for name, text, becomes, _, declared, _ in KINDS]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("12.345", "decimal(10,2)"),
        ("18446744073709551616", "long"),
        ('"-01:00:00"', "time"),
        ('"838:59:59"', "time"),
        ('"0000-00-00 00:00:00"', "timestamp"),
        ('"2026-11-22 00:16:29"', "timestamptz"),
    ],
)
def test_a_value_that_its_column_cannot_hold_makes_one_bad_record(text: str, kind: str) -> None:
    changes = _read({"v": kind}, "null", text, "null")
    assert ([one.row for one in changes.decoded.mismatches], changes.records.tolist()) == ([1], [0, 2])
