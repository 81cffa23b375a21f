"""Cases of a pipeline: what passes, what differs and how it is shown, for every format and kind of table."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil_testing.compare import UNMADE_REMEDY
from packages.testing.tests.unit.conftest import HEAD, ORDERS, Play, is_well, shown

AVRO = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
  {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": null},
  {"name": "note", "type": ["null", "long", "string"], "default": null},
  {"name": "tags", "type": {"type": "array", "items": "string"}},
  {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
  {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "k", "type": "Kind"}]}],
   "default": null}]}"""
KEY = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'
PROTO = """syntax = "proto3";
package shop;
message Other { int32 a = 1; }
message Order { int64 id = 1; message Line { int32 n = 1; } repeated Line lines = 2; }
"""
ENVELOPE = """{"type": "record", "name": "Envelope", "fields": [
  {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": null}]}]},
  {"name": "after", "type": ["null", "Value"]},
  {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
    {"name": "connector", "type": "string"}, {"name": "name", "type": "string"}, {"name": "table", "type": "string"},
    {"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": "long"}]}},
  {"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}]}"""


def test_rows_are_compared_by_value_in_any_order_and_columns_that_are_not_named_are_not(play: Play) -> None:
    cases = """table: shop.orders
cases:
  two orders:
    records:
      - value: {id: 1, amount: "12.50", at: 2026-01-01T10:00:00Z, tags: [a, b]}
      - value: {id: 2, amount: 7, more: {x: 1, y: [1]}}
      - {json: '{"id": 3, "amount": 7.10}'}
    rows:
      - {id: 3, amount: 7.1, at: null}
      - {id: 2, amount: 7, more: {x: 1}}
      - {id: 1, amount: 12.5, at: "2026-01-01T11:00:00+01:00", tags: [a, b]}
"""
    assert is_well(play(cases))


def test_records_have_any_timestamp_of_kafka_or_none(play: Play) -> None:
    pipeline = f"{HEAD}tables: {{shop.orders: {{topic: orders, metadata: [timestamp]}}}}"
    cases = """cases:
  times:
    records:
      - {value: {id: 1}, timestamp: 0}
      - {value: {id: 2}, timestamp: -1}
      - {value: {id: 3}, timestamp: -62135596800000}
      - {value: {id: 4}, timestamp: 2026-01-31T12:00:00+02:00}
    rows:
      - {id: 1, _timestamp: 1970-01-01T00:00:00Z}
      - {id: 2, _timestamp: null}
      - {id: 3, _timestamp: 0001-01-01T00:00:00Z}
      - {id: 4, _timestamp: 2026-01-31T10:00:00Z}
"""
    assert is_well(play(cases, pipeline))


@pytest.mark.parametrize("written", ["raw", "text"])
def test_keys_have_exact_bytes_too(play: Play, written: str) -> None:
    pipeline = f"{HEAD}tables: {{shop.orders: {{topic: orders, metadata: [key], key: {{format: {written}}}}}}}"
    cases = """cases:
  keys:
    records: [{value: {id: 1}, key: {hex: "6b00"}}, {value: {id: 2}, key: k}, {value: {id: 3}, key: {hex: "ff"}}]
    rows: [{id: 1, _key: "k\\0"}, {id: 2, _key: k}ROW]
    dead_letters: [DEAD]
"""
    row, dead_letter = (", {id: 3, _key: /w==}", "") if written == "raw" else ("", "{offset: 2, path: _key}")
    assert is_well(play(cases.replace("ROW", row).replace("DEAD", dead_letter), pipeline))


def test_each_difference_is_shown_by_column_with_the_line_of_what_is_expected(play: Play) -> None:
    cases = """table: shop.orders
cases:
  differs:
    records:
      - value: {id: 1, amount: 12.5, tags: [a]}
      - value: {id: 2, amount: abc}
      - value: {id: 3, amount: 1}
    rows:
      - {id: 1, amount: 12.6, tags: [a, b], amountt: 1}
      - {id: 9}
    dropped: {where: 1}
"""
    (verdict,) = play(cases)
    assert shown([verdict]) == [
        (
            "row 1 of shop.orders",
            [
                ("amount", "12.6", '"12.50"'),
                ("tags", '["a","b"]', '["a"]'),
                ("amountt", "1", "no such column; did you mean `amount`?"),
            ],
        ),
        ("row 2 of shop.orders", [("id", "9", "3")]),
        (
            'unexpected dead letter of shop.orders: type_mismatch at amount: string "abc" cannot be read as decimal(12, 2)',
            [],
        ),
        ("records of shop.orders dropped by where", [("where", "1", "0")]),
    ]
    assert [difference.where for difference in verdict.differences] == [f"cases.yaml:{n}" for n in (9, 10, 6, 11)]


def test_dead_letters_are_expected_by_their_columns_and_a_message_by_a_part_of_it(play: Play) -> None:
    cases = """table: shop.orders
cases:
  bad:
    records:
      - value: {id: 1, amount: abc}
      - {text: "{"}
      - {value: null, key: x}
    rows: []
    dead_letters:
      - {offset: 0, error_class: type_mismatch, path: amount, message: "/decimal.12, 2./", value: '{"id":1,"amount":"abc"}'}
      - {error_class: malformed, offset: 1}
      - {error_class: tombstone, key: x}
"""
    assert is_well(play(cases))
    (verdict,) = play(cases.replace("error_class: tombstone", "error_class: tomb"))
    assert (verdict.error, verdict.remedy) == ("there is no class of error `tomb`", "did you mean `tombstone`?")
    (verdict,) = play(cases.replace("/decimal.12, 2./", "/decimal(12, 2/"))
    assert verdict.error.startswith("the message `/decimal(12, 2/` is not a regular expression: missing )")
    assert verdict.remedy == r"write a regular expression between the slashes, such as `/a \(b\)/`, or no slashes"
    assert is_well(play(cases.replace("/decimal.12, 2./", r"/decimal\\(12, 2\\)/")))
    (verdict,) = play(cases.replace("malformed, offset: 1", "malformed, offset: 7"))
    assert shown([verdict])[0][0].startswith("missing dead letter 2 of shop.orders")


@pytest.mark.parametrize(
    ("value", "schema", "record", "reason"),
    [
        ("{}", "", '{text: "{"}', "malformed: "),
        ("{format: text}", "", '{bytes: {hex: "ff"}}', "invalid_text: "),
        ("{format: avro}", "key.avsc", '{bytes: {hex: "0000000001"}}', "malformed at id: "),
        ("{format: avro}", "key.avsc", '{bytes: {hex: "0000000009ff"}}', "unknown_schema_id: "),
        ("{format: protobuf}", "order.proto", '{bytes: {hex: "00000000010008ff"}}', "malformed at a: "),
        ("{format: json_schema}", "order.json", '{bytes: {hex: "00000000017b"}}', "malformed: "),
    ],
)
def test_bad_records_alone_are_shown_with_their_class_and_reason(
    play: Play, folder: Path, value: str, schema: str, record: str, reason: str
) -> None:
    for name, text in (("key.avsc", KEY), ("order.proto", PROTO), ("order.json", '{"type": "object"}')):
        (folder / name).write_text(text)
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.orders: {{topic: orders, value: {value}}}
"""
    head = f"table: shop.orders\nschemas: {{value: {schema}}}\n" if schema else "table: shop.orders\n\n"
    cases = f"""{head}cases:
  bad:
    records:
      - {record}
    rows: []
    dead_letters:
      - {{error_class: {reason.replace(":", " ").split()[0]}}}
"""
    (verdict,) = play(cases, pipeline, updates=True)
    assert verdict.error.startswith(
        f"shop.orders: no record could become a row yet, so the table has no column; the first: {reason}"
    )
    assert (verdict.where, verdict.differences) == ("cases.yaml:6", ())
    assert verdict.remedy == UNMADE_REMEDY
    assert (folder / "cases.yaml").read_text() == cases
    declared = pipeline.replace("topic: orders", "topic: orders, columns: {id: long}")
    assert value == "{format: text}" or is_well(play(cases, declared))
    if schema == "order.proto":
        begun = cases.replace(f"- {record}", f"- {{value: {{}}}}\n      - {record}").replace("rows: []", "dropped: {}")
        assert is_well(play(begun, pipeline))


def test_every_format_is_written_with_the_schemas_beside_the_cases(play: Play, folder: Path) -> None:
    for name, text in (
        ("order.avsc", AVRO),
        ("key.avsc", KEY),
        ("order.proto", PROTO),
        ("order.json", '{"type": "object"}'),
    ):
        (folder / name).write_text(text)
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.avro: {{topic: avro, value: {{format: avro}}, key: {{format: avro}}, metadata: [key, headers, timestamp, offset]}}
  shop.proto: {{topic: proto, value: {{format: protobuf}}}}
  shop.message: {{topic: message, value: {{format: protobuf, message: shop.Order}}}}
  shop.described: {{topic: described, value: {{format: json_schema}}}}
  shop.plain: {{topic: plain, value: {{format: text}}}}
  shop.raw: {{topic: raw, value: {{format: raw}}}}
"""
    cases = """cases:
  avro:
    records:
      - topic: avro
        schema: order.avsc
        key_schema: key.avsc
        value: {id: 1, amount: 12.5, at: 2026-01-01T10:00:00Z, note: x, tags: [a], kind: A, inner: {k: B}}
        key: {id: 1}
        headers: {source: web}
        timestamp: 2026-02-01T00:00:00Z
        offset: 7
      - {topic: avro, bytes: {hex: "0000000063aa"}}
    rows:
      - {id: 1, amount: 12.5, at: 2026-01-01T10:00:00Z, tags: [a], kind: A, inner: {k: B}, _key: {id: 1}, note: {string: x},
         _headers: [{key: source, value: web}], _timestamp: 2026-02-01T00:00:00Z, _offset: 7}
    dead_letters: [{offset: 8, error_class: unknown_schema_id}]
  protobuf:
    records: [{topic: proto, schema: order.proto, value: {a: 5}}]
    rows: [{a: 5}]
  a message by its name:
    records: [{topic: message, schema: order.proto, value: {id: 7, lines: [{n: 1}]}}]
    rows: [{id: 7, lines: [{n: 1}]}]
  json schema:
    records: [{topic: described, schema: order.json, value: {id: 7}}]
    rows: [{id: 7}]
  text and bytes:
    records: [{topic: plain, value: a b}, {topic: plain, bytes: {base64: Yw==}}, {topic: raw, text: a}]
    rows: {shop.plain: [{value: a b}, {value: c}], shop.raw: [{value: a}]}
"""
    assert is_well(play(cases, pipeline))


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-01-01T10:00:00.123456789Z", "2026-01-01T10:00:00.123456Z"),
        ("2026-01-01T11:00:00.5+01:00", "2026-01-01T10:00:00.5Z"),
        ("1969-12-31T23:59:59.000000001Z", "1969-12-31T23:59:59Z"),
        ("2026-01-01", "2026-01-01T00:00:00Z"),
        ("1767225600123456789", "2026-01-01T00:00:00.123456Z"),
    ],
)
def test_times_in_nanoseconds_are_written_as_text(play: Play, folder: Path, written: str, stored: str) -> None:
    fields = (
        f'{{"name": "{name}", "type": {{"type": "long", "logicalType": "{kind}"}}}}'
        for name, kind in (("t", "timestamp-nanos"), ("l", "local-timestamp-nanos"))
    )
    (folder / "times.avsc").write_text(f'{{"type": "record", "name": "T", "fields": [{", ".join(fields)}]}}')
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables: {{shop.times: {{topic: times, value: {{format: avro}}, columns: {{t: timestamptz(ns), l: timestamp(ns)}}}}}}
"""
    local = written.partition("+")[0].replace("11:00", "10:00").removesuffix("Z")
    cases = f"""schemas: {{value: times.avsc}}
cases:
  times:
    records: [{{value: {{t: {written}, l: {local}}}}}]
    rows: [{{t: {stored}, l: {stored.removesuffix("Z")}}}]
"""
    assert is_well(play(cases, pipeline))
    (verdict,) = play(cases.replace(f"t: {written}, l", "t: 2026-01-01T00:00:00.1234567891Z, l"), pipeline)
    assert "a second has at most nine digits" in verdict.error


def test_numbers_that_are_not_finite_are_written_and_compared_as_yaml_has_them(play: Play, folder: Path) -> None:
    field = '{"name": "n", "type": {"type": "array", "items": "double"}}'
    (folder / "numbers.avsc").write_text(f'{{"type": "record", "name": "N", "fields": [{field}]}}')
    (folder / "numbers.proto").write_text('syntax = "proto3"; message N { repeated double n = 1; }')
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.avro: {{topic: avro, value: {{format: avro}}}}
  shop.proto: {{topic: proto, value: {{format: protobuf}}}}
"""
    for name, topic in (("numbers.avsc", "avro"), ("numbers.proto", "proto")):
        cases = f"""cases:
  infinite:
    records: [{{topic: {topic}, schema: {name}, value: {{n: [.nan, .inf, -.inf, +.Inf, -.INF, 1.5]}}}}]
    rows: [{{n: [.NaN, Infinity, -.inf, .inf, -Infinity, 1.5]}}]
"""
        assert is_well(play(cases, pipeline))
        (verdict,) = play(cases.replace("[.NaN, Infinity, -.inf", "[.NaN, Infinity, .inf"), pipeline)
        assert not verdict.is_ok


def test_changes_become_the_state_of_an_upsert_table(play: Play, folder: Path) -> None:
    (folder / "envelope.avsc").write_text(ENVELOPE)
    (folder / "key.avsc").write_text(KEY)
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.people: {{topic: db.people, envelope: debezium, mode: upsert, value: {{format: avro}}, key: {{format: avro}}}}
  shop.plain: {{topic: db.plain, envelope: debezium, mode: upsert, key_columns: [id]}}
"""
    changes = """
      - {change: {after: {id: 1, name: ann}}, key: {id: 1}}
      - {change: {before: {id: 1, name: ann}, after: {id: 1, name: anna}}, key: {id: 1}}
      - {change: {after: {id: 2, name: bob}}, key: {id: 2}}
      - {change: {before: {id: 2, name: bob}}, key: {id: 2}}
      - {value: null, key: {id: 2}}"""
    cases = f"""table: NAME
SCHEMAScases:
  the last change of a key:
    records:{changes}
    rows: [{{id: 1, name: anna}}]
    dropped: {{tombstone: 1}}
"""
    avro = cases.replace("NAME", "shop.people").replace("SCHEMAS", "schemas: {value: envelope.avsc, key: key.avsc}\n")
    assert is_well(play(cases.replace("NAME", "shop.plain").replace("SCHEMAS", ""), pipeline))
    assert is_well(play(avro, pipeline))
    (verdict,) = play(cases.replace("NAME", "shop.plain").replace("SCHEMAS", "").replace("anna}]", "ann}]"), pipeline)
    assert shown([verdict]) == [("row 1 of shop.plain (id=1)", [("name", '"ann"', '"anna"')])]


@pytest.mark.parametrize("is_insert_first", [False, True])
def test_the_parts_of_a_primary_key_update_belong_together_without_a_position(
    play: Play, is_insert_first: bool
) -> None:
    """The insert has a value that PostgreSQL does not send, which only the row of the old key has."""
    pipeline = f"""{HEAD}
tables:
  shop.people: {{topic: db.people, envelope: debezium, mode: upsert, key_columns: [id]}}
"""

    def update(old: int, new: int, name: str) -> list[str]:
        parts = [
            f"""{{change: {{before: {{id: {old}}}}}, key: {{id: {old}}}, headers: {{__debezium.newkey: {{id: {new}}}}}}}""",
            f"""{{change: {{after: {{id: {new}, name: {name}, big: __debezium_unavailable_value}}}}, key: {{id: {new}}},"""
            f""" headers: {{__debezium.oldkey: {{id: {old}}}}}}}""",
        ]
        return parts[::-1] if is_insert_first else parts

    records = [
        "{change: {after: {id: 1, name: ann, big: large}}, key: {id: 1}}",
        "{change: {after: {id: 2, name: bob, big: huge}}, key: {id: 2}}",
        *update(1, 11, "anna"),
        *update(2, 12, "bobby"),
        *update(12, 13, "rob"),
    ]
    listed = "".join(f"      - {record}\n" for record in records)
    cases = f"""table: shop.people
cases:
  two rows get other keys:
    records:
{listed}    rows:
      - {{id: 11, name: anna, big: large}}
      - {{id: 13, name: rob, big: huge}}
"""
    assert is_well(play(cases, pipeline))


def test_a_query_its_lookup_and_what_spark_computes(play: Play, queries: SparkQueries) -> None:
    pipeline = f"""{HEAD}tables:
  shop.orders:
    topic: orders
    select: >
      select id, lower(email) as email, cast(amount as decimal(12,2)) as amount, regexp_extract(line, '/(.*)', 1) as tail
      from records where kind = 'order'
  shop.visits:
    topic: visits
    lookup: {{country: {{table: ref.countries, on: "cc = code", take: [name], on_miss: drop}}}}
"""
    cases = """given: {ref.countries: [{code: CH, name: Switzerland}]}
cases:
  a query:
    records:
      - {topic: orders, value: {id: 1, email: A@X, amount: "1.5", line: a/b, kind: order}}
      - {topic: orders, value: {id: 2, email: A@X, amount: x, line: a/b, kind: order}}
      - {topic: orders, value: {id: 3, email: A@X, amount: x, line: a/b, kind: visit}}
    rows: [{id: 1, email: a@x, amount: 1.5, tail: b}]
    dead_letters: [{offset: 1, error_class: failed_expression, path: amount}]
    dropped: {where: 1}
  a lookup:
    records: [{topic: visits, value: {id: 1, cc: CH}}, {topic: visits, value: {id: 2, cc: FR}}]
    rows: [{id: 1, country: {name: Switzerland}}]
    dropped: {lookup country: 1}
"""
    verdicts = play(cases, pipeline, queries)
    assert is_well(verdicts)


def test_a_list_of_a_schema_where_a_step_leads_into_a_struct_is_a_dead_letter(
    play: Play, folder: Path, queries: SparkQueries
) -> None:
    lines = """{"name": "lines", "type": ["null", {"type": "array", "items": {"type": "record", "name": "Line",
      "fields": [{"name": "cost", "type": "long"}]}}], "default": null}"""
    for name, more in (("old.avsc", ""), ("new.avsc", f", {lines}")):
        (folder / name).write_text(
            f'{{"type": "record", "name": "O", "fields": [{{"name": "id", "type": "long"}}{more}]}}'
        )
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.orders: {{topic: orders, value: {{format: avro}}, drop_fields: [lines.cost]}}
"""
    cases = """cases:
  lines:
    records:
      - {value: {id: 1}, schema: old.avsc}
      - {value: {id: 2, lines: [{cost: 5}]}, schema: new.avsc}
      - {value: {id: 3}, schema: new.avsc}
    rows: [{id: 1}, {id: 3}]
    dead_letters: [{offset: 1, path: lines, error_class: name_conflict, message: /no step leads into the list `lines`/}]
"""
    assert is_well(play(cases, pipeline, queries))
    remedied = cases.replace("rows: [{id: 1}, {id: 3}]", "rows: [{id: 1}, {id: 2}, {id: 3}]").partition(
        "    dead_letters"
    )
    assert is_well(play(remedied[0], pipeline.replace("drop_fields: [", "exclude: [lines.element."), queries))


def test_a_query_with_group_by_is_compared_by_its_groups(play: Play, queries: SparkQueries) -> None:
    pipeline = f"""{HEAD}
tables:
  shop.minutes:
    topic: payments
    select: select user, window.start as minute, count(*) as n, avg(amount) as mean
      from records group by user, window(ts, '1 minute')
    late: 10m
"""
    cases = """table: shop.minutes
cases:
  a late payment is dropped:
    records:
      - value: {user: a, ts: 2025-12-31T10:00:01Z, amount: 1}
      - value: {user: a, ts: 2025-12-31T10:20:00Z, amount: 5}
      - value: {user: a, ts: 2025-12-31T10:00:02Z, amount: 9}
      - value: {user: a, ts: 2025-12-31T10:10:00Z, amount: 2}
    rows:
      - {user: a, minute: 2025-12-31T10:00:00Z, n: 1, mean: 1.0}
      - {user: a, minute: 2025-12-31T10:10:00Z, n: 1, mean: 2.0}
      - {user: a, minute: 2025-12-31T10:20:00Z, n: 1, mean: 5.0}
"""
    assert is_well(play(cases, pipeline, queries))


def test_records_of_a_route_and_of_topics_by_pattern_reach_several_tables(play: Play) -> None:
    pipeline = f"""{HEAD}namespace: lake
topics: [/^device-/]
routes: [{{topic: events, by: type, to: "shop.${{type}}", rest: shop.other}}]
"""
    cases = """topic: events
cases:
  by type:
    records: [{value: {type: click, a: 1}}, {value: {type: buy, b: 2}}, {value: {b: 3}}]
    rows: {shop.click: [{a: 1}], shop.buy: [{b: 2}], shop.other: [{b: 3, _offset: 2}]}
  by topic:
    records: [{topic: device-1, value: {a: 1}}, {topic: device-2, value: {b: 2}, partition: 1}]
    rows: {lake.device-1: [{a: 1}], lake.device-2: [{b: 2}]}
  by name:
    records: [{topic: device-1, value: {a: 1}}]
    rows: [{a: 1}]
"""
    assert is_well(play(cases, pipeline))


def test_uuids_are_written_as_text_whether_avro_has_them_as_text_or_as_bytes(play: Play, folder: Path) -> None:
    fixed = '{"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}'
    fields = f'{{"name": "f", "type": {fixed}}}, {{"name": "s", "type": {{"type": "string", "logicalType": "uuid"}}}}'
    (folder / "ids.avsc").write_text(f'{{"type": "record", "name": "R", "fields": [{fields}]}}')
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables: {{shop.orders: {{topic: orders, value: {{format: avro}}}}}}
"""
    ids = "{f: 123e4567-e89b-12d3-a456-426614174000, s: 123E4567-e89b-12d3-a456-426614174001}"
    cases = f"""schemas: {{value: ids.avsc}}
cases:
  ids:
    records: [{{value: {ids}}}]
    rows: [{ids}]
"""
    assert is_well(play(cases, pipeline))


def test_given_rows_have_null_in_members_that_the_records_of_the_case_add(play: Play) -> None:
    pipeline = f"{HEAD}tables: {{shop.orders: {{topic: orders}}}}"
    cases = """given: {shop.orders: [{id: 1, p: {x: 1}, l: [{x: 1}]}]}
cases:
  member:
    records: [{value: {id: 2, p: {x: 2, y: 3}, l: [{y: 3}]}}]
    rows:
      - {id: 1, p: {x: 1, y: null}, l: [{x: 1}]}
      - {id: 2, p: {x: 2, y: 3}, l: [{x: null, y: 3}]}
"""
    assert is_well(play(cases, pipeline))
    (verdict,) = play(cases.replace("y: null", "y: 7"), pipeline)
    assert shown([verdict]) == [
        ("row 1 of shop.orders", [("p", '{"x":1,"y":7}', '{"x": 1, "y": null}')]),
    ]


@pytest.mark.parametrize(
    ("first", "text"),
    [("5", "5"), ("true", "true"), ("1.50", "1.50"), ("[a]", '["a"]'), ("{a: é}", '{"a":"é"}'), ("x y", "x y")],
)
def test_the_rest_of_a_route_has_every_value_of_its_field_as_text(play: Play, first: str, text: str) -> None:
    pipeline = f"""{HEAD}
routes: [{{topic: events, by: e.type, to: "shop.${{e.type}}", rest: shop.other, limit: 1}}]
"""
    cases = f"""topic: events
cases:
  any:
    records:
      - value: {{id: 0, e: {{type: click}}}}
      - value: {{id: 1, e: {{type: {first}}}}}
      - value: {{id: 2, e: {{type: a/b}}}}
      - value: {{id: 3, E: {{Type: 7}}}}
      - value: {{id: 4, e: {{type: [1, null]}}}}
      - value: {{id: 5, e: {{type: null}}}}
    rows:
      shop.click: [{{id: 0}}]
      shop.other:
        - {{id: 1, e: {{type: '{text}'}}}}
        - {{id: 2, e: {{type: a/b}}}}
        - {{id: 3, e: {{type: "7"}}}}
        - {{id: 4, e: {{type: "[1,null]"}}}}
        - {{id: 5}}
"""
    assert is_well(play(cases, pipeline))


def test_a_table_that_stops_is_expected_to(play: Play) -> None:
    pipeline = ORDERS.replace("topic: orders", "topic: orders\n    on_bad_record: stop")
    cases = """table: shop.orders
cases:
  stops:
    records: [{value: {id: x}}]
    stops: does not fit long
"""
    assert is_well(play(cases, pipeline))
    (verdict,) = play(cases.replace("stops: does", "rows: [] #"), pipeline)
    assert shown([verdict])[0][0].startswith("shop.orders stops: ")
    (verdict,) = play(cases.replace("{id: x}", "{id: 1}"), pipeline)
    assert shown([verdict]) == [
        ("the table does not stop for this reason", [("stops", "does not fit long", "nothing stops")])
    ]


def test_variables_of_the_file_and_missing_secrets(play: Play) -> None:
    """A case needs no secret; a variable that decides something is named by the file."""
    pipeline = ORDERS.replace("localhost:9092", "${env:BROKERS}").replace("topic: orders", 'topic: "${env:CASE_TOPIC}"')
    cases = """table: shop.orders
env: {CASE_TOPIC: orders_eu}
cases:
  a topic by variable: {records: [{value: {id: 1}}], rows: [{id: 1}]}
"""
    assert is_well(play(cases, pipeline))
    with pytest.raises(SpecError, match="the environment variable `CASE_TOPIC` is not set"):
        play(cases.replace("env: {CASE_TOPIC: orders_eu}\n", ""), pipeline)


def test_answers_are_written_in_place_and_everything_else_stays(play: Play, folder: Path) -> None:
    cases = """# Cases of orders.
table: shop.orders
cases:
  new:  # without an answer
    records:
      - value: {id: 1, amount: 2}
      # the last record
      - value: {id: x}

  partial:
    rows:
      - {amount: 5}   # wrong
    records: [{value: {id: 1, amount: 2}}]
  right:
    records: [{value: {id: 1}}]
    rows: [{id: 1}]
"""
    verdicts = play(cases, updates=True)
    assert [(verdict.name, verdict.is_updated, verdict.is_ok) for verdict in verdicts] == [
        ("new", True, True), ("partial", True, True), ("right", False, True),
    ]  # fmt: skip
    assert (
        (folder / "cases.yaml").read_text()
        == """# Cases of orders.
table: shop.orders
cases:
  new:  # without an answer
    records:
      - value: {id: 1, amount: 2}
      # the last record
      - value: {id: x}
    rows:
      - {id: 1, amount: "2.00", at: null, tags: null}
    dead_letters:
      - {offset: 1, error_class: type_mismatch, path: id, message: string "x" does not fit long}

  partial:
    records: [{value: {id: 1, amount: 2}}]
    rows:
      - {amount: "2.00"}
  right:
    records: [{value: {id: 1}}]
    rows: [{id: 1}]
"""
    )
    assert is_well(play((folder / "cases.yaml").read_text()))
