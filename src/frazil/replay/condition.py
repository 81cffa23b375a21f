"""The condition of `--where`: Spark's SQL over the columns of the table, evaluated on Arrow columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.errors import SpecError
from frazil.process.analysis import analyse_condition
from frazil.process.catalyst import Catalyst
from frazil.process.evaluate import evaluate
from frazil.process.kernels.table import reason
from frazil.process.program import Program
from frazil.replay.rows import Keep
from frazil.schema.arrow import Ints

_WHERE = "--where"
_REMEDY = "write it otherwise; docs/reference/queries.md lists what is computed"


def rows_where(jvm: Any, condition: str, columns: Schema) -> Keep:
    """Returns what finds the rows for which a condition is true. jvm: py4j's view of a JVM with Spark's classes.

    Raises: SpecError for what is no condition over these columns, or only Spark can compute.
    """
    found = analyse_condition(Catalyst(jvm), condition, columns, _WHERE)
    if found.stage is None:
        assert found.outside is not None
        what = f"`{found.outside.expression}` cannot be computed: {found.outside.reason}"
        raise SpecError(what, remedy=_REMEDY, where=_WHERE)
    program = Program((found.stage,), ())
    if unproven := reason(program):
        raise SpecError(f"{unproven} cannot be computed", remedy=_REMEDY, where=_WHERE)

    def keep(rows: pa.RecordBatch) -> Ints:
        made = evaluate(program, dict(zip(rows.schema.names, rows.columns, strict=True)), len(rows))
        if made.failures:
            one = made.failures[0]
            raise SpecError(
                f"the condition fails for a row of the table: {one.error_class} in {one.expression},"
                f" where it is given {', '.join(one.values)}",
                remedy="write it so that it is defined for every row, for example with `try_cast` or `try_divide`",
                where=_WHERE,
            )
        return np.asarray(made.parents, np.int64)

    return keep
