"""Spark as the judge of what tasks evaluate by themselves: the same expressions over the same rows, in both.

One query of Spark's gives the values of all expressions, but for the rows that are to fail; for each of these, Spark's
interpreter has to raise the same error class. The query is interpreted too, unless generated code is asked for, whose
compilation takes most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JJavaError, get_return_value
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType as SparkStruct

from frazil.queries.analysis import analyse
from frazil.queries.catalyst import Catalyst
from frazil.queries.evaluate import Processed, evaluate
from frazil.queries.in_spark import prepare_session, values_here, with_values
from frazil.queries.kernels.table import reason
from frazil.queries.program import BY_SPARK, INPUT, Program, Project, SparkPart, calls_in
from frazil.queries.spark_types import spark_struct
from frazil.runtime.jvm import Jvm
from frazil.schema.arrow import as_written

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        # They leave out what decides no value, such as the condition of `if(x, 1, 1)`, and with it the failure of `x`.
        for rule in ("ConvertToLocalRelation", "BooleanSimplification", "NullPropagation", "SimplifyConditionals")
    ),
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

    def __init__(
        self, jvm: Jvm, rows: pa.Table, schema: Schema, generates_code: bool = False, asks_spark: bool = False
    ) -> None:
        """asks_spark: whether expressions may be Spark's, which tasks do not evaluate by themselves."""
        self._spark = jvm.session().newSession()
        for name, value in _SETTINGS.items() if generates_code else (_SETTINGS | _INTERPRETED).items():
            self._spark.conf.set(name, value)
        self._jvm = jvm.gateway.jvm
        self._catalyst = Catalyst(jvm.gateway.jvm)
        self._schema = schema
        self._rows = rows
        numbered = rows.append_column("row", pa.array(range(len(rows)), pa.int32()))
        # Without a schema, times without a zone would be times with one.
        members = spark_struct(schema)["fields"]
        self._struct = SparkStruct.fromJson({"type": "struct", "fields": members}).add("row", "integer")
        self._spark.createDataFrame(numbered, self._struct).createOrReplaceTempView("records")
        whole: Any = self._spark.table("records")
        self._internal = whole._jdf.queryExecution().executedPlan().executeCollect()
        self._asks_spark = asks_spark
        self._numbered = numbered
        self._own = jvm.session().newSession()
        prepare_session(self._own._jsparkSession)
        self._made: dict[str, pa.Array] = {}
        self._columns = {name: pc_one(rows.column(name)) for name in rows.column_names}

    def programs(self, expressions: Sequence[str]) -> list[Program]:
        """Returns the program of a query over each of these expressions."""
        listed = ", ".join(f"{expression} as c{n}" for n, expression in enumerate(expressions))
        query = analyse(self._catalyst, f"select {listed} from records", self._schema)
        assert query.program is not None, (expressions, query.outside)
        part = query.program.spark_part
        self._made = {} if part is None else self.values(part)
        (operator,) = query.program.operators
        assert isinstance(operator, Project)
        return [
            Program((Project((column,)),), (field,))
            for column, field in zip(operator.columns, query.program.output, strict=True)
        ]

    def values(self, part: SparkPart) -> dict[str, pa.Array]:
        """Returns what Spark makes of the rows in a job, which is what its interpreter makes of them in the driver."""
        inputs = [f"{one.name} as `{INPUT.format(n)}`" for n, one in enumerate(part.inputs.output)]
        records: Any = self._own.createDataFrame(self._numbered, self._struct).selectExpr("row", *inputs)
        beside = DataFrame(with_values(self._jvm, self._own._jsparkSession, records._jdf, part), self._own)
        table = beside.toArrow().sort_by("row")
        found = {one.name: as_written(pc_one(table.column(one.name)), one.type) for one in part.values}
        columns = [self._columns[one.name] for one in part.inputs.output]
        here = values_here(self._catalyst, part, columns, len(self._rows))
        for name, column in found.items():
            assert _shown(column) == _shown(as_written(here[name], column.type)), part.reason
        return found

    def proven(self, expressions: Sequence[str]) -> list[str]:
        """Returns the expressions that tasks evaluate by themselves."""
        return [
            one
            for one, program in zip(expressions, self.programs(expressions), strict=True)
            if not _has_spark_part(program)
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
        for expression, ours, column in zip(expressions, made, self._judged(expressions, made), strict=True):
            if isinstance(column, PySparkException):  # For a row that fails in Spark alone.
                text = f"Spark fails: {str(column)[:300]}"
            else:
                text = self._first_difference(ours, column) or self._wrong_failure(expression, ours)
            if text:
                found.append(Difference(expression, text))
        return found

    def _evaluate(self, program: Program) -> Processed:
        objection = reason(program)
        assert objection is None, objection
        assert self._asks_spark or not _has_spark_part(program), program
        return evaluate(program, self._columns | self._made, len(self._rows))

    def _judged(self, expressions: Sequence[str], made: Sequence[Processed]) -> list[Any]:
        """Returns Spark's columns, an exception for one that it cannot evaluate."""
        try:
            return self._selected(expressions, made)
        except PySparkException as error:
            if len(expressions) == 1:
                return [error]
            half = len(expressions) // 2
            return self._judged(expressions[:half], made[:half]) + self._judged(expressions[half:], made[half:])

    def _selected(self, expressions: Sequence[str], made: Sequence[Processed]) -> list[pa.Array]:
        columns = []
        for n, (expression, ours) in enumerate(zip(expressions, made, strict=True)):
            bad = ",".join(map(str, np.flatnonzero(ours.failed).tolist()))
            guarded = f"case when row in ({bad}) then null else {expression} end" if bad else expression
            # Of what always fails, Spark fails as soon as it looks for constants.
            columns.append(f"{'null' if ours.failed.all() else guarded} as c{n}")
        table = self._spark.sql(f"select {', '.join(columns)}, row from records").toArrow()
        order = pc.sort_indices(table, sort_keys=[("row", "ascending")])
        return [pc_one(column.take(order)) for column in table.columns[:-1]]

    def _first_difference(self, ours: Processed, theirs: pa.Array) -> str:
        mine = ours.columns[0]
        theirs = theirs.take(pa.array(ours.parents))
        if not len(mine):
            return ""
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
            if error != failure.error_class and not (error and failure.error_class == "EXPRESSION_FAILED"):
                return f"row {self._row(failure.row)}: {failure.error_class}, in Spark {error}"
        return ""

    def _error_of_query(self, expression: str, row: int) -> str:
        try:
            self._spark.sql(f"select {expression} from records where row = {row}").toArrow()
        except PySparkException as error:
            return _class(error.getCondition())
        return ""

    def _interpreter(self, expression: str) -> Any:
        """Returns a function from a row to the error class that Spark's interpreter raises for it; empty for none."""
        frame: Any = self._spark.sql(f"select {expression} as judged, * from records")
        try:
            plan = frame._jdf.queryExecution().optimizedPlan()
        except PySparkException as error:  # A part without columns fails for every row.
            folded = _class(error.getCondition())
            return lambda _: folded
        source = plan.child().output()
        names = [str(source.apply(n).name()) for n in range(source.size())]
        if names != [*self._columns, "row"]:  # Spark computes a common part first.
            return partial(self._error_of_query, expression)
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


def _has_spark_part(program: Program) -> bool:
    (operator,) = program.operators
    assert isinstance(operator, Project)
    return any(call.function == BY_SPARK for _, expression in operator.columns for call in calls_in(expression))


def _shown(values: pa.Array) -> tuple[list[bool], str]:
    """Returns which values there are and what they are, as text: NaN equals itself."""
    return values.is_valid().to_pylist(), repr(plain(pc.struct_field(values, 0)))


def _class(condition: Any) -> str:
    return str(condition).split(".")[0]


def class_of(error: Py4JJavaError) -> str:
    """Returns the error class of Spark's exception, without its sub-class; of another exception its text."""
    java = error.java_exception
    try:
        return _class(java.getCondition())
    except Py4JError:
        text = str(java.toString())
        return "ARITHMETIC_OVERFLOW" if text == "java.lang.ArithmeticException: long overflow" else text[:200]


def pc_one(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain(array: pa.Array) -> list[Any]:
    """Returns values that are equal only where their bits are, also inside of lists, structs and maps; NaN equals itself."""
    if pa.types.is_floating(array.type):
        width = np.uint64 if array.type == pa.float64() else np.uint32
        values = np.asarray(array.fill_null(0.0))
        bits = np.where(np.isnan(values), np.nan, values).view(width)
        return [int(one) if there else None for one, there in zip(bits, np.asarray(array.is_valid()), strict=True)]
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    return [_exact(value) for value in array.to_pylist()]


def _exact(value: Any) -> Any:
    """Returns a value with floating-point numbers as texts: -0.0 differs from 0.0, and there is one NaN."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {name: _exact(member) for name, member in value.items()}
    return [_exact(one) for one in value] if isinstance(value, list | tuple) else value


def _same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether types are equal but for the names of fields that lists and maps have in Arrow, and for what may be null."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            _same_type(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    return bool(one.equals(other))
