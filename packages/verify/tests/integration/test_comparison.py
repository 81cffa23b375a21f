"""Rows are equal where both sides have them, each as often; a difference is one of a value, a null or a number of copies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame

from frazil.runtime.jvm import Jvm
from frazil_verify.comparison import compare

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")]
_FLAT = "struct<id: long, a: string, b: string, x: double, s: struct<n: int, t: string>>"
_LISTS = "struct<id: long, a: string, b: string, x: double, s: struct<n: int, t: string>, l: array<int>>"
_FIRST, _SECOND = "1, 'a', null, 0D, struct(1, 'u')", "2, null, null, double('NaN'), null"
_OTHERS = {
    "a value and a null have changed places": "1, null, 'a', 0D, struct(1, 'u')",
    "a value is another": "1, 'a', null, 1e-300D, struct(1, 'u')",
    "an empty text is a null": "1, 'a', '', 0D, struct(1, 'u')",
    "a struct has nulls": "1, 'a', null, 0D, struct(null, null)",
    "a struct is null": "1, 'a', null, 0D, null",
}


def _rows(jvm: Jvm, rows: Sequence[str], kind: str) -> DataFrame:
    end = ", array(1, null)" if kind == _LISTS else ""
    values = " union all ".join(f"select cast(struct({row}{end}) as {kind}) as row" for row in rows)
    return jvm.session().sql(f"select row.* from ({values})")


def _difference(jvm: Jvm, ours: Sequence[str], wanted: Sequence[str], kind: str) -> tuple[int, int, int]:
    difference = compare(_rows(jvm, ours, kind), _rows(jvm, wanted, kind))
    return difference.rows, difference.missing, difference.surplus


@pytest.mark.parametrize("kind", [_FLAT, _LISTS], ids=["values", "lists"])
def test_rows_are_compared_in_any_order(jvm: Jvm, kind: str) -> None:
    assert _difference(jvm, [_FIRST, _SECOND], [_SECOND, _FIRST], kind) == (2, 0, 0)
    assert _difference(jvm, [_FIRST, _SECOND, _SECOND], [_FIRST, _SECOND], kind) == (3, 0, 1)
    assert _difference(jvm, [_FIRST, _FIRST, _SECOND], [_FIRST, _SECOND, _SECOND], kind) == (3, 1, 1)


@pytest.mark.parametrize("other", _OTHERS.values(), ids=_OTHERS)
def test_a_row_that_differs_is_missing_and_surplus(jvm: Jvm, other: str) -> None:
    assert _difference(jvm, [_FIRST, _SECOND], [other, _SECOND], _FLAT) == (2, 1, 1)


def test_zeros_of_either_sign_are_equal(jvm: Jvm) -> None:
    """Their hashes are not, so that the rows themselves are compared."""
    assert _difference(jvm, [_FIRST], [_FIRST.replace("0D", "-0D")], _FLAT) == (1, 0, 0)
