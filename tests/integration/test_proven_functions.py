"""Every function of the table of proven functions, over edge values, gives what Spark gives: values bit by bit, nulls,
types, which rows fail, and by which error class.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from frazil.queries.kernels.text import lower, upper
from frazil.runtime.jvm import Jvm
from tests.integration.edges import SCHEMA, edge_rows
from tests.integration.expressions import expressions
from tests.integration.judge import Difference, Judge, plain

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.timeout(300),
    # PySpark's `toArrow` leaves its socket to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ROWS = 100

COMPARED = [
    f"{one} {sign} {other}"
    for one, other in (("i", "j"), ("l", "k"), ("d", "e"), ("f", "f"), ("c", "g"), ("s", "t"), ("a", "b"), ("dt", "du"),
                       ("ts", "tu"), ("tn", "tn"), ("raw", "raw"), ("i", "l"), ("c", "i"), ("d", "i"))
    for sign in ("=", "<", "<=>", ">=")
]  # fmt: skip
CONDITIONS = """
    a and b; a or b; not a; a is true; a is not false; i <> j; i > j; d <= e; i in (1, 2); i in (1, null, j);
    s in ('a', t); i not in (1, 2, null); d in (0.0D, double('NaN')); i between j and 10; s is null; st is not null;
    isnan(d); isnan(f); case when a then i when b then j else 0 end; case when a then s end;
    case i when 1 then 'one' when 2 then 'two' else s end; if(a, d, e); if(a, li, null); coalesce(i, j, 0);
    coalesce(s, t); coalesce(i, l); nvl(c, g); nvl2(s, i, j); nullif(i, 1); nullif(s, 'a'); if(a, st, null);
    coalesce(li, array(i)); case when i > 0 then st else null end; a and cast(n as int) > 0; a or cast(n as int) > 0;
    cast(n as int) > 0 and a; cast(n as int) > 0 or a; if(a, cast(n as int), 0); if(cast(n as boolean), i, j);
    coalesce(i, cast(n as int)); coalesce(cast(n as int), i); i in (0, cast(n as int)); cast(n as int) in (1, 2);
    case when a then 1 when cast(n as int) > 1 then 2 else i / j end; null and cast(n as int) > 0;
    i + cast(n as int); cast(n as int) + i; concat(s, string(cast(n as int))); s is null and i / j > 0;
    equal_null(i, j); zeroifnull(i); nullifzero(j); cast(n as int) <=> i; cast(n as int) % j; cast(n as double) / e;
    isnull(cast(n as int)); if(i > 0, 1/i, 0); cast('1' as int) + i
"""
ARITHMETIC = """
    i + j; i - j; i * j; l + k; l - k; l * k; d + e; d - e; d * e; c + g; c - g; c * g; c + h; c * i; i / j; d / e;
    l / k; i % j; l % k; d % e; pmod(i, j); pmod(l, k); pmod(d, e); -i; -l; -d; -c; +i; abs(i); abs(l); abs(d);
    abs(c); round(c); round(c, 1); round(h, 3); round(h, 0); round(i); round(l, 2); try_add(i, j);
    try_subtract(l, k); try_multiply(i, j); try_multiply(l, k); try_divide(i, j); try_divide(cast(n as int), j);
    try_mod(i, j); try_mod(cast(n as int), j); i + 1; 1 - i; 2 * l; l * -1; -1 * l; 10 / i; c + 1.5; c * 2; 100 % i; i + l;
    l + 1 + 2; 5 + l + -7; i * 2 * 3; i + 2147483647 + j + -2147483647; l * 4 + 1 - 3; i + (j + 2) + 3; l + 1; d * 2;
    i / 2; h + c; c - 99999999.99; i * 1000000; l - 9223372036854775807; if(j <> 0, i / j, null); null / j; i / null;
    cast(null as int) + j
"""
CASTS = """
    cast(n as int); cast(n as bigint); cast(n as double); cast(n as boolean); cast(n as decimal(10, 2));
    cast(n as decimal(38, 18)); cast(n as decimal(38, 0)); cast(n as decimal(5, 4)); cast(s as int);
    cast(s as boolean); to_date(w); to_timestamp(w); to_date(ts); to_timestamp(dt); try_to_date(w);
    try_to_timestamp(w); try_to_timestamp(dt); dt > date'+10000-01-01'; ts < timestamp'+10000-01-01 00:00:00';
    try_cast(n as int); try_cast(n as bigint); try_cast(n as double); try_cast(n as boolean);
    try_cast(n as decimal(4, 1)); try_cast(w as date); try_cast(w as timestamp); cast(w as date);
    cast(w as timestamp); cast(s as binary); cast(raw as binary); cast(i as bigint); cast(i as double);
    cast(i as decimal(10, 0)); cast(i as decimal(5, 2)); cast(i as string); cast(l as int); cast(l as double);
    cast(l as decimal(20, 0)); cast(l as decimal(10, 2)); cast(l as string); cast(f as double); cast(d as int);
    cast(d as bigint); cast(c as decimal(5, 1)); cast(c as decimal(20, 4)); cast(h as decimal(10, 2));
    cast(h as decimal(38, 17)); cast(h as decimal(20, 0)); cast(c as double); cast(h as double); cast(c as string);
    cast(h as string); cast(a as int); cast(a as bigint); cast(a as string); cast(dt as string);
    cast(dt as timestamp); cast(dt as timestamp_ntz); cast(ts as date); cast(ts as string);
    cast(ts as timestamp_ntz); cast(tn as timestamp); cast(tn as date); cast(tn as string); try_cast(l as int);
    try_cast(d as int); try_cast(c as decimal(4, 2)); int(n) + 1; string(i) || 'x'; cast(0.1 as decimal(38, 18));
    cast(try_cast(n as decimal(38, 18)) as string); try_cast(n as decimal(38, 38));
    cast(cast(n as decimal(38,10)) as double)
"""
TEXT = """
    lower(s); upper(s); length(s); length(raw); char_length(t); substring(s, 1, 2); substring(s, 0, 2);
    substring(s, 2); substring(s, -2); substring(s, -5, 3); substring(s, -2, 1); substring(s, 3, 0);
    substring(s, 2, -1); substr(s, -2147483648, 2147483647); substring(s, 2147483647, 2147483647); left(s, 2);
    left(s, 0); left(s, -1); right(s, 2); right(s, 0); right(s, -3); concat(s, t); s || '-' || t; concat(s);
    concat_ws(',', s, t); concat_ws('', s, 'x', t); concat_ws('-', s); trim(s); ltrim(s); rtrim(s); btrim(s);
    trim('a' from s); trim(both 'xa ' from s); trim(leading 'a' from s); trim(trailing 'c' from s); btrim(s, ' a');
    replace(s, 'a', 'b'); replace(s, '', 'b'); replace(s, 'b'); replace(s, 'ä', '😀'); lpad(s, 5, 'xy');
    rpad(s, 5, 'xy'); lpad(s, 5); rpad(s, 0, 'x'); lpad(s, 5, ''); rpad(s, 120, 'äb'); startswith(s, 'a');
    endswith(s, 'c'); contains(s, 'b'); contains(s, ''); split_part(s, ',', 1); split_part(s, ',', 2);
    split_part(s, ',', -1); split_part(s, ',', 9); split_part(s, ',', -9); split_part(s, '', 1);
    split_part(s, 'X', 2); s like 'a%'; s like '%c'; s like '%b%'; s like 'a_c'; s like '_'; s like '%'; s like '';
    s like 'a\\\\_c'; s like 'ab!%c' escape '!'; s like '%break'; s like 'line%'; s like 'a.c'; s not like 'a%';
    s like '___'; lower(trim(upper(s))); length(trim(s)); s like '%ä%'; lower(upper(s)); upper(lower(s))
"""
TIME = """
    year(dt); month(dt); day(dt); year(ts); month(ts); day(ts); hour(ts); hour(tn); extract(year from ts);
    date_trunc('year', ts); date_trunc('quarter', ts); date_trunc('MONTH', ts); date_trunc('week', ts);
    date_trunc('day', ts); date_trunc('hour', ts); date_trunc('minute', ts); date_trunc('second', ts);
    date_trunc('millisecond', ts); date_trunc('microsecond', ts); date_trunc('no', ts); date_trunc('dd', ts);
    date_trunc('mon', ts); date_trunc('day', dt); trunc(dt, 'year'); trunc(dt, 'quarter'); trunc(dt, 'mm');
    trunc(dt, 'week'); trunc(dt, 'day'); unix_seconds(ts); unix_millis(ts); unix_micros(ts); timestamp_seconds(l);
    timestamp_seconds(i); timestamp_millis(l); timestamp_micros(l); dt = date'2026-01-01';
    ts > timestamp'2026-01-01 00:00:00'; cast(ts as date) = dt; date_trunc('week', cast(dt as timestamp))
"""
HASHES = """
    md5(s); md5(raw); sha2(s, 256); sha2(raw, 0); sha2(lower(trim(s)), 256)
"""
NESTED = """
    st.x; st.y; li[0]; li[i]; lt[1]; li[-1]; m['a']; m[s]; size(li); size(m); cardinality(lt);
    named_struct('p', i, 'q', s); struct(i, s); array(i, j); array(s, t, 'x'); array(i, 1);
    named_struct('p', named_struct('q', li)).p; st.x + 1; array(i, j)[0]; array(named_struct('p', i))[3].p;
    array(i / 0, e)[1]; named_struct('p', i / 0, 'q', j).q;
    if(size(li) > 1, li[1], null); li[0] + li[1]; array(l, k)[i]; coalesce(m['a'], i); array(d, -d, e);
    named_struct('p', d, 'q', array(f))
"""


@pytest.fixture(scope="module")
def judge(jvm: Jvm) -> Judge:
    """Spark, with the rows of edge values."""
    return Judge(jvm, edge_rows(ROWS, 25), SCHEMA)


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(";")]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, id=name)
        for name, family in {
            "comparisons": COMPARED,
            "conditions": _listed(CONDITIONS),
            "arithmetic": _listed(ARITHMETIC),
            "casts": _listed(CASTS),
            "text": _listed(TEXT),
            "time": _listed(TIME),
            "hashes": _listed(HASHES),
            "nested": _listed(NESTED),
        }.items()
    ],
)
def test_a_function_gives_what_spark_gives(judge: Judge, family: list[str]) -> None:
    _check(judge.differences(family))


def test_the_judge_sees_the_sign_of_a_zero_and_one_nan_inside_of_lists_too() -> None:
    lists = [pa.array([[float("nan"), zero], None]) for zero in (0.0, 0.0, -0.0)]
    assert plain(lists[0]) == plain(lists[1]) != plain(lists[2])
    maps = [
        pa.array([[("a", {"x": zero})]], pa.map_(pa.string(), pa.struct({"x": pa.float32()}))) for zero in (0.0, -0.0)
    ]
    assert plain(maps[0]) != plain(maps[1])


def test_expressions_made_by_chance_give_what_spark_gives(judge: Judge) -> None:
    _check(judge.differences(judge.proven(expressions(seed=25, count=40, depth=3))))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("generates_code", [False, True])
def test_many_expressions_give_what_spark_gives(jvm: Jvm, generates_code: bool) -> None:
    first, count = int(os.environ.get("FRAZIL_FIRST_SEED", "0")), int(os.environ.get("FRAZIL_QUERIES", "10"))
    for seed in range(first, first + count):
        judge = Judge(jvm, edge_rows(ROWS, seed), SCHEMA, generates_code)
        _check(judge.differences(judge.proven(expressions(seed, 250, 3))))


# Where characters and marks with a case are, without ideographs, syllables and symbols.
_SCRIPTS = (
    (0x80, 0x3000),
    (0xA640, 0xAC00),
    (0xF900, 0x13460),
    (0x16100, 0x17000),
    (0x1BC00, 0x1D000),
    (0x1D400, 0x1FC00),
)


def test_lower_and_upper_case_of_every_character_is_sparks(jvm: Jvm) -> None:
    """Also of characters that this Python does not know, and the two forms of a sigma beside them."""
    spark = jvm.gateway.jvm.org.apache.spark
    characters = [chr(one) for first, end in _SCRIPTS for one in range(first, end)]
    text = "\n".join(f"{one} A{one}Σ AΣ{one} AΣ{one}A İΣ{one}A{one}Σ" for one in characters)
    given, support = spark.unsafe.types.UTF8String.fromString(text), spark.sql.catalyst.util.CollationSupport
    for ours, theirs in ((lower, support.Lower.execBinaryICU), (upper, support.Upper.execBinaryICU)):
        found = str(theirs(given).toString()).split("\n")
        made = [ours(line) for line in text.split("\n")]
        assert [pair for pair in zip(made, found, strict=True) if pair[0] != pair[1]] == []


def _check(found: list[Difference]) -> None:
    assert not found, "\n".join(f"{one.expression}: {one.text}" for one in found)
