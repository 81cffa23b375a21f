"""The benchmark's records, and the totals that a table of them must have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.records import FIRST_TS, SCHEMA, DamagedPool, Totals, make_pool, timed_value


def test_a_record_has_the_declared_fields_and_its_own_id() -> None:
    record = json.loads(make_pool(10).value(1_234_567))
    assert list(record) == list(SCHEMA)
    assert record["id"] == 1_234_567


def test_records_are_about_190_bytes_long() -> None:
    pool = make_pool(1000)
    lengths = [len(pool.value(number)) for number in range(0, 4_000_000, 4001)]
    assert 185 <= sum(lengths) / len(lengths) <= 200


def test_the_pool_is_the_same_each_time() -> None:
    assert make_pool(100) == make_pool(100)


def test_totals_are_those_of_the_records_themselves() -> None:
    pool, count = make_pool(7), 24
    assert pool.totals(count) == totals_of([json.loads(pool.value(number)) for number in range(count)])


def totals_of(records: list[dict[str, Any]]) -> Totals:
    return Totals(
        rows=len(records),
        distinct_ids=len({record["id"] for record in records}),
        id_sum=sum(record["id"] for record in records),
        user_id_sum=sum(record["user_id"] for record in records),
        amount_cents=sum(round(record["amount"] * 100) for record in records),
        ok_count=sum(record["ok"] for record in records),
        ts_sum=sum(record["ts"] - FIRST_TS for record in records),
        text_bytes=sum(len(record["page_url"] + record["action"] + record["ua"]) for record in records),
    )


def test_a_timed_record_carries_its_moment_and_a_warm_up_record_a_negative_id() -> None:
    record = json.loads(timed_value(-3, 1_790_000_000_000_001))
    assert (record["id"], record["ts"]) == (-3, 1_790_000_000_000_001)
    assert list(record) == list(SCHEMA)


def is_row(value: bytes) -> bool:
    try:
        record = json.loads(value)
    except ValueError:
        return False
    return isinstance(record, dict) and isinstance(record["id"], int)


def test_one_record_in_each_hundred_is_bad_and_every_partition_has_as_many() -> None:
    pool = DamagedPool(make_pool(7))
    bad = [number for number in range(1200) if not is_row(pool.value(number))]
    assert bad == [number for number in range(1200) if pool.is_bad(number)]
    assert [number // 100 for number in bad] == list(range(12))
    assert [sum(number % 4 == partition for number in bad) for partition in range(4)] == [3, 3, 3, 3]


def test_bad_records_are_of_three_kinds_and_no_two_are_equal() -> None:
    pool = DamagedPool(make_pool(7))
    bad = [pool.value(number) for number in range(600) if pool.is_bad(number)]
    assert [value[:1] + value[-1:] for value in bad[1:3]] == [b"{}", b"[]"]
    with pytest.raises(ValueError, match=r"delimiter|Unterminated"):
        json.loads(bad[0])
    assert len({*bad}) == 6


def test_totals_leave_bad_records_out() -> None:
    pool = DamagedPool(make_pool(7))
    values = [pool.value(number) for number in range(1205)]
    assert pool.totals(1205) == totals_of([json.loads(value) for value in values if is_row(value)])
