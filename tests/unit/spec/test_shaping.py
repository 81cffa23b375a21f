"""The settings that say how the fields of records become columns."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from frazil.spec import ColumnSpec, json_schema
from frazil.spec.settings import FlattenSpec, InferSpec, ValueSpec
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, setting, with_table


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ("flatten: false", {"flatten": None, "column_case": "keep", "include": (), "exclude": ()}),
        ("flatten: true", {"flatten": FlattenSpec(separator="_", depth=100)}),
        ("flatten: {separator: __, depth: 3}", {"flatten": FlattenSpec(separator="__", depth=3)}),
        ("flatten: {depth: 1}", {"flatten": FlattenSpec(depth=1)}),
        ("column_case: snake", {"column_case": "snake"}),
        ("numbers: as_seen", {"numbers": None}),
        ("numbers: double", {"numbers": DoubleType()}),
        ('numbers: "decimal(18, 4)"', {"numbers": DecimalType(18, 4)}),
        ("infer: {timestamps: true}", {"infer": InferSpec(timestamps=True)}),
        (
            "columns: {ts: {type: timestamp, zone: UTC}, m: {type: timestamptz(s), zone: Europe/Berlin}}",
            {
                "columns": (
                    ColumnSpec(name="ts", type=TimestampType(), zone="UTC"),
                    ColumnSpec(name="m", type=TimestamptzType(), unit="s", zone="Europe/Berlin"),
                )
            },
        ),
        ("include: [a, b.c, d.*]", {"include": (("a",), ("b", "c"), ("d",))}),
        ("exclude: [e, f.g, l.element.x]", {"exclude": (("e",), ("f", "g"), ("l", "element", "x"))}),
        (
            "columns: {ts: timestamptz(ms), at: timestamp( ns ), d: date}",
            {
                "columns": (
                    ColumnSpec(name="ts", type=TimestamptzType(), unit="ms"),
                    ColumnSpec(name="at", type=TimestampType(), unit="ns"),
                    ColumnSpec(name="d", type=DateType()),
                )
            },
        ),
        (
            "columns: {region: {type: string, constant: ''}, n: {type: long, constant: 7}, t: {type: string, header: h},"
            " total: {type: long, field: order.total}, x: {type: timestamptz(s), field: y}}",
            {
                "columns": (
                    ColumnSpec(name="region", type=StringType(), constant=""),
                    ColumnSpec(name="n", type=LongType(), constant="7"),
                    ColumnSpec(name="t", type=StringType(), header="h"),
                    ColumnSpec(name="total", type=LongType(), field=("order", "total")),
                    ColumnSpec(name="x", type=TimestamptzType(), unit="s", field=("y",)),
                )
            },
        ),
        (
            "columns: {j: {type: double, header: h, value: {}}, t: {type: int, header: h, value: {format: text}}}",
            {
                "columns": (
                    ColumnSpec(name="j", type=DoubleType(), header="h", value=ValueSpec(format="json")),
                    ColumnSpec(name="t", type=IntegerType(), header="h", value=ValueSpec(format="text")),
                )
            },
        ),
    ],
)
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    text = with_table(settings)
    (table,) = load(text).tables
    assert {name: setting(table, name) for name in read} == read
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


def test_a_header_may_be_of_a_format_of_the_registry(load: Load) -> None:
    value = "value: {format: protobuf, schema: latest, subject: s, message: M}"
    text = (
        with_table(f"columns: {{p: {{type: 'struct<x: long>', header: h, {value}}}}}") + "registry: {url: http://r}\n"
    )
    (column,) = load(text).tables[0].shape.columns
    assert column.value == ValueSpec(format="protobuf", source="latest", subject="s", message="M")
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


def test_shaping_may_be_the_default_of_many_tables(load: Load) -> None:
    spec = load(f"{HEAD}namespace: n\ntopics: [a]\ndefaults: {{flatten: true, column_case: lower, exclude: [x]}}\n")
    table = spec.table_for("a")
    assert (table.shape.flatten, table.shape.column_case, table.shape.exclude) == (FlattenSpec(), "lower", (("x",),))


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ("flaten: true", "unknown key `flaten` in table `shop.x`", "did you mean `flatten`?"),
        ("flatten: {seperator: _}", "unknown key `seperator` in `flatten`", "did you mean `separator`?"),
        ("flatten: yess", "`flatten` cannot be `yess`", "write one of: true, false"),
        ("flatten: {separator: ''}", "`flatten.separator` is empty where text is expected", "write text after"),
        ("flatten: {separator: .}", "`flatten.separator` has a dot", "write another one, such as `_` or `__`"),
        ("flatten: {depth: 0}", "`flatten.depth` is not a number from 1 to 100", "write how many levels"),
        ("flatten: {depth: all}", "`flatten.depth` is not a number from 1 to 100", "write how many levels"),
        ("column_case: snakes", "`column_case` cannot be `snakes`", "did you mean `snake`?"),
        ("include: a", "`include` is text where a list is expected", "write a list, such as `[a, b]`"),
        ("include: []", "`include` is empty", "write paths of fields"),
        ("include: [a, a.*]", "`a` occurs twice in `include`", "keep one of them"),
        ("exclude: ['*']", "`*` is not the path of a field", "join names of fields by dots"),
        ("exclude: [a..b]", "`a..b` is not the path of a field", "join names of fields by dots"),
        ("exclude: [a.*.b]", "`a.*.b` is not the path of a field", "join names of fields by dots"),
        ("include: [a.b], exclude: [a]", "`exclude` leaves out `a.b`, which `include` asks for", "take it out of one"),
        (
            "exclude: [o], columns: {t: {type: long, field: o.t}}",
            "`exclude` leaves out `o.t`, which `columns` asks for",
            "take it out of one of them",
        ),
        (
            "exclude: [a], columns: {a: long}",
            "`exclude` leaves out `a`, which `columns` asks for",
            "take it out of one",
        ),
        ("value: {format: text}, flatten: true", "`flatten` has no effect with the format text", "remove it"),
        ("value: {format: raw}, exclude: [a]", "`exclude` has no effect with the format raw", "remove it"),
        (
            "columns: {a: timestamptz(min)}",
            "`min` is not a unit of the time since the epoch",
            "write one of: timestamptz(s)",
        ),
        ("columns: {a: 'list<timestamp(ms)>'}", "the type `list<timestamp(ms)>` has a unit inside", "write `long`"),
        (
            "columns: {a: {type: long, constant: 1, header: h}}",
            "`columns.a` has both `constant` and `header`",
            "keep one of them",
        ),
        (
            "columns: {a: {type: long, constant: x}}",
            "`x` is not a value of the type long",
            "write a value of the type long",
        ),
        (
            "columns: {a: {type: int, constant: 3000000000}}",
            "`3000000000` is not a value of the type int",
            "write a value of",
        ),
        ("columns: {a: {type: double, constant: 1e999}}", "`1e999` is out of the range of double", "write a value"),
        (
            "columns: {a: {type: 'decimal(3,1)', constant: 1.25}}",
            "`1.25` is not a value of the type decimal(3, 1)",
            "write a value",
        ),
        (
            "columns: {a: {type: date, constant: soon}}",
            "`soon` is not a value of the type date",
            "write a value of the type date",
        ),
        (
            "columns: {a: {type: string, constant: }}",
            "`columns.a.constant` is empty where one value",
            "write one value",
        ),
        ("columns: {a: {type: uuid, constant: x}}", "a constant cannot be a `uuid`", "write string, boolean"),
        (
            "columns: {a: {type: timestamptz(ms), constant: x}}",
            "`columns.a`: a unit is for numbers",
            "write `timestamptz`",
        ),
        (
            "columns: {a: {type: double, header: h}}",
            "`columns.a`: the bytes of a header are no `double`",
            "write string, binary, int or long as its type, or what its bytes are, such as `value: {format: json}`",
        ),
        (
            "columns: {a: {type: long, field: b, value: {format: json}}}",
            "`columns.a.value` describes the bytes of a header, and the column has no header",
            "write `header: NAME`, or remove it",
        ),
        (
            "columns: {a: {type: long, header: h, value: {format: jsn}}}",
            "`columns.a.value.format` cannot be `jsn`",
            "did you mean `json`?",
        ),
        (
            "columns: {a: {type: string, header: h, value: {format: raw}}}",
            "`columns.a`: a header of the format raw cannot be a `string`",
            "write another type (binary), or another format",
        ),
        (
            "columns: {a: {type: double, header: h, value: {format: text}}}",
            "`columns.a`: a header of the format text cannot be a `double`",
            "write another type (string, int, long), or another format",
        ),
        (
            "columns: {a: {type: long, header: h, value: {format: json_schema}}}",
            "`columns.a`: a header of the format json_schema cannot be a `long`",
            "write another type (a struct), or another format",
        ),
        (
            "columns: {a: {type: long, header: h, value: {format: json, framing: apicurio}}}",
            "`columns.a.value.framing` has no effect with the format json",
            "remove it, or write `format`",
        ),
        (
            "columns: {a: {type: long, header: h, value: {format: avro, framing: header}}}",
            "`columns.a.value.framing`: a header names its schema itself, in its first bytes",
            "write confluent or apicurio",
        ),
        (
            "columns: {a: {type: long, header: h, value: {format: avro, schema: latest}}}",
            "`columns.a.value` is read with the latest schema, and headers have no subject of their own",
            "write `subject: NAME`",
        ),
        ("columns: {a: {type: long, field: b.}}", "`b.` is not the path of a field", "join names of fields"),
        (
            "columns: {a: long, b: {type: long, field: a}}",
            "the columns `a` and `b` are both for the field `a`",
            "keep one of them, or write another `field`",
        ),
        (
            "columns: {a: {type: long, field: o}, b: {type: long, field: o.x}}",
            "the column `b` is for a field inside the one of `a`, which is not a struct",
            "keep one of them",
        ),
        (
            "add_fields: {a: source.table}",
            "`add_fields` has `source.table`, which needs an envelope",
            "write `envelope`",
        ),
        ("add_fields: {a: _op}", "`add_fields` has `_op`, which needs an envelope", "write `envelope`"),
        (
            "envelope: maxwell, add_fields: {a: ts_ms}",
            "`add_fields` has `ts_ms`, which the table's envelope does not have",
            "write one of: _topic",
        ),
        ("envelope: debezium, add_fields: {a: source.x}", "`add_fields` has `source.x`", "did you mean `source.db`?"),
        ("columns: {_rescued: {type: string, constant: x}}", "`_rescued` is the column for what", "rename the column"),
        (
            "columns: {_key: {type: string, header: h}}, metadata: [key]",
            "the column `_key` is declared, and `metadata` writes key to it",
            "rename the column",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    refuse: Refuse, settings: str, message: str, remedy: str
) -> None:
    error = refuse(with_table(settings))
    assert (error.message.startswith(message), error.remedy.startswith(remedy), error.where) == (
        True,
        True,
        "pipeline.yaml:4",
    ), (error.message, error.remedy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("numbers: long", "`numbers` cannot be `long`"),
        ('numbers: "decimal(99, 1)"', "is not a decimal of Iceberg"),
        ("numbers: double, value: {format: text}", "`numbers` is for JSON without a schema, and the values are text"),
        (
            "infer: {timestamps: true}, value: {format: raw}",
            "`infer` is for JSON without a schema, and the values are raw",
        ),
        (
            "columns: {ts: {type: timestamp, zone: Berlin}}",
            "`columns.ts.zone: Berlin` is not a zone of the IANA database",
        ),
        ("columns: {ts: {type: long, zone: UTC}}", "`columns.ts.zone` is for a timestamp or timestamptz of records"),
        ("exclude: ['[1]']", "`[1]` is not the path of a field"),
    ],
)
def test_what_numbers_zones_and_paths_cannot_be(refuse: Refuse, settings: str, message: str) -> None:
    assert message in refuse(with_table(settings)).message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "rename: {a: _file}",
            "`rename` makes a column `_file`, which is the name of one of Iceberg's metadata columns",
        ),
        ("add_fields: {_Pos: x}", "`add_fields` makes a column `_Pos`, which is the name of one of Iceberg's"),
        ("add_fields: {_deleted: true}", "`add_fields` makes a column `_deleted`"),
        ("columns: {_FILE: string}", "the column `_FILE` has the name of one of Iceberg's metadata columns"),
        ("metadata: {offset: _Row_Id}", "the column `_Row_Id` has the name of one of Iceberg's metadata columns"),
        (f"rename: {{a.b: {'n' * 256}}}", "has 256 bytes, and a column's name has 255 at most"),
    ],
)
def test_settings_make_no_column_whose_name_iceberg_has_for_itself(refuse: Refuse, settings: str, message: str) -> None:
    assert message in refuse(with_table(settings)).message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("rename: {a: b, A: c}", "`rename` has `a` and `A`, which most readers take for one column"),
        ("rename: {a: b, c: B}", "`rename` has `b` and `B`, which"),
        ("rename: {a.x: b, A.y: B}", "`rename` has `a.b` and `A.B`, which"),
        ("rename: {a: b, c: b}", "`rename` has `b` and `b`, which"),
        ("mode: upsert, key_columns: [id, ID]", "`key_columns` has `id` and `ID`, which"),
        ("add_fields: {x: 1, X: 2}", "`add_fields` has `x` and `X`, which"),
        ("cast: {x: int, X: long}", "`cast` has `x` and `X`, which"),
    ],
)
def test_names_that_differ_in_case_alone_are_refused(refuse: Refuse, settings: str, message: str) -> None:
    assert message in refuse(with_table(settings)).message


@pytest.mark.parametrize(
    "settings", ["rename: {a.x: b, c.x: b}", "rename: {a: A}", "rename: {a: b}, add_fields: {b: 1}"]
)
def test_names_that_are_different_columns_are_taken(load: Load, settings: str) -> None:
    assert load(with_table(settings)).tables[0].query.has_steps


@pytest.mark.parametrize("settings", ["add_fields: {_kafka_partition: _kafka_partition}", "rename: {a.b: _file}"])
def test_names_that_only_look_reserved_are_taken(load: Load, settings: str) -> None:
    assert load(with_table(settings)).tables[0].query.has_steps


@pytest.mark.parametrize("form", ["avro", "protobuf", "json_schema", "text", "raw"])
def test_settings_of_json_that_change_nothing_may_stand_beside_every_format(load: Load, form: str) -> None:
    text = with_table(f"numbers: as_seen, infer: {{timestamps: false}}, value: {{format: {form}}}")
    registry = "" if form in ("text", "raw") else "registry: {url: 'http://localhost:8081'}\n"
    assert load(text + registry).tables[0].source.value.format == form
