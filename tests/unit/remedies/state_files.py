"""Pipeline files whose `merge`, `dedupe` or `mode: history` is refused, each with what they become by doing what the
remedy reports.
"""

from __future__ import annotations

from tests.unit.remedies.mended import tables

_BY_USER = "select user, count(*) as n from records group by user"
_BY_MINUTE = "select window.start as m, count(*) as n from records group by window(ts, '1 minute')"
_BOUNDS = "session_window.start as s, session_window.end as e"
_BY_SESSION = f"select user, {_BOUNDS}, count(*) as n from records group by user, session_window(ts, '5 minutes')"


def _select(query: str, settings: str = "") -> str:
    """Returns the settings of a table with a query."""
    return f'select: "{query}"{", " if settings else ""}{settings}'


_UPSERT = "mode: upsert, key_columns: [id]"
_CHANGES = f"{_UPSERT}, envelope: debezium"
_HISTORY = "mode: history, key_columns: [id]"
_WAIT = "lookup: {c: {table: a.r, on: country_code = code, take: [name], wait: 10m}}"
_NO_WAIT = "lookup: {c: {table: a.r, on: country_code = code, take: [name]}}"
STATE = [
    tables(f"{_WAIT}, on_bad_record: stop", f"{_WAIT}, on_bad_record: dead_letter", f"{_NO_WAIT}, on_bad_record: stop"),
    tables(f"{_WAIT}, dead_letters: {{topic: bad}}", f"{_NO_WAIT}, dead_letters: {{topic: bad}}", _WAIT),
    tables(f"{_WAIT}, dedupe: {{by: [id]}}", _WAIT, f"{_NO_WAIT}, dedupe: {{by: [id]}}"),
    tables(f'{_WAIT}, select: "{_BY_MINUTE}"', f'{_NO_WAIT}, select: "{_BY_MINUTE}"', f'{_WAIT}, select: "{_BY_USER}"'),
    tables(
        f"{_WAIT}, {_CHANGES}, on_bad_record: dead_letter, merge: {{n: sum, rows: count}}",
        f"{_NO_WAIT}, {_CHANGES}, merge: {{n: sum, rows: count}}",
        f"{_WAIT}, {_CHANGES}",
    ),
    tables(
        f"{_WAIT}, envelope: debezium, changelog: true, atomic: transaction",
        f"{_NO_WAIT}, envelope: debezium, changelog: true, atomic: transaction",
        f"{_WAIT}, envelope: debezium, changelog: true",
    ),
    tables("merge: {n: sum}", f"{_UPSERT}, merge: {{n: sum}}", ""),
    tables(f"{_UPSERT}, merge: {{n: summ}}", f"{_UPSERT}, merge: {{n: sum}}"),
    tables(f"{_UPSERT}, merge: [n]", f"{_UPSERT}, merge: {{amount: sum, name: latest}}"),
    tables(
        f"{_UPSERT}, columns: {{n: long}}, merge: {{n: distinct_sketch}}",
        f"{_UPSERT}, columns: {{n: binary}}, merge: {{n: distinct_sketch}}",
        f"{_UPSERT}, columns: {{n: long}}, merge: {{n: max}}",
    ),
    tables(f"{_UPSERT}, merge: count", f"{_UPSERT}, merge: {{records: count}}"),
    tables(f"{_UPSERT}, merge: {{id: sum}}", _UPSERT, "mode: upsert, key_columns: [k], merge: {id: sum}"),
    tables(
        f"{_UPSERT}, deletes: soft, merge: {{n: sum}}", f"{_UPSERT}, merge: {{n: sum}}", f"{_UPSERT}, deletes: soft"
    ),
    tables(
        f"{_UPSERT}, columns: {{n: string}}, merge: {{n: sum}}",
        f"{_UPSERT}, columns: {{n: string}}, merge: {{n: max}}",
        f"{_UPSERT}, columns: {{n: long}}, merge: {{n: sum}}",
    ),
    tables(
        f"{_UPSERT}, columns: {{tag: string}}, merge: {{tag: collect_set}}",
        f"{_UPSERT}, select: 'select id, array(tag) as tags from records', merge: {{tags: collect_set}}",
    ),
    tables(
        f"{_UPSERT}, columns: {{n: long}}, merge: {{n: count}}",
        f"{_UPSERT}, merge: {{n: count}}",
        f"{_UPSERT}, columns: {{n: long}}, merge: {{n: sum}}",
    ),
    tables(
        f"{_UPSERT}, metadata: {{offset: n}}, merge: {{n: count}}",
        f"{_UPSERT}, metadata: {{offset: n}}, merge: {{m: count}}",
    ),
    tables(
        f"{_UPSERT}, order_by: at, merge: {{at: min, n: sum}}",
        f"{_UPSERT}, order_by: at, merge: {{at: latest, n: sum}}",
        f"{_UPSERT}, order_by: other, merge: {{at: min, n: sum}}",
    ),
    tables(
        f"{_UPSERT}, order_by: at, merge: {{n: first}}",
        f"{_UPSERT}, merge: {{n: first}}",
        f"{_UPSERT}, order_by: at, merge: {{n: min}}",
    ),
    tables(
        f"{_UPSERT}, merge: {{n: latest by at, at: sum}}",
        f"{_UPSERT}, merge: {{n: latest by at, at: max}}",
        f"{_UPSERT}, merge: {{n: latest by at}}",
    ),
    tables(f"{_CHANGES}, merge: {{n: max, rows: count}}", f"{_CHANGES}, merge: {{n: sum, rows: count}}"),
    tables(f"{_CHANGES}, merge: {{n: sum}}", f"{_CHANGES}, merge: {{n: sum, rows: count}}"),
    tables("mode: upsert, envelope: debezium, merge: {rows: count}", f"{_CHANGES}, merge: {{rows: count}}"),
    tables(f"{_CHANGES}, order_by: at, merge: {{rows: count}}", f"{_CHANGES}, merge: {{rows: count}}"),
    tables(
        f"{_CHANGES}, tombstones: delete, merge: {{rows: count}}",
        f"{_CHANGES}, tombstones: ignore, merge: {{rows: count}}",
        f"{_CHANGES}, merge: {{rows: count}}",
    ),
    tables(
        f"{_UPSERT}, envelope: dms, merge: {{n: sum, rows: count}}",
        f"{_UPSERT}, merge: {{n: sum, rows: count}}",
        f"{_UPSERT}, envelope: dms",
    ),
    tables(
        f"{_CHANGES}, atomic: transaction, merge: {{n: sum, rows: count}}",
        f"{_CHANGES}, merge: {{n: sum, rows: count}}",
        f"{_CHANGES}, atomic: transaction",
    ),
    tables("dedupe: {within: 24h}", "dedupe: {by: [event_id], within: 24h}"),
    tables(f"{_UPSERT}, dedupe: {{by: [n]}}", _UPSERT, "dedupe: {by: [n]}"),
    tables(
        "envelope: debezium, changelog: true, dedupe: {by: [id]}",
        "envelope: debezium, changelog: true",
        "envelope: debezium, dedupe: {by: [id]}",
    ),
    tables(
        'columns: {o: "struct<a: int>"}, dedupe: {by: [o]}',
        'columns: {o: "struct<a: int>"}, dedupe: {by: [n]}',
        'columns: {o: "struct<a: int>"}, dedupe: {by: [o.a]}',
    ),
    tables(_select(f"{_BY_USER} having n > 1"), _select(_BY_USER)),
    tables(_select("select distinct user, count(*) as n from records group by user"), _select(_BY_USER)),
    tables(_select("select user, count(*) as n from records group by rollup(user)"), _select(_BY_USER)),
    tables(_select("select user, count(*) as n from records group by all"), _select(_BY_USER)),
    tables(
        _select("select user, max(a) ignore nulls as a from records group by user"),
        _select("select user, max(a) as a from records group by user"),
    ),
    tables(_select("select user, count(*) as n from records group by 3"), _select(_BY_USER)),
    tables(_select("select user, count(*) as n from records group by user,"), _select(_BY_USER)),
    tables(
        _select("select user, count(*) as n from records group by session_window(ts, '5 minutes'), user"),
        _select(_BY_SESSION),
    ),
    tables(
        _select(f"select {_BOUNDS}, count(*) as n from records group by session_window(ts, '5 minutes')"),
        _select(_BY_SESSION),
    ),
    tables(
        _select("select user, kll_sketch_agg_bigint(a) as q from records group by user"),
        _select("select user, kll_sketch_agg_double(a) as q from records group by user"),
    ),
    tables(
        _select("select user, stddev(a) as s from records group by user"),
        _select("select user, sum(a) as s, sum(a * a) as t, count(a) as n from records group by user"),
    ),
    tables(_select(_BY_SESSION.replace("'5 minutes'", "'5 minutes', '1 minute'")), _select(_BY_SESSION)),
    tables(
        _select(_BY_SESSION.replace("count(*)", "last(a)")),
        _select(_BY_SESSION.replace("count(*)", "max(a)")),
        _select(_BY_SESSION.replace("count(*)", "collect_set(a)")),
    ),
    tables(
        f"{_select(_BY_SESSION)}, envelope: debezium",
        _select(_BY_SESSION),
        f"{_select(_BY_MINUTE)}, envelope: debezium",
    ),
    tables(
        _select("select count(*) as n from records group by user"),
        _select(_BY_USER),
    ),
    tables(
        _select("select count(*) as n from records group by lower(user)"),
        _select("select lower(user) as user_name, count(*) as n from records group by lower(user)"),
    ),
    tables(
        _select("select lower(user) as user, count(*) as n from records group by user"),
        _select("select lower(user) as user, count(*) as n from records group by lower(user)"),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts)"),
        _select(_BY_MINUTE),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts, '1 minute', '2 minutes')"),
        _select("select window.start as m, count(*) as n from records group by window(ts, '2 minutes', '1 minute')"),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts, '1 day', '1 second')"),
        _select("select window.start as m, count(*) as n from records group by window(ts, '1 day', '1 hour')"),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts, '1 month')"),
        _select("select date_trunc('month', ts) as m, count(*) as n from records group by date_trunc('month', ts)"),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts, '1 minuet')"),
        _select(_BY_MINUTE),
    ),
    tables(
        _select("select window.start as m, count(*) as n from records group by window(ts, 'minute')"),
        _select(_BY_MINUTE),
    ),
    tables(
        _select(
            "select window.start as m, count(*) as n from records group by window(ts, '1 minute'), window(at, '1 day')"
        ),
        _select(_BY_MINUTE),
    ),
    tables(
        _select("select window, count(*) as n from records group by window(ts, '1 minute')"),
        _select(_BY_MINUTE),
    ),
    tables(
        _select("select count(*) as n from records group by window(ts, '1 minute')"),
        _select(_BY_MINUTE),
    ),
    tables(
        _select("select user, sum(a) / count(*) as mean from records group by user"),
        _select("select user, sum(a) as total, count(*) as n from records group by user"),
    ),
    tables(
        _select("select user, name, count(*) as n from records group by user"),
        _select("select user, name, count(*) as n from records group by user, name"),
        _select("select user, first(name) as name, count(*) as n from records group by user"),
    ),
    tables(_select("select user, count(*) from records group by user"), _select(_BY_USER)),
    tables(
        _select("select lower(user), count(*) as n from records group by lower(user)"),
        _select("select lower(user) as user_name, count(*) as n from records group by lower(user)"),
    ),
    tables(
        _select("select user, median(a) as n from records group by user"),
        _select("select user, avg(a) as n from records group by user"),
    ),
    tables(
        _select("select user, count(distinct a) as n from records group by user"),
        _select("select user, collect_set(a) as n from records group by user"),
    ),
    tables(
        _select("select user, sum(a, b) as n from records group by user"),
        _select("select user, sum(a) as n from records group by user"),
    ),
    tables(
        _select("select user, first(a) filter (where b) as n from records group by user"),
        _select("select user, first(if(b, a, null), true) as n from records group by user"),
    ),
    tables(
        _select("select user from records group by user"),
        _select(_BY_USER),
        "mode: upsert, key_columns: [user]",
    ),
    tables(
        _select("select user, avg(a) as a, sum(a) as a_sum from records group by user"),
        _select("select user, avg(a) as a, sum(a) as total from records group by user"),
    ),
    tables(
        _select("select user, hll_sketch_agg(a) as s from records group by user"),
        _select("select user, theta_sketch_agg(a) as s from records group by user"),
        _select("select user, approx_count_distinct(a) as s from records group by user"),
    ),
    tables(_select(_BY_USER, "mode: append"), _select(_BY_USER), "mode: append"),
    tables(_select(_BY_USER, "mode: upsert, key_columns: [id]"), _select(_BY_USER), "mode: upsert, key_columns: [id]"),
    tables(_select(_BY_USER, "tombstones: delete"), _select(_BY_USER, "tombstones: ignore")),
    tables(_select(_BY_USER, "order_by: at"), _select(_BY_USER)),
    tables("late: 7d", _select(_BY_MINUTE, "late: 7d"), ""),
    tables(_select(_BY_USER, "late: 7d"), _select(_BY_MINUTE, "late: 7d"), _select(_BY_USER)),
    tables(_select(_BY_MINUTE, "late: {else: drop}"), _select(_BY_MINUTE, "late: {after: 7d, else: drop}")),
    tables(
        _select(_BY_MINUTE, "late: 7d, envelope: debezium"),
        _select(_BY_MINUTE, "envelope: debezium"),
    ),
    tables(_select(_BY_MINUTE, "emit: closed"), _select(_BY_MINUTE, "late: 1h, emit: closed"), _select(_BY_MINUTE, "")),
    tables(
        _select(_BY_MINUTE, "late: 7d, emit: closed, tags: {daily: {at: '00:00 UTC', keep: 30d}}"),
        _select(_BY_MINUTE, "late: 7d, emit: closed, publish: {every: 10s}"),
        _select(_BY_MINUTE, "late: 7d, tags: {daily: {at: '00:00 UTC', keep: 30d}}"),
    ),
    tables("track: [n]", f"{_HISTORY}, track: [n]", ""),
    tables(f"{_HISTORY}, merge: {{n: sum}}", _HISTORY, f"{_UPSERT}, merge: {{n: sum}}"),
    tables(f"{_HISTORY}, dedupe: {{by: [n]}}", _HISTORY, "dedupe: {by: [n]}"),
    tables(f"{_HISTORY}, deletes: soft", _HISTORY),
    tables(f"{_HISTORY}, track: [id, n]", f"{_HISTORY}, track: [n]"),
    tables(f"{_HISTORY}, metadata: [offset], order_by: _offset", _HISTORY),
    tables(
        f"{_HISTORY}, columns: {{at: long}}, order_by: at",
        f"{_HISTORY}, columns: {{at: timestamptz}}, order_by: at",
        f"{_HISTORY}, columns: {{at: long}}",
    ),
    tables(
        f"{_HISTORY}, envelope: debezium, order_by: at",
        f"{_HISTORY}, envelope: debezium, metadata: [source_ts], order_by: _source_ts",
        f"{_HISTORY}, envelope: debezium",
    ),
    tables("metadata: [valid_from]", f"{_HISTORY}, metadata: [valid_from]", ""),
]
