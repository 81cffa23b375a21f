"""The benchmark's records, and the totals that a table of them must have."""

from __future__ import annotations

import json

from bench.records import FIRST_TS, SCHEMA, Totals, make_pool, timed_value


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
    records = [json.loads(pool.value(number)) for number in range(count)]
    assert pool.totals(count) == Totals(
        rows=count,
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
