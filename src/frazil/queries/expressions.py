"""Analysed expressions of Spark 4.1 to expressions of a `Program`, each with the fields of the records that it uses.

They are read from the JVM's objects and not from the plan's JSON, which leaves out types, evaluation modes and escape
characters. Wrappers such as `nvl` are read as what Spark replaces them by.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, StructType

from frazil.errors import SpecError
from frazil.plugins.functions import Function, import_function
from frazil.queries.catalyst import FUNCTION, SEPARATOR, class_of, ids_of, items_of
from frazil.queries.in_spark import InSpark, Outside
from frazil.queries.kernels.arithmetic import constants_last
from frazil.queries.kernels.table import KERNELS, objection
from frazil.queries.program import PYTHON, Call, Expression, Literal
from frazil.queries.spark_types import NO_TYPE, arrow_of, has_fixed_bytes, iceberg_type

Path = tuple[str, ...]
#: Arguments of Spark's expressions that are neither expressions nor types, by their names here.
_OPTIONS = {
    "evalMode": "evalMode",
    "evalContext": "evalMode",
    "timeZoneId": "timeZoneId",
    "failOnError": "failOnError",
    "ansiEnabled": "ansiEnabled",
    "escapeChar": "escapeChar",
    "unit": "unit",
    "seed": "seed",
}
_TODAY = ("now", "today", "tomorrow", "yesterday")
# What Spark prints for an expression that `With` names.
_SHARED = "commonexpressionref()"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Value:
    """An expression, and what is known of it."""

    expression: Expression
    #: The fields of the records that it is made of, each as a path.
    sources: frozenset[Path] = frozenset()
    #: Whether it is nothing but a field of the records, or a part of one.
    is_path: bool = False
    #: The Iceberg type of the column or field that it is; None where it is none, or Iceberg has no type for it.
    kind: IcebergType | None = None
    #: What Spark calls the column that it is.
    name: str = ""
    #: Whether the column that it is has no nulls.
    is_required: bool = False


@dataclass
class Expressions:
    """Reads the expressions of one query."""

    #: The expressions that Spark evaluates.
    in_spark: InSpark
    #: The functions of Python that the query may call, by their names in small letters.
    functions: Mapping[str, Function] = field(default_factory=dict)
    #: The first expression that has no place in a Program.
    outside: Outside | None = None
    #: The columns that the next expressions may name, by Spark's ids of them.
    columns: dict[int, Value] = field(default_factory=dict)
    #: What `With` names, by Spark's ids of it.
    _shared: dict[int, Value] = field(default_factory=dict)
    #: The innermost of them as Spark prints it.
    _shared_sql: str = ""
    #: The names of the arguments of each class.
    _arguments: dict[str, list[str]] = field(default_factory=dict)
    _types: dict[str, pa.DataType] = field(default_factory=dict)
    #: Spark's expression of each call.
    _nodes: dict[Call, Any] = field(default_factory=dict)
    #: By call, the number of each of Spark's expressions that it stands for, by their texts.
    _variants: dict[Call, dict[str, int]] = field(default_factory=dict)
    #: What is Spark's of the calls of the columns that expressions may name now.
    _known_calls: dict[Call, Call] = field(default_factory=dict)

    def whole(self, node: Any) -> Value:
        """Returns an analysed expression of an operator, in which Spark evaluates what is not proven: the outermost such
        expressions, each with everything in it.

        Raises: as `read`; SpecError for an expression that Spark cannot evaluate for each record.
        """
        value = self.read(node)
        return replace(value, expression=self._settled(value.expression))

    def _settled(self, expression: Expression) -> Expression:
        if not isinstance(expression, Call):
            return expression
        unproven = self._objection(expression)
        if not unproven:
            ordered = constants_last(expression)
            return replace(ordered, arguments=tuple(map(self._settled, ordered.arguments)))
        if expression.type == NO_TYPE:
            return expression  # Whoever uses it is Spark's too.
        if expression not in self._known_calls:
            self._known_calls[expression] = self.in_spark.claim(expression, self._nodes[expression], unproven)
        return self._known_calls[expression]

    def _objection(self, call: Call) -> str:
        if any(expression.type == NO_TYPE for expression in (call, *call.arguments)):
            return f"{call.function} has values of a type that tasks do not have"
        return objection(call)

    def read(self, node: Any) -> Value:
        """Returns an analysed expression.

        Raises: SpecError where its value would be another one at every run, or where it computes with a type that Spark
        does not have.
        """
        kind = class_of(node)
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self, node)
        if kind.startswith("Current"):
            message = f"`{node.sql()}` is another value at every run"
            raise SpecError(message, remedy="use `_timestamp`, the time of the record")
        names = self._names(kind, node)
        if names and names[-1] == "replacement":
            return self.read(node.children().head())
        return self._call(kind, node, names)

    def note(self, expression: str, reason: str) -> None:
        """Notes that an expression, as Spark prints it, has no place in a Program."""
        self.outside = self.outside or Outside(expression, reason)

    def type_of(self, node: Any) -> pa.DataType:
        """Returns the Arrow type of an expression's values."""
        text = str(node.dataType().json())
        if text not in self._types:
            arrow_kind = arrow_of(json.loads(text))
            self._types[text] = NO_TYPE if arrow_kind is None else arrow_kind
        return self._types[text]

    def _names(self, kind: str, node: Any) -> list[str]:
        if kind not in self._arguments:
            self._arguments[kind] = str(node.productElementNames().mkString(SEPARATOR)).split(SEPARATOR)
        return self._arguments[kind]

    def _call(self, kind: str, node: Any, names: Sequence[str], arguments: Sequence[Value] | None = None) -> Value:
        """Returns a call. arguments: what its children were read as; None before they are read."""
        arguments = arguments or [self.read(child) for child in items_of(node.children())]
        sql = self._sql_of(node)
        has_fixed = any(has_fixed_bytes(argument.expression.type) for argument in arguments)
        if has_fixed and kind not in ("IsNull", "IsNotNull"):
            raise SpecError(
                f"`{sql}` computes with a uuid or fixed field, which Spark has no type for",
                remedy="select the field as it is, or declare it as string or binary",
            )
        given = [(_OPTIONS[name], _option(node.productElement(n))) for n, name in enumerate(names) if name in _OPTIONS]
        call = Call(
            kind,
            tuple(argument.expression for argument in arguments),
            self.type_of(node),
            tuple((name, value) for name, value in given if value is not None),
            sql,
        )
        call = call if kind in KERNELS else self._distinct(call, node)
        self._nodes[call] = node
        return Value(call, frozenset().union(*(argument.sources for argument in arguments)))

    def _distinct(self, call: Call, node: Any) -> Call:
        """Returns the call with a number where an equal one is of another expression of Spark's: two calls of FROM_JSON that
        differ in options are equal in arguments, type and SQL.
        """
        variants = self._variants.setdefault(call, {})
        number = variants.setdefault(str(node.toString()), len(variants))
        return replace(call, options=(*call.options, ("variant", number))) if number else call

    def _sql_of(self, node: Any) -> str:
        return str(node.sql()).replace(_SHARED, self._shared_sql)

    def read_columns(self, items: Any) -> list[tuple[int, Value]]:
        """Returns the columns of a projection, each with Spark's id of it."""
        columns = []
        for n, column_id in enumerate(ids_of(items)):
            column = self.columns.get(column_id)
            if column is None:
                self.in_spark.define(column_id, items.apply(n))
            columns.append((column_id, column or self._named(items.apply(n))))
        self._known_calls = {}
        return columns

    def _named(self, item: Any) -> Value:
        value = self.whole(item.child())
        kind = value.kind or iceberg_type(json.loads(str(item.dataType().json())))
        return replace(value, name=str(item.name()), kind=kind, is_required=not item.nullable())

    def _attribute(self, node: Any) -> Value:
        return self.columns[int(node.exprId().id())]

    def _literal(self, node: Any) -> Value:
        kind = self.type_of(node)
        return Value(Literal(_literal(node.value(), kind), kind))

    def _null(self, node: Any) -> Value:
        return Value(Literal(None, self.type_of(node)))

    def _cast(self, node: Any) -> Value:
        inner = self.read(node.child())
        kind = self.type_of(node)
        if inner.expression.type.equals(kind):
            return inner
        if isinstance(inner.expression, Literal):
            if inner.expression.value is None:
                return Value(Literal(None, kind))
            value = inner.expression.value
            is_moment = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
            if is_moment and isinstance(value, str) and value.strip().lower() in _TODAY:
                raise SpecError(
                    f"`{value}` is another time at every run", remedy="use `_timestamp`, the time of the record"
                )
        return self._call("Cast", node, self._names("Cast", node), [inner])

    def _with(self, node: Any) -> Value:
        child, *definitions = items_of(node.children())
        for definition in definitions:
            self._shared[int(definition.id().id())] = self.read(definition.child())
            self.in_spark.define_shared(definition)
        outer, self._shared_sql = self._shared_sql, str(definitions[0].child().sql())
        value = self.read(child)
        self._shared_sql = outer
        return value

    def _python(self, node: Any) -> Value:
        """Returns a call of a function of Python.

        Raises: SpecError for arguments that it does not take.
        """
        function = self.functions[str(node.udfName().get()).lower()]
        value = self._call(FUNCTION, node, ())
        assert isinstance(value.expression, Call)
        options = (("function", function.path), ("folder", function.folder))
        call = replace(value.expression, function=PYTHON, options=options)
        try:
            inspect.signature(import_function(function.path, function.folder)).bind(*call.arguments)
        except TypeError as error:
            raise SpecError(f"`{call.sql}`: {error}", remedy="give the function the arguments that it takes") from None
        self._nodes[call] = node
        return replace(value, expression=call)

    def _reference(self, node: Any) -> Value:
        return self._shared[int(node.id().id())]

    def _member(self, node: Any) -> Value:
        return self._part("GetStructField", node, self.read(node.child()))

    def _members(self, node: Any) -> Value:
        return self._part("GetArrayStructFields", node, self.read(node.child()))

    def _part(self, kind: str, node: Any, whole: Value) -> Value:
        """Returns a member of a struct, or of each struct of a list."""
        ordinal, name = int(node.ordinal()), self._sql_of(node)
        of = whole.expression.type
        if of == NO_TYPE:
            return self._call(kind, node, self._names(kind, node), [whole])
        is_list = kind == "GetArrayStructFields"
        member = (of.value_type if is_list else of).field(ordinal)
        result = pa.list_(pa.field("element", member.type)) if is_list else member.type
        call = Call(kind, (whole.expression,), result, (("ordinal", ordinal),), name)
        self._nodes[call] = node
        sources = frozenset((*path, member.name) for path in whole.sources) if whole.is_path else whole.sources
        return Value(call, sources, whole.is_path, None if is_list else member_type(whole.kind, ordinal))

    def _case(self, node: Any) -> Value:
        """Returns a change of case; Spark's optimizer leaves out another one below it."""
        child = node.child()
        while class_of(child) in ("Lower", "Upper"):
            child = child.child()
        return self._call(class_of(node), node, (), [self.read(child)])

    def _element(self, node: Any) -> Value:
        """Returns an element of a list or a map; members of it are members of what the list or map has."""
        kind = class_of(node)
        whole, place = (self.read(child) for child in items_of(node.children()))
        value = self._call(kind, node, self._names(kind, node), [whole, place])
        return replace(value, is_path=whole.is_path and not place.sources)


def member_type(kind: IcebergType | None, ordinal: int) -> IcebergType | None:
    """Returns the type of a struct's member; None for another type."""
    return kind.fields[ordinal].field_type if isinstance(kind, StructType) else None


def element_type(kind: IcebergType | None) -> IcebergType | None:
    """Returns the type of a list's elements; None for another type."""
    return kind.element_type if isinstance(kind, ListType) else None


_READERS: dict[str, Callable[[Expressions, Any], Value]] = {
    "AttributeReference": Expressions._attribute,
    "Literal": Expressions._literal,
    "TypedNullLiteral": Expressions._null,
    "Alias": lambda reader, node: reader.read(node.child()),
    "Cast": Expressions._cast,
    "With": Expressions._with,
    "CommonExpressionRef": Expressions._reference,
    FUNCTION: Expressions._python,
    "GetStructField": Expressions._member,
    "GetArrayStructFields": Expressions._members,
    "Lower": Expressions._case,
    "Upper": Expressions._case,
    "GetArrayItem": Expressions._element,
    "GetMapValue": Expressions._element,
    "ElementAt": Expressions._element,
}


def _option(value: Any) -> str | int | bool | None:
    """Returns an argument of Spark's; None for none."""
    if isinstance(value, bool | int):
        return value
    text = str(value)
    if text.startswith("NumericEvalContext("):
        return text.removeprefix("NumericEvalContext(").split(",")[0]
    if text.startswith("Some("):
        return text.removeprefix("Some(").removesuffix(")")
    return None if text == "None" else text


def _literal(value: Any, kind: pa.DataType) -> Any:
    """Returns Spark's internal value of a literal as Python's."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return str(value.toString())
    if pa.types.is_decimal(kind):
        return Decimal(str(value.toString()))
    if pa.types.is_binary(kind):
        return bytes(value)
    if pa.types.is_time(kind):  # Spark counts nanoseconds.
        return value // 1000
    return _moment(value, kind) if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else value


def _moment(value: int, kind: pa.DataType) -> date | datetime | int:
    """Returns a day or time; the number that Arrow has for it, where Python has none of that year."""
    try:
        if pa.types.is_date(kind):
            return date.fromordinal(date(1970, 1, 1).toordinal() + value)
        moment = _EPOCH + timedelta(microseconds=value)
    except (ValueError, OverflowError):
        return value
    return moment if kind.tz else moment.replace(tzinfo=None)
