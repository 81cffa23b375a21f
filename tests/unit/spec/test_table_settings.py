"""What the settings of a table become, from its envelope to the columns of its rows, and which go together."""

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
    TimeType,
)

from frazil.spec import ColumnSpec, PipelineSpec, json_schema
from frazil.spec.changes import describe_history
from frazil.spec.settings import AtomicSpec, EnvelopeSpec, FlattenSpec, InferSpec, ValueSpec
from tests.needs import cases, needs
from tests.unit.spec.pipeline_file import HEAD, Load, setting, with_table

_UPSERT = "mode: upsert, key_columns: [id]"
_CHANGES = f"{_UPSERT}, envelope: debezium"
_LOG = {"op": "_op", "image": "_image"}
_DEBEZIUM_LOG = {**_LOG, "source_ts": "_source_ts", "connector_ts": "_connector_ts", "unavailable": "_unavailable"}
_OF_EVENTS = {name: f"_{name}" for name in ("ce_source", "ce_type", "ce_time", "ce_subject")}
_OF_OUTBOX = {name: f"_{name}" for name in ("event_id", "event_type", "aggregate_type", "aggregate_id")}

MODES = [
    ("mode: append", {"mode": "append", "format_version": 2, "key_columns": (), "metadata": {}, "tombstones": ""}),
    ("mode: upsert", {"mode": "upsert", "format_version": 3, "key_columns": (), "metadata": {"key": "_key"}}),
    ("mode: upsert, format_version: 2", {"format_version": 2}),
    ("mode: upsert, key: {format: json}", {"metadata": {}, "order_by": None}),
    ("mode: upsert, key: {format: text}, metadata: {key: k}", {"metadata": {"key": "k"}}),
    ("mode: upsert, key_columns: [id, o.n], order_by: at", {"key_columns": ("id", "o.n"), "order_by": "at"}),
    ("mode: upsert, key_columns: [id], metadata: [offset]", {"metadata": {"offset": "_offset"}}),
    ("mode: upsert, deletes: soft, metadata: {timestamp: at}, order_by: at", {"order_by": "at"}),
    ("mode: upsert, deletes: soft, envelope: debezium, order_by: at", {"order_by": "at"}),
    (
        "mode: upsert, envelope: debezium, metadata: [source_order], order_by: _source_order",
        {"order_by": "_source_order"},
    ),
    ("tombstones: ignore", {"tombstones": "ignore"}),
    ("tombstones: dead_letter", {"tombstones": "dead_letter"}),
    ("tombstones: row", {"tombstones": "row"}),
    ("mode: upsert, tombstones: delete", {"tombstones": "delete"}),
    ("mode: upsert, tombstones: ignore", {"tombstones": "ignore"}),
    ("envelope: debezium, tombstones: dead_letter", {"tombstones": "dead_letter"}),
]
ENVELOPES = [
    ("envelope: none", {"envelope": None}),
    ("envelope: debezium", {"envelope": EnvelopeSpec(kind="debezium"), "atomic": None}),
    (
        "envelope: {type: debezium, unavailable_value: '?'}",
        {"envelope": EnvelopeSpec(kind="debezium", placeholder="?")},
    ),
    ("envelope: {operation: ops}", {"envelope": EnvelopeSpec(kind="operation", operation="ops")}),
    (
        "envelope: {operation: ops, insert: [I, 1], update: U, delete: [D, d]}",
        {
            "envelope": EnvelopeSpec(
                kind="operation", operation="ops", insert=("I", "1"), update=("U",), delete=("D", "d")
            )
        },
    ),
    ("envelope: debezium, changelog: true", {"metadata": _DEBEZIUM_LOG}),
    ("envelope: debezium", {"metadata": {"unavailable": "_unavailable"}}),
    ("envelope: debezium, metadata: {unavailable: gone}", {"metadata": {"unavailable": "gone"}}),
    ("envelope: {operation: o}, changelog: true, metadata: [op]", {"metadata": _LOG}),
    ("envelope: {operation: o}", {"metadata": {}}),
    ("atomic: batch", {"atomic": None}),
    ("envelope: debezium, atomic: transaction", {"atomic": AtomicSpec()}),
    (
        "envelope: debezium, atomic: {transaction_topic: shop.ends}",
        {"atomic": AtomicSpec(transaction_topic="shop.ends")},
    ),
]
OTHER_ENVELOPES = [
    ("envelope: maxwell", {"envelope": EnvelopeSpec(kind="maxwell")}),
    ("envelope: canal", {"envelope": EnvelopeSpec(kind="canal")}),
    ("envelope: maxwell, changelog: true", {"metadata": {**_LOG, "source_ts": "_source_ts"}}),
    ("envelope: canal, changelog: true", {"metadata": _DEBEZIUM_LOG}),
    (
        "envelope: dms, changelog: true, metadata: [total_order]",
        {
            "metadata": {
                "total_order": "_total_order",
                **_LOG,
                "source_ts": "_source_ts",
                "connector_ts": "_connector_ts",
            }
        },
    ),
    ("envelope: canal", {"metadata": {"unavailable": "_unavailable"}}),
    ("envelope: cloudevents, metadata: {ce_id: event}", {"metadata": {**_OF_EVENTS, "ce_id": "event"}}),
    ("envelope: outbox", {"metadata": _OF_OUTBOX}),
]
STATE = [
    (f"{_UPSERT}, merge: {{n: sum, at: max}}", {"merge": (("n", "sum"), ("at", "max"))}),
    (f"{_UPSERT}, merge: latest_non_null", {"merge": (("", "latest_non_null"),)}),
    (f"{_CHANGES}, merge: {{n: sum, rows: count}}", {"tombstones": "ignore", "on_bad_record": "stop"}),
    (f"{_CHANGES}, merge: {{n: sum, rows: count}}, on_bad_record: skip", {"on_bad_record": "skip"}),
    (f"{_UPSERT}, merge: {{n: sum}}, order_by: at", {"order_by": "at"}),
    (
        f"{_UPSERT}, columns: {{v: string}}, merge: {{visits: count}}",  # A column that no record has.
        {
            "columns": (
                ColumnSpec(name="v", type=StringType()),
                ColumnSpec(name="visits", type=LongType(), constant="1"),
            )
        },
    ),
    ("dedupe: {by: [id], within: 24h}", {"metadata": {"timestamp": "_timestamp"}}),
    ("dedupe: {by: [id], within: 24h}, metadata: {timestamp: at}", {"metadata": {"timestamp": "at"}}),
    ("dedupe: {by: [id, o.n]}", {"metadata": {}}),
]
SHAPES = [
    ("flatten: false", {"flatten": None, "column_case": "keep", "include": (), "exclude": ()}),
    ("flatten: true", {"flatten": FlattenSpec(separator="_", depth=100)}),
    ("flatten: {separator: __, depth: 3}", {"flatten": FlattenSpec(separator="__", depth=3)}),
    ("flatten: {depth: 1}", {"flatten": FlattenSpec(depth=1)}),
    ("column_case: snake", {"column_case": "snake"}),
    ("numbers: as_seen", {"numbers": None}),
    ("numbers: double", {"numbers": DoubleType()}),
    ('numbers: "decimal(18, 4)"', {"numbers": DecimalType(18, 4)}),
    ("infer: {timestamps: true}", {"infer": InferSpec(timestamps=True)}),
    ("include: [a, b.c, d.*]", {"include": (("a",), ("b", "c"), ("d",))}),
    ("exclude: [e, f.g, l.element.x]", {"exclude": (("e",), ("f", "g"), ("l", "element", "x"))}),
]
COLUMNS = [
    ("{type: timestamp, zone: UTC}", ColumnSpec(name="c", type=TimestampType(), zone="UTC")),
    (
        "{type: timestamptz(s), zone: Europe/Berlin}",
        ColumnSpec(name="c", type=TimestamptzType(), unit="s", zone="Europe/Berlin"),
    ),
    ("timestamptz(ms)", ColumnSpec(name="c", type=TimestamptzType(), unit="ms")),
    ("timestamp( ns )", ColumnSpec(name="c", type=TimestampType(), unit="ns")),
    ("time(us)", ColumnSpec(name="c", type=TimeType(), unit="us")),
    ("date", ColumnSpec(name="c", type=DateType())),
    ("{type: string, coerce: true}", ColumnSpec(name="c", type=StringType(), coerce=True)),
    ("{type: string, constant: ''}", ColumnSpec(name="c", type=StringType(), constant="")),
    ("{type: long, constant: 7}", ColumnSpec(name="c", type=LongType(), constant="7")),
    ("{type: string, header: h}", ColumnSpec(name="c", type=StringType(), header="h")),
    ("{type: long, field: order.total}", ColumnSpec(name="c", type=LongType(), field=("order", "total"))),
    ("{type: timestamptz(s), field: y}", ColumnSpec(name="c", type=TimestamptzType(), unit="s", field=("y",))),
    (
        "{type: double, header: h, value: {}}",
        ColumnSpec(name="c", type=DoubleType(), header="h", value=ValueSpec(format="json")),
    ),
    (
        "{type: int, header: h, value: {format: text}}",
        ColumnSpec(name="c", type=IntegerType(), header="h", value=ValueSpec(format="text")),
    ),
]
TAKEN = [
    # Columns that the table has, or may get.
    "metadata: [timestamp], partition_by: [day(_timestamp)]",
    "metadata: {timestamp: at}, partition_by: [day(at)]",
    "columns: {_timestamp: timestamptz}, partition_by: [day(_timestamp)]",
    "mode: upsert, partition_by: ['truncate(_key, 2)']",
    f"{_UPSERT}, deletes: soft, sort_by: [_deleted_at]",
    # Keys and orders that the table takes.
    "mode: upsert, key_columns: [o.id], exclude: [o.x]",
    "mode: upsert, key_columns: [o.id], include: [o.id, v]",
    f"{_UPSERT}, include: [id, v], metadata: [offset], order_by: _offset",
    f"{_UPSERT}, include: [v], columns: {{id: {{type: long, field: after.id}}}}",
    f"{_UPSERT}, include: [v], columns: {{id: long}}",
    "mode: upsert, key_columns: [id, r], include: [id], columns: {r: {type: string, constant: eu}}",
    "mode: upsert, key_columns: [user_id], flatten: true, include: [user]",
    "mode: upsert, key_columns: [o.id, v], columns: {v: long, o: 'struct<id: long>'}, unknown_fields: drop",
    "mode: upsert, key_columns: [v], columns: {v: long}, unknown_fields: drop, metadata: {offset: at}, order_by: at",
    # Names in another case.
    "columns: {at: timestamptz, id: long}, partition_by: [day(AT)], sort_by: [ID], unknown_fields: drop",
    "columns: {o: 'struct<id: long>'}, partition_by: ['bucket(O.Id, 4)'], unknown_fields: drop",
    "mode: upsert, key_columns: [ID], order_by: AT, columns: {at: long, id: long}, unknown_fields: drop",
    "mode: upsert, key_columns: [ID], include: [id]",
    "metadata: [timestamp], partition_by: [day(_TIMESTAMP)]",
    # New names of fields that are different columns, or only look reserved.
    "rename: {a.x: b, c.x: b}",
    "rename: {a: A}",
    "rename: {a: b}, add_fields: {b: 1}",
    "add_fields: {_kafka_partition: _kafka_partition}",
    "rename: {a.b: _file}",
]


def validated(load: Load, text: str) -> PipelineSpec:
    """What a file becomes, which the schema for editors takes too."""
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))
    return load(text)


@pytest.mark.parametrize(("settings", "read"), [*MODES, *ENVELOPES, *SHAPES])
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    (table,) = validated(load, with_table(settings)).tables
    assert {name: setting(table, name) for name in read} == read


@needs("cdc")
@pytest.mark.parametrize(("settings", "read"), OTHER_ENVELOPES)
def test_settings_of_other_envelopes_are_read_and_valid_for_editors(
    load: Load, settings: str, read: dict[str, Any]
) -> None:
    test_what_is_written_is_read_and_valid_for_editors(load, settings, read)


@needs("state")
@pytest.mark.parametrize(("settings", "read"), STATE)
def test_settings_of_state_are_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    test_what_is_written_is_read_and_valid_for_editors(load, settings, read)


@pytest.mark.parametrize(("column", "read"), COLUMNS)
def test_a_column_is_read_and_valid_for_editors(load: Load, column: str, read: ColumnSpec) -> None:
    assert validated(load, with_table(f"columns: {{c: {column}}}")).tables[0].shape.columns == (read,)


def test_settings_that_go_together_are_taken(load: Load) -> None:
    for settings in TAKEN:
        assert load(with_table(settings)).tables, settings


@needs("protobuf")
def test_a_header_may_be_of_a_format_of_the_registry(load: Load) -> None:
    value = "value: {format: protobuf, schema: latest, subject: s, message: M}"
    text = with_table(f"columns: {{p: {{type: 'struct<x: long>', header: h, {value}}}}}")
    (column,) = validated(load, f"{text}registry: {{url: http://r}}\n").tables[0].shape.columns
    assert column.value == ValueSpec(format="protobuf", source="latest", subject="s", message="M")


@pytest.mark.parametrize("kind", ["debezium", "{operation: o}"])
@needs("jsonschema")
def test_an_envelope_whose_schema_is_a_json_schema(load: Load, kind: str) -> None:
    text = with_table(f"envelope: {kind}, value: {{format: json_schema}}") + 'registry: {url: "http://r:8081"}\n'
    assert load(text).tables[0].changes.envelope is not None


@pytest.mark.parametrize("form", cases(["avro", "protobuf", "json_schema", "text", "raw"]))
def test_settings_of_json_that_change_nothing_may_stand_beside_every_format(load: Load, form: str) -> None:
    text = with_table(f"numbers: as_seen, infer: {{timestamps: false}}, value: {{format: {form}}}")
    registry = "" if form in ("text", "raw") else "registry: {url: 'http://localhost:8081'}\n"
    assert load(text + registry).tables[0].source.value.format == form


def test_the_defaults_are_for_tables_that_are_made_for_topics(load: Load) -> None:
    settings = "flatten: true, column_case: lower, exclude: [x], envelope: debezium, atomic: {transaction_topic: e}"
    table = load(f"{HEAD}namespace: n\ntopics: /./\ndefaults: {{{settings}}}\n").table_for("a")
    assert (table.shape.flatten, table.shape.column_case, table.shape.exclude) == (FlattenSpec(), "lower", (("x",),))
    assert table.changes.atomic == AtomicSpec(transaction_topic="e")


@needs("state")
def test_what_is_merged_by_default_is_no_setting_of_a_table_that_appends(load: Load) -> None:
    text = with_table("mode: append") + "defaults: {mode: upsert, key_columns: [id], merge: {n: sum}}\n"
    assert setting(load(text).tables[0], "merge") == ()


@needs("state")
def test_the_table_of_the_rest_of_a_route_merges_nothing_and_has_no_count(load: Load) -> None:
    route = "topic: a, by: k, to: 's.${k}', rest: s.rest, mode: upsert, key_columns: [id], tombstones: ignore"
    spec = load(f"{HEAD}routes: [{{{route}, merge: {{n: sum, records: count}}}}]\n")
    (rest,) = [table for table in spec.tables if table.name == "s.rest"]
    assert setting(rest, "merge") == ()
    assert rest.shape.columns == ()
    assert [column.name for column in spec.routes[0].shape.columns] == ["records"]


@needs("state")
def test_a_history_is_an_upsert_table_with_three_more_columns(load: Load) -> None:
    history = "mode: history, key_columns: [id], track: [name, city], metadata: {valid_to: until}"
    (table,) = validated(load, with_table(history)).tables
    assert (table.changes.mode, table.changes.keeps_history, table.layout.format_version) == ("upsert", True, 3)
    columns = {"valid_to": "until", "valid_from": "valid_from", "is_current": "is_current"}
    assert setting(table, "metadata") == columns
    assert list(describe_history(table)) == [
        "keeps each version of name, city by id, from the order of the records, in valid_from, until, is_current"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.format.default", "Parquet"),
        ("write.target-file-size-bytes", "1048576"),
        ("write.parquet.compression-codec", "GZIP"),
        ("write.parquet.compression-level", "9"),
        ("write.parquet.compression-codec", "lz4_raw"),
        ("write.parquet.bloom-filter-fpp.column.id", "1e-3"),
        ("write.metadata.metrics.default", "Truncate(4)"),
        ("write.metadata.metrics.column.id", "none"),
        ("write.metadata.metrics.max-inferred-column-defaults", "7"),
        ("write.metadata.previous-versions-max", "7"),
        ("comment", "any text"),
    ],
)
def test_table_properties_are_passed_on(load: Load, name: str, text: str) -> None:
    (table,) = load(with_table(f"properties: {{{name}: {text}}}")).tables
    assert table.layout.properties == {name: text}
