"""What queries over records are refused for, with what the error advises."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.queries.analysis import analyse_condition
from frazil.queries.catalyst import Catalyst
from frazil.runtime.jvm import Jvm
from tests.integration.queries import RECORDS, query_of, refusal_of

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def catalyst(jvm: Jvm) -> Catalyst:
    return Catalyst(jvm.gateway.jvm)


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
    ("select id from records limit all", "LIMIT ALL", "leave it out"),
    ("select id from records window w as (order by id)", "a window", "leave it out"),
    ("select id, x from records, lateral (select id + 1 as x)", "a join", "in FROM"),
    (f"select {'(' * 3000}id{')' * 3000} as x from records", "nested too deeply", "in FROM"),
    (
        "select id from records cluster by id",
        "DISTRIBUTE BY is not supported",
        "a query is one `select … from records`",
    ),
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
    ("reflect('java.lang.System', 'exit')", "`reflect`", "a query is one `select … from records`"),
    ("java_method('java.lang.System', 'exit')", "`java_method`", "a query is one `select … from records`"),
    ("input_file_name()", "`input_file_name`", "a query is one `select … from records`"),
    ("raise_error('x')", "`raise_error`", "WHERE"),
    ("lowr(name)", "`lowr`", "did you mean `lower`"),
    ("a.b.lower(name)", "`a.b.lower`", "a query is one `select … from records`"),
    ("repeat(name, 2000000000)", "a count", "10000"),
    ("repeat(name, i)", "a count", "10000"),
    ("rpad(name, 20000, '.')", "a count", "10000"),
    ("space(99999)", "a count", "10000"),
    ("format_number(x, i)", "a count", "10000"),
    ("array_insert(tags, -99999, name)", "a count", "10000"),
    ("sequence(1, 1000000000)", "`sequence`", "array(1, 2, 3)"),
    ("map_from_entries(array(struct(name, i)))", "makes a map", "array(struct(key, value))"),
    ("size(str_to_map(upper(name)))", "makes a map", "from_json"),
    ("transform_keys(m, (k, v) -> upper(k))", "makes a map", "from_json"),
    ("size(map(name, i))", "makes a map", "from_json"),
    ("regexp_replace(name, '(', 'x')", "'(', which is wrong: Unclosed group", "correct it"),
    ("name rlike concat('[', 'a') or upper(name) rlike '[a'", "Unclosed character class", "correct it"),
    ("split(name, '*')", "Dangling meta character", "correct it"),
    ("regexp_count(name, '(?<1>x)')", "which is wrong", "correct it"),
    ("transform(tags, one -> regexp_extract(one, 'x{2,1}', 0))", "which is wrong", "correct it"),
    ("date_format(ts, 'YYYY-MM-dd')", "the date pattern for writing 'YYYY-MM-dd', which is wrong", "`y` is the year"),
    ("to_timestamp(name, 'yyyy-MM-ddThh')", "the date pattern for reading", "`y` is the year"),
    ("to_date(name, 'DD/mm/YYYY')", "the date pattern for reading", "`y` is the year"),
    ("try_to_timestamp(name, 'e')", "the date pattern for reading", "`y` is the year"),
    ("from_unixtime(id, 'yyyy-ww')", "the date pattern for writing", "`y` is the year"),
    ("unix_timestamp(name, '{')", "the date pattern for reading", "`y` is the year"),
    ("from_utc_timestamp(ts, 'Europe/Zurick')", "the time zone 'Europe/Zurick', which is wrong", "`Europe/Zurich`"),
    ("convert_timezone('UTC', 'Mars', ts)", "the time zone 'Mars'", "`Europe/Zurich`"),
    ("naem", "unknown column `naem`", "did you mean `name`"),
    ("addr.citi", "unknown field `citi`", "did you mean `city`"),
    ("name + b", "data type mismatch", "cast the value"),
    ("explode(name)", "data type mismatch", "cast the value"),
    ("lower(u)", "uuid or fixed", "select the field as it is"),
    ("cast(f as string)", "uuid or fixed", "select the field as it is"),
    ("cast(t as string)", "no functions of the type time", "select the field as it is"),
    ("to_json(struct(t, i))", "no functions of the type time", "select the field as it is"),
    ("t > time'12:00:00'", "no functions of the type time", "select the field as it is"),
    ("cast(id as date)", "DATE_FROM_UNIX_DATE", "convert the value by a function"),
    ("cast(i as binary)", "cannot cast", "cast it to another type before"),
    ("null", "no type for the column `c`, whose type is VOID", "cast(null as string)"),
    ("ts - ts", "whose type is INTERVAL DAY TO SECOND", "timestampdiff"),
    ("interval 1 month", "whose type is INTERVAL MONTH", "timestampdiff"),
    ("parse_json(name)", "whose type is VARIANT", "get_json_object"),
    ("array()", "whose type is ARRAY<VOID>", "cast it"),
]


@pytest.mark.parametrize(("text", "says", "remedy"), _NOT_RECORDS)
def test_what_is_not_one_select_of_records_is_refused(catalyst: Catalyst, text: str, says: str, remedy: str) -> None:
    error = refusal_of(catalyst, text)
    assert says in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(("text", "says", "remedy"), _NOT_ALLOWED)
def test_an_expression_that_is_not_allowed_is_refused(catalyst: Catalyst, text: str, says: str, remedy: str) -> None:
    error = refusal_of(catalyst, f"select {text} as c from records")
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
    "select uuid() as u from records": "select concat_ws('-', _topic, _kafka_partition, _offset) as u from records",
    "select rand() as r from records": "select hash(_kafka_partition, _offset) as r from records",
    "select max(id) as m from records": "select id as m from records",
    "select raise_error('x') as c from records": "select id from records where i > 0",
    r"select name rlike '\[a' as c from records": r"select name rlike r'\[a' as c from records",
    "select date_format(ts, 'YYYY') as y from records": "select date_format(ts, 'yyyy') as y from records",
    "select from_utc_timestamp(ts, 'Mars') as l from records": "select from_utc_timestamp(ts, '+02:00') as l from records",
    "select inline(items) from records": "select e.* from records lateral view explode(items) t as e",
    "select json_tuple(name, 'a') as a from records": "select get_json_object(name, '$.a') as a from records",
    "select reflect('a', 'b') as c from records": "select upper(name) as c from records",
    "select space(99999) as s from records": "select space(9999) as s from records",
    "select sequence(1, 3) as s from records": "select array(1, 2, 3) as s from records",
    "select lower(u) as u from records": "select u from records",
    "select cast(t as string) as s from records": "select t from records",
    "select cast(id as date) as d from records": "select date_from_unix_date(cast(id as int)) as d from records",
    "select null as n from records": "select cast(null as string) as n from records",
    "select ts - _timestamp as l from records": "select timestampdiff(second, _timestamp, ts) as l from records",
    "select parse_json(name) as v from records": "select get_json_object(name, '$.v') as v from records",
    "select map(name, i) as m from records": "select array(struct(name, i)) as m from records",
    "select map_concat(m, m) as m from records": "select from_json(name, 'map<string, int>') as m from records",
    "select from_json(name, 'a int', map('mode', name)) as m from records": (
        "select from_json(name, 'a int', map('mode', 'FAILFAST')) as m from records"
    ),
    "select array() as a from records": "select cast(array() as array<string>) as a from records",
    f"select {'- ' * 300}id as n from records": f"select {'- ' * 100}n as n from (select {'- ' * 100}id as n from records)",
    "select id from records where id in (select 1)": "select id from records where id in (1, 2)",
}


@pytest.mark.parametrize("broken", _MENDED)
def test_a_refused_query_is_accepted_once_its_remedy_is_done(catalyst: Catalyst, broken: str) -> None:
    assert refusal_of(catalyst, broken).remedy
    assert query_of(catalyst, _MENDED[broken]).columns


def test_a_refusal_says_where_in_the_query_it_is(catalyst: Catalyst) -> None:
    assert refusal_of(catalyst, "select id,\n  naem from records").where == "line 2, column 3 of the query"
    assert refusal_of(catalyst, "select id, now() as n from records").where == "line 1, column 12 of the query"
    assert refusal_of(catalyst, "select id frm records").where.startswith("line 1, column 1")


def test_columns_need_names_of_their_own(catalyst: Catalyst) -> None:
    unnamed = refusal_of(catalyst, "select id, lower(name) from records")
    assert (unnamed.message, unnamed.remedy) == ("the column `lower(name)` has no name", "write `lower(name) as NAME`")
    pair = refusal_of(catalyst, "select id, POSEXPLODE_OUTER(tags) from records")
    assert pair.remedy == "write `POSEXPLODE_OUTER(tags) as (POSITION, NAME)`"
    assert len(query_of(catalyst, "select id, POSEXPLODE_OUTER(tags) as (POSITION, NAME) from records").columns) == 3
    twice = "the query has two columns `id`"
    assert refusal_of(catalyst, "select id, i as id from records").message == twice
    assert refusal_of(catalyst, "select * from records lateral view explode(tags) t as id").message == twice


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("i as ``", "a column without a name"),
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
    assert says in refusal_of(catalyst, f"select id, {column} from records").message


def test_a_refused_condition_is_accepted_once_its_remedy_is_done(catalyst: Catalyst) -> None:
    with pytest.raises(SpecError) as caught:
        analyse_condition(catalyst, "*", RECORDS, "filter")
    assert caught.value.remedy == "write an expression, such as `amount > 0`"
    assert analyse_condition(catalyst, "id > 0", RECORDS, "filter").operator


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name", "is not a boolean"),
        ("null", "is not a boolean"),
        ("id >", "Syntax error"),
        ("id > 1; drop table x", "Syntax error"),
        ("*", "is not a condition"),
        ("id as x", "is not a condition"),
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
