"""Which of the credentials that a catalog vends is taken."""

from __future__ import annotations

import pytest

from frazil.catalog.iceberg.store_access import vended_for

_VENDED = [
    ("s3://lake/", {"s3.access-key-id": "lake", "s3.session-token": "of the lake"}),
    ("s3://lake/shop/orders", {"s3.access-key-id": "table"}),
    ("s3", {"s3.access-key-id": "any"}),
]


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/shop/orders", {"s3.access-key-id": "table"}),
        ("s3://lake/elsewhere", {"s3.access-key-id": "lake", "s3.session-token": "of the lake"}),
        ("s3://data/shop", {"s3.access-key-id": "any"}),
        ("gs://lake/shop", {}),
    ],
)
def test_the_longest_prefix_wins_and_nothing_of_a_shorter_one_is_added(location: str, expected: dict[str, str]) -> None:
    assert vended_for(_VENDED, location) == expected
