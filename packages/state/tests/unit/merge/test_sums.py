"""Sums in limbs, against Python's integers of any size."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil_state.merge.sums import add, join, split

_KINDS = [
    (pa.int32(), [2**31 - 1, -(2**31), 5, -1, None, 0]),
    (pa.int64(), [2**63 - 1, -(2**63), 7, -1, None, 2**62]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**64), Decimal(-1), None]),
    (pa.decimal128(20, 4), [Decimal("9999999999999999.9999"), Decimal("-0.0001"), Decimal("12.5"), None]),
]


@pytest.mark.parametrize(("kind", "values"), _KINDS, ids=[str(kind) for kind, _ in _KINDS])
@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_python_and_too_large_ones_are_marked(
    kind: pa.DataType, values: list[Any], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chosen = [values[n] for n in rng.integers(0, len(values), 400)]
    codes, signs = rng.integers(0, 150, 400), rng.choice([-1, 1], 400)
    limbs = split(pa.array(chosen, kind), signs)
    # In two steps, as in tasks and then in the driver.
    half = np.arange(400) < 200
    parts = [
        add([limb.filter(pa.array(mask)) for limb in limbs], codes[mask], mask[mask], 150) for mask in (half, ~half)
    ]
    both = [pa.concat_arrays([first, second]) for first, second in zip(*parts, strict=True)]
    totals, is_over = join(add(both, np.r_[np.arange(150), np.arange(150)], np.ones(300, np.bool_), 150), kind)
    for group in range(150):
        rows = np.flatnonzero(codes == group).tolist()
        of_group = [(int(signs[row]), chosen[row]) for row in rows if chosen[row] is not None]
        with localcontext() as context:
            context.prec = 80
            total = sum(sign * value for sign, value in of_group) if of_group else None
        limit = 10 ** (kind.precision - kind.scale) if pa.types.is_decimal(kind) else 2 ** (kind.bit_width - 1)
        is_decimal = pa.types.is_decimal(kind)
        fits = total is None or (-limit < total < limit if is_decimal else -limit <= total < limit)
        assert bool(is_over[group]) == (not fits)
        assert totals[group].as_py() == (total if fits else None)
