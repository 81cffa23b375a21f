"""What a table's settings must not be, and what the error advises."""

from __future__ import annotations

import pytest

from tests.unit.spec.pipeline_file import Refuse, with_table

TABLES = [
    ("topc: b", "unknown key `topc` in table `shop.x`", "did you mean `topic`?"),
    ("Metadata: [key]", "unknown key `Metadata` in table `shop.x`", "did you mean `metadata`?"),
    ("format: json", "`format` does not belong here", "write it under `value`, or under `key`"),
    ("interval: 1s", "`interval` does not belong here", "write it under `commit`"),
    ("registry: {}", "`registry` does not belong here", "write it at the top of the file"),
    (
        "maintenance: {cores: 2}",
        "`maintenance.cores` does not belong here",
        "write it under `maintenance` at the top of the file: all tables share it",
    ),
    ("value: {fromat: json}", "unknown key `fromat` in `value`", "did you mean `format`?"),
    ("value: {format: jsn}", "`value.format` cannot be `jsn`", "did you mean `json`?"),
    ("value: json", "`value` is text where a mapping is expected", "write `value: {format: json}`"),
    (
        "key: id",
        "`key` is text where a mapping is expected",
        "write `key: {format: json}`, or `key_columns: [NAME]` for the columns that rows are replaced by",
    ),
    (
        "dead_letters: orders_dlq",
        "`dead_letters` is text where a mapping is expected",
        "write `dead_letters: {table: NAMESPACE.TABLE}`, or `dead_letters: {topic: NAME}` for a topic",
    ),
    ("value: jsn", "`value` is text where a mapping is expected", "write `key: value` pairs, or remove it"),
    ("commit: {intervall: 1s}", "unknown key `intervall` in `commit`", "did you mean `interval`?"),
    (
        "commit: {interval: [1s]}",
        "`commit.interval` is a list where text is expected",
        "write text after `commit.interval:`",
    ),
    (
        "commit: {interval: 5}",
        "the duration `5` has no unit",
        "write a unit: one of ms, s, m, h, for example `5s`",
    ),
    ("topics: [b]", "table `shop.x` has both `topic` and `topics`", "keep one of them"),
    ("off: 1", "YAML reads the key `off` as a boolean", 'put it in quotes: "off"'),
    ("start:latest", "no space after the colon of `start`", "write `start: value`"),
    ("mode: apend", "`mode` cannot be `apend`", "did you mean `append`?"),
    ("mode: [append]", "`mode` is a list where one of its words is expected", "write one of: append, upsert, history"),
    ("on_error: null", "`on_error` is empty where one of its words is expected", 'write one of: dead_letter, "null"'),
    ("on_error: nul", "`on_error` cannot be `nul`", 'did you mean `"null"`?'),
    ("key_columns: [id]", "`key_columns` has no effect with `mode: append`", "write `mode: upsert`, or remove it"),
    ("order_by: ts", "`order_by` has no effect with `mode: append`", "write `mode: upsert`, or remove it"),
    (
        "mode: upsert, key_columns: []",
        "`key_columns` is empty",
        "write paths of fields, such as `[id, user.name]`, or remove it",
    ),
    ("mode: upsert, key_columns: [a, a]", "`a` occurs twice in `key_columns`", "keep one of them"),
    (
        "mode: upsert, order_by: a.b",
        "`order_by: a.b` is inside another column",
        "name a column of the table itself, such as one that `columns` or `flatten` makes of the field",
    ),
    ("rescue: 'false'", "`rescue` cannot be `false`", "write it without quotes"),
    ("rescue: 0", "`rescue` cannot be `0`", "write one of: true, false"),
    (
        f"columns: {{{'n' * 256}: string}}",
        f"the column `{'n' * 40}…`: the name {'n' * 40}… has 256 bytes, and a column's name has 255 at most",
        "give it a shorter name",
    ),
    (
        f"columns: {{s: 'struct<a: list<struct<{'n' * 256}: int>>>'}}",
        f"the column `s`: the name {'n' * 40}… has 256 bytes, and a column's name has 255 at most",
        "give it a shorter name",
    ),
    ("columns: {_rescued: string}", "`_rescued` is the column for what does not fit its own", "rename the column"),
    ("dead_letters: {stop_above: 0.2}", "`0.2` is not a share", "write a percentage up to 100%, such as `20%`"),
    ("dead_letters: {stop_above: 101%}", "`101%` is not a share", "write a percentage up to 100%, such as `20%`"),
    ("limits: {columns: 0}", "`limits.columns` is not a count", "write a whole number, such as 1000"),
    ("limits: {columns: many}", "`limits.columns` is not a count", "write a whole number, such as 1000"),
    (
        "limits: {record_size: 5}",
        "the size `5` has no unit",
        "write a unit: one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, for example `5MiB`",
    ),
    ("dead_letters: {table: bad}", "the table `bad` has no namespace", "write `<namespace>.bad`"),
    ("dead_letters: {stop_abov: 5%}", "unknown key `stop_abov` in `dead_letters`", "did you mean `stop_above`?"),
    (
        "dead_letters: {topic: a}",
        "the pipeline reads the topic `a`, to which dead letters of `shop.x` go",
        "name another topic under `dead_letters`",
    ),
    (
        "value: {format: avro}",
        "`value.format` of `shop.x` needs a schema registry, and there is none",
        "write `registry: {url: https://registry:8081}`",
    ),
    (
        "columns: {h: {type: long, header: x, value: {format: avro}}}",
        "`columns.h.value.format` of `shop.x` needs a schema registry, and there is none",
        "write `registry: {url: https://registry:8081}`",
    ),
    ("value: {format: avr}", "`value.format` cannot be `avr`", "did you mean `avro`?"),
    (
        "value: {schema: latest}",
        "`value.schema` has no effect with the format json",
        "remove it, or write `format`: it is for avro, protobuf, json_schema",
    ),
    (
        "value: {format: text, message: a.B}",
        "`value.message` has no effect with the format text",
        "remove it, or write `format`: it is for protobuf",
    ),
    (
        "value: {format: raw, framing: header}",
        "`value.framing` has no effect with the format raw",
        "remove it, or write `format`: it is for avro, protobuf, json_schema",
    ),
    ("format_version: 1", "`format_version` cannot be `1`", "write one of: 2, 3"),
    ("format_version: true", "`format_version` cannot be `true`", "write one of: 2, 3"),
    ("on_data_loss: sotp", "`on_data_loss` cannot be `sotp`", "did you mean `stop`?"),
    ("metadata: [ofset]", "`metadata` has no `ofset`", "did you mean `offset`?"),
    ("metadata: {ofset: _o}", "`metadata` has no `ofset`", "did you mean `offset`?"),
    (
        "metadata: {key: k, offset: k}",
        "`metadata` writes two fields to the column `k`",
        "rename one of the columns",
    ),
    (
        "metadata: {key: _partition}",
        "the column `_partition` has the name of one of Iceberg's metadata columns",
        "rename the column",
    ),
    ("metadata: {key: }", "`metadata.key` is empty where text is expected", "write text after `metadata.key:`"),
    ("metadata: [key, key]", "`key` occurs twice in `metadata`", "keep one of them"),
    ("metadata: key", "`metadata` is text where a list is expected", "write a list, such as `[a, b]`, or remove it"),
    (
        "metadata: [no]",
        "`metadata` is a boolean where text is expected",
        "put it in quotes: YAML reads a bare yes, no, on, off, true or false as a boolean",
    ),
    (
        "metadata: [offset], columns: {_offset: long}",
        "the column `_offset` is declared, and `metadata` writes offset to it",
        "rename the column, or take it out of `metadata`",
    ),
    (
        "columns: {_file: string}",
        "the column `_file` has the name of one of Iceberg's metadata columns",
        "rename the column",
    ),
    ("columns: [id]", "`columns` is a list where a mapping is expected", "write `columns: {name: type}`"),
    ("columns: {id: lnog}", "the type `lnog` is unknown", "did you mean `long`?"),
    ("columns: {id: 5}", "`columns.id` is a number where text is expected", "put it in quotes"),
    ("columns: {id: }", "`columns.id` is empty where text is expected", "write text after `columns.id:`"),
    ("columns: {id: {}}", "`columns.id` has no type", "write `id: long`, or another type"),
    (
        "columns: {id: {type: long, properties: {write.metadata.metrics: full}}}",
        "`columns.id.properties` does not belong here",
        "write it in the table's `properties`, under Iceberg's name, which ends with the column's, such as"
        " write.parquet.bloom-filter-enabled.column.id",
    ),
    ("columns: {id: long, id: int}", "`id` occurs twice", "keep one of them; the first is in line 4"),
    (
        "unknown_fields: drop",
        "table `shop.x` drops every field: `unknown_fields` is drop, and no `columns` are declared",
        "declare `columns`",
    ),
    ("properties: {format-version: 2}", "`format-version` is not for `properties`", "write `format_version: 3`"),
    ("properties: {frazil.x: 2}", "`frazil.x` is one of Frazil's own names", "use another name"),
    (
        "properties: {a: 'x${file:A}'}",
        "`properties.a` refers to a secret, and table properties are for everyone to read",
        "write the value, or put it under `catalog.properties`",
    ),
    (
        "properties: {a: yes}",
        "YAML reads the bare yes, no, on or off of `properties.a` as a boolean",
        "write true or false, or put the word in quotes",
    ),
    (
        "properties: {a: [b]}",
        "`properties.a` is a list where one value is expected",
        "write one value: join several by commas, such as `a,b`",
    ),
    ("properties: {a: []}", "`properties.a` is a list where one value is expected", "write one value, or remove it"),
    (
        "rename: [a, b]",
        "`rename` is a list where a mapping is expected",
        "write `rename: {cust: customer}`, each old name with its new one",
    ),
    ("rename: {a: [b, c]}", "`rename.a` is a list where one value is expected", "write one value, or remove it"),
    ("cast: [a]", "`cast` is a list where a mapping is expected", 'write `cast: {amount: "decimal(12,2)"}`'),
    ("properties: {a: }", "`properties.a` is empty where one value is expected", "write one value, or remove it"),
    (
        "start: tomorrow",
        "`start` cannot be `tomorrow`",
        "write earliest, latest, a timestamp such as 2026-01-31T00:00:00Z, or {partition: offset}",
    ),
    (
        "start: 2026-01-31",
        "`start: 2026-01-31` has no time zone",
        "write `2026-01-31T00:00:00Z` for UTC, or an offset such as +02:00",
    ),
    (
        "start: 1769817600",
        "`start: 1769817600` is not a time in milliseconds since the epoch",
        "write milliseconds, 13 digits, or a timestamp such as 2026-01-31T00:00:00Z",
    ),
    (
        "start: {0: -1}",
        "`start` has `0`, which is not a partition with its first offset",
        "write whole numbers once each, without quotes, such as {0: 1200, 1: 1180}",
    ),
    (
        "start: {0: '12'}",
        "`start` has `0`, which is not a partition with its first offset",
        "write whole numbers once each, without quotes, such as {0: 1200, 1: 1180}",
    ),
    (
        "start: '1769862600123'",
        "`start` is the text `1769862600123`",
        "write `start: 1769862600123`, without quotes",
    ),
    (
        "start: {a: {0: 1}, 1: 2}",
        "`start` mixes topics and partitions",
        "write {partition: offset}, or {topic: {partition: offset}}",
    ),
    ("start: {b: {0: 1}}", "`start` gives offsets of `b`, which the table does not read", "write one of: a"),
]


@pytest.mark.parametrize(("settings", "message", "remedy"), TABLES)
def test_a_wrong_setting_of_a_table(refuse: Refuse, settings: str, message: str, remedy: str) -> None:
    error = refuse(with_table(settings))
    assert (error.message, error.remedy, error.where) == (message, remedy, "pipeline.yaml:4")
