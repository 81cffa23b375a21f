"""Keys of reference tables: each is found by its value alone, in every type that can be a key."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.queries.kernels.keys import RowKeys, comparable

_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "ab", "b\x00", "ä"]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00"]),
    (pa.binary(2), [b"ab", b"ba"]),
    (pa.int32(), [0, -1, 2**31 - 1]),
    (pa.int64(), [0, -1, 2**63 - 1, -(2**63), 1 << 32]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(12, 2), [Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")]),
    (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1)]),
    (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    (pa.timestamp("us"), [datetime(1969, 1, 1), datetime(2026, 1, 1)]),  # noqa: DTZ001
    (pa.timestamp("us", tz="UTC"), [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
]


@pytest.mark.parametrize(("kind", "values"), _VALUES, ids=lambda one: str(one) if isinstance(one, pa.DataType) else "")
def test_every_value_is_found_in_its_row_and_null_in_none(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.array([None, *values, None], kind).cast(comparable(kind))
    keys = RowKeys([rows[1:]])
    assert keys.repeated is None
    assert keys.find([rows]).tolist() == [-1, *range(len(values)), -1]
    assert keys.find([rows[2:]]).tolist() == [*range(1, len(values)), -1]


def test_numbers_of_one_kind_are_compared_in_one_type() -> None:
    assert comparable(pa.int32()) == comparable(pa.int64())
    assert comparable(pa.decimal128(5, 2)) == comparable(pa.decimal128(12, 2)) != comparable(pa.decimal128(12, 3))
    assert comparable(pa.float64()) is comparable(pa.list_(pa.int32())) is None


def test_a_reference_table_without_rows_has_no_key() -> None:
    nothing = RowKeys([pa.array([], pa.string()), pa.array([], pa.int64())])
    assert nothing.find([pa.array(["a"]), pa.array([1])]).tolist() == [-1]


def test_keys_of_several_columns_are_found_as_a_dictionary_finds_them() -> None:
    chance, values = np.random.default_rng(7), ["", "a", "b", "aa", None]

    def drawn() -> list[tuple[str | None, ...]]:
        return [tuple(values[n] for n in row) for row in chance.integers(0, 5, (chance.integers(0, 20), 3)).tolist()]

    def columns(of: list[tuple[str | None, ...]]) -> list[pa.Array]:
        return [pa.array([one[n] for one in of], pa.string()) for n in range(3)]

    for _ in range(200):
        rows, asked = drawn(), drawn()
        whole = [one for one in rows if None not in one]
        keys = RowKeys(columns(rows))
        assert (keys.repeated is None) == (len(set(whole)) == len(whole))
        known = {one: n for n, one in enumerate(rows) if None not in one}
        assert keys.find(columns([*asked, *rows])).tolist() == [known.get(one, -1) for one in [*asked, *rows]]
