"""Where a batch may end so that it has both parts of every primary-key update, or none of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.upsert.key_updates.parts import IncompleteUpdates, KeyUpdatePart


def key_update_parts(
    *told: tuple[str, int, int], abandoned: tuple[tuple[str, int, int], ...] = ()
) -> IncompleteUpdates:
    """told: `d` or `i` with the position, partition and offset."""
    found = IncompleteUpdates(abandoned)
    for name, partition, offset in told:
        records = {
            "partition": pa.array([partition]),
            "offset": pa.array([offset]),
            "timestamp": pa.array([7000], pa.timestamp("us", tz="UTC")),
        }
        found.take("a", [(0, name[1:], name[0] == "d")], records)
    return found


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        ([], {}),
        ([("d1", 0, 3), ("i1", 1, 9)], {}),
        ([("d1", 0, 3)], {0: 3}),
        ([("i1", 1, 9)], {}),  # Its values may be there all the same.
        ([("d1", 0, 3), ("i1", 1, 9), ("d2", 0, 5)], {0: 5}),
        ([("d1", 0, 1), ("d2", 0, 3), ("i2", 1, 9), ("i3", 1, 9)], {0: 1, 1: 9}),
        # One that is left out takes along what is behind it, and that its own other half.
        ([("d1", 0, 5), ("d2", 0, 6), ("i2", 1, 4), ("d3", 1, 7), ("i3", 2, 2), ("d4", 2, 1), ("i4", 2, 8)],
         {0: 5, 1: 4, 2: 1}),
        # A source that repeats itself: one of each is enough.
        ([("d1", 0, 3), ("i1", 1, 4), ("d1", 0, 6)], {}),
        ([("d1", 0, 3), ("i1", 1, 4), ("d2", 0, 5), ("d1", 0, 6), ("i1", 1, 7)], {0: 5}),
    ],
)  # fmt: skip
def test_a_batch_ends_before_what_it_would_divide(told: list[tuple[str, int, int]], ends: dict[int, int]) -> None:
    found = key_update_parts(*told)
    assert found.ends() == ({"a": ends} if ends else {})
    assert found.has_lone_deletes == bool(ends)


def test_halves_without_the_other_one_are_told_unless_they_are_given_up() -> None:
    found = key_update_parts(
        ("d1", 0, 3), ("d2", 0, 4), ("i2", 1, 4), ("i3", 1, 5), ("d4", 0, 6), abandoned=(("a", 0, 6),)
    )
    assert found.alone() == (KeyUpdatePart("a", 0, 3, 7, "1", True), KeyUpdatePart("a", 1, 5, 7, "3", False))
    assert not key_update_parts(("d4", 0, 6), abandoned=(("a", 0, 6),)).ends()
