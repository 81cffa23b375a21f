"""Pipeline files whose `merge`, `dedupe` or `mode: history` is refused, each with what they become by doing what the
remedy reports.
"""

from __future__ import annotations

from tests.unit.remedies.mended import tables

_UPSERT = "mode: upsert, key_columns: [id]"
_CHANGES = f"{_UPSERT}, envelope: debezium"
_HISTORY = "mode: history, key_columns: [id]"
STATE = [
    tables("merge: {n: sum}", f"{_UPSERT}, merge: {{n: sum}}", ""),
    tables(f"{_UPSERT}, merge: {{n: summ}}", f"{_UPSERT}, merge: {{n: sum}}"),
    tables(f"{_UPSERT}, merge: [n]", f"{_UPSERT}, merge: {{amount: sum, name: latest}}"),
    tables(f"{_UPSERT}, merge: {{n: distinct_sketch}}", f"{_UPSERT}, merge: {{n: collect_set}}"),
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
