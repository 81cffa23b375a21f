"""Pipeline files that are refused, each with what they become by doing what the remedy reports: settings of tables here."""

from __future__ import annotations

from tests.unit.remedies.file_sections import DOCUMENTS, ROUTES, SECTIONS
from tests.unit.remedies.mended import Mended, avro, columns, tables
from tests.unit.remedies.state_files import STATE
from tests.unit.spec.pipeline_file import with_section, with_table

_PLAIN = with_section("")
_UPSERT = "mode: upsert, key_columns: [id]"
_DROP = "unknown_fields: drop, columns: {id: long, l: list<string>, s: 'struct<a: long>', t: string}"
_AT = "columns: {at: timestamptz, day: date, n: long, f: double, raw: 'fixed[2]', s: 'struct<a: int>', l: list<int>}"
_LOOKUP = "{table: a.r, on: country_code = code, take: [name]}"


def _of_partitions(broken: str, *fixed: str) -> Mended:
    """A term of `partition_by` in a table with columns of many types."""
    return tables(f"{_AT}, partition_by: {broken}", *(f"{_AT}, partition_by: {text}" for text in fixed))


TABLES = [
    tables("branch: in/gest", "branch: ingest"),
    tables(
        f"{_UPSERT}, format_version: 3, readers: [athena]", f"{_UPSERT}, format_version: 2, readers: [athena]", _UPSERT
    ),
    tables("tags: [daily]", "tags: {daily: {at: '00:00 UTC', keep: 30d}}"),
    tables("dead_letters: {stop_above: 0.05}", "dead_letters: {stop_above: 5%}"),
    tables("tags: {a b: {at: '00:00 UTC', keep: 30d}}", "tags: {daily: {at: '00:00 UTC', keep: 30d}}"),
    tables("tags: {daily: {at: '00:00 UTC', keep: 30}}", "tags: {daily: {at: '00:00 UTC', keep: 30d}}"),
    tables("tags: {daily: {at: '00:00 UTC', keep: 4 weeks}}", "tags: {daily: {at: '00:00 UTC', keep: 28d}}"),
    *(
        tables(f"tags: {{daily: {broken}}}", "tags: {daily: {at: '00:00 Europe/Berlin', keep: 30d}}")
        for broken in (
            "{at: midnight, keep: 30d}",
            "{keep: 30d}",
            "{at: '00:00 UTC'}",
        )
    ),
    tables(
        "branch: b, delete_mode: copy_on_write",
        "branch: ingest, publish: {every: 10m}, delete_mode: copy_on_write",
        "branch: b",
    ),
    tables("branch: b, publish: {group: a b}", "branch: b, publish: {group: shop}"),
    tables("publish: {every: 1m}", "branch: ingest, publish: {every: 1m}", ""),
    tables(
        "branch: b, publish: {transaction_topic: t}, envelope: debezium",
        "branch: b, publish: {transaction_topic: t, group: NAME}, envelope: debezium",
        "branch: b, publish: {}, envelope: debezium",
    ),
    tables(
        "branch: b, publish: {transaction_topic: t, group: shop}",
        "branch: b, publish: {transaction_topic: t, group: shop}, envelope: debezium",
        "branch: b, publish: {group: shop}",
    ),
    tables(
        "branch: b, publish: {audits: {no ids: select true}}", "branch: b, publish: {audits: {no_ids: select true}}"
    ),
    tables(
        "branch: b, publish: {audits: {ids: id > 0}}",
        "branch: b, publish: {audits: {ids: select count(*) = 0 from candidate where id <= 0}}",
    ),
    tables("udf: json.dumps", "udf: tests.fixtures.functions.clean"),
    tables("udf: tests.fixtures.functions.ids", "udf: tests.fixtures.functions.clean"),
    tables("lookup: [c]", f"lookup: {{country: {_LOOKUP}}}"),
    tables("lookup: {c: {table: a.r, on: k = k, take: [n], file: /r.csv}}", f"lookup: {{c: {_LOOKUP}}}"),
    tables("lookup: {c: {table: a.r, on: k = k}}", f"lookup: {{c: {_LOOKUP}}}"),
    tables(
        "lookup: {c: {file: /r.orc, on: k = k, take: [n]}}", "lookup: {c: {file: /r.parquet, on: k = k, take: [n]}}"
    ),
    tables(
        "lookup: {c: {file: 'hdfs://h:1/r.csv', on: k = k, take: [n]}}",
        f"lookup: {{c: {_LOOKUP}}}",
        "lookup: {c: {file: 's3://lake/r.csv', on: k = k, take: [n]}}",
    ),
    tables("lookup: {c: {file: r.csv, on: k = k, take: [n]}}", "lookup: {c: {file: /r.csv, on: k = k, take: [n]}}"),
    tables(
        "lookup: {c: {table: a.r, on: k, take: [n]}}", "lookup: {c: {table: a.r, on: k = k and a.b = c, take: [n]}}"
    ),
    tables(f"lookup: {{_file: {_LOOKUP}}}", f"lookup: {{file: {_LOOKUP}}}"),
    tables(f"lookup: {{'': {_LOOKUP}}}", f"lookup: {{country: {_LOOKUP}}}"),
    tables("lookup: {c: {table: a.r, on: k = k, take: []}}", f"lookup: {{c: {_LOOKUP}}}"),
    tables(f"lookup: {{{'n' * 256}: {_LOOKUP}}}", f"lookup: {{{'n' * 255}: {_LOOKUP}}}"),
    tables("lookup: {c: {table: a.r, on: k = k, take: [n, N]}}", f"lookup: {{c: {_LOOKUP}}}"),
    tables("add_fields: {_pos: x}", "add_fields: {pos: x}"),
    tables(f"rename: {{a: {'n' * 256}}}", f"rename: {{a: {'n' * 255}}}"),
    tables("add_fields: shop", "add_fields: {origin: shop}"),
    *(
        tables(f"add_fields: {{n: {number}}}", "add_fields: {n: 16}", f"add_fields: {{n: '{number}'}}")
        for number in (".inf", "-.inf", ".nan", "1.0e+400", "0x10", "9223372036854775808", "-9223372036854775809")
    ),
    tables("add_fields: {'': x}", "add_fields: {x: x}"),
    tables("rename: {a: ''}", "rename: {a: b}"),
    tables(
        "add_fields: {at: source.ts_ms}", "envelope: debezium, add_fields: {at: source.ts_ms}", "add_fields: {at: x}"
    ),
    tables("envelope: debezium, add_fields: {t: source.tables}", "envelope: debezium, add_fields: {t: source.table}"),
    tables("topc: b", ""),
    tables("topics: [b]", ""),
    tables("interval: 1s", "commit: {interval: 1s}"),
    tables("maintenance: {cores: 2}", ""),
    tables("format: json", "value: {format: json}", "key: {format: json}"),
    Mended(with_table("registry: {}"), (with_section("registry: {url: https://r}"),)),
    tables("value: json", "value: {format: json}"),
    tables("value: jsn", "value: {format: json}", ""),
    tables("mode: [append]", "mode: append"),
    tables("commit: 5m", "commit: {interval: 5m}"),
    tables("commit: often", "commit: {interval: 5s}"),
    tables("primary_key: id", "mode: upsert, key_columns: [id]"),
    tables("commit: {interval: [1s]}", "commit: {interval: 1s}"),
    tables("primary_keys: [id]", "mode: upsert, key_columns: [id]"),
    tables("properties: {a: [b]}", "properties: {a: b}"),
    tables("properties: {a: {b: c}}", "properties: {a: c}", ""),
    tables("value_format: json", "value: {format: json}"),
    tables("key_format: json", "key: {format: json}"),
    tables("coerce: true", "columns: {c: {type: string, coerce: true}}"),
    tables("zone: UTC", "columns: {c: {type: timestamptz, zone: UTC}}"),
    tables("limits: {columns: '10'}", "limits: {columns: 10}"),
    tables("commit: {interval: 5}", "commit: {interval: 5s}"),
    tables("commit: {interval: 7d}", "commit: {interval: 168h}"),
    tables("commit: {interval: 30d}", "commit: {interval: 168h}"),
    tables("commit: {interval: 1000000h}", "commit: {interval: 168h}"),
    tables("commit: {interval: 0s}", "commit: {interval: 1s}"),
    tables("commit: {interval: soon}", "commit: {interval: 5s}"),
    tables("limits: {record_size: 0B}", "limits: {record_size: 128MiB}"),
    tables("limits: {record_size: 5}", "limits: {record_size: 5MiB}"),
    tables("limits: {columns: 0}", "limits: {columns: 1000}"),
    tables("dead_letters: {stop_above: 0.2}", "dead_letters: {stop_above: 20%}"),
    tables("dead_letters: {topic: a}", "dead_letters: {topic: b}"),
    tables("mode: appendd", "mode: append"),
    tables("key_columns: [id]", _UPSERT, ""),
    tables("envelope: dms, mode: upsert", "envelope: dms, mode: upsert, key_columns: [id]"),
    tables("mode: upsert, key_columns: []", _UPSERT, "mode: upsert"),
    tables("mode: upsert, key_columns: [a, a]", "mode: upsert, key_columns: [a]"),
    tables("mode: upsert, order_by: a.b", "mode: upsert, order_by: n, columns: {n: {type: long, field: a.b}}"),
    tables("rescue: 'false'", "rescue: false"),
    tables("rescue: 0", "rescue: true"),
    tables("on_data_loss: [x]", "on_data_loss: skip"),
    tables("metadata: key", "metadata: [key]", ""),
    tables("metadata: [no]", "metadata: [key]"),
    tables("envelope: maxwell, metadata: [position]", "envelope: maxwell"),
    tables("metadata: {key: k, offset: k}", "metadata: {key: k, offset: o}"),
    tables("metadata: {key: _partition}", "metadata: {key: k}"),
    tables("metadata: {key: }", "metadata: {key: k}"),
    tables(
        "metadata: [offset], columns: {_offset: long}",
        "metadata: [offset], columns: {o: long}",
        "columns: {_offset: long}",
    ),
    tables("metadata: [op]", "metadata: [op], envelope: debezium", ""),
    tables("metadata: [deleted]", f"metadata: [deleted], deletes: soft, {_UPSERT}", ""),
    tables("unknown_fields: drop", "unknown_fields: drop, columns: {a: long}"),
    tables("properties: {format-version: 2}", "format_version: 3"),
    tables("properties: {frazil.x: 2}", "properties: {x: 2}"),
    tables("properties: {a: 'x${file:A}'}", "properties: {a: x}"),
    Mended(
        with_table("properties: {gcs.oauth2.token: x}"),
        (_PLAIN, with_section("catalog: {properties: {gcs.oauth2.token: x}}")),
    ),
    tables("properties: {a: yes}", "properties: {a: true}", "properties: {a: 'yes'}"),
    tables("properties: {a: [b]}", "properties: {a: b}", ""),
    tables("properties: {write.format.default: orc}", ""),
    tables("properties: {write.target-file-size-bytes: 64MiB}", "properties: {write.target-file-size-bytes: 67108864}"),
    tables(
        "properties: {write.parquet.compression-codec: zsdt}", "properties: {write.parquet.compression-codec: zstd}"
    ),
    tables("properties: {write.parquet.compression-codec: q}", "properties: {write.parquet.compression-codec: gzip}"),
    tables("properties: {write.parquet.compression-level: best}", "properties: {write.parquet.compression-level: 3}"),
    tables("start: tomorrow", "start: 2026-01-31T00:00:00Z", "start: latest", "start: {0: 1}"),
    tables("start: [1]", "start: earliest"),
    tables("start: 2026-01-31", "start: 2026-01-31T00:00:00Z"),
    tables("start: 1769817600", "start: 1769817600000"),
    tables("start: '1769817600000'", "start: 1769817600000"),
    tables("start: 1960-01-31T00:00:00Z", "start: earliest"),
    tables("start: {0: '1200'}", "start: {0: 1200, 1: 1180}"),
    tables("start: {0: -1}", "start: {0: 1200, 1: 1180}"),
    tables("start: {a: {0: 1}, 1: 2}", "start: {0: 1, 1: 2}", "start: {a: {0: 1}}"),
    tables("start: {}", "start: {0: 1}"),
    tables("start: {a: }", "start: {a: {0: 1}}"),
    tables("start: {b: {0: 1}}", "start: {a: {0: 1}}"),
    tables("value: {format: avro}"),  # The registry is in a section of its own: see below.
    tables("value: {schema: latest}", ""),
    tables("numbers: long", "numbers: double", 'numbers: "decimal(18,4)"'),
    tables("numbers: double, value: {format: text}", "value: {format: text}"),
    tables(
        "tombstones: delete",
        "tombstones: ignore",
        "tombstones: dead_letter",
        "tombstones: row",
        "tombstones: delete, mode: upsert",
    ),
    tables("mode: upsert, tombstones: row", "mode: upsert, tombstones: delete", "mode: upsert, tombstones: ignore"),
    tables("envelope: debezium, tombstones: row", "envelope: debezium, tombstones: ignore"),
    tables("changelog: true", "changelog: true, envelope: debezium", ""),
    tables(
        f"changelog: true, envelope: debezium, {_UPSERT}",
        "changelog: true, envelope: debezium",
        f"envelope: debezium, {_UPSERT}",
    ),
    tables("deletes: soft", f"deletes: soft, {_UPSERT}", ""),
    tables("envelope: {insert: I}", "envelope: {insert: I, operation: o}", "envelope: debezium"),
    tables(
        "envelope: {operation: o, unavailable_value: x}",
        "envelope: {operation: o}",
        "envelope: {type: debezium, unavailable_value: x}",
    ),
    tables("envelope: {type: debezium, insert: I}", "envelope: debezium", "envelope: {insert: I, operation: o}"),
    tables("envelope: {operation: o, insert: X, delete: X}", "envelope: {operation: o, insert: X}"),
    tables("envelope: {operation: o, insert: []}", "envelope: {operation: o, insert: [I]}", "envelope: {operation: o}"),
    tables("value: {format: text}, envelope: debezium", "value: {format: json}, envelope: debezium"),
    tables("atomic: transaction", "atomic: transaction, envelope: debezium", ""),
    tables(
        "envelope: debezium, atomic: {}",
        "envelope: debezium, atomic: {transaction_topic: t}",
        "envelope: debezium, atomic: transaction",
    ),
    tables(
        "mode: upsert, deletes: soft, key: {format: json}, order_by: at",
        "mode: upsert, deletes: soft, key: {format: json}, order_by: at, metadata: {timestamp: at}",
    ),
    tables(
        "mode: upsert, envelope: debezium, key: {format: text}",
        "mode: upsert, envelope: debezium, key: {format: json}",
        "mode: upsert, envelope: debezium, key: {format: text}, key_columns: [id]",
    ),
    tables(
        "mode: upsert, envelope: debezium, metadata: [total_order], order_by: _total_order",
        "mode: upsert, envelope: debezium, metadata: [source_order], order_by: _source_order",
        "mode: upsert, envelope: debezium, metadata: [total_order]",
    ),
    tables("sort_by: [_offset]", "sort_by: [_offset], metadata: [offset]"),
    tables(
        "mode: upsert, key_columns: [id], exclude: [id]",
        "mode: upsert, key_columns: [id]",
        "mode: upsert, exclude: [id]",
    ),
    tables("mode: upsert, key_columns: [id], include: [v]", "mode: upsert, key_columns: [id], include: [v, id]"),
    tables(
        "mode: upsert, key_columns: [id], unknown_fields: drop, columns: {v: long}",
        "mode: upsert, key_columns: [id], unknown_fields: drop, columns: {v: long, id: long}",
    ),
    tables("include: [a.b], exclude: [a]", "include: [a.b]", "exclude: [a]"),
    tables("include: []", "include: [id, user.name]", ""),
    tables("exclude: ['*']", "exclude: [user.name, user.*]"),
    tables("exclude: ['[1]']", """exclude: ['["user", "first.name"]']"""),
    tables("flatten: {separator: .}", "flatten: {separator: _}", "flatten: {separator: __}"),
    tables("flatten: {depth: all}", "flatten: {depth: 3}", "flatten: true"),
    tables("columns: [id]", "columns: {id: long}"),
    tables(f"columns: {{{'n' * 256}: string}}", "columns: {n: string}"),
    tables("columns: {_rescued: string}", "columns: {left: string}"),
    tables("columns: {_file: string}", "columns: {file: string}"),
    tables(
        "columns: {a: long, b: {type: long, field: a}}",
        "columns: {a: long}",
        "columns: {a: long, b: {type: long, field: c}}",
    ),
    tables(
        "columns: {a: {type: long, field: o}, b: {type: long, field: o.x}}",
        "columns: {b: {type: long, field: o.x}}",
        "columns: {a: {type: 'struct<y: long>', field: o}, b: {type: long, field: o.x}}",
    ),
    tables(f"{_DROP}, maintenance: {{sort: [idd]}}", f"{_DROP}, maintenance: {{sort: [id]}}"),
    tables(f"{_DROP}, maintenance: {{sort: [l]}}", f"{_DROP}, maintenance: {{sort: [s.a]}}"),
    tables(f"{_DROP}, maintenance: {{zorder: [l]}}", f"{_DROP}, maintenance: {{zorder: [id, t]}}"),
    avro("value: {format: json, schema: latest}", "", "value: {format: avro, schema: latest}"),
    avro("value: {format: avr}", "value: {format: avro}"),
]
COLUMNS = [
    tables(
        "columns: {id: {type: long, properties: {write.parquet.bloom-filter-enabled: true}}}",
        "columns: {id: {type: long}}, properties: {write.parquet.bloom-filter-enabled.column.id: true}",
    ),
    columns("5", "'long'"),
    columns("", "long"),
    columns("{}", "long"),
    columns("{type: long, coerce: true}", "{type: string, coerce: true}", "long"),
    columns("{type: long, zone: UTC}", "{type: timestamp, zone: UTC}", "{type: timestamptz, zone: UTC}", "long"),
    columns("{type: timestamp, zone: Berlin}", "{type: timestamp, zone: Europe/Berlin}"),
    columns("{type: timestamp, zone: Z}", "{type: timestamp, zone: UTC}"),
    columns("{type: timestamp, zone: '+02:00'}", "{type: timestamp, zone: Etc/GMT-2}"),
    columns("{type: timestamp, zone: '-05:00'}", "{type: timestamp, zone: Etc/GMT+5}"),
    columns("'decimal(10)'", "'decimal(10,0)'"),
    columns("timestamp without time zone", "timestamp"),
    columns("{type: string, constant: '${file:R}'}", "{type: string, constant: r}"),
    columns(
        "{type: timestamptz(ms), constant: 2026-01-01T00:00:00Z}",
        "{type: timestamptz, constant: '2026-01-01T00:00:00Z'}",
    ),
    columns("{type: long, constant: x}", "{type: long, constant: 7}"),
    columns("{type: int, constant: 3000000000}", "{type: int, constant: 7}"),
    columns(
        "{type: timestamptz, constant: '0000-01-01T00:00:00Z'}", "{type: timestamptz, constant: '2026-01-01T00:00:00Z'}"
    ),
    columns(
        "{type: uuid, constant: x}", *(f"{{type: {kind}, constant: 1}}" for kind in ("string", "int", "'decimal(3,1)'"))
    ),
    columns("{type: double, header: h}", "{type: long, header: h}", "{type: double, header: h, value: {format: json}}"),
    columns(
        "{type: long, field: b, value: {format: json}}",
        "{type: long, header: h, value: {format: json}}",
        "{type: long, field: b}",
    ),
    columns(
        "{type: string, header: h, value: {format: raw}}",
        "{type: binary, header: h, value: {format: raw}}",
        "{type: string, header: h}",
    ),
    columns("{type: long, constant: 1, header: h}", "{type: long, constant: 1}"),
    columns("{type: long, field: b.}", "{type: long, field: b.c}"),
    columns("lnog", "long"),
    columns("xyz", "long"),
    columns("lst<int>", "list<int>"),
    columns("list", "list<int>"),
    columns("'mapp<string,int>'", "'map<string,int>'"),
    columns("'strukt<name: int>'", "'struct<name: int>'"),
    columns("'fixedd[3]'", "'fixed[3]'"),
    columns("'decimel(9,2)'", "'decimal(9,2)'"),
    columns("'fixed[0]'", "'fixed[16]'"),
    columns("'decimal(9'", '"decimal(9,2)"'),
    columns("'decimal(39,2)'", "'decimal(38,2)'"),
    columns("timestamp_ns", "timestamp"),
    columns("variant", "string"),
    columns("'map<list<int>,string>'", "'map<string,string>'", "'list<struct<key: list<int>, value: string>>'"),
    columns("'struct<a: int, a: long>'", "'struct<a: int>'"),
    columns("list<" * 60 + "int" + ">" * 60, "list<int>"),
    columns("'list<timestamp(ms)>'", "list<long>"),
    tables(
        "columns: {s: 'struct<at: timestamp(ms)>'}",
        "columns: {s: 'struct<x: long>', s_at: {type: timestamptz(ms), field: s.at}}",
    ),
    columns("timestamptz(min)", "timestamptz(s)"),
    columns("time(h)", "time(ms)"),
    avro(
        "columns: {c: {type: 'struct<x: long>', header: h, value: {format: avro, framing: header}}}",
        "columns: {c: {type: 'struct<x: long>', header: h, value: {format: avro, framing: confluent}}}",
        "columns: {c: {type: 'struct<x: long>', header: h, value: {format: avro, framing: apicurio}}}",
    ),
    avro(
        "columns: {c: {type: 'struct<x: long>', header: h, value: {format: avro, schema: latest}}}",
        "columns: {c: {type: 'struct<x: long>', header: h, value: {format: avro, schema: latest, subject: s}}}",
    ),
]
PARTITIONS = [
    _of_partitions("[days(at)]", "[day(at)]"),
    _of_partitions("[zz(at)]", "[day(at)]"),
    _of_partitions("['bucket(n, 0)']", "['bucket(n, 16)']"),
    _of_partitions("['bucket(16, n)']", "['bucket(n, 16)']"),
    _of_partitions("['bucket(n, 2147483648)']", "['bucket(n, 16)']", "['bucket(n, 2147483647)']"),
    _of_partitions("['bucket(n)']", "['bucket(n, 16)']"),
    _of_partitions("['day(at, 2)']", "[day(at)]"),
    _of_partitions("['day(, 2)']", "[day(at)]"),
    _of_partitions("['bucket()']", "['bucket(n, 16)']"),
    _of_partitions("[day()]", "[day(at)]", "[s.a]"),
    _of_partitions("[identity(n)]", "[n]"),
    _of_partitions("[bucket(n, 16)]", '["bucket(n, 16)"]'),
    _of_partitions("['(n']", "[n]", "[year(at), 'truncate(n, 4)', void(n)]"),
    _of_partitions("[day(at), hour(at)]", "[hour(at)]"),
    _of_partitions("[n, n]", "[n]"),
    _of_partitions("[hour(day)]", "[day(day)]"),
    _of_partitions("[s]", "[s.a]"),
    _of_partitions("[l]", "[n]"),
    _of_partitions("[raw]", "['bucket(raw, 16)']"),
    tables("columns: {n: long}, partition_by: ['bucket[n]']", "columns: {n: long}, partition_by: ['bucket(n, 16)']"),
    tables("columns: {n: date}, partition_by: ['day[n]']", "columns: {n: date}, partition_by: [day(n)]"),
    tables("partition_by: 'day(ts);bucket(id, 4)'", "partition_by: [day(ts), 'bucket(id, 4)']"),
    tables("partition_by: ['day(ts);region']", "partition_by: [day(ts), region]"),
    tables("columns: {n: string}, partition_by: [day(n)]", "columns: {n: timestamptz}, partition_by: [day(n)]"),
    tables("columns: {n: long}, partition_by: [day(n)]", "columns: {n: timestamptz(ms)}, partition_by: [day(n)]"),
    tables(
        "columns: {s: 'struct<n: string>'}, partition_by: [day(s.n)]",
        "columns: {s: 'struct<n: string>', s_n: {type: timestamptz, field: s.n}}, partition_by: [day(s_n)]",
    ),
    tables(
        "columns: {s: 'struct<n: long>'}, partition_by: [day(s.n)]",
        "columns: {s: 'struct<n: long>', s_n: {type: timestamptz(ms), field: s.n}}, partition_by: [day(s_n)]",
    ),
    tables("sort_by: [void(n)]", ""),
]
EXPECTATIONS = [
    tables("expect: [a]", "expect: {amount_not_negative: amount >= 0}"),
    tables("expect: {where: a > 0}", "expect: {amount_not_negative: a > 0}"),
    tables("expect: {a-b: a > 0}", "expect: {amount_not_negative: a > 0}"),
    tables("expect: {a: {else: drop}}", "expect: {a: {that: amount >= 0, else: drop}}"),
    tables(
        "expect: {a: {that: b > 0, min_rows: 1}}",
        "expect: {a: {that: b > 0}, c: {min_rows: 1}}",
    ),
    tables("expect: {a: {min_rows: 1, at_most: 5%}}", "expect: {a: {min_rows: 1}}"),
    tables(
        "expect: {a: {min_rows: 1, else: drop}}",
        "expect: {a: {min_rows: 1, else: warn}}",
        "expect: {a: {min_rows: 1, else: stop}}",
    ),
    tables("expect: {a: {max_age: 5m, else: stop}}", "expect: {a: {max_age: 5m}}"),
    tables(
        "on_bad_record: skip, expect: {a: {that: b > 0, else: dead_letter}}",
        "on_bad_record: dead_letter, expect: {a: {that: b > 0, else: dead_letter}}",
        "on_bad_record: skip, expect: {a: {that: b > 0, else: warn}}",
        "on_bad_record: skip, expect: {a: {that: b > 0, else: drop}}",
        "on_bad_record: skip, expect: {a: {that: b > 0, else: stop}}",
    ),
]
MENDED = [*DOCUMENTS, *TABLES, *STATE, *COLUMNS, *PARTITIONS, *SECTIONS, *ROUTES, *EXPECTATIONS]
