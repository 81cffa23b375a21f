"""Queries over records as Spark itself reads them: what tasks get of them, what they are refused for, and the types."""

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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql.types import StructType as SparkStruct

from frazil.errors import SpecError
from frazil.process.analysis import METADATA, Query, analyse, analyse_condition, with_metadata
from frazil.process.catalyst import Catalyst
from frazil.process.program import BY_SPARK, Call, Explode, Expression, Field, Filter, Literal, Project
from frazil.process.refusals import FUNCTIONS
from frazil.process.spark_types import spark_struct, spark_type
from frazil.process.steps import Steps, compile_steps
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm

pytestmark = pytest.mark.jvm

_ITEM = StructType(NestedField(52, "sku", StringType()), NestedField(53, "qty", IntegerType()))
_ADDRESS = StructType(
    NestedField(54, "city", StringType()), NestedField(55, "geo", StructType(NestedField(56, "lat", DoubleType())))
)
_TYPES: dict[str, IcebergType] = {
    "id": LongType(),
    "i": IntegerType(),
    "name": StringType(),
    "kind": StringType(),
    "price": DecimalType(10, 2),
    "x": DoubleType(),
    "b": BooleanType(),
    "d": DateType(),
    "ts": TimestamptzType(),
    "tn": TimestampType(),
    "t": TimeType(),
    "u": UUIDType(),
    "f": FixedType(4),
    "raw": BinaryType(),
    "tags": ListType(50, StringType(), element_required=False),
    "items": ListType(51, _ITEM, element_required=False),
    "addr": _ADDRESS,
    "m": MapType(57, StringType(), 58, LongType(), value_required=False),
}
_FIELDS = Schema(*(NestedField(n, name, kind, required=n == 1) for n, (name, kind) in enumerate(_TYPES.items(), 1)))
RECORDS = with_metadata(_FIELDS)


@pytest.fixture(scope="module")
def catalyst(jvm: Jvm) -> Catalyst:
    return Catalyst(jvm.gateway.jvm)


def _query(catalyst: Catalyst, text: str) -> Query:
    return analyse(catalyst, text, RECORDS)


def _refusal(catalyst: Catalyst, text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        _query(catalyst, text)
    return caught.value


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
    last = query.program.stages[-1]
    assert isinstance(last, Project)
    return {name: _shown(expression) for name, expression in last.columns}


def test_a_query_becomes_a_filter_and_a_projection_with_types_nullability_and_lineage(catalyst: Catalyst) -> None:
    found = _query(
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
    assert [type(stage) for stage in found.program.stages] == [Filter, Project]
    assert [(one.name, one.type) for one in found.program.output] == [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("amount", pa.decimal128(12, 1)),
        ("lat", pa.float64()),
        ("sent_at", pa.timestamp("us", tz="UTC")),
    ]
    assert pickle.loads(pickle.dumps(found.program)) == found.program


def test_the_same_query_is_the_same_program_at_every_analysis(catalyst: Catalyst) -> None:
    query = "select id, nullif(name, '') as n, i + 1 as a, a * 2 as c from records where i between 1 and 3"
    assert _query(catalyst, query) == _query(catalyst, query)


#: What arrives for functions and operators: most are evaluated by tasks.
_ARRIVES = {
    "id + 1": "Add(id, Cast(1, int64))",
    "try_add(i, 1)": "Add(i, 1, evalMode=TRY)",
    "id * price": "Multiply(Cast(id, decimal128(20, 0)), price)",
    "id / 2": "Divide(Cast(id, double), Cast(2, double))",
    "price / 3": "Divide(price, Cast(3, decimal128(1, 0)))",
    "i div 2": "IntegralDivide(Cast(i, int64), Cast(2, int64))",
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
    "element_at(tags, 1)": "ElementAt(tags, 1)",
    "try_element_at(tags, 1)": "ElementAt(tags, 1, failOnError=False)",
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
    "position('a' in name)": "StringLocate('a', name, 1)",
    "lpad(name, 5)": "StringLPad(name, 5, ' ')",
    "name || i": "Concat(name, Cast(i, string))",
    "concat_ws('-', name, kind)": "ConcatWs('-', name, kind)",
    "split_part(name, ',', 2)": "SplitPart(name, ',', 2)",
    "sha2(name, 256)": "Sha2(Cast(name, binary), 256)",
    "month(ts)": "Month(Cast(ts, date32[day]))",
    "extract(hour from ts)": "Hour(ts)",
    "date_trunc('hour', ts)": "TruncTimestamp('hour', ts)",
    "d + 1": "DateAdd(d, 1)",
    "ts - interval 5 minutes": "TimestampAddInterval(ts, UnaryMinus(300000000))",
    "timestampdiff(day, ts, ts)": "Spark(ts)",
    "unix_timestamp(ts)": "UnixTimestamp(ts, 'yyyy-MM-dd HH:mm:ss')",
    "round(price, 1)": "Round(price, 1)",
    "named_struct('a', i)": "CreateNamedStruct('a', i)",
    "array(i, 1)": "CreateArray(i, 1)",
    "to_date(name, 'yyyy')": "Spark(name)",
    "hash(name)": "Spark(name)",
}


def test_functions_and_operators_arrive_as_sparks_classes_with_its_casts(catalyst: Catalyst) -> None:
    columns = ", ".join(f"{text} as c{n}" for n, text in enumerate(_ARRIVES))
    found = _columns(_query(catalyst, f"select {columns} from records"))
    assert dict(zip(_ARRIVES, found.values(), strict=True)) == _ARRIVES


def test_control_characters_in_a_query_are_values_like_others(catalyst: Catalyst) -> None:
    found = _columns(_query(catalyst, "select id, 'x#5\x01' as c, name like '\x01%' escape '7' as d from records"))
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
    }
    columns = ", ".join(f"{text} as c{n}" for n, text in enumerate(literals))
    found = _query(catalyst, f"select {columns} from records").program
    assert found is not None
    (stage,) = found.stages
    assert isinstance(stage, Project)
    assert [expression for _, expression in stage.columns] == [Literal(*one) for one in literals.values()]


def test_a_star_is_the_fields_without_the_metadata_that_it_does_not_name(catalyst: Catalyst) -> None:
    fields = list(_TYPES)
    assert [one.name for one in _query(catalyst, "select * from records").columns] == fields
    assert [one.name for one in _query(catalyst, "select r.*, _TOPIC from records r").columns] == [*fields, "_topic"]
    assert [one.name for one in _query(catalyst, "select *, _topic as a from records").columns] == [*fields, "a"]
    nested = _query(catalyst, "select * from (select *, id + 1 as more from records where _offset > 5)")
    assert [one.name for one in nested.columns] == [*fields, "more"]
    assert nested.conditions == {("_offset",)}
    assert [one.name for one in _query(catalyst, "select addr.* from records").columns] == ["city", "geo"]
    assert [one.name for one in _query(catalyst, f"select {', '.join(METADATA)} from records").columns] == list(
        METADATA
    )


def test_fields_keep_their_own_types_where_they_are_only_selected(catalyst: Catalyst) -> None:
    found = _query(catalyst, "select * from records")
    assert [one.type for one in found.columns] == list(_TYPES.values())
    renamed = _query(catalyst, "select u as v, addr.geo as g, items as j from (select * from records)")
    assert [one.type for one in renamed.columns] == [UUIDType(), _ADDRESS.fields[1].field_type, _TYPES["items"]]


def test_inner_columns_that_nothing_uses_are_neither_read_nor_evaluated(catalyst: Catalyst) -> None:
    query = "select a * 2 as c from (select *, id + 1 as a, cast(name as int) as unused from records) where kind = 'x'"
    found = _query(catalyst, query).program
    assert found is not None
    inner, _, _ = found.stages
    assert isinstance(inner, Project)
    assert [name for name, _ in inner.columns] == ["kind", "a"]
    nothing = _query(catalyst, "select 1 as one from (select id as i, name as n from records)").program
    assert nothing is not None
    assert nothing.stages[0] == Project((("i", Field("id", pa.int64())),))


def test_an_array_is_exploded_by_both_ways_of_writing_it(catalyst: Catalyst) -> None:
    found = _query(catalyst, "select id, e.sku from records lateral view outer explode(items) t as e where e.qty > 0")
    assert found.program is not None
    explode, where, _ = found.program.stages
    assert isinstance(explode, Explode)
    assert (_shown(explode.array), explode.name, explode.position, explode.is_outer) == ("items", "e", "", True)
    assert isinstance(where, Filter)
    assert [one.sources for one in found.columns] == [{("id",)}, {("items", "sku")}]
    assert found.conditions == {("items", "qty")}
    other = _query(catalyst, "select posexplode(tags) as (place, id) from records")
    assert other.program is not None
    explode = other.program.stages[0]
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
    found = _query(catalyst, f"select {text} as c from records")
    assert found.program is not None
    assert found.program.spark_part is not None
    assert _columns(found)["c"].startswith(made)
    assert reason in found.program.spark_part.reason
    assert {column.name for column in found.program.spark_part.inputs.output} <= {"tags", "name", "kind"}
    assert found.columns[0].sources in ({("tags",), ("kind",)}, {("name",)}, {("name",), ("kind",)})


def test_what_an_expression_of_sparks_uses_of_earlier_projections_is_written_into_it(catalyst: Catalyst) -> None:
    query = "select regexp_replace(a, 'x', 'y') as c from (select lower(name) as a, parse_json(kind) as v from records)"
    found = _query(catalyst, query).program
    assert found is not None
    assert found.spark_part is not None
    assert [column.name for column in found.spark_part.inputs.output] == ["name"]
    inner, _ = found.stages
    assert isinstance(inner, Project)
    assert [name for name, _ in inner.columns] == ["a", found.spark_part.values[0].name]
    assert pickle.loads(pickle.dumps(found)) == found


def test_an_expression_of_sparks_needs_a_record_of_its_own(catalyst: Catalyst) -> None:
    error = _refusal(catalyst, "select regexp_replace(e, 'a', 'b') as c from (select explode(tags) as e from records)")
    assert "elements of an exploded list" in error.message
    assert "explode(transform(" in error.remedy
    _query(catalyst, "select explode(transform(tags, e -> regexp_replace(e, 'a', 'b'))) as c from records")


def test_rows_of_a_map_have_no_place_in_a_program(catalyst: Catalyst) -> None:
    found = _query(catalyst, "select explode(m) as (k, v) from records")
    assert (found.program, found.outside and found.outside.reason) == (None, "rows of a map")
    assert [(one.name, str(one.type)) for one in found.columns] == [("k", "string"), ("v", "long")]


_NOT_RECORDS = [
    ("", "unexpected empty statement", "write one `select"),
    ("select", "Syntax error", "write one `select"),
    ("select id from records; select id from records", "extra input 'select'", "write one `select"),
    ("set a = b", "Unsupported SQL statement", "write one `select"),
    ("explain select 1", "Unsupported SQL statement", "write one `select"),
    ("create table t (a int)", "CreateTable", "from records"),
    ("drop table records", "DropTable", "from records"),
    ("insert into t select * from records", "InsertInto", "from records"),
    ("begin select 1; end", "a script", "from records"),
    ("table records", "selects nothing", "from records"),
    ("values (1)", "another kind", "from records"),
    ("select 1 as x", "no FROM", "from records"),
    ("select * from csv.`/etc/passwd`", "reads `csv./etc/passwd`", "from records"),
    ("select * from a.records", "reads `a.records`", "from records"),
    ("select * from orders", "reads `orders`", "from records"),
    ("select * from range(10)", "a function in FROM", "from records"),
    ("select id from records version as of 1", "VERSION AS OF", "from records"),
    ("with r as (select 1) select * from r", "WITH", "in FROM"),
    ("select a.id from records a, records c", "a join", "alone"),
    ("select id from records join records r on true", "a join", "alone"),
    ("select id from records group by id", "GROUP BY", "aggregate what is in the table"),
    ("select count(*) as n from records", "`count`", "aggregate what is in the table"),
    ("select id from records having id > 1", "HAVING", "WHERE"),
    ("select id from records order by id", "ORDER BY", "leave it out"),
    ("select id from records limit 1", "LIMIT", "leave it out"),
    ("select id from records cluster by id", "DISTRIBUTE BY is not supported", "queries.md"),
    ("select distinct id from records", "DISTINCT", "upsert table"),
    ("select id from records union select id from records", "UNION", "two tables"),
    ("select id from records tablesample (1 percent)", "TABLESAMPLE", "WHERE"),
    ("select /*+ broadcast(r) */ id from records r", "a hint", "leave it out"),
    ("from records |> where b", "a pipe", "where"),
    ("select id from records as r(x, y)", "names of columns behind an alias", "as NAME"),
    ("select transform(id) using 'cat' from records", "a script", "functions"),
    ("select (select 1) as x from records", "a sub-query as a value", "columns, literals and functions"),
    ("select id from records where id in (select 1)", "a sub-query after IN", "columns, literals and functions"),
    ("select id from records where exists (select 1)", "a sub-query after EXISTS", "columns, literals and functions"),
    ("select row_number() over (order by id) as x from records", "a window", "columns, literals and functions"),
    ("select :p as x from records", "a parameter", "columns, literals and functions"),
    ("select identifier('id') as x from records", "IDENTIFIER", "columns, literals and functions"),
    ("select name:a as x from records", "a path of a variant", "columns, literals and functions"),
    ("select name collate utf8_lcase as x from records", "a collation", "columns, literals and functions"),
]
_NOT_ALLOWED = [
    ("now()", "`now`", "_timestamp"),
    ("current_timestamp()", "`current_timestamp`", "_timestamp"),
    ("current_date", "current_date", "_timestamp"),
    ("user", "current_user", "_timestamp"),
    ("date'today'", "another time at every run", "_timestamp"),
    ("timestamp 'now'", "another time at every run", "_timestamp"),
    ("cast('now' as timestamp)", "another time at every run", "_timestamp"),
    ("uuid()", "`uuid`", "_offset"),
    ("rand()", "`rand`", "hash"),
    ("monotonically_increasing_id()", "`monotonically_increasing_id`", "_offset"),
    ("reflect('java.lang.System', 'exit')", "`reflect`", "queries.md"),
    ("java_method('java.lang.System', 'exit')", "`java_method`", "queries.md"),
    ("input_file_name()", "`input_file_name`", "queries.md"),
    ("raise_error('x')", "`raise_error`", "WHERE"),
    ("lowr(name)", "`lowr`", "did you mean `lower`"),
    ("a.b.lower(name)", "`a.b.lower`", "queries.md"),
    ("repeat(name, 2000000000)", "a count", "10000"),
    ("repeat(name, i)", "a count", "10000"),
    ("rpad(name, 20000, '.')", "a count", "10000"),
    ("space(99999)", "a count", "10000"),
    ("format_number(x, i)", "a count", "10000"),
    ("array_insert(tags, -99999, name)", "a count", "10000"),
    ("sequence(1, 1000000000)", "`sequence`", "array(1, 2, 3)"),
    ("map_from_entries(array(struct(name, i)))", "makes a map", "array(struct(key, value))"),
    ("size(str_to_map(upper(name)))", "makes a map", "from_json"),
    ("naem", "unknown column `naem`", "did you mean `name`"),
    ("addr.citi", "unknown field `citi`", "did you mean `city`"),
    ("name + b", "data type mismatch", "cast the value"),
    ("explode(name)", "data type mismatch", "cast the value"),
    ("lower(u)", "uuid or fixed", "select the field as it is"),
    ("cast(f as string)", "uuid or fixed", "select the field as it is"),
    ("null", "no type for the column `c`, whose type is VOID", "cast(null as string)"),
    ("ts - ts", "whose type is INTERVAL DAY TO SECOND", "timestampdiff"),
    ("interval 1 month", "whose type is INTERVAL MONTH", "timestampdiff"),
    ("parse_json(name)", "whose type is VARIANT", "get_json_object"),
    ("array()", "whose type is ARRAY<VOID>", "cast it"),
]


@pytest.mark.parametrize(("text", "says", "remedy"), _NOT_RECORDS)
def test_what_is_not_one_select_of_records_is_refused(catalyst: Catalyst, text: str, says: str, remedy: str) -> None:
    error = _refusal(catalyst, text)
    assert says in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(("text", "says", "remedy"), _NOT_ALLOWED)
def test_an_expression_that_is_not_allowed_is_refused(catalyst: Catalyst, text: str, says: str, remedy: str) -> None:
    error = _refusal(catalyst, f"select {text} as c from records")
    assert says in error.message
    assert remedy in error.remedy


#: Queries that are refused, and what becomes of each by its remedy.
_MENDED = {
    "select * from orders": "select * from records",
    "create table t (a int)": "select * from records",
    "select id frm records": "select id from records",
    "select id as e-mail from records": "select id as `e-mail` from records",
    "select zzz from records": "select tags from records",
    "select naem from records": "select name from records",
    "select lowr(name) as n from records": "select lower(name) as n from records",
    "select lower(name) from records": "select lower(name) as n from records",
    "select id, i as id from records": "select id, i as j from records",
    "select id, i as `_Deleted` from records": "select id, i as deleted from records",
    f"select id as {'n' * 256} from records": f"select id as {'n' * 255} from records",
    "select named_struct('a', id, 'A', i) as s from records": "select named_struct('a', id, 'b', i) as s from records",
    "select explode(name) as x from records": "select explode(cast(split(name, ',') as array<int>)) as x from records",
    "select posexplode(tags) as (x) from records": "select posexplode(tags) as (p, x) from records",
    "select current_date as d from records": "select _timestamp as d from records",
    "select now() as d from records": "select _timestamp as d from records",
    "select cast('today' as date) as d from records": "select cast(_timestamp as date) as d from records",
    "select uuid() as u from records": "select concat_ws('-', _topic, _partition, _offset) as u from records",
    "select rand() as r from records": "select hash(_partition, _offset) as r from records",
    "select max(id) as m from records": "select id as m from records",
    "select raise_error('x') as c from records": "select id from records where i > 0",
    "select inline(items) from records": "select e.* from records lateral view explode(items) t as e",
    "select json_tuple(name, 'a') as a from records": "select get_json_object(name, '$.a') as a from records",
    "select reflect('a', 'b') as c from records": "select upper(name) as c from records",
    "select space(99999) as s from records": "select space(9999) as s from records",
    "select sequence(1, 3) as s from records": "select array(1, 2, 3) as s from records",
    "select lower(u) as u from records": "select u from records",
    "select null as n from records": "select cast(null as string) as n from records",
    "select ts - _timestamp as l from records": "select timestampdiff(second, _timestamp, ts) as l from records",
    "select parse_json(name) as v from records": "select get_json_object(name, '$.v') as v from records",
    "select map(name, i) as m from records": "select array(struct(name, i)) as m from records",
    "select array() as a from records": "select cast(array() as array<string>) as a from records",
    f"select {'- ' * 300}id as n from records": f"select {'- ' * 100}n as n from (select {'- ' * 100}id as n from records)",
    "select id from records where id in (select 1)": "select id from records where id in (1, 2)",
}


@pytest.mark.parametrize("broken", _MENDED)
def test_a_refused_query_is_accepted_once_its_remedy_is_done(catalyst: Catalyst, broken: str) -> None:
    assert _refusal(catalyst, broken).remedy
    assert _query(catalyst, _MENDED[broken]).columns


def test_a_refusal_says_where_in_the_query_it_is(catalyst: Catalyst) -> None:
    assert _refusal(catalyst, "select id,\n  naem from records").where == "line 2, column 3 of the query"
    assert _refusal(catalyst, "select id, now() as n from records").where == "line 1, column 12 of the query"
    assert _refusal(catalyst, "select id frm records").where.startswith("line 1, column 1")


def test_columns_need_names_of_their_own(catalyst: Catalyst) -> None:
    unnamed = _refusal(catalyst, "select id, lower(name) from records")
    assert (unnamed.message, unnamed.remedy) == ("the column `lower(name)` has no name", "write `lower(name) as NAME`")
    twice = "the query has two columns `id`"
    assert _refusal(catalyst, "select id, i as id from records").message == twice
    assert _refusal(catalyst, "select * from records lateral view explode(tags) t as id").message == twice


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("i as _file", "the name of one of Iceberg's metadata columns"),
        ("i as `_POS`", "the name of one of Iceberg's metadata columns"),
        ("i as _partition", "the name of one of Iceberg's metadata columns"),
        ("named_struct('a', i, 'A', id) as s", "the members `a` and `A`, which differ only in letter case"),
        ("array(named_struct('x', named_struct('ß', i, 'ẞ', id))) as s", "the members `ß` and `ẞ`"),
        ("from_json(name, 'map<string, struct<k: int, K: int>>') as s", "the members `k` and `K`"),
        (f"named_struct('{'ü' * 128}', i) as s", "has 256 bytes, and a column's name has 255 at most"),
    ],
)
def test_names_that_no_table_can_have_are_refused_at_every_depth(catalyst: Catalyst, column: str, says: str) -> None:
    assert says in _refusal(catalyst, f"select id, {column} from records").message


def test_metadata_keeps_its_name_in_a_query(catalyst: Catalyst) -> None:
    assert list(_columns(_query(catalyst, "select id, _partition from records"))) == ["id", "_partition"]


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
    found = _query(catalyst, "select cast(name as int) as a, timestamp'2020-01-01 00:00:00' as t from records").program
    assert found is not None
    (stage,) = found.stages
    assert isinstance(stage, Project)
    (_, cast), (_, moment) = stage.columns
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
    assert "cast the value" in _refusal(catalyst, "select date_add(d, id) as e from records").remedy
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
        found = _columns(_query(light_catalyst, "select cast(name as int) as a, hour(ts) as h from records"))
        assert found == {"a": "Cast(name, int32)", "h": "Hour(ts)"}
        assert _refusal(light_catalyst, "select naem from records").remedy == "did you mean `name`?"
    finally:
        light.close()


def test_a_condition_becomes_a_filter_with_its_name(catalyst: Catalyst) -> None:
    found = analyse_condition(catalyst, "price >= 0 and addr.city is not null", RECORDS, "filter")
    assert found.stage is not None
    assert found.stage.name == "filter"
    assert _shown(found.stage.condition) == (
        "And(GreaterThanOrEqual(price, Cast(Cast(0, decimal128(1, 0)), decimal128(10, 2))), "
        "IsNotNull(GetStructField(addr, ordinal=0)))"
    )
    assert found.sources == {("price",), ("addr", "city")}
    outside = analyse_condition(catalyst, "exists(tags, t -> t = 'a')", RECORDS, "filter")
    assert outside.stage is None
    assert outside.outside is not None


def test_a_refused_condition_is_accepted_once_its_remedy_is_done(catalyst: Catalyst) -> None:
    with pytest.raises(SpecError) as caught:
        analyse_condition(catalyst, "*", RECORDS, "filter")
    assert caught.value.remedy == "write an expression, such as `amount > 0`"
    assert analyse_condition(catalyst, "id > 0", RECORDS, "filter").stage


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name", "is not a boolean"),
        ("null", "is not a boolean"),
        ("id >", "Syntax error"),
        ("id > 1; drop table x", "Syntax error"),
        ("*", "is no condition"),
        ("id as x", "is no condition"),
        ("count(*) > 1", "`count`"),
        ("explode(tags)", "generator"),
        ("exists (select 1)", "a sub-query"),
        ("kindd = 'a'", "unknown column `kindd`"),
        ("ts < now()", "`now`"),
        ("ts < timestamp'now'", "another time"),
    ],
)
def test_what_is_no_condition_is_refused(catalyst: Catalyst, text: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        analyse_condition(catalyst, text, RECORDS, "filter")
    assert says in caught.value.message


def test_steps_are_a_query_that_spark_takes(catalyst: Catalyst) -> None:
    steps = Steps(
        rename={("name",): "full name", ("addr", "city"): "town"},
        drop_fields=[("u",), ("f",), ("addr", "geo")],
        keep_fields=[("id",), ("full name",), ("addr",), ("price",)],
        cast={("price",): DecimalType(12, 1), ("addr", "town"): BinaryType()},
        add_fields={"origin": "it's \\ `here`", "topic": "_topic", "level": 3},
        filter="`full name` is not null and _offset > 5",
    )
    found = analyse(catalyst, "select * from records", RECORDS, steps=compile_steps(steps, _FIELDS).sql)
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
    assert [getattr(stage, "name", "") for stage in found.program.stages] == ["", "filter", "", ""]


def test_a_field_with_the_name_of_a_piece_of_metadata_is_refused() -> None:
    fields = [NestedField(1, "id", StringType()), NestedField(2, "_topic", StringType())]
    with pytest.raises(SpecError, match="the records have a field `_topic`") as caught:
        with_metadata(Schema(*fields))
    assert caught.value.remedy == "leave the field out: `exclude: [_topic]`"
    assert with_metadata(Schema(fields[0])).find_field("_topic").required
