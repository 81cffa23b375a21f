"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import pytest

from frazil.ops.reports import ago, count, duration, size
from frazil.printable import plural


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.44, "0.4 s"),
        (9.99, "10 s"),
        (59, "59 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (2e5, "2 d"),
    ],
)
def test_a_duration_is_said_in_the_largest_unit_it_fills(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("then_ms", "text"),
    [
        (None, "–"),
        (99_500, "now"),
        (100_400, "now"),
        (97_000, "3 s ago"),
        (40_500, "59 s ago"),
        (-140_000, "4 min ago"),
    ],
)
def test_a_time_is_said_relative_to_now(then_ms: int | None, text: str) -> None:
    assert ago(then_ms, 100_000) == text


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (1434, "1.4 KiB"), (20 * 1024**2, "20 MiB"), (3 * 1024**4, "3.0 TiB")],
)
def test_a_size_is_said_in_binary_units(bytes_: float | None, text: str) -> None:
    assert size(bytes_) == text


def test_counts_have_separators_and_nouns_their_number() -> None:
    assert [count(None), count(1234567), plural(1, "file"), plural(2000, "file")] == [
        "–", "1,234,567", "1 file", "2,000 files",
    ]  # fmt: skip
