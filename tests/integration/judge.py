"""Spark as the judge of what tasks evaluate by themselves: the same expressions over the same rows, in both.

One query of Spark's gives the values of all expressions, but for the rows that are to fail; for each of these, Spark's
interpreter has to raise the same error class. The query is interpreted too, unless generated code is asked for, whose
compilation takes most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JJavaError, get_return_value
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException

from frazil.process.analysis import analyse
from frazil.process.catalyst import Catalyst
from frazil.process.evaluate import Processed, evaluate
from frazil.process.kernels.table import reason
from frazil.process.program import Program, Project
from frazil.runtime.jvm import Jvm

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
_INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
AT_ONCE = 100
"""The number of expressions of one query."""


@dataclass(frozen=True)
class Difference:
    """An expression whose result is not Spark's."""

    expression: str
    #: Where and how.
    text: str


class Judge:
    """Compares results over one table of rows."""

    def __init__(self, jvm: Jvm, rows: pa.Table, schema: Schema, generates_code: bool = False) -> None:
        self._spark = jvm.session().newSession()
        for name, value in _SETTINGS.items() if generates_code else (_SETTINGS | _INTERPRETED).items():
            self._spark.conf.set(name, value)
        self._jvm = jvm.gateway.jvm
        self._catalyst = Catalyst(jvm.gateway.jvm)
        self._schema = schema
        self._rows = rows
        numbered = rows.append_column("row", pa.array(range(len(rows)), pa.int32()))
        self._spark.createDataFrame(numbered).createOrReplaceTempView("records")
        whole: Any = self._spark.table("records")
        self._internal = whole._jdf.queryExecution().executedPlan().executeCollect()
        self._columns = {name: pc_one(rows.column(name)) for name in rows.column_names}

    def programs(self, expressions: Sequence[str]) -> list[Program]:
        """Returns the program of a query over each of these expressions."""
        listed = ", ".join(f"{expression} as c{n}" for n, expression in enumerate(expressions))
        query = analyse(self._catalyst, f"select {listed} from records", self._schema)
        assert query.program is not None, (expressions, query.outside)
        (stage,) = query.program.stages
        assert isinstance(stage, Project)
        return [
            Program((Project((column,)),), (field,))
            for column, field in zip(stage.columns, query.program.output, strict=True)
        ]

    def differences(self, expressions: Sequence[str]) -> list[Difference]:
        """Returns the expressions whose results differ from Spark's in a value, a null, a type, a failing row or
        its error class.
        """
        return [
            found for n in range(0, len(expressions), AT_ONCE) for found in self._compare(expressions[n : n + AT_ONCE])
        ]

    def _compare(self, expressions: Sequence[str]) -> list[Difference]:
        made = [self._evaluate(program) for program in self.programs(expressions)]
        found = []
        try:
            judged = self._judged(expressions, made)
        except PySparkException:  # Some row fails in Spark alone.
            judged = None
        for n, (expression, ours) in enumerate(zip(expressions, made, strict=True)):
            try:
                column = judged[n] if judged is not None else self._judged([expression], [ours])[0]
            except PySparkException as error:
                found.append(Difference(expression, f"Spark fails: {str(error)[:300]}"))
                continue
            text = self._first_difference(ours, column) or self._wrong_failure(expression, ours)
            if text:
                found.append(Difference(expression, text))
        return found

    def _evaluate(self, program: Program) -> Processed:
        objection = reason(program)
        assert objection is None, objection
        return evaluate(program, self._columns, len(self._rows))

    def _judged(self, expressions: Sequence[str], made: Sequence[Processed]) -> list[pa.Array]:
        columns = []
        for n, (expression, ours) in enumerate(zip(expressions, made, strict=True)):
            bad = ",".join(map(str, np.flatnonzero(ours.failed).tolist()))
            columns.append(
                f"case when row in ({bad}) then null else {expression} end as c{n}" if bad else f"{expression} as c{n}"
            )
        table = self._spark.sql(f"select {', '.join(columns)}, row from records").toArrow()
        order = pc.sort_indices(table, sort_keys=[("row", "ascending")])
        return [pc_one(column.take(order)) for column in table.columns[:-1]]

    def _first_difference(self, ours: Processed, theirs: pa.Array) -> str:
        mine = ours.columns[0]
        theirs = theirs.take(pa.array(ours.parents))
        if not _same_type(mine.type, theirs.type):
            return f"type {mine.type}, in Spark {theirs.type}"
        for place, (one, other) in enumerate(zip(plain(mine), plain(theirs), strict=True)):
            if one != other:
                return f"row {self._row(int(ours.parents[place]))}: {one!r}, in Spark {other!r}"
        return ""

    def _row(self, row: int) -> str:
        values = {name: column[row] for name, column in self._columns.items()}
        return str({name: str(value)[:40] for name, value in values.items()})

    def _wrong_failure(self, expression: str, ours: Processed) -> str:
        if not ours.failures:
            return ""
        asked = self._interpreter(expression)
        for failure in ours.failures:
            error = asked(failure.row)
            if error != failure.error_class:
                return f"row {self._row(failure.row)}: {failure.error_class}, in Spark {error}"
        return ""

    def _interpreter(self, expression: str) -> Any:
        """Returns a function from a row to the error class that Spark's interpreter raises for it; empty for none."""
        frame: Any = self._spark.sql(f"select {expression} as judged, * from records")
        try:
            plan = frame._jdf.queryExecution().optimizedPlan()
        except PySparkException as error:  # A part without columns fails for every row.
            folded = str(error.getCondition()).split(".")[0]
            return lambda _: folded
        source = plan.child().output()
        names = [str(source.apply(n).name()) for n in range(source.size())]
        assert names == [*self._columns, "row"], names
        catalyst: Any = self._jvm.org.apache.spark.sql.catalyst.expressions
        attributes = getattr(getattr(catalyst, "package$"), "MODULE$").AttributeSeq(source)
        bound = catalyst.BindReferences.bindReference(plan.projectList().head(), attributes, False)

        def asked(row: int) -> str:
            with patch("py4j.java_gateway.get_return_value", get_return_value):  # PySpark's own is slow.
                try:
                    bound.eval(self._internal[row])
                except Py4JJavaError as error:
                    return class_of(error)
            return ""

        return asked


def class_of(error: Py4JJavaError) -> str:
    """Returns the error class of Spark's exception, without its sub-class; of another exception its text."""
    java = error.java_exception
    try:
        return str(java.getCondition()).split(".")[0]
    except Py4JError:
        text = str(java.toString())
        return "ARITHMETIC_OVERFLOW" if text == "java.lang.ArithmeticException: long overflow" else text[:200]


def pc_one(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain(array: pa.Array) -> list[Any]:
    """Returns values that are equal only where their bits are."""
    if pa.types.is_floating(array.type):
        width = np.uint64 if array.type == pa.float64() else np.uint32
        values = np.asarray(array.fill_null(0.0))
        bits = np.where(np.isnan(values), np.nan, values).view(width)
        return [int(one) if there else None for one, there in zip(bits, np.asarray(array.is_valid()), strict=True)]
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    return list(array.to_pylist())


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether types are equal but for the names of fields that lists and maps have in Arrow, and for what may be null."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            _same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    return bool(one.equals(other))
