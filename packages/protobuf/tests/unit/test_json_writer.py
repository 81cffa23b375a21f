"""What the compiled writers of JSON write is what Python's json module writes."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.decode.columns import text_array
from frazil_protobuf.json_writer import (
    ROOM,
    has_room,
    shortest_digits,
    write_double,
    write_string,
    write_texts,
    write_unsigned,
)
from tests.fixtures.chance import Chance


def _bytes_written(write: Callable[..., int], raw: bytes) -> str:
    """What a writer of bytes makes of them, with not a byte more room than `has_room` asks for."""
    source = np.frombuffer(raw + b"\xee" * 8, np.uint8)
    size = next(n for n in itertools.count() if has_room(0, n, int(source.ctypes.data), len(raw)))
    out = np.zeros(size + 8, np.uint8)
    first = int(out.ctypes.data)
    end = write(first, int(source.ctypes.data), len(raw))
    assert end <= first + size
    assert not out[end - first :].any()
    return out[: end - first].tobytes().decode()


def _number_written(write: Callable[..., int], number: Any) -> str:
    out = np.zeros(ROOM, np.uint8)
    end = write(int(out.ctypes.data), number)
    return out[: end - int(out.ctypes.data)].tobytes().decode()


def _doubles() -> list[float]:
    powers = [2.0**n for n in range(-1074, 1024)] + [10.0**n for n in range(-323, 309)]
    edges = [math.nextafter(power, towards) for power in powers for towards in (0.0, math.inf)]
    chance = np.random.default_rng(1)
    any_bits = chance.integers(0, 2**64, 20_000, np.uint64).view(np.float64)
    small = chance.integers(1, 2**52, 2_000, np.uint64).view(np.float64)
    money = np.round(chance.uniform(-1e6, 1e6, 5_000), 2)
    whole = np.round(chance.uniform(-1e18, 1e18, 5_000))
    more = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e15, 123456789012345680.0, 0.0001, 0.00001, 1e22, 1e23]
    return [*powers, *edges, *more, *(float(each) for each in np.concatenate([any_bits, small, money, whole]))]


def test_doubles_are_written_as_python_writes_them() -> None:
    for number in _doubles():
        bits = np.uint64(struct.unpack("<Q", struct.pack("<d", number))[0])
        if math.isfinite(number):
            assert _number_written(write_double, bits) == json.dumps(number)


def test_the_digits_of_a_double_end_with_none_that_is_0() -> None:
    found = [shortest_digits(np.float64(number).view(np.uint64)) for number in (1.0, 10.0, 1e22, 0.1, 123.25, 5e-324)]
    assert [(int(digits), exponent) for digits, exponent in found] == [
        (1, 0), (1, 1), (1, 22), (1, -1), (12325, -2), (5, -324),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [0, 9, 10, 2**63, 10**19, 10**19 - 1, 2**64 - 1])
def test_numbers_without_a_sign_are_written_as_python_writes_them(number: int) -> None:
    assert _number_written(write_unsigned, np.uint64(number)) == str(number)


def test_every_character_is_written_as_python_writes_it_wherever_it_stands() -> None:
    for code in [*range(0x100), 0x7FF, 0x800, 0x2028, 0xFFFF, 0x10000, 0x10FFFF]:
        for before, after in itertools.product((0, 1, 5, 7, 8, 15), (0, 1, 8)):
            text = "x" * before + chr(code) + "é" * after
            assert _bytes_written(write_string, text.encode()) == json.dumps(text, ensure_ascii=False)


def test_texts_at_random_are_written_as_python_writes_them() -> None:
    chance = Chance(7)
    dead_letters = [*map(chr, range(40)), '"', "\\", "a", "é", "日", "😀", "\x7f"]
    for _ in range(2000):
        text = "".join(chance.one_of(dead_letters) for _ in range(chance.below(40)))
        assert _bytes_written(write_string, text.encode()) == json.dumps(text, ensure_ascii=False)


def _column(texts: Sequence[str | None], valid: Sequence[bool], others: dict[int, str | None], guess: int) -> pa.Array:
    def write(out: int, room: int, row: int, ends: Any, declined: Any) -> int:
        for n in range(row, len(texts)):
            raw = (texts[n] or "").encode()
            ends[n + 1] = ends[n]
            if n in others:
                declined[n] = 1
            elif ends[n] + len(raw) > room:
                return n
            else:
                target = np.ctypeslib.as_array((ctypes.c_uint8 * room).from_address(out))
                target[ends[n] : ends[n] + len(raw)] = np.frombuffer(raw, np.uint8)
                ends[n + 1] += len(raw)
        return len(texts)

    array = write_texts(np.array(valid, np.bool_), guess, write, others.__getitem__)
    array.validate(full=True)
    return array


def test_a_column_of_texts_grows_until_all_are_in_it() -> None:
    texts = ["x" * n for n in (0, 5, 300, 70_000, 1)]
    assert _column(texts, [True] * 5, {}, 0).to_pylist() == texts
    assert _column([], [], {}, 0).to_pylist() == []


def test_what_is_declined_is_written_one_by_one_between_the_others() -> None:
    texts = ["a", None, "b", "c", "d"]
    array = _column(texts, [True, False, True, True, True], {2: "much longer than b", 3: None}, 100)
    assert array.to_pylist() == ["a", None, "much longer than b", None, "d"]
    assert array.type == pa.string()


def test_texts_of_python_are_a_column() -> None:
    assert text_array(["a", None, ""]).equals(pa.array(["a", None, ""], pa.string()))
    assert text_array([]).type == pa.string()
