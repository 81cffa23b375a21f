"""Functions that Spark computes for a query give what a query of Spark's own gives, over edge values: in a job, and in the
driver.
"""

from __future__ import annotations

import pytest

from frazil.runtime.jvm import Jvm
from tests.fixtures.slices import sliced
from tests.integration.edges import SCHEMA, edge_rows
from tests.integration.judge import Judge

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.timeout(300),
    # PySpark's `toArrow` leaves its socket to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CHOSEN = """
    make_timestamp(year(dt), month(dt), day(dt), hour(ts), minute(ts), second(ts));
    make_timestamp_ntz(year(dt), month(dt), day(dt), hour(ts), minute(ts), second(ts));
    make_timestamp_ltz(year(dt), month(dt), day(dt), hour(ts), minute(ts), second(ts));
    try_make_timestamp(year(dt), month(dt), day(dt), hour(ts), minute(ts), second(ts)); width_bucket(d, 0.0D, 10.0D, 5);
    overlay(s, 'xx', 2); overlay(s placing 'xx' from 2); variant_get(try_parse_json(s), '$.a', 'int');
    try_variant_get(try_parse_json(n), '$', 'double'); cast(try_parse_json(n) as string); cast(parse_json(n) as string);
    to_json(try_parse_json(n)); decode(raw, 'utf-8'); format_string('%s-%d', s, i); printf('%s', s); elt(2, s, t);
    find_in_set(s, 'a,b,c'); arrays_zip(li, lt); transform_values(m, (k, v) -> v + 1);
    map_zip_with(m, m, (k, x, y) -> x + y); array_sort(li, (x, y) -> y - x);
    aggregate(li, 0, (x, y) -> x + y, x -> x * 2); reduce(li, 0, (x, y) -> x + y); from_csv(s, 'a string, b int');
    to_csv(struct(i, s)); to_json(struct(i, s, dt, ts)); to_json(m); s like any ('a%', '%b'); s like all ('a%', '%c');
    s rlike '^[a-z]+$'; s ilike 'A%'; regexp_replace(s, '(.)b', '$1-'); split(s, ','); split(s, '');
    date_format(ts, 'yyyy-MM-dd''T''HH:mm:ss.SSS'); to_timestamp(w, 'yyyy-MM-dd'); to_date(w, 'yyyy-MM-dd');
    try_to_timestamp(w, 'yyyy-MM-dd HH:mm:ss'); try_to_date(w, 'yyyy-MM-dd'); unix_timestamp(w, 'yyyy-MM-dd');
    from_unixtime(l); from_unixtime(i, 'yyyy'); months_between(ts, tu); next_day(dt, 'monday'); add_months(dt, i);
    to_char(c, '999,999.99'); to_varchar(c, '999.9'); try_to_number(n, '999.99'); format_number(d, 2); conv(n, 10, 16);
    levenshtein(s, t); array_insert(li, 1, i); array_join(lt, ','); cast(st as string); cast(li as string);
    cast(m as string); cast(d as string); cast(d as decimal(10, 2)); cast(s as timestamp_ntz);
    timestampdiff(hour, ts, tu); timestampadd(month, 1, ts); dt + interval 1 month; ts + interval 1 month; hash(s, i);
    xxhash64(s, d); parse_url('https://a.b/c?d=e', 'QUERY'); bround(c, 1); getbit(i, 1);
    cast(regexp_extract(s, '([0-9a-z]+)', 1) as int) + 1; case when s rlike 'b' then cast(n as int) else 1 / i end;
    coalesce(get_json_object(s, '$.a'), s); split(s, ',')[1]; make_date(year(dt), i, 1); nullif(split(s, ',')[0], 'a');
    regexp_replace(s, nullif(lower(s), 'a'), 'z'); array_insert(li, -1, i); -h; abs(h); cast(h as int);
    try_cast(h as int); cast(h % 1 as int); from_json(s, 'a int', map('mode', 'FAILFAST')); from_json(s, 'a int');
    from_json(n, 'a int', map('allowSingleQuotes', 'false')); to_json(st); to_json(st, map('ignoreNullFields', 'false'));
    c / g; h / 3; ceil(d); floor(h); i div j; cast(h as bigint); cast(l as timestamp); cast(ts as int); date_add(dt, i);
    ts - interval 90 minutes; ts + interval 106000000 days; last_day(dt); weekofyear(dt); second(tn); unix_timestamp(ts);
    greatest(d, e, 0.0D); least(s, t); i & j; element_at(li, -1); try_element_at(li, 9); array_contains(lt, s);
    translate(s, 'aa', 'xy'); locate('b', s, 2); sha2(s, 512); hex(raw); base64(raw); crc32(s); greatest(i, cast(n as int))
"""
# One for each of the other functions.
EACH = """
    acos(s); acosh(s); add_months(s, 'a'); aggregate(li, 1, 2); array(lt, li); array_append(li, i); array_compact(li);
    array_distinct(li); array_except(li, li); array_intersect(li, li); array_join(lt, s); array_max(li); array_min(li);
    array_position(li, i); array_prepend(li, i); array_remove(li, i); array_repeat(s, 2); array_sort(li);
    array_union(li, li); arrays_overlap(li, li); arrays_zip(li); ascii(d); asin(s); asinh(s); atan(s); atan2(s, 'a');
    atanh(s); between('Europe/Berlin', 'Asia/Tokyo', tn); bin(s); bit_count(i); bit_get(i, j); bit_length(s); boolean(d);
    bround(s); btrim(d); cbrt(s); ceil(s, 2); ceiling(s, 2); char(s); char_length(d); character_length(d); chr(s);
    coalesce(lt, li); concat(); concat_ws(s); contains(s, i); conv(s, 'a', 'b'); convert_timezone(s, 'a', 'b'); cos(s);
    cosh(s); cot(s); csc(s); date_format(s, 'a'); date_from_unix_date(s); decimal(d); decode(s, 'a');
    degrees(s); div(c, 2); double(ts); e(); elt(s, 'a'); encode(s, 'a'); endswith(s, i); equal_null(li, li);
    exists(li, x -> x > 1); exp(s); expm1(s); factorial(s); filter(li, x -> x > 1); find_in_set(s, 'a'); float(s);
    floor(s, 2); forall(li, x -> x > 1); format_string(s); from_csv(s, 'a int'); from_json(s, 'a int'); from_unixtime(s);
    from_utc_timestamp(s, 'a'); get_json_object(s, 'a'); getbit(i, j); greatest(li, li); hash(s); hypot(s, 'a');
    ifnull(lt, li); ilike(s, 'a'); in(s); initcap(s); instr(s, i); is_valid_utf8(s); json_array_length(s);
    json_object_keys(s); lcase(d); least(li, li); left(s, 'a'); len(d); length(d); levenshtein(s, 'a'); like(s, i); ln(s);
    locate(s, 'a'); log(s); log10(s); log1p(s); log2(s); lower(d); lpad(n, '999'); ltrim(d); luhn_check(s);
    make_date(s, 'a', 'b'); make_timestamp(dt); make_valid_utf8(s); map_contains_key(m, s); map_entries(m);
    map_filter(m, (k, v) -> v > 1); map_keys(m); map_values(m); map_zip_with(m, m, (k, x, y) -> x); mask(s); mod(c, 2);
    monthname(s); months_between(s, 'a'); nanvl(s, 'a'); next_day(s, 'a'); nullif(li, li); nvl(lt, li);
    nvl2('Europe/Berlin', 'Asia/Tokyo', tn); octet_length(d); overlay(s, 'a', 'b'); parse_url(s, 'a'); pi(); pmod(c, 2);
    position(s, 'a'); pow(s, 'a'); power(s, 'a'); printf(s); quote(s); radians(s); reduce(li, 1, 2); regexp(s, 'a');
    regexp_count(s, 'a'); regexp_extract(s, 'a'); regexp_extract_all(s, 'a'); regexp_instr(s, 'a'); regexp_like(s, 'a');
    regexp_replace(s, 'a', 'b'); regexp_substr(s, 'a'); repeat(n, '999'); replace(s, i); reverse(d); right(s, 'a');
    rint(s); rlike(s, 'a'); round(s); rpad(n, '999'); rtrim(d); sec(s); sha2(s, 'a'); shiftleft(s, 'a');
    shiftright(s, 'a'); shiftrightunsigned(s, 'a'); sin(s); sinh(s); slice(li, 1, 2); smallint(s); sort_array(li);
    soundex(s); split(s, 'a'); split_part(s, 'a', 'b'); sqrt(s); startswith(s, i); string(d); substr(s, 'a');
    substring(s, 'a'); substring_index(s, 'a', 'b'); tan(s); tanh(s); timestamp(d); timestamp_seconds(d); tinyint(s);
    to_binary(s); to_char(ts, 'yyyy-MM-dd HH:mm'); to_date(d); to_json(li); to_number(n, '999'); to_timestamp(i);
    to_timestamp_ltz(i); to_timestamp_ntz(d); to_unix_timestamp(s); to_utc_timestamp(s, 'a');
    to_varchar(ts, 'yyyy-MM-dd HH:mm'); transform(li, i); transform_values(m, s); translate(s, '[a-z]', 1); trim(d);
    trunc(s, i); try_add(s, i); try_divide(s, i); try_make_timestamp(dt); try_mod(s, i); try_multiply(s, i);
    try_parse_url(s, 'a'); try_subtract(s, i); try_to_binary(s); try_to_date(d); try_to_number(n, '999');
    try_to_timestamp(i); try_url_decode(s); try_validate_utf8(s); typeof(s); ucase(d); unbase64(s); unhex(s);
    unix_timestamp(s); upper(d); url_decode(s); url_encode(s); validate_utf8(s); xxhash64(s);
    zip_with(li, li, (x, y) -> x + y); l | k; i ^ j; ~l; sign(d); cast(i as boolean); octet_length(s); repeat(s, 3);
    reverse(s); instr(s, 'b'); position('c' in s); ascii(s); quarter(dt); dayofweek(dt); weekday(dt); dayofyear(dt);
    minute(ts); date_sub(dt, i); datediff(dt, du); dayname(dt); to_unix_timestamp(ts); unix_date(dt); sha1(s); hex(l);
    get(li, i); element_at(m, 'b'); array_size(lt); try_divide(c, g); array(i div 0, j)[1]
"""


def _differences(judge: Judge, text: str) -> list[str]:
    listed = [" ".join(one.split()) for one in text.split(";")]
    return [f"{one.expression}: {one.text}" for one in judge.differences(listed)]


@pytest.mark.parametrize("first", sliced([0, 2], 1))
def test_expressions_of_sparks_give_what_spark_gives(jvm: Jvm, first: int) -> None:
    chosen = ";".join(CHOSEN.split(";")[first::4])
    assert _differences(Judge(jvm, edge_rows(40, 25), SCHEMA, asks_spark=True), chosen) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("generates_code", [False, True])
def test_every_function_of_sparks_gives_what_spark_gives(jvm: Jvm, generates_code: bool) -> None:
    judge = Judge(jvm, edge_rows(100, 7), SCHEMA, generates_code, asks_spark=True)
    assert _differences(judge, f"{CHOSEN};{EACH}") == []
