"""Values that Spark has made before the task."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.process.kernels.values import EXPRESSION_FAILED, Bools, Kernel, Result, null_where
from frazil.process.program import BY_SPARK, Call
from frazil.schema.arrow import as_written


def _value(call: Call, structs: pa.Array, *_: pa.Array) -> Result:
    bad = np.asarray(structs.is_null())
    values = as_written(pc.struct_field(structs, 0), call.type)
    bad |= _has_invalid_text(values)
    return Result(null_where(values, bad), bad.astype(np.uint8) * np.uint8(EXPRESSION_FAILED))


def _has_invalid_text(values: pa.Array) -> Bools:
    """Returns which rows have text that is not UTF-8, which Spark's text may be: bool of shape (rows,)."""
    if _is_valid(values):
        return np.zeros(len(values), np.bool_)
    return np.array([not _is_valid(values.slice(row, 1)) for row in range(len(values))], np.bool_)


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


KERNELS = {BY_SPARK: Kernel(("any, ...",), _value, is_eager=True)}
