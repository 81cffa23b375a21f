"""Where the batch ends of which a process dies: found by others that begin behind it."""

from __future__ import annotations

import pytest

from frazil.kafka.record_sizes import _end_of_batch
from frazil.types import OffsetRange


@pytest.mark.parametrize("end", [*range(11, 31), 40])
@pytest.mark.parametrize("start", [10, 13])
def test_the_first_offset_behind_a_batch_is_found(start: int, end: int) -> None:
    if end <= start:
        return
    asked: list[int] = []

    def can_begin(rest: OffsetRange) -> bool:
        asked.append(rest.start)
        return rest.start >= end

    assert _end_of_batch(OffsetRange("a", 0, start, 30), can_begin) == min(end, 30)
    assert len(asked) <= 10
