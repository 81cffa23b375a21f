"""Keeping the latest change of each key, compared with a dictionary that gets them one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.stages.changes import DELETE, TRUNCATE, UPSERT
from frazil.upsert.deduplicate import (
    KeySet,
    Ranked,
    concat_ranked,
    deduplicate,
    dump_ranked,
    key_codes,
    load_ranked,
    previous_places,
    rebuild_latest,
)

NAN = float("nan")
KEY_ARRAYS = [
    pa.array([3, 1, 2], pa.int32()),
    pa.array([3, -1, 2], pa.int64()),
    pa.array(["b", "", "ß"]),
    pa.array([b"b", b"", b"\xff"]),
    pa.array([b"0" * 16, b"1" * 16, b"2" * 16], pa.binary(16)),
    pa.array([Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")], pa.decimal128(20, 2)),
    pa.array([date(2020, 1, 1), date(1960, 1, 1), date(1970, 1, 1)]),
    pa.array([5, 0, 7], pa.time64("us")),
    pa.array([5, -5, 7], pa.timestamp("us")),
    pa.array([5, -5, 7], pa.timestamp("us", tz="UTC")),
    pa.array([1.5, NAN, 0.0], pa.float64()),
    pa.array([1.5, NAN, 0.0], pa.float32()),
]


def ranked(keys: list[Any], ops: list[int], at: list[int | None] | None, partitions: list[int]) -> Ranked:
    """Changes whose offsets are their places."""
    count = len(keys)
    order = None if at is None else pa.array(at, pa.int64())
    blind = np.zeros(count, np.bool_) if order is None else np.asarray(order.is_null())
    places = np.arange(count, dtype=np.int64)
    key = pa.array(keys, pa.int64())
    kinds, none = np.array(ops, np.int8), np.zeros(count, np.int64)
    return Ranked((key,), kinds, none, np.array(partitions, np.int64), places, none, blind, order)


def told(changes: Ranked) -> dict[int, tuple[int, bool]]:
    """By key the offset of the change that decides it (-1: it is gone), and whether the table has no say in it."""
    state: dict[int, tuple[int, int, bool]] = {}
    is_emptied = False
    keys = changes.keys[0].to_pylist()
    for n in np.lexsort((changes.offset, changes.partition)).tolist():
        if changes.ops[n] == TRUNCATE:
            state, is_emptied = {}, True
            continue
        at = 0 if changes.order is None else changes.order[n].as_py()
        rank, _, is_sure = state.get(keys[n], (-1, -1, is_emptied))
        if at is None:
            state[keys[n]] = (-1, -1, True)
        elif at >= rank:
            state[keys[n]] = (at, n if changes.ops[n] == UPSERT else -1, is_sure)
    return {key: (offset, is_sure) for key, (_, offset, is_sure) in state.items()}


def found(changes: Ranked) -> dict[int, tuple[int, bool]]:
    latest = deduplicate(changes)
    return {
        changes.keys[0][place].as_py(): (int(changes.offset[place]) if changes.ops[place] == UPSERT else -1, bool(sure))
        for place, sure in zip(latest.last.tolist(), latest.is_sure, strict=True)
    }


def some_changes(rng: np.random.Generator, is_ordered: bool, has_truncates: bool) -> Ranked:
    count = int(rng.integers(0, 14))
    ops = rng.choice(
        [UPSERT, DELETE, TRUNCATE], count, p=[0.7, 0.25, 0.05] if has_truncates else [0.7, 0.3, 0]
    ).tolist()
    keys = [None if op == TRUNCATE else int(rng.integers(0, 4)) for op in ops]
    at = [int(rng.integers(0, 5)) if op == UPSERT or rng.random() < 0.3 else None for op in ops]
    partitions = [0 if key is None else key % 2 for key in keys]
    return ranked(keys, ops, at if is_ordered else None, partitions)


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("has_truncates", [False, True])
def test_the_fold_is_what_a_dictionary_reports(is_ordered: bool, has_truncates: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        changes = some_changes(rng, is_ordered, has_truncates)
        assert found(changes) == told(changes), changes


@pytest.mark.parametrize("is_ordered", [False, True])
def test_parts_that_were_folded_fold_to_the_same(is_ordered: bool) -> None:
    rng = np.random.default_rng(8)
    for _ in range(250):
        changes = some_changes(rng, is_ordered, has_truncates=False)
        cut = int(rng.integers(0, len(changes) + 1))
        parts = [changes.take(np.arange(cut)), changes.take(np.arange(cut, len(changes)))]
        again = changes.take(deduplicate(changes).kept)
        assert found(again) == told(changes)
        assert sorted(rebuild_latest(again).last.tolist()) == sorted(deduplicate(again).last.tolist())
        shipped = [load_ranked(dump_ranked(part.take(deduplicate(part).kept))) for part in parts]
        assert found(concat_ranked(shipped)) == told(changes)


@pytest.mark.parametrize("key", KEY_ARRAYS, ids=lambda key: str(key.type))
def test_of_keys_of_every_type_the_last_change_of_each_is_kept(key: pa.Array) -> None:
    distinct = ranked([0, 0, 0], [UPSERT] * 3, None, [0] * 3)
    assert deduplicate(replace(distinct, keys=(key,))).last.tolist() == [0, 1, 2]
    doubled = ranked([0] * 5, [UPSERT, UPSERT, UPSERT, DELETE, UPSERT], None, [0] * 5)
    again = pa.concat_arrays([key, key.take(pa.array([2, 0]))])
    assert deduplicate(replace(doubled, keys=(again,))).last.tolist() == [1, 3, 4]


def test_what_a_change_follows_is_the_one_before_it_of_its_key_that_still_counts() -> None:
    ops = [UPSERT, UPSERT, UPSERT, DELETE, UPSERT]
    assert previous_places(ranked([1, 2, 1, 2, 2], ops, None, [0] * 5)).tolist() == [-1, -1, 0, 1, 3]
    late = ranked([1, 1, 1], [UPSERT] * 3, [5, 3, 9], [0] * 3)
    assert previous_places(late).tolist() == [1, -1, 0]


@pytest.mark.parametrize("key", KEY_ARRAYS, ids=lambda key: str(key.type))
def test_keys_of_every_type_are_told_apart_and_found(key: pa.Array) -> None:
    again = pa.concat_arrays([key, key.take(pa.array([2, 0]))])
    codes = key_codes([again])
    assert len(set(codes.tolist())) == 3
    assert (codes[3], codes[4]) == (codes[2], codes[0])
    column = pa.chunked_array([pa.array([None], key.type), again])
    assert KeySet([key.take(pa.array([1, 2]))]).find([column]).tolist() == [-1, -1, 0, 1, 1, -1]


def test_zeros_are_one_key_and_so_are_all_nans() -> None:
    key = pa.array([0.0, -0.0, NAN, -NAN, 1.0])
    codes = key_codes([key]).tolist()
    assert (codes[0], codes[2], len(set(codes))) == (codes[1], codes[3], 3)
    assert KeySet([pa.array([-0.0, NAN])]).find([pa.chunked_array([key])]).tolist() == [0, 0, 1, 1, -1]


@pytest.mark.parametrize("width", [2, 3, 4])
def test_keys_of_several_columns_are_found_as_tuples_are(width: int) -> None:
    rng = np.random.default_rng(width)
    kinds: list[pa.DataType] = [pa.int64(), pa.string(), pa.int32(), pa.string()]
    rows = [tuple(int(n) for n in rng.integers(0, 4, width)) for _ in range(300)]
    wanted = sorted(set(rows[:20]))

    def columns(tuples: list[tuple[int, ...]]) -> list[pa.Array]:
        return [pa.array([one[n] for one in tuples], pa.int64()).cast(kinds[n]) for n in range(width)]

    places = KeySet(columns(wanted)).find([pa.chunked_array([column]) for column in columns(rows)]).tolist()
    assert places == [wanted.index(row) if row in wanted else -1 for row in rows]
    codes = key_codes(columns(rows)).tolist()
    assert len(set(zip(rows, codes, strict=True))) == len(set(rows)) == len(set(codes))


def test_places_of_changes_take_little_of_the_text_for_the_driver_and_come_back_as_they_were() -> None:
    count = 50_000
    nothing, ops, keys = np.zeros(count, np.int64), np.full(count, UPSERT, np.int8), pa.array(np.arange(count) * 77)
    in_turn = np.r_[np.arange(count // 2) + 2**40, np.arange(count // 2)]
    partition, is_blind = np.repeat([3, 1], count // 2), np.zeros(count, np.bool_)

    def shipped(offset: Any) -> tuple[str, Any]:
        text = dump_ranked(Ranked((keys,), ops, nothing, partition, offset, nothing, is_blind))
        return text, load_ranked(text).offset

    bare, _ = shipped(nothing)
    for offset in (in_turn, in_turn[::-1], np.random.default_rng(4).integers(0, 2**62, count)):
        assert shipped(offset)[1].tolist() == offset.tolist()
    assert len(shipped(in_turn)[0]) < 1.05 * len(bare)
    alone = Ranked((keys[:0],), ops[:0], nothing[:0], nothing[:0], nothing[:0], nothing[:0], is_blind[:0])
    assert load_ranked(dump_ranked(alone)).offset.tolist() == []
