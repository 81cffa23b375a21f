"""Queries over records as Spark itself reads them: what tasks get of them, and the types."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, UUIDType
from pyspark.sql.types import StructType as SparkStruct

from frazil.queries.analysis import METADATA, Query, analyse, analyse_condition
from frazil.queries.catalyst import Catalyst
from frazil.queries.in_spark import values_here
from frazil.queries.program import BY_SPARK, Call, Explode, Expression, Field, Filter, Literal, Project
from frazil.queries.refusals import FUNCTIONS
from frazil.queries.spark_types import spark_struct, spark_type
from frazil.queries.steps import Steps, compile_steps
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from tests.integration.queries import ADDRESS, FIELDS, RECORDS, TYPES, query_of, refusal_of

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def catalyst(jvm: Jvm) -> Catalyst:
    return Catalyst(jvm.gateway.jvm)


def _shown(expression: Expression) -> str:
    """An expression in short: casts with their type, and options that are not the usual ones."""
    if isinstance(expression, Field):
        return expression.name
    if isinstance(expression, Literal):
        return repr(expression.value)
    if expression.function == BY_SPARK:
        return f"Spark({', '.join(map(_shown, expression.arguments[1:]))})"
    usual = {("evalMode", "ANSI"), ("timeZoneId", "UTC"), ("failOnError", True), ("ansiEnabled", True)}
    options = [f"{name}={value}" for name, value in expression.options if (name, value) not in usual]
    kind = [str(expression.type)] if expression.function == "Cast" else []
    return f"{expression.function}({', '.join([*map(_shown, expression.arguments), *kind, *options])})"


def _columns(query: Query) -> dict[str, str]:
    assert query.program is not None, query.outside
    last = query.program.operators[-1]
    assert isinstance(last, Project)
    return {name: _shown(expression) for name, expression in last.columns}


def test_a_query_becomes_filter_and_projection_with_types_nullability_and_lineage(catalyst: Catalyst) -> None:
    found = query_of(
        catalyst,
        "select id, lower(name) as email, cast(price as decimal(12,1)) as amount, addr.geo.lat, _timestamp as sent_at "
        "from records r where kind = 'order' and r.items[0].qty > 1",
    )
    assert [(one.name, str(one.type), one.is_required, sorted(one.sources)) for one in found.columns] == [
        ("id", "long", True, [("id",)]),
        ("email", "string", False, [("name",)]),
        ("amount", "decimal(12, 1)", False, [("price",)]),
        ("lat", "double", False, [("addr", "geo", "lat")]),
        ("sent_at", "timestamptz", False, [("_timestamp",)]),
    ]
    assert found.conditions == {("kind",), ("items", "qty")}
    assert found.program is not None
    assert [type(operator) for operator in found.program.operators] == [Filter, Project]
    assert [(one.name, one.type) for one in found.program.output] == [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("amount", pa.decimal128(12, 1)),
        ("lat", pa.float64()),
        ("sent_at", pa.timestamp("us", tz="UTC")),
    ]
    assert pickle.loads(pickle.dumps(found.program)) == found.program


def test_a_query_is_the_same_program_at_every_analysis(catalyst: Catalyst) -> None:
    query = "select id, nullif(name, '') as n, i + 1 as a, a * 2 as c from records where i between 1 and 3"
    assert query_of(catalyst, query) == query_of(catalyst, query)


#: What arrives for functions and operators: most are evaluated by tasks.
_ARRIVES = {
    "id + 1": "Add(id, Cast(1, int64))",
    "try_add(i, 1)": "Add(i, 1, evalMode=TRY)",
    "id * price": "Multiply(Cast(id, decimal128(20, 0)), price)",
    "id / 2": "Divide(Cast(id, double), Cast(2, double))",
    "price / 3": "Spark(price)",
    "i % 2": "Remainder(i, 2)",
    "-i": "UnaryMinus(i)",
    "i <> 1": "Not(EqualTo(i, 1))",
    "i <=> id": "EqualNullSafe(Cast(i, int64), id)",
    "i between 1 and 3": "And(GreaterThanOrEqual(i, 1), LessThanOrEqual(i, 3))",
    "i in (1, 2, null)": "In(i, 1, 2, None)",
    "b is true": "EqualNullSafe(b, True)",
    "name like 'a!%' escape '!'": "Like(name, 'a!%', escapeChar=!)",
    "name like 'a%'": "Like(name, 'a%', escapeChar=\\)",
    "addr.geo.lat": "GetStructField(GetStructField(addr, ordinal=1), ordinal=0)",
    "items.sku": "Spark(items)",
    "tags[i]": "GetArrayItem(tags, i)",
    "m['a']": "GetMapValue(m, 'a')",
    "case when b then 1 else 2 end": "CaseWhen(b, 1, 2)",
    "case i when 1 then 'a' end": "CaseWhen(EqualTo(i, 1), 'a')",
    "if(b, i, id)": "If(b, Cast(i, int64), id)",
    "nvl(i, id)": "Coalesce(Cast(i, int64), id)",
    "nvl2(i, 1, 2)": "If(IsNotNull(i), 1, 2)",
    "nullif(lower(name), '')": "If(EqualTo(Lower(name), ''), None, Lower(name))",
    "cast(name as int)": "Cast(name, int32)",
    "try_cast(name as date)": "Cast(name, date32[day], evalMode=TRY)",
    "cast(id as bigint)": "id",
    "cast(null as string)": "None",
    "trim(both 'x' from name)": "StringTrim(name, 'x')",
    "btrim(name)": "StringTrim(name)",
    "substr(name, 2)": "Substring(name, 2, 2147483647)",
    "left(name, 2)": "Left(name, 2)",
    "startswith(name, 'a')": "StartsWith(name, 'a')",
    "lpad(name, 5)": "StringLPad(name, 5, ' ')",
    "name || i": "Concat(name, Cast(i, string))",
    "concat_ws('-', name, kind)": "ConcatWs('-', name, kind)",
    "split_part(name, ',', 2)": "SplitPart(name, ',', 2)",
    "sha2(name, 256)": "Sha2(Cast(name, binary), 256)",
    "month(ts)": "Month(Cast(ts, date32[day]))",
    "extract(hour from ts)": "Hour(ts)",
    "date_trunc('hour', ts)": "TruncTimestamp('hour', ts)",
    "d + 1": "Spark(d)",
    "ts - interval 5 minutes": "Spark(ts)",
    "timestampdiff(day, ts, ts)": "Spark(ts)",
    "round(price, 1)": "Round(price, 1)",
    "named_struct('a', i)": "CreateNamedStruct('a', i)",
    "array(i, 1)": "CreateArray(i, 1)",
    "to_date(name, 'yyyy')": "Spark(name)",
    "lower(upper(lower(name)))": "Lower(name)",
    "try_cast(raw as string)": "Spark(raw)",
    "try_cast(raw as binary)": "raw",
    "to_timestamp_ntz(name)": "Spark(name)",
    "try_to_timestamp(name)": "ParseToTimestamp(name, failOnError=False)",
    "-cast(price as decimal(35, 2))": "Spark(price)",
    "coalesce(t, time'01:00:00')": "Coalesce(t, 3600000000)",
    "hash(name)": "Spark(name)",
}


def test_functions_and_operators_arrive_as_sparks_classes_with_its_casts(catalyst: Catalyst) -> None:
    columns = ", ".join(f"{text} as c{n}" for n, text in enumerate(_ARRIVES))
    found = _columns(query_of(catalyst, f"select {columns} from records"))
    assert dict(zip(_ARRIVES, found.values(), strict=True)) == _ARRIVES


def test_control_characters_in_a_query_are_values_like_others(catalyst: Catalyst) -> None:
    found = _columns(query_of(catalyst, "select id, 'x#5\x01' as c, name like '\x01%' escape '7' as d from records"))
    assert found == {"id": "id", "c": r"'x#5\x01'", "d": r"Like(name, '\x01%', escapeChar=7)"}


def test_literals_are_pythons_values(catalyst: Catalyst) -> None:
    literals: dict[str, tuple[Any, pa.DataType]] = {
        "1": (1, pa.int32()),
        "1S": (1, pa.int16()),
        "1L": (1, pa.int64()),
        "1.50": (Decimal("1.50"), pa.decimal128(3, 2)),
        "1e3": (1000.0, pa.float64()),
        "'it''s'": ("it's", pa.string()),
        "true": (True, pa.bool_()),
        "X'1F'": (b"\x1f", pa.binary()),
        "date'0001-01-01'": (date(1, 1, 1), pa.date32()),
        "timestamp'2020-01-01 10:00:00+02:00'": (datetime(2020, 1, 1, 8, tzinfo=UTC), pa.timestamp("us", tz="UTC")),
        "timestamp_ntz'1969-12-31 23:59:59.5'": (datetime(1969, 12, 31, 23, 59, 59, 500000), pa.timestamp("us")),  # noqa: DTZ001
        "cast(null as double)": (None, pa.float64()),
        # Python has no such years: the numbers are Arrow's.
        "date'+10000-01-01'": (2_932_897, pa.date32()),
        "date'-0001-01-01'": (-719_893, pa.date32()),
        "timestamp'+10000-01-01 00:00:00'": (253_402_300_800_000_000, pa.timestamp("us", tz="UTC")),
        "time'12:30:00'": (45_000_000_000, pa.time64("us")),
    }
    columns = ", ".join(f"{text} as c{n}" for n, text in enumerate(literals))
    found = query_of(catalyst, f"select {columns} from records").program
    assert found is not None
    (operator,) = found.operators
    assert isinstance(operator, Project)
    assert [expression for _, expression in operator.columns] == [Literal(*one) for one in literals.values()]


def test_a_star_is_the_fields_without_the_metadata_that_it_does_not_name(catalyst: Catalyst) -> None:
    fields = list(TYPES)
    assert [one.name for one in query_of(catalyst, "select * from records").columns] == fields
    assert [one.name for one in query_of(catalyst, "select r.*, _TOPIC from records r").columns] == [*fields, "_topic"]
    assert [one.name for one in query_of(catalyst, "select *, _topic as a from records").columns] == [*fields, "a"]
    nested = query_of(catalyst, "select * from (select *, id + 1 as more from records where _offset > 5)")
    assert [one.name for one in nested.columns] == [*fields, "more"]
    assert nested.conditions == {("_offset",)}
    assert [one.name for one in query_of(catalyst, "select addr.* from records").columns] == ["city", "geo"]
    assert [one.name for one in query_of(catalyst, f"select {', '.join(METADATA)} from records").columns] == list(
        METADATA
    )


def test_fields_keep_their_own_types_where_they_are_only_selected(catalyst: Catalyst) -> None:
    found = query_of(catalyst, "select * from records")
    assert [one.type for one in found.columns] == list(TYPES.values())
    renamed = query_of(catalyst, "select u as v, addr.geo as g, items as j from (select * from records)")
    assert [one.type for one in renamed.columns] == [UUIDType(), ADDRESS.fields[1].field_type, TYPES["items"]]


def test_inner_columns_that_nothing_uses_are_neither_read_nor_evaluated(catalyst: Catalyst) -> None:
    query = "select a * 2 as c from (select *, id + 1 as a, cast(name as int) as unused from records) where kind = 'x'"
    found = query_of(catalyst, query).program
    assert found is not None
    inner, _, _ = found.operators
    assert isinstance(inner, Project)
    assert [name for name, _ in inner.columns] == ["kind", "a"]
    nothing = query_of(catalyst, "select 1 as one from (select id as i, name as n from records)").program
    assert nothing is not None
    assert nothing.operators[0] == Project((("i", Field("id", pa.int64())),))


def test_an_array_is_exploded_by_both_ways_of_writing_it(catalyst: Catalyst) -> None:
    found = query_of(catalyst, "select id, e.sku from records lateral view outer explode(items) t as e where e.qty > 0")
    assert found.program is not None
    explode, where, _ = found.program.operators
    assert isinstance(explode, Explode)
    assert (_shown(explode.array), explode.name, explode.position, explode.is_outer) == ("items", "e", "", True)
    assert isinstance(where, Filter)
    assert [one.sources for one in found.columns] == [{("id",)}, {("items", "sku")}]
    assert found.conditions == {("items", "qty")}
    other = query_of(catalyst, "select posexplode(tags) as (place, id) from records")
    assert other.program is not None
    explode = other.program.operators[0]
    assert isinstance(explode, Explode)
    # A field of the records has that name, and would be shadowed.
    assert (explode.name, explode.position, explode.is_outer) == ("id#1", "place", False)
    assert _columns(other) == {"place": "place", "id": "id#1"}


@pytest.mark.parametrize(
    ("text", "made", "reason"),
    [
        ("transform(tags, t -> upper(t) || kind)", "Spark(tags, kind)", "ArrayTransform is not a proven function"),
        ("name like any ('a%', 'b%')", "Spark(name)", "LikeAny is not a proven function"),
        ("cast(parse_json(name) as string)", "Spark(name)", "values of a type that tasks do not have"),
        ("upper(regexp_extract(lower(name), 'a')) || 'x'", "Concat(Upper(Spark(name)), 'x')", "RegExpExtract is"),
        ("nullif(split(name, kind)[0], '')", "If(EqualTo(GetArrayItem(Spark(name, kind), 0), ''), None, Get", "Split"),
    ],
)
def test_what_is_not_proven_is_sparks_with_all_that_is_in_it(
    catalyst: Catalyst, text: str, made: str, reason: str
) -> None:
    found = query_of(catalyst, f"select {text} as c from records")
    assert found.program is not None
    assert found.program.spark_part is not None
    assert _columns(found)["c"].startswith(made)
    assert reason in found.program.spark_part.reason
    assert {column.name for column in found.program.spark_part.inputs.output} <= {"tags", "name", "kind"}
    assert found.columns[0].sources in ({("tags",), ("kind",)}, {("name",)}, {("name",), ("kind",)})


def test_what_an_expression_of_sparks_uses_of_earlier_projections_is_written_into_it(catalyst: Catalyst) -> None:
    query = "select regexp_replace(a, 'x', 'y') as c from (select lower(name) as a, parse_json(kind) as v from records)"
    found = query_of(catalyst, query).program
    assert found is not None
    assert found.spark_part is not None
    assert [column.name for column in found.spark_part.inputs.output] == ["name"]
    inner, _ = found.operators
    assert isinstance(inner, Project)
    assert [name for name, _ in inner.columns] == ["a", found.spark_part.values[0].name]
    assert pickle.loads(pickle.dumps(found)) == found


def test_calls_that_differ_in_options_alone_are_not_one(catalyst: Catalyst) -> None:
    json = "from_json(name, 'a int'"
    query = f"select {json}) as a, {json}, map('allowSingleQuotes', 'false')) as c, {json}) as d from records"
    found = query_of(catalyst, query).program
    assert found is not None
    assert found.spark_part is not None
    made = values_here(catalyst, found.spark_part, [pa.array(["{'a': 1}", '{"a": 2}'])], 2)
    (operator,) = found.operators
    assert isinstance(operator, Project)
    values = {
        name: made[call.arguments[0].name].to_pylist()
        for name, call in operator.columns
        if isinstance(call, Call) and isinstance(call.arguments[0], Field)
    }
    assert values["a"] == values["d"] == [{"value": {"a": 1}}, {"value": {"a": 2}}]
    assert values["c"] == [{"value": {"a": None}}, {"value": {"a": 2}}]
    assert len(made) == 2


@pytest.mark.parametrize(("place", "values"), [("i", [None, "X000", None]), ("-2147483648", [None] * 3)])
def test_the_least_integer_is_a_place_in_no_list(catalyst: Catalyst, place: str, values: list[str | None]) -> None:
    """Spark 4.1 ends the JVM for it, in a list of a column of records."""
    found = query_of(catalyst, f"select soundex(try_element_at(tags, {place})) as a from records").program
    assert found is not None
    assert found.spark_part is not None
    places, lists = pa.array([-(2**31), 1, None], pa.int32()), pa.array([["x"]] * 3, pa.list_(pa.string()))
    inputs = {"i": places, "tags": lists}
    given = [inputs[column.name] for column in found.spark_part.inputs.output]
    (made,) = values_here(catalyst, found.spark_part, given, 3).values()
    assert made.to_pylist() == [{"value": one} for one in values]


def test_an_expression_of_sparks_needs_a_record_of_its_own(catalyst: Catalyst) -> None:
    error = refusal_of(
        catalyst, "select regexp_replace(e, 'a', 'b') as c from (select explode(tags) as e from records)"
    )
    assert "elements of an exploded list" in error.message
    assert "explode(transform(" in error.remedy
    query_of(catalyst, "select explode(transform(tags, e -> regexp_replace(e, 'a', 'b'))) as c from records")


def test_rows_of_a_map_have_no_place_in_a_program(catalyst: Catalyst) -> None:
    found = query_of(catalyst, "select explode(m) as (k, v) from records")
    assert (found.program, found.outside and found.outside.reason) == (None, "rows of a map")
    assert [(one.name, str(one.type)) for one in found.columns] == [("k", "string"), ("v", "long")]


def test_metadata_keeps_its_name_in_a_query(catalyst: Catalyst) -> None:
    assert list(_columns(query_of(catalyst, "select id, _kafka_partition from records"))) == ["id", "_kafka_partition"]


def test_every_allowed_function_is_one_of_sparks_scalar_functions(jvm: Jvm) -> None:
    spark = jvm.gateway.jvm.org.apache.spark.sql.catalyst
    registry = spark.analysis.FunctionRegistry.builtin()
    groups = {}
    for name in frozenset().union(*FUNCTIONS.values()) - FUNCTIONS["rows of a list"]:
        found = registry.lookupFunction(spark.FunctionIdentifier(name))
        groups[name] = found.get().getGroup() if found.isDefined() else "unknown"
    wrong = ("unknown", "agg_funcs", "window_funcs", "table_funcs", "generator_funcs")
    assert {name: group for name, group in groups.items() if group in wrong} == {}


@pytest.fixture
def session_of_others(jvm: Jvm) -> Iterator[Any]:
    """The session in which jobs run, with settings that change the meaning of queries, and a view with the fields."""
    session: Any = jvm.session()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    jvm.gateway.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    yield session
    session.conf.unset("spark.sql.ansi.enabled")
    session.conf.set("spark.sql.session.timeZone", "UTC")


def test_the_settings_of_the_session_neither_matter_nor_change(catalyst: Catalyst, session_of_others: Any) -> None:
    found = query_of(
        catalyst, "select cast(name as int) as a, timestamp'2020-01-01 00:00:00' as t from records"
    ).program
    assert found is not None
    (operator,) = found.operators
    assert isinstance(operator, Project)
    (_, cast), (_, moment) = operator.columns
    assert isinstance(cast, Call)
    assert dict(cast.options)["evalMode"] == "ANSI"
    assert moment == Literal(datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC"))
    assert session_of_others.conf.get("spark.sql.ansi.enabled") == "false"
    assert session_of_others.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    sessions = session_of_others._jvm.org.apache.spark.sql.classic.SparkSession
    assert sessions.getActiveSession().get().equals(session_of_others._jsparkSession)


def test_a_refused_query_leaves_no_stack_trace_where_there_is_a_session(
    catalyst: Catalyst, session_of_others: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert session_of_others
    assert "cast the value" in refusal_of(catalyst, "select date_add(d, id) as e from records").remedy
    assert capfd.readouterr().err == ""


def test_columns_and_their_types_are_those_of_a_session(catalyst: Catalyst, jvm: Jvm) -> None:
    queries = [
        "select id, price * i as a, price / 3 as c, round(price, 1) as d, ceil(x) as e from records where b",
        "select _topic, _headers, split(name, ',') as a, named_struct('a', i, 'b', array(name)) as s from records",
        "select r.items[0].qty as q, m['a'] as a, items.sku, greatest(i, id) as g, coalesce(name, '') as n from records r",
        "select id, p, e.* from records lateral view outer posexplode(items) t as p, e",
        "select date_trunc('day', ts) as a, d + 1 as c, ts + interval 1 hour as e, cast(tn as timestamp) as f from records",
        "select case when b then 1 when i = 2 then 2.5 end as a, if(b, i, x) as c, nvl(i, 0L) as d from records",
        "select transform(tags, t -> length(t)) as a, map_filter(m, (k, v) -> v > 1) as c from records",
        "select from_json(name, 'a int') as d from records",
    ]
    # Spark has no types for the two others.
    known = Schema(*(field for field in RECORDS.fields if field.name not in ("u", "f")))
    session = jvm.session().newSession()
    struct = SparkStruct.fromJson(spark_struct(known))
    session.createDataFrame([], struct).createOrReplaceTempView("records")
    for query in queries:
        ours = [(one.name, spark_type(one.type)) for one in analyse(catalyst, query, known).columns]
        theirs = json.loads(session.sql(query).schema.json())["fields"]
        assert ours == [(one["name"], one["type"]) for one in theirs], query


def test_a_jvm_without_a_session_analyses_too() -> None:
    light = LightJvm({}, needs_spark_jars=True)
    try:
        light_catalyst = Catalyst(light.gateway.jvm)
        found = _columns(query_of(light_catalyst, "select cast(name as int) as a, hour(ts) as h from records"))
        assert found == {"a": "Cast(name, int32)", "h": "Hour(ts)"}
        assert refusal_of(light_catalyst, "select naem from records").remedy == "did you mean `name`?"
    finally:
        light.close()


def test_a_condition_becomes_a_filter_with_its_name(catalyst: Catalyst) -> None:
    found = analyse_condition(catalyst, "price >= 0 and addr.city is not null", RECORDS, "filter")
    assert found.operator is not None
    assert found.operator.name == "filter"
    assert _shown(found.operator.condition) == (
        "And(GreaterThanOrEqual(price, Cast(Cast(0, decimal128(1, 0)), decimal128(10, 2))), "
        "IsNotNull(GetStructField(addr, ordinal=0)))"
    )
    assert found.sources == {("price",), ("addr", "city")}
    outside = analyse_condition(catalyst, "exists(tags, t -> t = 'a')", RECORDS, "filter")
    assert outside.operator is None
    assert outside.outside is not None


def test_steps_are_a_query_that_spark_takes(catalyst: Catalyst) -> None:
    steps = Steps(
        rename={("name",): "full name", ("addr", "city"): "town"},
        drop_fields=[("u",), ("f",), ("addr", "geo")],
        keep_fields=[("id",), ("full name",), ("addr",), ("price",)],
        cast={("price",): DecimalType(12, 1), ("addr", "town"): BinaryType()},
        add_fields={"origin": "it's \\ `here`", "topic": "_topic", "level": 3},
        filter="`full name` is not null and _offset > 5",
    )
    found = analyse(catalyst, "select * from records", RECORDS, steps=compile_steps(steps, FIELDS).sql)
    assert {one.name: str(one.type) for one in found.columns} == {
        "id": "long",
        "full name": "string",
        "price": "decimal(12, 1)",
        "addr": "struct<1000: town: optional binary>",
        "origin": "string",
        "topic": "string",
        "level": "long",
    }
    assert found.columns[3].sources == {("addr",), ("addr", "city")}
    assert found.conditions == {("name",), ("_offset",)}
    assert _columns(found)["origin"] == "origin"
    assert found.program is not None
    assert [getattr(operator, "name", "") for operator in found.program.operators] == ["", "filter", "", ""]
