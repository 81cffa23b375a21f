"""Whole records: where they lie, how large they are, and that a bad one changes no other one's row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from frazil.decode.columns import Bodies
from tests.unit.decode.avro_bodies import (
    bodies_of,
    faults,
    kinds,
    number,
    read,
    reader_of,
    record_of,
    rows,
    text,
    write,
)

_INTS = {"type": "array", "items": "int"}
_TEXTS = {"type": "map", "values": "string"}
_TREE = record_of(id="int", kids={"type": "array", "items": "r"})
_CHAIN = record_of(id="int", next=["null", "r"])
_WIDE: dict[str, Any] = {
    "type": "record", "name": "wide", "fields": [{"name": f"f{n}", "type": "long"} for n in range(300)],
}  # fmt: skip
_MIXED = record_of(
    id="long",
    name=["null", "string"],
    tags={"type": "array", "items": {"type": "array", "items": ["null", "string"]}},
    scores={"type": "map", "values": ["int", "double", "string"]},
)


def _mixed(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "name": f"é{n}" if n % 3 else None,
        "tags": [[f"t{n}", None][: n % 3] for _ in range(n % 4)],
        "scores": {f"k{k}": (k, float(k), str(k))[k % 3] for k in range(n % 5)},
    }


def _expected(n: int) -> dict[str, Any]:
    def score(k: int) -> dict[str, Any]:
        none: dict[str, Any] = {"int": None, "double": None, "string": None}
        return {**none, ("int", "double", "string")[k % 3]: (k, float(k), str(k))[k % 3]}

    return {**_mixed(n), "scores": [(f"k{k}", score(k)) for k in range(n % 5)]}


def test_no_records_give_empty_columns() -> None:
    columns = read(_MIXED, [])
    assert [len(array) for array in columns.arrays] == [0, 0, 0, 0]
    assert columns.fault.size == 0


def test_twenty_thousand_records_are_read_as_they_were_written() -> None:
    bodies = write(_MIXED, *map(_mixed, range(20_000)))
    assert rows(_MIXED, bodies) == [_expected(n) for n in range(20_000)]


def test_records_lie_in_any_order_with_gaps_between() -> None:
    bodies = write(_MIXED, *map(_mixed, range(50)))
    whole = bodies_of(bodies, gap=b"\xff\x80\x01")
    order = np.argsort(np.sin(np.arange(50)))[:30]
    columns = read(_MIXED, Bodies(whole.buffer, whole.start[order], whole.end[order]))
    names = [field.name for field in reader_of(_MIXED).struct.fields]
    assert [array.to_pylist() for array in columns.arrays] == [
        [_expected(n)[name] for n in order.tolist()] for name in names
    ]


def test_places_may_be_strided_and_read_only() -> None:
    whole = bodies_of(write(_MIXED, *map(_mixed, range(20))))
    for array in (whole.start, whole.end):
        array.flags.writeable = False
    columns = read(_MIXED, Bodies(whole.buffer, whole.start[::-3], whole.end[::-3]))
    assert columns.arrays[0].to_pylist() == list(range(19, -1, -3))


def test_a_record_of_a_megabyte_is_read() -> None:
    items = list(range(-250_000, 250_000))
    node = record_of(a=_INTS, m=_TEXTS)
    pairs = {f"k{n}": "v" * (n % 7) for n in range(20_000)}
    (row,) = rows(node, write(node, {"a": items, "m": pairs}))
    assert row == {"a": items, "m": list(pairs.items())}


def test_room_grows_and_shrinks_with_the_records() -> None:
    node = record_of(a=_INTS, b={"type": "array", "items": _INTS})
    few, many = {"a": [1], "b": []}, {"a": list(range(5000)), "b": [[n] * 9 for n in range(900)]}
    for values in ([few] * 3, [many], [few, many, many], [few] * 1000):
        assert rows(node, write(node, *values)) == values


def test_blocks_of_arrays_and_maps_add_up() -> None:
    sized = number(-2) + number(3) + b"\x02\x80\x01"
    assert rows(record_of(v=_INTS), [b"\x02\x0a" + sized + b"\x04\x06\x08\x00"]) == [{"v": [5, 1, 64, 3, 4]}]
    entry = text("b") + text("y")
    body = number(1) + text("a") + text("x") + number(-1) + number(len(entry)) + entry + b"\x00"
    assert rows(record_of(v=_TEXTS), [body]) == [{"v": [("a", "x"), ("b", "y")]}]


@pytest.mark.parametrize(
    "body",
    [
        number(-1) + number(2) + b"\x02\x00\x00",
        number(-1) + number(0) + b"\x02\x00",
        number(-1) + number(-1) + b"\x02\x00",
        number(-1) + number(2**62) + b"\x02\x00",
        number(-(2**63)) + number(1) + b"\x02\x00",
        number(-(2**63)),
        number(2**63 - 1) + b"\x02\x00",
        number(2) + b"\x02\x00",
        number(1) + b"\x02",
        b"\x80",
    ],
)
def test_a_block_that_lies_is_malformed(body: bytes) -> None:
    columns = read(record_of(v=_INTS), [b"\x02\x02\x00", body, b"\x02\x04\x00"])
    assert kinds(columns) == [(1, "malformed", "v")]
    assert columns.arrays[0].to_pylist() == [[1], None, [2]]


def test_items_that_take_no_bytes_are_no_bomb() -> None:
    nulls = {"type": "array", "items": "null"}
    nested = record_of(v={"type": "array", "items": nulls})
    bomb = number(1000) + (number(1000) + b"\x00") * 1000 + b"\x00"
    blocks = number(1000) + (number(1) + b"\x00") * 1000 + b"\x00"
    many = (number(500) + number(-400) + number(0)) * 2
    assert kinds(read(nested, [bomb, blocks])) == [(0, "too_large", "v.element")]
    assert kinds(read(record_of(v=nulls), [many + b"\x00", number(900) + number(-100) + b"\x00\x00"])) == [
        (0, "too_large", "v")
    ]
    tree = record_of(n=nulls, next=["null", "r"])
    inner = number(1000) + b"\x00\x02" + number(1) + b"\x00\x00"
    assert kinds(read(tree, [inner, number(1000) + b"\x00\x00"])) == [(0, "too_large", "next")]


def test_absent_structs_with_many_columns_are_no_bomb() -> None:
    node = record_of(v={"type": "array", "items": ["null", _WIDE]})
    bomb = number(900_000) + bytes(900_000) + b"\x00"
    fine = number(300) + bytes(300) + b"\x00"
    columns = read(node, [fine, bomb, fine])
    assert kinds(columns) == [(1, "too_large", "")]
    assert columns.arrays[0].to_pylist() == [[None] * 300, None, [None] * 300]


def test_a_list_may_have_a_million_items() -> None:
    body = number(600_000) + bytes(600_000) + number(400_000) + bytes(400_000)
    columns = read(record_of(v=_INTS), [body + b"\x00", body + number(1) + b"\x00\x00"])
    assert kinds(columns) == [(1, "too_large", "v")]
    assert len(columns.arrays[0][0]) == 1_000_000


def test_a_record_nested_64_levels_deep_is_read_and_one_deeper_is_not() -> None:
    def chain(levels: int) -> bytes:
        return b"\x02\x02" * (levels - 1) + b"\x02\x00"

    columns = read(_CHAIN, [chain(64), chain(65), chain(5000), chain(1)])
    assert kinds(columns) == [(1, "too_deep", "next"), (2, "too_deep", "next")]
    assert columns.arrays[1][0].as_py().count('"id"') == 63
    # Each record of a tree is two levels: itself and the array it is in.
    tree = [b"\x02\x02" * (n - 1) + b"\x02\x00" + b"\x00" * (n - 1) for n in (32, 33, 34)]
    assert kinds(read(_TREE, tree)) == [(1, "too_deep", "kids.element"), (2, "too_deep", "kids.element")]


def test_what_is_wrong_inside_json_is_found() -> None:
    node = record_of(s="string", m=_TEXTS, d="boolean", next=["null", "r"])
    good = text("a") + b"\x00\x01\x00"
    pair = number(2) + text("k") + text("x") + text("k") + text("y") + b"\x00"
    inner = [
        b"\x02\xff\x00\x01\x00", text("a") + pair + b"\x01\x00", text("a") + b"\x00\x02\x00",
        text("a") + b"\x02\x02\xff" + text("x") + b"\x00\x01\x00", text("é") + b"\x00\x01\x00",
    ]  # fmt: skip
    columns = read(node, [good[:-1] + b"\x02" + value for value in inner])
    assert kinds(columns) == [
        (0, "invalid_text", "next"), (1, "duplicate_key", "next"), (2, "malformed", "next"), (3, "invalid_text", "next"),
    ]  # fmt: skip
    assert columns.arrays[3][4].as_py() == '{"s":"é","m":{},"d":true,"next":null}'


def test_json_that_would_be_far_longer_than_its_bytes_is_refused() -> None:
    names = [f"{'n' * 2000}{n}" for n in range(100)]
    kids = {"type": "array", "items": "r"}
    node = record_of(**{name: ["null", "int"] for name in names}, kids=kids)
    leaf = bytes(100) + b"\x00"
    bodies = [bytes(100) + number(count) + leaf * count + b"\x00" for count in (1, 90)]
    assert kinds(read(node, bodies)) == []
    inner = bytes(100) + number(90) + leaf * 90 + b"\x00"
    assert kinds(read(node, [bytes(100) + number(1) + inner + b"\x00"])) == [(0, "too_large", "kids.element")]


def test_faults_in_lists_and_maps_name_their_place_and_leave_no_items() -> None:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "t", "type": "string"}, {"name": "b", "type": "boolean"}],
    }
    node = record_of(l={"type": "array", "items": inner}, m={"type": "map", "values": _INTS})
    good = b"\x02" + text("x") + b"\x01\x00" + b"\x02" + text("k") + b"\x02\x0a\x00\x00"
    bad = [
        b"\x04" + text("y") + b"\x01" + b"\x02\xff" + b"\x01\x00\x00",
        b"\x04" + text("y") + b"\x01" + text("z") + b"\x02\x00\x00",
        b"\x00" + b"\x02\x02\xff" + b"\x02\x0a\x00\x00",
        b"\x00" + b"\x02" + text("k") + b"\x04\x0a\x80",
        b"\x00" + b"\x04" + (text("k") + b"\x02\x0a\x00") * 2 + b"\x00",
    ]
    columns = read(node, [good, *[body for wrong in bad for body in (wrong, good)]])
    assert kinds(columns) == [
        (1, "invalid_text", "l.element.t"), (3, "malformed", "l.element.b"), (5, "invalid_text", "m.key"),
        (7, "malformed", "m.value.element"), (9, "duplicate_key", "m"),
    ]  # fmt: skip
    expected = [None if row % 2 else [{"t": "x", "b": True}] for row in range(11)]
    assert columns.arrays[0].to_pylist() == expected
    assert len(columns.arrays[0].values) == 6
    assert columns.arrays[1].to_pylist() == [None if row % 2 else [("k", [5])] for row in range(11)]


def test_two_strings_that_are_text_only_together_are_both_refused() -> None:
    columns = read(record_of(v="string"), [b"\x02\xc3", b"\x02\xa9", text("é")])
    assert kinds(columns) == [(0, "invalid_text", "v"), (1, "invalid_text", "v")]
    assert columns.arrays[0].to_pylist() == [None, None, "é"]


def test_what_is_text_is_what_python_reports_is_text() -> None:
    leads = bytes.fromhex("00 41 7f 80 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f4 f5 ff")
    tails = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c0 c2 ff")
    raw = [bytes(b) for size in range(4) for b in itertools.product(leads, *[tails] * size)]
    raw += [b"0123456" + some + b"01234567"[: n % 9] for n, some in enumerate(raw)]
    columns = read(record_of(v="string"), [number(len(some)) + some for some in raw])
    assert [not fault for fault in columns.fault.tolist()] == [_is_text(some) for some in raw]


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_first_fault_of_a_record_is_told() -> None:
    node = record_of(a="string", u={"type": "string", "logicalType": "uuid"}, b="string")
    columns = read(node, [b"\x02\xff" + text("no") + b"\x02\xff"])
    assert faults(columns) == [(0, "invalid_text", "a", "a string is not UTF-8")]


@pytest.mark.parametrize("count", [2, 3, 16, 17, 18, 33, 1000])
def test_equal_keys_are_found_wherever_they_are(count: int) -> None:
    node = record_of(v={"type": "map", "values": "null"})
    keys = [f"a key of many bytes, number {n * 7919 % count:04}" for n in range(count)]
    good = number(count) + b"".join(map(text, keys)) + b"\x00"
    bad = []
    for at, again in ((0, count - 1), (count // 2, 0), (count - 1, count // 2)):
        twice = [*keys[:at], keys[again], *keys[at + 1 :]]
        bad.append(number(count) + b"".join(map(text, twice)) + b"\x00")
    wrong = [
        n for n, (at, again) in enumerate([(0, count - 1), (count // 2, 0), (count - 1, count // 2)], 1) if at != again
    ]
    columns = read(node, [good, *bad, good])
    assert kinds(columns) == [(row, "duplicate_key", "v") for row in wrong]


def test_a_hundred_thousand_keys_are_told_apart() -> None:
    node = record_of(v={"type": "map", "values": "null"})
    keys = b"".join(text(f"{'same' * 8}{n}") for n in range(100_000))
    assert kinds(read(node, [number(100_000) + keys + b"\x00"])) == []
    again = number(100_001) + keys + text("same" * 8 + "0") + b"\x00"
    assert kinds(read(node, [again])) == [(0, "duplicate_key", "v")]


def test_a_reader_reads_the_same_again_whatever_it_read_before() -> None:
    bodies = write(_MIXED, *map(_mixed, range(100)))
    first = rows(_MIXED, bodies)
    read(_MIXED, [body[:-1] for body in bodies])
    assert rows(_MIXED, bodies) == first
    assert reader_of(_MIXED) is reader_of(_MIXED)
