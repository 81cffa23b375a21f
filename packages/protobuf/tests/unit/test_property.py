"""The Protobuf reader against Protobuf's own parser: messages made at random, written in odd ways, and damaged.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packages.protobuf.tests.unit.protobuf_chance import fill, spoil, write_oddly
from packages.protobuf.tests.unit.protobuf_rows import NoRowError, plain, row_of
from packages.protobuf.tests.unit.protobuf_schemas import (
    CHECKS,
    DELIMITED,
    EDITION,
    LEGACY,
    SHOP,
    WORDS,
    bodies_of,
    class_of,
    fault_of,
    read,
    reader_of,
    rows_of,
)
from tests.fixtures.chance import Chance, damage

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_MODEST = settings(max_examples=10 * _TIMES, deadline=None, suppress_health_check=list(HealthCheck))
_AT_ONCE = 6
_seeds = st.integers(0, 2**32)
_SCHEMAS = [
    (SHOP, "shop.Order"), (LEGACY, "old.Node"), (EDITION, "new.Top"), (DELIMITED, "lines.Top"), (WORDS, "words.Top"),
    (CHECKS, "checks.Top"),
]  # fmt: skip
_BEYOND_64_BITS = re.compile(rb"[\x80-\xff]{9}[\x02-\x7f]")
"""A varint whose tenth byte has more than the 64th bit: upb cuts its value off, Frazil and Go's library refuse it."""
_VALUES_PROTOBUF_LEAVES_TO_ITS_USERS = ("required", "UTF-8", "timestamp", "duration", "JSON", "levels deep")


def _made(text: str, name: str, seed: int) -> tuple[list[Any], Chance]:
    chance = Chance(seed)
    messages = []
    for _ in range(_AT_ONCE):
        message = class_of(text, name)()
        fill(message, chance, chance.one_of((0.0, 0.1, 0.5, 0.9)))
        messages.append(message)
    return messages, chance


def _expected(text: str, name: str, raw: bytes) -> Any:
    """The row, `None` when Protobuf refuses the bytes, NoRowError when no row holds what they say."""
    try:
        return row_of(text, name, raw)
    except DecodeError:
        return None
    except (NoRowError, UnicodeDecodeError):
        return NoRowError


@pytest.mark.parametrize(("text", "name"), _SCHEMAS)
@_MODEST
@given(_seeds)
def test_what_protobuf_writes_is_read_as_protobuf_reads_it(text: str, name: str, seed: int) -> None:
    messages, _ = _made(text, name, seed)
    raw = [message.SerializePartialToString() for message in messages]
    columns = read(reader_of(text, name), raw)
    assert [fault_of(columns, row) for row in range(len(raw))] == [None] * len(raw)
    rows = rows_of(reader_of(text, name), columns)
    for row, each in zip(rows, raw, strict=True):
        assert repr(plain(row)) == repr(plain(row_of(text, name, each)))


@pytest.mark.parametrize(("text", "name"), _SCHEMAS)
@_MODEST
@given(_seeds)
def test_what_nobody_writes_is_read_as_protobuf_reads_it(text: str, name: str, seed: int) -> None:
    messages, chance = _made(text, name, seed)
    raw = [write_oddly(one, chance.one_of(messages), chance) for one in messages]
    _compare(text, name, raw, bodies_of(raw, b"gap", chance.rng.permutation(len(raw)).tolist()))


@pytest.mark.parametrize(("text", "name"), _SCHEMAS)
@settings(_MODEST, max_examples=20 * _TIMES)
@given(_seeds)
def test_damaged_records_are_refused_exactly_when_protobuf_refuses_them(text: str, name: str, seed: int) -> None:
    messages, chance = _made(text, name, seed)
    raw = [message.SerializePartialToString() for message in messages]
    raw = [damage(each, chance) if chance.happens(0.5) else each for each in raw]
    _compare(text, name, raw, bodies_of(raw))


@pytest.mark.parametrize(("text", "name"), _SCHEMAS)
@settings(_MODEST, max_examples=20 * _TIMES)
@given(_seeds)
def test_texts_that_are_none_are_refused_where_protobuf_looks_at_them(text: str, name: str, seed: int) -> None:
    messages, chance = _made(text, name, seed)
    raw = [spoil(write_oddly(one, chance.one_of(messages), chance), chance) for one in messages]
    _compare(text, name, raw, bodies_of(raw))


def _compare(text: str, name: str, raw: list[bytes], bodies: Any) -> None:
    columns = read(reader_of(text, name), bodies)
    for n, row in enumerate(rows_of(reader_of(text, name), columns)):
        expected, fault = _expected(text, name, raw[n]), fault_of(columns, n)
        if fault is not None and "64 bits" in fault.message and _BEYOND_64_BITS.search(raw[n]):
            continue
        if expected is None:
            assert fault is not None, raw[n]
        elif expected is NoRowError:
            assert fault is not None, raw[n]
            assert any(words in fault.message for words in _VALUES_PROTOBUF_LEAVES_TO_ITS_USERS), fault
        else:
            assert fault is None, (fault, raw[n])
            assert repr(plain(row)) == repr(plain(expected)), raw[n]


@pytest.mark.parametrize(("text", "name"), _SCHEMAS)
@_MODEST
@given(_seeds)
def test_a_record_s_row_is_the_same_whatever_its_neighbours_are(text: str, name: str, seed: int) -> None:
    messages, chance = _made(text, name, seed)
    raw = [write_oddly(one, chance.one_of(messages), chance) for one in messages]
    raw = [damage(each, chance) if chance.happens(0.5) else each for each in raw]
    together = read(reader_of(text, name), raw)
    rows = rows_of(reader_of(text, name), together)
    for n, each in enumerate(raw):
        alone = read(reader_of(text, name), [each])
        assert repr(rows_of(reader_of(text, name), alone)[0]) == repr(rows[n])
        assert (fault_of(alone, 0), alone.paths.get(0)) == (fault_of(together, n), together.paths.get(n))
