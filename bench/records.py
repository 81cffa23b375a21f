"""The records: JSON of about 190 bytes and 8 fields, varied values from a pool of 100,000, unique ids.

The same record as the peer benchmark's, so that every subject reads the very same topic.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy

from bench.arithmetic import prefix_total

POOL = 100_000
SCHEMA = {
    "id": "long",
    "user_id": "long",
    "page_url": "string",
    "action": "string",
    "amount": "double",
    "ok": "boolean",
    "ts": "long",
    "ua": "string",
}
FIRST_TS = 1_790_000_000_000_000
_ACTIONS = ("click", "view", "buy", "exit")
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 "


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a table must hold: compared whole with what its files hold. Times count from FIRST_TS, to fit 64 bits."""

    rows: int
    distinct_ids: int
    id_sum: int
    user_id_sum: int
    amount_cents: int
    ok_count: int
    ts_sum: int
    text_bytes: int


@dataclasses.dataclass(frozen=True)
class Pool:
    """What repeats: each record's bytes after its id, and the values that the totals need."""

    tails: list[bytes]
    user_ids: list[int]
    cents: list[int]
    oks: list[int]
    times: list[int]
    texts: list[int]

    def value(self, number: int) -> bytes:
        """The record with the id `number`."""
        return b'{"id": %d, %b' % (number, self.tails[number % len(self.tails)])

    def totals(self, count: int) -> Totals:
        """What a table of the records 0 to `count` (exclusive) holds."""
        return Totals(
            rows=count,
            distinct_ids=count,
            id_sum=count * (count - 1) // 2,
            user_id_sum=prefix_total(self.user_ids, count),
            amount_cents=prefix_total(self.cents, count),
            ok_count=prefix_total(self.oks, count),
            ts_sum=prefix_total([time - FIRST_TS for time in self.times], count),
            text_bytes=prefix_total(self.texts, count),
        )


def make_pool(size: int = POOL, apart_us: int = 1000, kinds: Sequence[str] = _ACTIONS) -> Pool:
    """The pool, the same each time. apart_us: how far apart the times of its records are; kinds: the values of `action`."""
    rng = numpy.random.default_rng(7)
    user_ids = [int(x) for x in rng.integers(0, 1_000_000, size)]
    cents = [int(x) for x in rng.integers(0, 10_000, size)]
    oks = [int(x) for x in rng.random(size) < 0.9]
    times = [FIRST_TS + number * apart_us for number in range(size)]
    pages = [f"/p/{x}/view" for x in rng.integers(0, 5000, size)]
    actions = [kinds[x] for x in rng.integers(0, len(kinds), size)]
    agents = [f"{AGENT}{x}" for x in rng.integers(0, 100, size)]
    tails = []
    for index in range(size):
        tail = {
            "user_id": user_ids[index],
            "page_url": pages[index],
            "action": actions[index],
            "amount": cents[index] / 100,
            "ok": bool(oks[index]),
            "ts": times[index],
            "ua": agents[index],
        }
        tails.append(json.dumps(tail).encode().removeprefix(b"{"))
    texts = [len(a) + len(b) + len(c) for a, b, c in zip(pages, actions, agents, strict=True)]
    return Pool(tails, user_ids, cents, oks, times, texts)


@dataclasses.dataclass(frozen=True)
class DamagedPool:
    """The records of a pool, one in a hundred of them bad: in each hundred one, in the partitions in turn.

    Bad ones are cut short, have a text for a number, or are no object, in turn.
    """

    pool: Pool

    def value(self, number: int) -> bytes:
        """The record with the id `number`, or what has become of it."""
        if not self.is_bad(number):
            return self.pool.value(number)
        kind = number // 100 % 3
        if kind == 0:
            return self.pool.value(number)[:-20]
        return b'{"id": "%d"}' % number if kind == 1 else b"[%d]" % number

    def is_bad(self, number: int) -> bool:
        """Whether the record with this id cannot become a row."""
        return number % 100 == 37 + number // 100 % 4

    def totals(self, count: int) -> Totals:
        """What a table of the good ones among the records 0 to `count` (exclusive) holds."""
        numbers = numpy.arange(count)
        numbers = numbers[numbers % 100 != 37 + numbers // 100 % 4]
        places = numbers % len(self.pool.tails)

        def total(values: list[int]) -> int:
            return int(numpy.asarray(values)[places].sum())

        return Totals(
            rows=len(numbers),
            distinct_ids=len(numbers),
            id_sum=int(numbers.sum()),
            user_id_sum=total(self.pool.user_ids),
            amount_cents=total(self.pool.cents),
            ok_count=total(self.pool.oks),
            ts_sum=total([time - FIRST_TS for time in self.pool.times]),
            text_bytes=total(self.pool.texts),
        )


def timed_value(number: int, now_us: int) -> bytes:
    """A record that carries the moment it was produced at, in microseconds."""
    return (
        b'{"id": %d, "user_id": %d, "page_url": "/p/%d/view", "action": "view", "amount": %d.25, "ok": true, '
        b'"ts": %d, "ua": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 %d"}'
        % (number, abs(number) * 7919 % 1_000_000, number % 5000, number % 100, now_us, number % 100)
    )
