"""The plain dictionary itself, against what is reported of it: every short history, cut into batches in every way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations, product
from typing import Any

import pytest

from tests.simulation.upsert_model import Change, UpsertModel

_A, _B = ("a",), ("b",)


def _upsert(offset: int, value: Any, *, key: tuple[str] = _A, order: int | None = None, partition: int = 0) -> Change:
    return Change("upsert", ("t", partition, offset), key, {"v": value}, order)


def _delete(offset: int, *, key: tuple[str] = _A, order: int | None = None, partition: int = 0) -> Change:
    return Change("delete", ("t", partition, offset), key, order=order)


def _after(*batches: Sequence[Change], is_ordered: bool = False) -> dict[str, list[Any]]:
    model = UpsertModel(is_ordered=is_ordered)
    for batch in batches:
        model.apply(batch)
    return {key[0]: [held.row and held.row["v"] for held in held_rows] for key, held_rows in model.rows.items()}


def _cut(changes: Sequence[Change]) -> Iterator[list[Sequence[Change]]]:
    """The changes in batches, in every way that keeps their order."""
    for count in range(len(changes)):
        for places in combinations(range(1, len(changes)), count):
            ends = [0, *places, len(changes)]
            yield [changes[start:end] for start, end in pairwise(ends)]


def test_without_an_ordering_column_the_last_change_decides_whatever_the_batches() -> None:
    for ops in product(("upsert", "delete"), repeat=4):
        for keys in product((_A, _B), repeat=4):
            changes = [
                _upsert(n, n, key=key) if op == "upsert" else _delete(n, key=key)
                for n, (op, key) in enumerate(zip(ops, keys, strict=True))
            ]
            last = {change.key[0]: change for change in changes}
            expected = {key: [change.row["v"]] for key, change in last.items() if change.op == "upsert"}
            for batches in _cut(changes):
                assert _after(*batches) == expected, batches


def test_with_an_ordering_column_the_greatest_value_decides_whatever_the_arrival() -> None:
    for orders in permutations(range(4)):
        changes = [_upsert(n, order, order=order) for n, order in enumerate(orders)]
        for batches in _cut(changes):
            assert _after(*batches, is_ordered=True) == {"a": [3]}, batches


def test_of_equal_ordering_values_the_later_change_decides() -> None:
    changes = [_upsert(0, "first", order=5), _upsert(1, "second", order=5)]
    for batches in _cut(changes):
        assert _after(*batches, is_ordered=True) == {"a": ["second"]}


def test_places_decide_within_a_batch_and_batches_across_batches() -> None:
    one, other = _upsert(7, "one", partition=0), _upsert(3, "other", partition=1)
    assert _after([other, one]) == {"a": ["other"]}
    assert _after([other], [one]) == {"a": ["one"]}


def test_a_delete_without_an_ordering_value_deletes_all_rows_before_it() -> None:
    changes = [_upsert(0, "new", order=9), _delete(1), _upsert(2, "old", order=1)]
    for batches in _cut(changes):
        assert _after(*batches, is_ordered=True) == {"a": ["old"]}, batches
    assert _after(changes[:2], is_ordered=True) == {}


def test_a_delete_with_an_ordering_value_is_remembered_within_its_batch_alone() -> None:
    delete, late = _delete(0, order=5), _upsert(1, "late", order=4)
    assert _after([_upsert(2, "old", key=_B, order=1), delete, late], is_ordered=True) == {"b": ["old"]}
    assert _after([delete], [late], is_ordered=True) == {"a": ["late"]}


def test_a_late_delete_does_nothing() -> None:
    assert _after([_upsert(0, "new", order=9)], [_delete(1, order=8)], is_ordered=True) == {"a": ["new"]}
    assert _after([_upsert(0, "new", order=9)], [_delete(1, order=9)], is_ordered=True) == {}


def test_a_truncation_takes_away_what_came_before_it_and_nothing_else() -> None:
    truncation = Change("truncate", ("t", 0, 2))
    changes = [_upsert(0, "x"), _upsert(1, "y", key=_B), truncation, _upsert(3, "z", key=_B)]
    for batches in _cut(changes):
        assert _after(*batches) == {"b": ["z"]}, batches
    assert _after([_upsert(0, "x")], [truncation]) == {}


@pytest.mark.parametrize("is_ordered", [False, True])
def test_an_unavailable_value_is_that_of_the_row_before_it(is_ordered: bool) -> None:
    def filled(offset: int, order: int) -> Change:
        return Change("upsert", ("t", 0, offset), _A, {"w": offset}, order, frozenset({"v"}))

    changes = [_upsert(0, "kept", order=1), filled(1, 2), filled(2, 3)]
    for batches in _cut(changes):
        assert _after(*batches, is_ordered=is_ordered) == {"a": ["kept"]}, batches
    assert _after([filled(0, 1)], is_ordered=is_ordered) == {"a": [None]}
    assert _after([_upsert(0, "gone", order=1), _delete(1), filled(2, 2)], is_ordered=is_ordered) == {"a": [None]}


def test_an_unavailable_value_is_taken_in_the_order_of_the_ordering_column() -> None:
    late = Change("upsert", ("t", 0, 0), _A, {}, 3, frozenset({"v"}))
    assert _after([late, _upsert(1, "second", order=2)], is_ordered=True) == {"a": ["second"]}


def test_two_rows_of_another_writer_are_replaced_by_one_unless_the_change_is_older() -> None:
    for order, expected in ((4, [1, 5]), (5, ["new"])):
        model = UpsertModel(is_ordered=True)
        model.adopt(_A, {"v": 1}, 1)
        model.adopt(_A, {"v": 5}, 5)
        model.apply([_upsert(0, "new", order=order)])
        assert [held.row and held.row["v"] for held in model.rows[_A]] == expected


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_delete_that_is_marked_leaves_the_row_as_it_was(is_ordered: bool) -> None:
    def marked(offset: int, order: int) -> Change:
        return Change("upsert", ("t", 0, offset), _A, {"gone": True, "o": {"id": 1}}, order, is_mark=True)

    row = {"v": "kept", "gone": False, "o": {"id": 1, "x": 2}}
    written = Change("upsert", ("t", 0, 0), _A, row, 1)
    for batches in _cut([written, marked(1, 2), marked(2, 3)]):
        model = UpsertModel(is_ordered=is_ordered)
        for batch in batches:
            model.apply(batch)
        assert [held.row for held in model.rows[_A]] == [{**row, "gone": True}]
    late = UpsertModel(is_ordered=True)
    late.apply([written])
    late.apply([marked(1, 0)])
    assert [held.row for held in late.rows[_A]] == [row]
