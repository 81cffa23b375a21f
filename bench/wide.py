"""Wide records: JSON of about 1.1 kB with 60 fields in objects and lists; ids unique, all else from a pool.

Every field is checked: a table must hold the sum of each over all of its records.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from bench.arithmetic import in_64_bits, prefix_total

WIDE_POOL = 20_000
_Rng = numpy.random.Generator
_Leaf = Callable[[_Rng, int], list[object]]


def _whole(low: int, high: int) -> _Leaf:
    return lambda rng, size: [int(x) for x in rng.integers(low, high, size)]


def _cents(high: int) -> _Leaf:
    return lambda rng, size: [int(x) / 100 for x in rng.integers(-high, high, size)]


def _flag(rng: _Rng, size: int) -> list[object]:
    return [bool(x) for x in rng.random(size) < 0.5]


def _text(pattern: str, kinds: int) -> _Leaf:
    return lambda rng, size: [pattern % x for x in rng.integers(0, kinds, size)]


_TIME = _whole(1_790_000_000_000, 1_790_000_100_000)
_SHAPE: Mapping[str, Any] = {
    "user_id": _whole(0, 1_000_000),
    "page_url": _text("/p/%d/view", 5000),
    "action": _text("act%d", 10),
    "amount": _cents(10_000),
    "ok": _flag,
    "ts": _TIME,
    "ua": _text("Mozilla/5.0 (X11) %d", 100),
    "device": {
        "os": _text("os%d", 5),
        "release": _text("%d.1", 20),
        "browser": _text("b%d", 9),
        "lang": _text("l%d", 30),
        "width": _whole(320, 3840),
        "height": _whole(240, 2160),
        "scale": _cents(400),
        "touch": _flag,
    },
    "geo": {
        "country": _text("C%d", 90),
        "city": _text("city%d", 900),
        "zip": _text("%05d", 99_999),
        "lat": _cents(9000),
        "lon": _cents(18_000),
        "error_m": _whole(1, 500),
        "zone": _text("Z/%d", 40),
    },
    "session": {
        "n": _whole(1, 50),
        "since": _TIME,
        "pages": _whole(1, 99),
        "secs": _whole(0, 3600),
        "new": _flag,
        "from": _text("/r/%d", 300),
        "ad": {"src": _text("s%d", 9), "via": _text("v%d", 9), "term": _text("t%d", 99), "cost": _cents(300)},
    },
    "user": {
        "name": _text("user %d", 9999),
        "mail": _text("u%d@example.org", 9999),
        "tier": _text("t%d", 4),
        "since": _TIME,
        "orders": _whole(0, 500),
        "balance": _cents(50_000),
        "agreed": {"mail": _flag, "ads": _flag, "terms": _flag},
    },
    "cart": {
        "unit": _text("U%d", 9),
        "total": _cents(90_000),
        "tax": _cents(9000),
        "post": _cents(900),
        "items": [{"sku": _text("k%d", 9999), "n": _whole(1, 9), "price": _cents(9000)}],
        "codes": [_text("x%d", 99)],
    },
    "time": {name: _whole(0, 900) for name in ("dns", "tcp", "ask", "get", "draw", "load")},
    "node": {
        "host": _text("h%d", 99),
        "area": _text("a%d", 9),
        "build": _text("1.%d", 99),
        "trace": _text("%08x", 2**31),
    },
}


@dataclasses.dataclass(frozen=True)
class WidePool:
    """What repeats: each record's bytes after its id, and what each of its fields adds to the sums."""

    tails: list[bytes]
    weights: Mapping[str, list[int]]

    def value(self, number: int) -> bytes:
        """The record with the id `number`."""
        return b'{"id": %d, %b' % (number, self.tails[number % len(self.tails)])

    def totals(self, count: int) -> dict[str, int]:
        """What a table of the records 0 to `count` (exclusive) holds: rows, different ids, and each field's sum."""
        sums = {path: in_64_bits(prefix_total(weights, count)) for path, weights in self.weights.items()}
        return {"(rows)": count, "(different ids)": count, "id": count * (count - 1) // 2, **sums}


def make_wide_pool(size: int = WIDE_POOL) -> WidePool:
    """The pool, the same each time."""
    records = _build(_SHAPE, numpy.random.default_rng(11), size)
    tails = [json.dumps(record).encode().removeprefix(b"{") for record in records]
    weights: dict[str, list[int]] = {path: [0] * size for path, _ in _leaves("", records[0])}
    for index, record in enumerate(records):
        for path, value in _leaves("", record):
            weights[path][index] += weight(value)
    return WidePool(tails, weights)


def weight(value: object) -> int:
    """What a value adds to its field's sum: itself, 1 for true, hundredths, or the length of a text."""
    if isinstance(value, str):
        return len(value.encode())
    return round(value * 100) if isinstance(value, float) else int(value)  # type: ignore[call-overload]


def _build(shape: Any, rng: _Rng, size: int) -> list[Any]:
    """So many values of a shape: an object of shapes, a list of one or two, or what makes plain values."""
    if isinstance(shape, Mapping):
        columns = [_build(member, rng, size) for member in shape.values()]
        return [dict(zip(shape, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(shape, Sequence):
        pairs = zip(_build(shape[0], rng, size), _build(shape[0], rng, size), strict=True)
        return [list(pair[: 1 + index % 2]) for index, pair in enumerate(pairs)]
    return list(shape(rng, size))


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Every plain value with its place, as a table names it: members by their names, elements by their list's."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, member)
    elif isinstance(value, list):
        for element in value:
            yield from _leaves(path, element)
    else:
        yield path, value
