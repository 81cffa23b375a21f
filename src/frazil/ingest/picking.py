"""Some rows of columns. Most often it is all of them, and then nothing is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]


def is_every(rows: Rows, count: int) -> bool:
    """Whether these are all of `count` rows, in their order."""
    return rows.size == count and bool((rows == np.arange(count)).all())


def pick(columns: Mapping[str, pa.Array], rows: Rows) -> dict[str, pa.Array]:
    """These rows of columns of one length, by name."""
    if all(is_every(rows, count) for count in {len(column) for column in columns.values()}):
        return dict(columns)
    places = pa.array(rows)
    return {name: column.take(places) for name, column in columns.items()}
