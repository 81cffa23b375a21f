"""A table that stops, waits or refuses is well once somebody has done what the remedy reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import WriterSchema
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.schema.conflicts import refused_changes
from tests.needs import needs
from tests.unit.remedies.followed import is_told
from tests.unit.remedies.operator import Operator
from tests.unit.rows.test_writer_schemas import framed


@dataclass(frozen=True)
class RemedyCase:
    """Records of the topic in the order of runs, and what a table with these settings reports of the last of them.

    done: settings that do what the remedy offers, each with the rows that are there then. is_new: for another table, which
    reads the topic from its beginning.
    """

    settings: str
    runs: tuple[tuple[Any, ...], ...]
    remedy: str
    done: Sequence[tuple[str, list[dict[str, Any]]]]
    is_new: bool = False


_CLASH = "leave one of the fields out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: PATH}}`"
_TEXT = (
    "fix the producer, or give the field a column for any value,"
    " `columns: {NAME: {type: string, coerce: true, field: PATH}}`"
)
_WIDE = (
    "declare a field whose objects have names that vary as map<string, …>, under another column's name with `field` where"
    " the table has its column already; leave fields out with `exclude`; or raise `limits: {columns: …}`"
)
_EMPTY = "produce records with fields, or declare `columns`"
_FORMAT = "write the format of the topic's values under `value.format`, such as avro, json or text, or fix the producer"
_STOP = "on_bad_record: stop"

STOPS = [
    RemedyCase(
        "start: {3: 0}",
        (({"x": 1},),),
        "correct `start`: partitions are counted from 0",
        [("start: {0: 0}", [{"x": 1}])],
    ),
    RemedyCase(
        "limits: {columns: 2}",
        (({"x": 1, "y": 2, "m": {"a": 1}},),),
        _WIDE,
        [
            ("limits: {columns: 2}, exclude: [m]", [{"x": 1, "y": 2}]),
            ("limits: {columns: 5}, columns: {m: 'map<string,long>'}", [{"x": 1, "y": 2, "m": [("a", 1)]}]),
            ("limits: {columns: 4}", [{"x": 1, "y": 2, "m": {"a": 1}}]),
        ],
    ),
    RemedyCase(
        "limits: {columns: 2}",
        (({"x": 1},), ({"y": 2}, {"z": 3})),
        _WIDE,
        [
            ("limits: {columns: 3}", [{"x": 1}, {"y": 2}, {"z": 3}]),
            ("exclude: [z], limits: {columns: 2}", [{"x": 1}, {"y": 2}, {}]),
        ],
    ),
    RemedyCase(
        "limits: {columns: 4}",
        (({"x": 1, "m": {"a": 1}},), ({"m": {"b": 2}}, {"m": {"c": 3}})),
        _WIDE,
        [
            (
                "limits: {columns: 4}, columns: {names: {type: 'map<string,long>', field: m}}",
                [{"x": 1, "m": {"a": 1}}, {"names": [("b", 2)]}, {"names": [("c", 3)]}],
            ),
            (
                "limits: {columns: 4}, exclude: [m.b]",
                [{"x": 1, "m": {"a": 1}}, {"m": {"a": None, "c": None}}, {"m": {"a": None, "c": 3}}],
            ),
        ],
    ),
    RemedyCase(
        _STOP,
        (({"x": 1},), ({"x": "a"},)),
        _TEXT,
        [(f"{_STOP}, columns: {{x_text: {{type: string, coerce: true, field: x}}}}", [{"x": 1}, {"x_text": "a"}])],
    ),
    *(
        RemedyCase(
            _STOP,
            (({"x": 1},), (unreadable,)),
            "fix the producer, and write `on_bad_record: dead_letter`, which sets aside the records already in Kafka",
            [("on_bad_record: dead_letter", [{"x": 1}])],
        )
        for unreadable in (b'{"x": 2', b"[2]", b"\xff", b'{"x": 2, "x": 3}')
    ),
    RemedyCase(
        _STOP,
        (({"x": 2**63},),),
        _TEXT,
        [
            (f"{_STOP}, columns: {{x: {{type: string, coerce: true}}}}", [{"x": str(2**63)}]),
            (f"{_STOP}, columns: {{x: double}}", [{"x": 2.0**63}]),
        ],
    ),
    RemedyCase(
        f"{_STOP}, flatten: true",
        (({"a_b": 1, "a": {"b": 2}},),),
        _CLASH,
        [
            ("flatten: true, exclude: [a_b]", [{"a_b": 2}]),
            ("flatten: true, columns: {f: {type: long, field: a_b}}", [{"f": 1, "a_b": 2}]),
        ],
    ),
    RemedyCase(
        f"{_STOP}, metadata: {{offset: x}}",
        (({"x": 7},),),
        _CLASH,
        [
            ("metadata: {offset: x}, exclude: [x]", [{"x": 0}]),
            ("metadata: {offset: x}, columns: {f: {type: long, field: x}}", [{"x": 0, "f": 7}]),
        ],
    ),
    RemedyCase(
        f"{_STOP}, schema_evolution: freeze, columns: {{x: long}}",
        (({"x": 1, "y": 2},),),
        "write `schema_evolution: add_only`, or leave the field out with `exclude`",
        [
            (f"{_STOP}, schema_evolution: add_only, columns: {{x: long}}", [{"x": 1, "y": 2}]),
            (f"{_STOP}, schema_evolution: freeze, columns: {{x: long}}, exclude: [y]", [{"x": 1}]),
        ],
    ),
    RemedyCase(
        "columns: {x: long}",
        (tuple({"x": "bad"} for _ in range(100)),),
        "where the text is a number, `cast: {x: long}` converts it, with `columns: {x: {type: string, coerce: true}}` if"
        " other records have numbers; or fix the producer or the declared columns;"
        " `dead_letters: {stop_above: …}` tolerates more",
        [("columns: {x: string}", [{"x": "bad"}] * 100), ("columns: {x: long}, dead_letters: {stop_above: 100%}", [])],
        is_new=True,
    ),
    RemedyCase(
        _STOP,
        (({"x": 1}, None),),
        "write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep them as"
        " rows, or `mode: upsert` where they delete rows",
        [("tombstones: ignore", [{"x": 1}]), ("tombstones: row", [{"x": 1}, {}])],
    ),
    RemedyCase(
        f"{_STOP}, mode: upsert, key: {{format: json}}",
        (({"x": 1},),),
        "name the `key_columns`, with `_source_table` among them where a topic has rows of several tables, or read the topic"
        " into a table with `mode: append`: rows of a source table without a primary key cannot be identified",
        [("mode: upsert, key_columns: [x]", [{"x": 1}]), ("mode: append", [{"x": 1}])],
    ),
    RemedyCase("", (({},),), _EMPTY, [("columns: {x: long}", [{}])]),
    RemedyCase("", ((7,),), _FORMAT, [("value: {format: text}", [{"value": "7"}])]),
    RemedyCase("", ((b"not json",),), _FORMAT, [("value: {format: text}", [{"value": "not json"}])]),
    RemedyCase(
        f"{_STOP}, schema_evolution: freeze, columns: {{x: int, y: long}}",
        (({"x": 2**40, "y": "bad", "z": 1},),),  # With a wider column, or one more, the record would be a bad one too.
        _TEXT,
        [
            (
                f"{_STOP}, exclude: [z], columns: {{x: long, y_text: {{type: string, coerce: true, field: y}}}}",
                [{"x": 2**40, "y_text": "bad"}],
            )
        ],
    ),
    RemedyCase(
        f"{_STOP}, columns: {{x: timestamptz}}",
        (({"x": 1.5},),),
        _TEXT,
        [(f"{_STOP}, columns: {{x: timestamptz(ms)}}", [{"x": datetime(1970, 1, 1, 0, 0, 0, 1500, UTC)}])],
    ),
    RemedyCase(
        "columns: {x: long, X: long}",
        (({"x": 1},),),
        "give one of them another name, such as `…_2: {type: …, field: …}`",
        [("columns: {x: long, X_2: {type: long, field: X}}", [{"x": 1}])],
    ),
    RemedyCase(
        "schema_evolution: freeze, partition_by: [c], columns: {x: long}",
        (({"x": 1},),),
        "declare it under `columns`, or correct the name: …",
        [
            ("schema_evolution: freeze, partition_by: [c], columns: {x: long, c: long}", [{"x": 1}]),
            ("schema_evolution: freeze, partition_by: [x], columns: {x: long}", [{"x": 1}]),
        ],
    ),
]


@pytest.mark.parametrize("told", STOPS, ids=lambda told: f"{told.settings} {str(told.runs[-1])[:40]}")
def test_a_table_continues_once_its_remedy_is_done(tmp_path: Path, told: RemedyCase) -> None:
    for number, (done, rows) in enumerate(told.done):
        operator = Operator(tmp_path / str(number))
        for records in told.runs:
            operator.feed("a", *records)
            table = operator.run(told.settings)
        assert table.status.run_state in (RunState.STOPPED, RunState.BACKING_OFF)
        assert is_told(told.remedy, table.status.remedy), table.status.remedy
        name = "n.b" if told.is_new else "n.a"
        assert operator.run(done, name).status.run_state is RunState.WAITING
        assert filled(operator.values(name)) == rows


def filled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that have no value."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@dataclass(frozen=True)
class Changed:
    """A field `x` whose type in Avro changes, what is reported then, and settings of a new table that takes both."""

    name: str
    settings: str
    first: tuple[Any, Any]
    second: tuple[Any, Any]
    remedy: str
    done: str
    values: list[Any]
    column: str = "x"
    is_new: bool = True


_BOTH = (
    "correct the schema, or give the field another name; a new table with"
    " `columns: {NAME: {type: string, coerce: true, field: PATH}}` keeps both as text"
)


def _inside(kind: Any) -> dict[str, Any]:
    """A record with a field `y`."""
    return {"type": "record", "name": "S", "fields": [{"name": "y", "type": kind}]}


def _hollow(*fields: str) -> dict[str, Any]:
    """A record with these fields, which may be none."""
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": "string"} for name in fields]}


_DAY = {"type": "int", "logicalType": "date"}
_MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
_FIRST_FIELD = (
    "the column was made of a message or record without fields: give the field a column of its own, such as"
    ' `columns: {…_fields: {type: "…", field: …}}`'
)
CHANGES = [
    Changed(
        "first field in a list",
        "",
        ({"type": "array", "items": _hollow()}, [{}]),
        ({"type": "array", "items": _hollow("by")}, [{"by": "a"}]),
        _FIRST_FIELD,
        'columns: {x_fields: {type: "list<struct<by: string>>", field: x}}',
        [[{"by": "a"}]],
        column="x_fields",
        is_new=False,
    ),
    Changed(
        "first field in a map",
        "",
        ({"type": "map", "values": {"type": "array", "items": _hollow()}}, {"k": [{}]}),
        ({"type": "map", "values": {"type": "array", "items": _hollow("by")}}, {"k": [{"by": "a"}]}),
        _FIRST_FIELD,
        'columns: {x_fields: {type: "map<string, list<struct<by: string>>>", field: x}}',
        [[("k", [{"by": "a"}])]],
        column="x_fields",
        is_new=False,
    ),
    Changed(
        "struct",
        "",
        ("int", 1),
        (_inside("int"), {"y": 2}),
        _BOTH,
        "columns: {x: {type: string, coerce: true}}",
        ["1", '{"y":2}'],
    ),
    Changed(
        "boolean", "", ("int", 1), ("boolean", True), _BOTH, "columns: {x: {type: string, coerce: true}}", ["1", "true"]
    ),
    Changed(
        "text",
        "",
        ("string", "a"),
        ("int", 7),
        "to keep it as text, write `columns: {…: {type: string, coerce: true}}`",
        "columns: {x: {type: string, coerce: true}}",
        ["a", "7"],
        is_new=False,
    ),
    Changed(
        "widened",
        "schema_evolution: add_only",
        ("int", 1),
        ("long", 2),
        "write `schema_evolution: evolve`, or widen the column yourself",
        "schema_evolution: evolve",
        [1, 2, 2],
        is_new=False,
    ),
    Changed(
        "times",
        "",
        ({"type": "long", "logicalType": "timestamp-millis"}, 0),
        ("long", 0),
        "say what its numbers count since …, such as `columns: {…: …}`",
        "columns: {x: timestamptz(ms)}",
        [1970, 1970],
        is_new=False,
    ),
    Changed(
        "days",
        "",
        ({"type": "int", "logicalType": "date"}, 0),
        ("int", 0),
        "where its numbers are …, declare it: `columns: {…: …}`",
        "columns: {x: date}",
        [1970, 1970],
        is_new=False,
    ),
    Changed(
        "times of day",
        "",
        ({"type": "long", "logicalType": "time-micros"}, 0),
        ("long", 3_600_000_000),
        "say what its numbers count since …, such as `columns: {…: …}`",
        "columns: {x: time(us)}",
        [time(0), time(1)],
        is_new=False,
    ),
    Changed(
        "times of day in milliseconds",
        "",
        ({"type": "int", "logicalType": "time-millis"}, 0),
        ("int", 3_600_000),
        "say what its numbers count since …, such as `columns: {…: …}`",
        "columns: {x: time(ms)}",
        [time(0), time(1)],
        is_new=False,
    ),
    Changed(
        "times of day inside",
        "",
        (_inside({"type": "long", "logicalType": "time-micros"}), {"y": 0}),
        (_inside("long"), {"y": 3_600_000_000}),
        "say what its numbers count since …, such as `columns: {…: {type: …, field: …}}`",
        "columns: {y: {type: time(us), field: x.y}}",
        [time(1)],
        column="y",
        is_new=False,
    ),
    Changed(
        "fractions",
        "",
        ("int", 1),
        ("double", 1.5),
        "a new table that declares a double takes it, and here another column, `columns: {NAME: {type: double, field: …}}`",
        "columns: {y: {type: double, field: x}}",
        [1.5],
        column="y",
        is_new=False,
    ),
    *(
        Changed(
            f"text of a {kind}",
            "",
            (logical, 0),
            ("string", "2026-01-31"),
            "to keep the text, give it a column: `columns: {…_text: {type: string, field: …}}`",
            "columns: {x_text: {type: string, field: x}}",
            ["2026-01-31"],
            column="x_text",
            is_new=False,
        )
        for kind, logical in (
            ("timestamp", {"type": "long", "logicalType": "timestamp-millis"}),
            ("date", {"type": "int", "logicalType": "date"}),
            ("time of day", {"type": "int", "logicalType": "time-millis"}),
        )
    ),
    *(
        Changed(
            f"own column of {kind}",
            "",
            first,
            second,
            'give the field a column of its own: `columns: {…_…: {type: "…", field: …}}`',
            f"columns: {{x_{kind}: {{type: {kind}, field: x}}}}",
            [wanted],
            column=f"x_{kind}",
            is_new=False,
        )
        for kind, first, second, wanted in (
            ("timestamptz", (_DAY, 0), (_MOMENT, 0), 1970),
            ("date", (_MOMENT, 0), (_DAY, 0), 1970),
            ("double", (_MONEY, b"\1"), ("double", 1.005), 1.005),
        )
    ),
    Changed(
        "text inside",
        "",
        (_inside("string"), {"y": "a"}),
        (_inside("int"), {"y": 7}),
        "to keep it as text, declare the column `…` with its type and `coerce: true`",
        'columns: {x: {type: "struct<y: string>", coerce: true}}',
        [{"y": "a"}, {"y": "7"}],
        is_new=False,
    ),
    Changed(
        "times inside",
        "",
        (_inside({"type": "long", "logicalType": "timestamp-millis"}), {"y": 0}),
        (_inside("long"), {"y": 0}),
        "say what its numbers count since …, such as `columns: {…: {type: …, field: …}}`",
        "columns: {y: {type: timestamptz(ms), field: x.y}}",
        [1970],
        column="y",
        is_new=False,
    ),
    Changed(
        "days inside",
        "",
        (_inside({"type": "int", "logicalType": "date"}), {"y": 0}),
        (_inside("int"), {"y": 1}),
        "where its numbers are …, declare the column `…` with its type",
        'columns: {x: "struct<y: date>"}',
        [{"y": date(1970, 1, 1)}, {"y": date(1970, 1, 2)}],
        is_new=False,
    ),
]


def _run(operator: Operator, settings: str, name: str = "n.a") -> Table:
    """A run of a table of Avro records."""
    more = f"value: {{format: avro}}{', ' if settings else ''}{settings}"
    return operator.run_file(f"registry: {{url: 'http://r'}}\ntables: {{{name}: {{topic: a, {more}}}}}\n")[name]


@pytest.mark.parametrize("changed", CHANGES, ids=lambda changed: changed.name)
def test_a_change_that_is_refused_is_followed_once_its_remedy_is_done(tmp_path: Path, changed: Changed) -> None:
    operator = Operator(tmp_path)
    for kind, value in (changed.first, changed.second):
        schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
        number = operator.registry.register("avro", schema, subject="a-value")
        operator.feed("a", *framed(number, WriterSchema("avro", schema), {"x": value}))
        table = _run(operator, changed.settings)
    reported = [refused.remedy for refused in refused_changes(table.schema.refusals)]
    assert any(is_told(changed.remedy, remedy) for remedy in reported), (reported, table.status.reason)
    name = "n.b" if changed.is_new else "n.a"
    if not changed.is_new:  # What is a dead letter is retried by a command; here the record comes again.
        operator.feed("a", *framed(number, WriterSchema("avro", schema), {"x": value}))
    assert _run(operator, changed.done, name).status.run_state is RunState.WAITING
    rows = [row[changed.column] for row in operator.values(name) if row[changed.column] is not None]
    assert [getattr(value, "year", value) for value in rows] == changed.values


@needs("protobuf")
def test_keys_that_got_wider_go_to_another_column(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    more = "value: {format: protobuf}"
    text = "registry: {url: 'http://r'}\ntables: {n.a: {topic: a, %s}}\n"
    for kind, body in (
        ("int32", b"\x0a\x05\x08\x05\x12\x01x"),
        ("int64", b"\x0a\x0a\x08\x80\x80\x80\x80\x80\x20\x12\x01y"),
    ):
        schema = f'syntax = "proto3"; message M {{ map<{kind}, string> m = 1; int32 n = 2; }}'
        number = operator.registry.register("protobuf", schema, subject="a-value")
        message = b"\x00" + number.to_bytes(4, "big") + b"\x00" + body
        operator.feed("a", message)
        table = operator.run_file(text % more)["n.a"]
    (refused,) = refused_changes(table.schema.refusals)
    assert refused.change == "column m.key: keys of int are not widened to long"
    assert '`columns: {NAME: {type: "map<KEY, VALUE>", field: PATH}}`' in refused.remedy
    operator.feed("a", message)
    done = f'{more}, columns: {{wide: {{type: "map<long, string>", field: m}}}}'
    assert operator.run_file(text % done)["n.a"].status.run_state is RunState.WAITING
    assert [(row["m"], row["wide"]) for row in operator.values("n.a")] == [([(5, "x")], None), (None, [(2**40, "y")])]


def test_keys_that_are_structs_and_plain_values_are_kept_as_text(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    keys = [
        {"schema": {"type": "int64"}, "payload": 7},
        {
            "schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]},
            "payload": {"id": 8},
        },
    ]
    settings = "key: {format: json}, metadata: {key: _key}"
    for key in keys:
        operator.source.produce("a", 0, b'{"x": 1}', operator.clock.now_ms(), key=json.dumps(key).encode())
        table = operator.run(settings)
    (refused,) = refused_changes(table.schema.refusals)
    assert refused.change == "column _key: struct does not fit long, in keys of records"
    assert refused.remedy == "correct the schema; a new table with `key: {format: text}` keeps both as text"
    operator.run("key: {format: text}, metadata: {key: _key}", "n.b")
    assert [json.loads(row["_key"]) for row in operator.values("n.b")] == keys
