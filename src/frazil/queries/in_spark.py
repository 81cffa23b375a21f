"""The expressions of a query that Spark evaluates for each record, because no kernel is proven for them.

The analysis finds them; they are applied to the records of a job (`with_values`).

Each is a function of the columns of `records` alone: what it uses of earlier projections is written into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.errors import SpecError
from frazil.queries.catalyst import (
    FUNCTION,
    PATTERN,
    READ_DATE,
    RULES,
    WRITTEN_DATE,
    ZONE,
    Catalyst,
    class_of,
    items_of,
    seq_of,
    static_of,
)
from frazil.queries.program import BY_SPARK, INPUT, Call, Expression, Field, Program, Project, SparkPart
from frazil.queries.refusals import making_a_map
from frazil.queries.spark_types import NO_TYPE, has_time
from frazil.schema.arrow import arrow_type

# No field of a record has such a name.
_VALUE = "\x01value{}"
# The arguments, by Spark's classes, whose constants fail for every record where they are wrong: kind and name.
_ARGUMENTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "RLike": ((PATTERN, "right"),),
    "RegExpReplace": ((PATTERN, "regexp"),),
    "RegExpExtract": ((PATTERN, "regexp"),),
    "RegExpExtractAll": ((PATTERN, "regexp"),),
    "RegExpInStr": ((PATTERN, "regexp"),),
    "StringSplit": ((PATTERN, "regex"),),
    "DateFormatClass": ((WRITTEN_DATE, "right"),),
    "FromUnixTime": ((WRITTEN_DATE, "format"),),
    "GetTimestamp": ((READ_DATE, "right"),),
    "ToUnixTimestamp": ((READ_DATE, "right"),),
    "UnixTimestamp": ((READ_DATE, "right"),),
    "FromUTCTimestamp": ((ZONE, "right"),),
    "ToUTCTimestamp": ((ZONE, "right"),),
    "ConvertTimezone": ((ZONE, "sourceTz"), (ZONE, "targetTz")),
}
_DATE_REMEDY = "correct it, as in `yyyy-MM-dd HH:mm:ss.SSS`: `y` is the year, and Spark has neither `Y` nor `w`"
_REMEDIES = {
    PATTERN: "correct it; SQL's texts have a backslash twice, `'\\\\d'`, but for those behind an r, `r'\\d'`",
    WRITTEN_DATE: _DATE_REMEDY,
    READ_DATE: _DATE_REMEDY,
    ZONE: "name one such as `Europe/Zurich`, or an offset such as `+02:00`",
}


@dataclass(frozen=True)
class Outside:
    """Why a query is not evaluated in tasks."""

    #: The expression, as Spark prints it.
    expression: str
    #: What is special about it.
    reason: str


class InSpark:
    """The expressions of one query that Spark evaluates."""

    #: The first of them.
    first: Outside | None = None

    def __init__(self, catalyst: Catalyst, records: dict[int, str]) -> None:
        """records: the columns of `records`, by Spark's ids of them."""
        self._catalyst = catalyst
        self._records = records
        #: By Spark's id, the expression that a column of an earlier projection is.
        self._columns: dict[int, Any] = {}
        #: What `With` names, by Spark's ids of it.
        self._shared: dict[int, Any] = {}
        self._expressions: list[Any] = []
        self._values: list[Field] = []
        self._used: set[str] = set()

    def define(self, column_id: int, alias: Any) -> None:
        """Notes what a column of a projection is."""
        self._columns[column_id] = alias

    def define_shared(self, definition: Any) -> None:
        """Notes what a name of `With` is."""
        self._shared[int(definition.id().id())] = definition.child()

    def claim(self, call: Call, node: Any, reason: str) -> Call:
        """Returns the call of the values that Spark will have made of an expression. node: Spark's expression. reason: why
        it is Spark's.

        Raises: SpecError where it cannot be evaluated for each record.
        """
        sql = call.sql or call.function
        if any(map(has_time, (call.type, *(field.type for field in _fields_of(call))))):
            raise SpecError(
                f"Spark would compute `{sql}`, and has no functions of the type time",
                remedy="select the field as it is, or declare it as string",
            )
        inlined = self._inlined(node, sql)
        inputs = sorted(str(attribute.name()) for attribute in items_of(inlined.references().toSeq()))
        self.first = self.first or Outside(sql, reason)
        self._used.update(inputs)
        self._expressions.append(inlined)
        value = Field(_VALUE.format(len(self._values)), pa.struct([pa.field("value", call.type)]))
        self._values.append(value)
        return Call(BY_SPARK, (value, *_fields_of(call)), call.type, (("inputs", json.dumps(inputs)),), sql)

    def part(self, records: Schema) -> SparkPart | None:
        """Returns the part of the program that is Spark's; None where it has none. records: the columns of `records`."""
        if self.first is None:
            return None
        inputs = tuple(
            Field(field.name, arrow_type(field.field_type)) for field in records.fields if field.name in self._used
        )
        return SparkPart(
            Program((Project(tuple((field.name, field) for field in inputs)),), inputs),
            tuple(self._values),
            self._catalyst.dump(self._expressions),
            f"`{self.first.expression}`: {self.first.reason}",
        )

    def _inlined(self, node: Any, sql: str) -> Any:
        """Returns the expression with what it uses of earlier projections written into it, and what `With` names: Spark
        would evaluate that apart, where a failure is none of the expression's.
        """
        kind = class_of(node)
        if kind == "AttributeReference":
            return self._column(node, sql)
        _check_computable(node, sql)
        self._check_constants(node, kind, sql)
        if self._catalyst.is_replaced(node):
            return self._inlined(node.replacement(), sql)
        node = self._rewritten(node, kind)
        children = items_of(node.children())
        if kind == "With":
            for definition in children[1:]:
                self.define_shared(definition)
        if kind in ("With", "Alias"):
            return self._inlined(children[0], sql)
        if kind == "CommonExpressionRef":
            return self._inlined(self._shared[int(node.id().id())], sql)
        inlined = [self._inlined(child, sql) for child in children]
        is_same = all(inlined_child is child for inlined_child, child in zip(inlined, children, strict=True))
        return node if is_same else node.withNewChildren(self._catalyst.seq(*inlined))

    def _check_constants(self, node: Any, kind: str, sql: str) -> None:
        """Refuses constants that would fail for every record."""
        for what, name in _ARGUMENTS.get(kind, ()):
            constant = getattr(node, name)()
            if class_of(constant) != "Literal" or constant.value() is None:
                continue
            fault = self._catalyst.fault_of(what, str(constant.value().toString()))
            if fault:
                raise SpecError(
                    f"`{sql}` has the {what} {constant.sql()}, which is wrong: {fault}", remedy=_REMEDIES[what]
                )

    def _rewritten(self, node: Any, kind: str) -> Any:
        """Returns the expression without a change of case below another one, which Spark's optimizer leaves out,
        and ELEMENT_AT of a list without the least integer as the place: Spark 4.1 takes it for one inside, as its absolute
        value is negative, and reads outside of its memory. The next integer is outside of every list too.
        """
        children = items_of(node.children())
        while kind in ("Lower", "Upper") and class_of(children[0]) in ("Lower", "Upper"):
            children = items_of(children[0].children())
            node = node.withNewChildren(self._catalyst.seq(*children))
        if kind != "ElementAt" or class_of(children[0].dataType()) != "ArrayType":
            return node
        jvm, place = self._catalyst.jvm, children[1]
        if class_of(place) == "Literal" and place.value() != -(2**31):
            return node
        catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        integer = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
        least, next_one = (catalyst.Literal.create(number, integer) for number in (-(2**31), 1 - 2**31))
        inside = catalyst.If(catalyst.EqualTo(place, least), next_one, place)
        return node.withNewChildren(self._catalyst.seq(children[0], inside))

    def _column(self, attribute: Any, sql: str) -> Any:
        column_id = int(attribute.exprId().id())
        if column_id in self._records:
            return attribute
        if column_id not in self._columns:
            raise SpecError(
                f"`{sql}` can be computed for records, and not for the elements of an exploded list",
                remedy="compute it before: `explode(transform(items, item -> …))`",
            )
        return self._inlined(self._columns[column_id], sql)


def _check_computable(node: Any, sql: str) -> None:
    """Refuses an expression that Spark cannot evaluate for each record."""
    kind = class_of(node)
    if kind == "CreateMap":
        raise making_a_map(sql)
    if kind == FUNCTION:
        raise SpecError(
            f"Spark would compute `{sql}`, and cannot call `{node.udfName().get()}`, a function of Python",
            remedy=f"use functions that tasks compute themselves around it; {RULES}",
        )


# The user's settings change what some expressions mean; these are for access, and for how Spark runs.
_KEPT = ("spark.sql.execution.", "spark.sql.adaptive.", "spark.sql.codegen.", "spark.sql.catalog", "spark.sql.sources.")
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Executors of a cluster would run Python in a folder of the session, where the archives with its packages are not.
    "spark.sql.artifact.isolation.enabled": "false",
    # It would move an expression that two have in common out of what catches its failure.
    "spark.sql.subexpressionElimination.enabled": "false",
    # It would fail the query for a part without columns that fails.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
}


def prepare_session(session: Any) -> None:
    """Gives a session of its own the settings with which queries are analysed. session: Spark's, in Java."""
    conf = session.conf()
    for name in [str(pair._1()) for pair in items_of(conf.getAll().toSeq())]:
        if name.startswith("spark.sql.") and not name.startswith(_KEPT) and conf.isModifiable(name):
            conf.unset(name)
    for name, value in _SETTINGS.items():
        conf.set(name, value)


def input_schema(jvm: Any, part: SparkPart) -> list[tuple[str, str]]:
    """Returns the columns of the inputs, each with Spark's type as JSON."""
    by_name = {str(attribute.name()): attribute for attribute in _attributes(load(jvm, part))}
    return [
        (INPUT.format(n), str(by_name[column.name].dataType().json())) for n, column in enumerate(part.inputs.output)
    ]


def with_values(jvm: Any, session: Any, records: Any, part: SparkPart) -> Any:
    """Returns Spark's data set of the values of the expressions in place of their inputs. records: a data set with the
    columns of `input_schema` behind others, which stay.
    """
    expressions = load(jvm, part)
    plan = records.queryExecution().analyzed()
    columns = {str(attribute.name()): attribute for attribute in items_of(plan.output())}
    places = {column.name: INPUT.format(n) for n, column in enumerate(part.inputs.output)}
    kept = [attribute for name, attribute in columns.items() if name not in places.values()]
    inputs = [
        _alias(jvm, columns[places[str(attribute.name())]], attribute.name(), attribute.exprId())
        for attribute in _attributes(expressions)
    ]
    project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
    plan = project(seq_of(jvm, [*kept, *inputs]), plan)
    plan = project(seq_of(jvm, [*kept, *_tried(jvm, part, expressions)]), plan)
    return jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)


def values_here(catalyst: Catalyst, part: SparkPart, inputs: Sequence[pa.Array], count: int) -> dict[str, pa.Array]:
    """Returns the values of the expressions, by the column of `SparkPart.values`, from Spark's interpreter in the driver,
    without a job. inputs: the columns that they use, of `count` records, at least one.
    """
    jvm = catalyst.jvm
    expressions = load(jvm, part)
    by_name = {str(attribute.name()): attribute for attribute in _attributes(expressions)}
    attributes = seq_of(jvm, [by_name[column.name] for column in part.inputs.output])
    types, spark = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils, "org.apache.spark.sql"
    arrow = static_of(jvm, f"{spark}.execution.arrow.ArrowConverters")
    nothing, none = static_of(jvm, "scala.collection.immutable.Nil"), static_of(jvm, "scala.None")
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    with catalyst.settings():
        source = logical.LocalRelation(attributes, nothing, False, none)
        plan = logical.Project(seq_of(jvm, _tried(jvm, part, expressions)), source)
        columns = plan.projectList()
        projection = jvm.org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection(columns, attributes)
        if inputs:
            batch = pa.RecordBatch.from_arrays(list(inputs), names=[column.name for column in part.inputs.output])
            sent = seq_of(jvm, [bytearray(batch.serialize())]).iterator()
            fields = types.fromAttributes(attributes)
            # As in a job: expressions take elements of Arrow's own arrays without asking whether they are null.
            copied = static_of(jvm, f"{spark}.catalyst.expressions.UnsafeProjection").create(fields)
            rows = arrow.fromBatchIterator(sent, fields, "UTC", True, False, None).map(copied)
        else:
            rows = seq_of(jvm, [static_of(jvm, f"{spark}.catalyst.InternalRow").empty()]).iterator()
        schema = types.fromAttributes(plan.output())
        batches = arrow.toBatchIterator(rows.map(projection), schema, count, "UTC", True, False, None)
        answer = pa.py_buffer(bytes(batches.next()))
    values = pa.ipc.read_record_batch(answer, pa.schema([(value.name, value.type) for value in part.values]))
    if not inputs:
        values = values.take(pa.array([0] * count))
    return dict(zip(values.schema.names, values.columns, strict=True))


def _tried(jvm: Any, part: SparkPart, expressions: Iterable[Any]) -> list[Any]:
    """Returns the expressions as columns: each a struct, or null where it fails."""
    catalyst = jvm.org.apache.spark.sql.catalyst.expressions
    name = catalyst.Literal.create("value", jvm.org.apache.spark.sql.types.DataTypes.StringType)
    columns = []
    for value, expression in zip(part.values, expressions, strict=True):
        whole = catalyst.CreateNamedStruct(seq_of(jvm, [name, expression]))
        columns.append(_alias(jvm, catalyst.TryEval(whole), value.name, catalyst.NamedExpression.newExprId()))
    return columns


def _alias(jvm: Any, expression: Any, name: str, column_id: Any) -> Any:
    nothing, none = static_of(jvm, "scala.collection.immutable.Nil"), static_of(jvm, "scala.None")
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(expression, name, column_id, nothing, none, nothing)


def load(jvm: Any, part: SparkPart) -> list[Any]:
    """Returns Spark's expressions."""
    return list(jvm.org.apache.commons.lang3.SerializationUtils.deserialize(part.expressions))


def _attributes(expressions: Iterable[Any]) -> list[Any]:
    """Returns the columns that expressions use, each once."""
    by_id: dict[int, Any] = {}
    for expression in expressions:
        by_id |= {int(attribute.exprId().id()): attribute for attribute in items_of(expression.references().toSeq())}
    return list(by_id.values())


def _fields_of(expression: Expression) -> tuple[Field, ...]:
    """Returns the columns that an expression uses, each once."""
    if isinstance(expression, Field):
        return (expression,) if expression.type != NO_TYPE else ()
    arguments = expression.arguments if isinstance(expression, Call) else ()
    return tuple(dict.fromkeys(field for argument in arguments for field in _fields_of(argument)))
