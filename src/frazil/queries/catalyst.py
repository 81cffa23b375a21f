"""Spark's parser and analyser, used without a session.

A query is parsed, checked by the caller, and analysed over an empty relation of the records' columns.

No catalog, no view and no file is known to this analyser, and its settings are Spark's defaults with ANSI mode and UTC,
whatever the settings of the session whose JVM it uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.schema import Schema

from frazil.errors import SpecError
from frazil.plugins.functions import Function
from frazil.queries.spark_types import spark_struct, spark_type
from frazil.spec.syntax.problems import nearest
from frazil.spec.syntax.types import parse_type

RECORDS = "records"
RULES = f"a query is one `select … from {RECORDS}` with Spark's functions of single records"
FUNCTION = "ScalaUDF"
"""Spark's class of a call of a function that it does not have itself: here one of Python."""
# What a constant argument is, in messages.
PATTERN = "regular expression"
READ_DATE = "date pattern for reading"
WRITTEN_DATE = "date pattern for writing"
ZONE = "time zone"
_A_QUERY = f"write one `select … from {RECORDS}` in Spark's SQL; a name with other signs needs back-quotes"
_A_CONDITION = "write one condition in Spark's SQL, such as `amount > 0`; a name with other signs needs back-quotes"
_SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
_POSITION = re.compile(r"line (\d+),? (pos|position) (\d+)")
_COLUMN_ID = re.compile(r"#(\d+)L?$")
#: Between the texts of a sequence's items.
SEPARATOR = "\x01"
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_CODE = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
# ANSI mode, which some messages advise to switch off, is always on here.
_END = re.compile(r"\s*SQLSTATE: .*|\n== SQL.*|; line \d+ pos \d+.*| with ANSI mode on\..*", re.DOTALL)


# Rules of Spark's optimizer that decide values: which constants of a sum are added first, and so whether it overflows (of
# what tasks compute, `constants_last` decides, also of constants that are cast); and what `array(a, b)[5]` is: null, though
# ANSI mode knows an error.
_DECIDING = ("ReorderAssociativeOperator", "SimplifyExtractValueOps")


TOO_DEEP = "compute a part of it in a sub-query in FROM"
"""The remedy for a query that is nested too deeply."""


class UnknownColumn(SpecError):
    """A query names a column that the records do not have, or not yet."""

    def __init__(self, message: str, name: str, *, remedy: str, where: str = "") -> None:
        super().__init__(message, remedy=remedy, where=where)
        #: The column, or the member of one, as the query names it.
        self.name = name


class TypeRefused(SpecError):
    """The query is refused, often for the types of the records' fields, which are in the expressions that it quotes."""


class NameTaken(SpecError):
    """Two columns would have one name: of the records, of the query, or of the table."""

    def __init__(self, message: str, path: Sequence[str], *, remedy: str, where: str = "") -> None:
        super().__init__(message, remedy=remedy, where=where)
        #: Where a field of the records has the name, if one does.
        self.path = tuple(path)


class Catalyst:
    """The parser and the analyser of one JVM."""

    def __init__(self, jvm: Any, functions: Sequence[Function] = ()) -> None:
        """jvm: py4j's view of a JVM with Spark's classes; it needs no session. functions: of Python, for queries.

        Raises: SpecError for a function that Spark has too.
        """
        #: The functions of Python by their names in small letters.
        self.functions = {function.name.lower(): function for function in functions}
        #: py4j's view of the JVM.
        self.jvm = jvm
        self._sql = jvm.org.apache.spark.sql
        catalyst = self._sql.catalyst
        conf, hadoop = jvm.org.apache.spark.SparkConf(False), jvm.org.apache.hadoop.conf.Configuration()
        catalog = catalyst.catalog.SessionCatalog(
            catalyst.catalog.InMemoryCatalog(conf, hadoop), self._function_registry()
        )
        self._parser = catalyst.parser.CatalystSqlParser()
        self._refusals = jvm.java.lang.Class.forName("org.apache.spark.SparkThrowable")
        self._replaceable = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable")
        self._analyser = catalyst.analysis.Analyzer(catalog)

    def _function_registry(self) -> Any:
        """Returns Spark's functions and those of Python, which the analyser knows by name and type alone."""
        catalyst, expressions = self._sql.catalyst, self._sql.expressions
        registry = catalyst.analysis.FunctionRegistry.builtin().clone()
        nothing, none = self._static("scala.collection.immutable.Nil"), self._static("scala.None")
        for name, function in self.functions.items():
            if registry.functionExists(catalyst.FunctionIdentifier(name)):
                remedy = "give the function another name"
                raise SpecError(f"`udf` names a function `{function.name}`, which Spark has too", remedy=remedy)
            kind = self._sql.types.DataType.fromJson(json.dumps(spark_type(parse_type(function.returns))))
            spark_function = expressions.SparkUserDefinedFunction(None, kind, nothing, none, none, True, True)
            self._sql.classic.UDFRegistration(None, registry).register(function.name, spark_function)
        return registry

    def parse(self, query: str) -> Any:
        """Returns the plan of a query as it is written.

        Raises: SpecError for a syntax error.
        """
        with self.settings(), self._refusing(_A_QUERY):
            return self._parser.parsePlan(query)

    def parse_condition(self, condition: str) -> Any:
        """Returns the plan that selects the records for which a condition is true.

        Raises: SpecError for a syntax error.
        """
        with self.settings(), self._refusing(_A_CONDITION):
            parsed = self._parser.parseExpression(condition)
            source = self._parser.parsePlan(f"table {RECORDS}")
            return self._sql.catalyst.plans.logical.Filter(parsed, source)

    def analyse(self, plans: Sequence[Any], records: Schema) -> Any:
        """Returns the analysed plan. plans: each a chain of nodes with one child each, which ends with the relation
        `records`: the rows that the plan before it makes, the records themselves for the first.

        Raises: SpecError where Spark refuses the query.
        """
        with self.settings(), self._refusing(_A_QUERY):
            catalyst = self._sql.catalyst
            nothing, none = self._static("scala.collection.immutable.Nil"), self._static("scala.None")
            columns = catalyst.types.DataTypeUtils.toAttributes(
                self._sql.types.DataType.fromJson(json.dumps(spark_struct(records)))
            )
            empty = catalyst.plans.logical.LocalRelation(columns, nothing, False, none)
            node = self._named(empty)
            for plan in plans:
                for parent in reversed(list(chain_of(plan))[:-1]):
                    node = parent.withNewChildren(self.seq(node))
                if plan is not plans[-1]:
                    node = self._named(node)
            analysed = self._analyser.executeAndCheck(
                node, self._sql.catalyst.QueryPlanningTracker(self._static("scala.None"))
            )
            for rule in _DECIDING:
                analysed = self._static(f"org.apache.spark.sql.catalyst.optimizer.{rule}").apply(analysed)
            return analysed

    def _named(self, node: Any) -> Any:
        """Returns the node as the relation `records`."""
        catalyst, nothing = self._sql.catalyst, self._static("scala.collection.immutable.Nil")
        return catalyst.plans.logical.SubqueryAlias(catalyst.AliasIdentifier(RECORDS, nothing), node)

    def dump(self, expressions: Sequence[Any]) -> bytes:
        """Returns expressions as Java serializes them, for `in_spark.with_values`."""
        listed = self.jvm.java.util.ArrayList()
        for expression in expressions:
            listed.add(expression)
        return bytes(self.jvm.org.apache.commons.lang3.SerializationUtils.serialize(listed))

    def is_replaced(self, node: Any) -> bool:
        """Whether Spark evaluates another expression in place of an analysed one, its `replacement`."""
        return bool(self._replaceable.isInstance(node))

    def fault_of(self, what: str, text: str) -> str:
        """Returns what is wrong with a constant; empty where nothing is. what: PATTERN, READ_DATE, WRITTEN_DATE or ZONE."""
        util = "org.apache.spark.sql.catalyst.util"
        try:
            if what == PATTERN:
                self.jvm.java.util.regex.Pattern.compile(text)
            elif what == ZONE:
                self._static(f"{util}.DateTimeUtils").getZoneId(text)
            else:
                zone = self.jvm.java.time.ZoneOffset.UTC
                formatter = self._static(f"{util}.TimestampFormatter").apply(text, zone, what == READ_DATE)
                formatter.validatePatternString(False)
        except Exception as error:
            java = _java_of(error)
            if java is None:
                raise
            return str(java.getMessage()).splitlines()[0]
        return ""

    def seq(self, *items: Any) -> Any:
        """Returns a sequence of Scala."""
        return seq_of(self.jvm, items)

    def _static(self, name: str) -> Any:
        return static_of(self.jvm, name)

    @contextmanager
    def _refusing(self, advice: str) -> Iterator[None]:
        """Turns Spark's refusal of a query into a SpecError. advice: the remedy for a text that is none."""
        try:
            yield
        except Exception as error:
            java = _java_of(error)
            if java is not None and class_of(java) == "StackOverflowError":
                raise SpecError("the query is nested too deeply", remedy=TOO_DEEP) from None
            if java is None or not self._refusals.isInstance(java):
                raise
            raise _spark_refusal(java, advice) from None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """In its block, this thread's part of the JVM has no active session: Spark's defaults hold, ANSI mode and UTC."""
        sessions = self._sql.classic.SparkSession
        active = sessions.getActiveSession()
        sessions.clearActiveSession()
        conf = self._sql.internal.SQLConf.get()
        for name, value in _SETTINGS.items():
            conf.setConfString(name, value)
        try:
            yield
        finally:
            if active.isDefined():
                sessions.setActiveSession(active.get())


def _java_of(error: Exception) -> Any:
    """Returns the exception of Java's that an error is made of; None for another one."""
    # PySpark translates Java's exceptions where it has a session.
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def static_of(jvm: Any, name: str) -> Any:
    """Returns Scala's object of that name."""
    place = jvm
    for part in f"{name}$".split("."):
        place = getattr(place, part)
    return getattr(place, "MODULE$")


def seq_of(jvm: Any, items: Iterable[Any]) -> Any:
    """Returns a sequence of Scala."""
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)


def chain_of(plan: Any) -> Iterator[Any]:
    """Yields the nodes of a plan from the result to the source, each the first child of the one before."""
    while True:
        yield plan
        children = plan.children()
        if children.isEmpty():
            return
        plan = children.head()


def items_of(seq: Any) -> list[Any]:
    """Returns the items of a sequence of Scala."""
    return [seq.apply(n) for n in range(seq.size())]


def ids_of(columns: Any) -> list[int]:
    """Returns Spark's ids of columns, which their texts end with: `name#12`, `id#13L`. One call for all, as each takes a
    tenth of a millisecond and records have hundreds of fields.
    """
    matches = [_COLUMN_ID.search(text) for text in str(columns.mkString(SEPARATOR)).split(SEPARATOR)]
    if all(matches) and len(matches) == columns.size():
        return [int(match[1]) for match in matches if match]
    return [int(column.exprId().id()) for column in items_of(columns)]  # A text has the separator in it.


def class_of(node: Any) -> str:
    """Returns the simple name of a node's class. Spark's `nodeName` is the function's name for some."""
    return str(node.getClass().getSimpleName()).removesuffix("$")


def position_of(node: Any) -> str:
    """Returns where in the query a parsed node is; empty where Spark does not know."""
    origin = node.origin()
    line, column = origin.line(), origin.startPosition()
    return place(line.get(), column.get() + 1) if line.isDefined() and column.isDefined() else ""


def place(line: int, column: int) -> str:
    """Returns a place in the query, both numbers from 1."""
    return f"line {line}, column {column} of the query"


def _spark_refusal(java: Any, advice: str) -> SpecError:
    text = str(java.getMessage())
    position = _POSITION.search(text)
    where = place(int(position[1]), int(position[3]) + (position[2] == "pos")) if position else ""
    given = java.getMessageParameters()
    names: dict[str, str] = {str(name): str(given[name]) for name in given}
    condition = str(java.getCondition())
    if condition.startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND", "UNRESOLVED_FIELD")):
        return _unknown_column(names, where)
    if condition.startswith("AMBIGUOUS_REFERENCE"):
        name = names.get("name", "a column")
        message = f"the query names {name}, and there are two columns of this name"
        return NameTaken(message, (_last_name(name),), remedy="name one of them otherwise: `as NAME`", where=where)
    words = " ".join(_END.sub("", _CODE.sub("", text)).split()).rstrip(".")
    return TypeRefused(f"Spark refuses the query: {words}", remedy=_spark_remedy(condition, advice), where=where)


def _unknown_column(names: dict[str, str], where: str) -> SpecError:
    wanted = names.get("objectName") or names.get("fieldName", "")
    names_known = [
        last for last in map(_last_name, (names.get("proposal") or names.get("fields", "")).split(", ")) if last
    ]
    close = nearest(_last_name(wanted), names_known)
    remedy = f"did you mean `{close}`?" if close else f"name a field of the records: {', '.join(names_known)}"
    kind = "field" if "fieldName" in names else "column"
    message = f"the query names an unknown {kind} {wanted}"
    return UnknownColumn(message, _last_name(wanted), remedy=remedy, where=where)


def _last_name(text: str) -> str:
    """Returns the last of the names that Spark quotes, such as b of "`a`.`b`"."""
    quoted = _QUOTED.findall(text)
    return quoted[-1].replace("``", "`") if quoted else ""


def _spark_remedy(condition: str, advice: str) -> str:
    if condition.startswith("PARSE_") or "SYNTAX" in condition:
        return advice
    if condition.startswith("DATATYPE_MISMATCH.CAST_"):
        return f"convert the value by a function, or cast it to another type before; {RULES}"
    if condition.startswith("DATATYPE_MISMATCH"):
        return "cast the value to the type that is wanted"
    return f"correct the query; {RULES}"
