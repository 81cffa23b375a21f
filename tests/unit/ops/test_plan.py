"""What plan reports a run would do, from topics and tables in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.types import DecimalType, IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

from frazil.catalog.port import TableState
from frazil.decode.lossless import format_type
from frazil.errors import SpecError
from frazil.ingest.tables.schemas import Schemas
from frazil.ops.check import check_records
from frazil.ops.plan import PlannedTable, plan_tables
from frazil.ops.reports import Problem
from frazil.schema.evolve import new_schema
from frazil.types import Commit, Progress
from tests.needs import needs
from tests.unit.ops.conftest import Scenario


def plan(scenario: Scenario, text: str, schemas: Schemas | None = None) -> dict[str, PlannedTable]:
    planned = plan_tables(scenario.spec(text), scenario.source, scenario.catalog, scenario.read, schemas)
    return {table.name: table for table in planned}


def produce(scenario: Scenario, topic: str, *values: dict[str, Any] | bytes) -> None:
    if topic not in scenario.source.by_name:
        scenario.source.create(topic, 2)
    for number, value in enumerate(values):
        scenario.source.produce(topic, number % 2, value if isinstance(value, bytes) else json.dumps(value).encode())


def commit(scenario: Scenario, table: str, topic: str, offsets: dict[int, int]) -> None:
    state = scenario.catalog.create(table, new_schema([("id", LongType())]), {}, 2)
    progress = Progress(
        {topic: offsets}, {topic: scenario.source.by_name[topic].id}, scenario.source.cluster_id(), commit_id="c"
    )
    scenario.catalog.commit(Commit(table, (), progress, state.progress))


def columns(table: PlannedTable) -> list[tuple[str, str, str]]:
    return [(column.name, column.type, column.source) for column in table.columns]


def test_a_table_that_is_not_there_is_created_with_inferred_declared_and_metadata_columns(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1, "pos": {"lat": 1.5}}, {"id": 2, "tags": ["x"]}, {"id": 3})
    table = plan(scenario, "tables: {s.a: {topic: a, columns: {id: int}, metadata: [offset]}}\n")["s.a"]
    assert (table.action, table.sampled, table.unread) == ("create", 3, 3)
    assert columns(table) == [
        ("id", "int", "declared"),
        ("pos", "struct<lat: double>", "inferred"),
        ("tags", "list<string>", "inferred"),
        ("_offset", "long", "metadata"),
    ]
    assert [(f.topic, f.partition, f.offset, f.source) for f in table.first_offsets] == [
        ("a", 0, 0, "start"),
        ("a", 1, 0, "start"),
    ]
    assert scenario.catalog.load("s.a") is None


def test_a_table_that_cannot_be_read_at_all_would_stop_and_the_others_are_planned(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("a", "b", "c"):
        produce(scenario, topic, {"id": 1})
    errors = {"s.a": ValueError("no such type"), "s.b": SpecError("no such type", remedy="drop it", where="s.b")}
    load = scenario.catalog.load

    def load_or_fail(table: str) -> TableState | None:
        if table in errors:
            raise errors[table]
        return load(table)

    monkeypatch.setattr(scenario.catalog, "load", load_or_fail)
    planned = plan(scenario, "tables: {s.a: {topic: a}, s.b: {topic: b}, s.c: {topic: c}}\n")
    assert [(name, table.action) for name, table in planned.items()] == [
        ("s.a", "stop"),
        ("s.b", "stop"),
        ("s.c", "create"),
    ]
    for name in errors:
        problem = planned[name].problem
        assert problem is not None
        assert (problem.where, "no such type" in problem.message, bool(problem.remedy)) == (name, True, True)


def test_columns_of_change_data_are_those_of_the_row_in_the_envelope(scenario: Scenario) -> None:
    produce(
        scenario,
        "a",
        {"op": "c", "before": None, "after": {"id": 1}},
        {"op": "d", "before": {"id": 1, "v": "x"}},
        {"ts_ms": 1},
    )
    table = plan(scenario, "tables: {s.a: {topic: a, envelope: debezium, changelog: true}}\n")["s.a"]
    own = ["_op", "_image", "_source_ts", "_connector_ts", "_unavailable"]
    assert columns(table)[:2] == [("id", "long", "inferred"), ("v", "string", "inferred")]
    assert [(name, source) for name, _, source in columns(table)[2:]] == [(name, "metadata") for name in own]


def test_an_upsert_table_has_the_columns_of_rows_and_of_keys_and_its_tombstones_are_no_problem(
    scenario: Scenario,
) -> None:
    scenario.source.create("a", 1)
    change = {"before": None, "after": {"id": 1, "v": "x"}, "op": "c"}
    gone = {"before": {"id": 1, "v": None}, "after": None, "op": "d"}
    for value in (json.dumps(change).encode(), json.dumps(gone).encode(), None):
        scenario.source.produce("a", 0, value, key=b'{"id": 1}')
    scenario.source.create("b", 1)
    scenario.source.produce("b", 0, b'{"v": 1}', key=b'{"k": "x"}')
    scenario.source.produce("b", 0, None, key=b'{"k": "x"}')
    upsert_table = "s.a: {topic: a, envelope: debezium, mode: upsert, deletes: soft}"
    tables = plan(scenario, f"tables: {{{upsert_table}, s.b: {{topic: b, mode: upsert, key: {{format: json}}}}}}\n")
    assert [table.problem for table in tables.values()] == [None, None]
    names = [[name for name, _, _ in columns(table)] for table in tables.values()]
    assert names == [["id", "v", "_deleted", "_deleted_at"], ["v", "k"]]


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("order_by: at", True),
        ("order_by: at, columns: {at: timestamptz}", False),
        ("order_by: n", False),
        ("envelope: debezium, metadata: [source_order], order_by: _source_order", False),
        ("envelope: debezium, metadata: [position], order_by: _position", False),
    ],
)
def test_a_text_that_orders_changes_is_told(scenario: Scenario, more: str, is_told: bool) -> None:
    produce(scenario, "a", {"id": 1, "at": "2026-01-02T03:04:05Z", "n": 1})
    table = plan(scenario, f"tables: {{s.a: {{topic: a, mode: upsert, key_columns: [id], {more}}}}}\n")["s.a"]
    told = [warning.split(" is text")[0] for warning in table.warnings if " is text" in warning]
    assert told == ["`order_by: at`"] * is_told
    assert table.document()["warnings"] == list(table.warnings)


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ("key_columns: [id], order_by: nope", ["`order_by` names `nope`"]),
        ("key_columns: [region, id]", ["`key_columns` names `region`"]),
        ("key_columns: [id], order_by: n", []),
    ],
)
def test_a_column_that_tells_changes_and_that_no_record_has_is_told(
    scenario: Scenario, more: str, missing: list[str]
) -> None:
    produce(scenario, "a", {"id": 1, "n": 1})
    table = plan(scenario, f"tables: {{s.a: {{topic: a, mode: upsert, {more}}}}}\n")["s.a"]
    assert [warning.split(",")[0] for warning in table.warnings] == missing


_DEBEZIUM = {"op": "c", "before": None, "after": {"id": 1}, "source": {"lsn": 5}, "ts_ms": 1}
_CANAL = {"database": "d", "table": "t", "type": "INSERT", "data": [{"id": "1"}], "isDdl": False, "ts": 1}


@pytest.mark.parametrize(
    ("record", "more", "named"),
    [
        (_DEBEZIUM, "", ["Debezium"]),
        ({"schema": {"type": "struct"}, "payload": _DEBEZIUM}, "", ["Debezium"]),
        (_DEBEZIUM, ", envelope: debezium", []),
        (_CANAL, "", ["Canal"]),
        ({"database": "d", "table": "t", "type": "insert", "data": {"id": 1}, "ts": 1}, "", ["Maxwell"]),
        ({"op": "c", "source": "shop"}, "", []),
        ({"schema": {"type": "struct"}, "payload": "text"}, "", []),
    ],
)
def test_changes_that_are_taken_for_rows_are_told(
    scenario: Scenario, record: dict[str, Any], more: str, named: list[str]
) -> None:
    produce(scenario, "a", record)
    table = plan(scenario, f"tables: {{s.a: {{topic: a{more}}}}}\n")["s.a"]
    assert [warning.split("as ")[1].split(" writes")[0] for warning in table.warnings] == named


@pytest.mark.parametrize("more", ["", ", columns: {v: long}", ", rescue: true", ", flatten: true"])
def test_an_upsert_table_by_whole_keys_has_its_key_column_before_its_records_are_read(
    scenario: Scenario, more: str
) -> None:
    scenario.source.create("a", 1)
    for number in range(100):
        scenario.source.produce("a", 0, b"{" if number < 21 else b'{"v": 1}', key=b"k%d" % number)
    text = (
        f"tables: {{s.a: {{topic: a, mode: upsert, key: {{format: text}}{more}, dead_letters: {{stop_above: 21%}}}}}}\n"
    )
    table = plan(scenario, text)["s.a"]
    own = ["_key", "_rescued"] if "rescue" in more else ["_key"]
    assert (table.action, table.bad, [name for name, _, _ in columns(table)]) == ("create", 21, ["v", *own])
    assert plan(scenario, text.replace("21%", "20%"))["s.a"].action == "stop"


def test_columns_that_the_file_adds_to_a_table_are_there_before_its_records_are_read(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    commit(scenario, "s.a", "a", {0: 0, 1: 0})
    produce(scenario, "a", {"id": 2, "x": 5}, {"id": 3, "x": "y"})
    table = plan(scenario, "tables: {s.a: {topic: a, columns: {x: int}, rescue: true, metadata: [offset]}}\n")["s.a"]
    assert (table.action, table.bad) == ("change", 0)
    assert columns(table) == [
        ("x", "int", "declared"),
        ("_offset", "long", "metadata"),
        ("_rescued", "string", "metadata"),
    ]
    table = plan(scenario, "tables: {s.a: {topic: a, columns: {x: int}}}\n")["s.a"]
    assert (columns(table), table.bad) == ([("x", "int", "declared")], 1)


def test_records_without_a_field_make_a_table_of_metadata(scenario: Scenario) -> None:
    produce(scenario, "a", {})
    table = plan(scenario, "tables: {s.a: {topic: a, metadata: [offset]}}\n")["s.a"]
    assert (table.action, columns(table)) == ("create", [("_offset", "long", "metadata")])


def test_a_table_that_keeps_its_old_metadata_is_told(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    text = "tables: {s.a: {topic: a}}\n"
    assert plan(scenario, text)["s.a"].warnings == ()
    commit(scenario, "s.a", "a", {0: 1, 1: 0})
    [warning] = plan(scenario, text)["s.a"].warnings
    assert "`ALTER TABLE s.a SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')`" in warning


def test_unknown_fields_that_are_dropped_make_no_columns(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1, "more": 2})
    table = plan(scenario, "tables: {s.a: {topic: a, columns: {id: long}, unknown_fields: drop}}\n")["s.a"]
    assert columns(table) == [("id", "long", "declared")]


def test_a_table_that_cannot_be_arranged_is_named_with_the_line_of_the_file(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1, "region": "eu"})
    text = "tables:\n  s.a:\n    topic: a\n    partition_by:\n      - id\n      - regions\n"
    problem = plan(scenario, text)["s.a"].problem
    assert problem is not None
    assert problem.message == "`regions`: the table has no column `regions`"
    assert (
        problem.where == f"{scenario.root / 'frazil.yaml'}:{(scenario.root / 'frazil.yaml').read_text().count(chr(10))}"
    )


def test_a_table_that_is_read_to_its_end_is_left_alone(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1}, {"id": 2})
    commit(scenario, "s.a", "a", {0: 1, 1: 1})
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert (table.action, table.columns, table.unread) == ("none", (), 0)
    assert {first.source for first in table.first_offsets} == {"progress"}


def test_unread_records_alone_are_no_change_and_new_fields_are(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1}, {"id": 2})
    commit(scenario, "s.a", "a", {0: 1, 1: 1})
    produce(scenario, "a", {"id": 3})
    assert plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"].action == "none"
    produce(scenario, "a", {"id": 4, "visitor": {"id": "x"}})
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert (table.action, table.sampled) == ("change", 2)
    assert columns(table) == [("visitor", "struct<id: string>", "inferred")]


def test_a_partition_without_progress_is_something_to_start(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1}, {"id": 2})
    commit(scenario, "s.a", "a", {0: 1})
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert table.action == "start"
    assert [(first.partition, first.offset, first.source) for first in table.first_offsets] == [
        (0, 1, "progress"),
        (1, 0, "start"),
    ]


def test_what_has_caught_up_is_idle_also_where_there_is_no_record(scenario: Scenario) -> None:
    scenario.source.create("empty", 2)
    scenario.catalog.create("s.b", new_schema([("id", LongType())]), {}, 2)
    produce(scenario, "a", {"id": 1})
    commit(scenario, "s.c", "a", {0: 1})
    text = "tables: {s.a: {topic: empty}, s.b: {topic: empty, columns: {id: long}}, s.c: {topic: a}}\n"
    planned = plan(scenario, text)
    assert [(table.action, table.is_idle) for table in planned.values()] == [
        ("wait", True), ("none", True), ("none", True),
    ]  # fmt: skip
    assert {first.source for first in planned["s.b"].first_offsets} == {"start"}
    scenario.source.produce("empty", 1, b"{}")
    scenario.source.produce("a", 1, b'{"id": 2}')
    assert [(table.action, table.is_idle) for table in plan(scenario, text).values()] == [
        ("wait", False), ("start", False), ("start", False),
    ]  # fmt: skip


def test_a_record_that_fits_no_column_is_shown_with_its_place(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1}, {"id": 2})
    commit(scenario, "s.a", "a", {0: 1, 1: 1})
    produce(scenario, "a", {"id": 3}, {"id": "x"})
    for on_bad_record, action in (("stop", "stop"), ("dead_letter", "none"), ("skip", "none")):
        table = plan(scenario, f"tables: {{s.a: {{topic: a, on_bad_record: {on_bad_record}}}}}\n")["s.a"]
        assert (table.action, table.bad) == (action, 1)
        assert table.problem is not None
        assert table.problem.where == "topic a, partition 1, offset 1"


def test_a_share_of_bad_records_that_would_stop_a_run_stops_the_plan(scenario: Scenario) -> None:
    produce(scenario, "a", *({"id": number} for number in range(79)), *[b"{"] * 21)
    for limit, action in (("20%", "stop"), ("21%", "create")):
        table = plan(scenario, f"tables: {{s.a: {{topic: a, dead_letters: {{stop_above: {limit}}}}}}}\n")["s.a"]
        assert (table.action, table.bad, table.is_idle, columns(table)) == (
            action,
            21,
            False,
            [("id", "long", "inferred")],
        )
        assert table.problem is not None
        assert table.problem.message.startswith("21 of 100 records of the sample are bad, more than 20%: ") is (
            limit == "20%"
        )


def test_without_a_topic_or_a_field_a_run_would_wait(scenario: Scenario) -> None:
    scenario.source.create("empty")
    scenario.source.create("order")
    tables = plan(scenario, "tables: {s.a: {topic: orders}, s.b: {topic: empty}}\n")
    assert [(table.action, table.is_idle) for table in tables.values()] == [("wait", False), ("wait", True)]
    problems = [table.problem for table in tables.values()]
    assert problems[0] is not None
    assert problems[0].remedy.startswith("did you mean `order`?")
    assert problems[1] is not None
    assert problems[1].message == "there is no record with a field to infer columns from"


def test_top_level_topics_get_a_table_each(scenario: Scenario) -> None:
    produce(scenario, "sensors", {"id": 1})
    produce(scenario, "device-1", {"id": 1})
    tables = plan(scenario, "namespace: iot\ntopics: [sensors, alarms, /^device-/]\n")
    assert {name: (table.action, table.topics) for name, table in tables.items()} == {
        "iot.alarms": ("wait", ()),
        "iot.device-1": ("create", ("device-1",)),
        "iot.sensors": ("create", ("sensors",)),
    }


def test_a_pattern_that_matches_nothing_is_an_error_of_the_file(scenario: Scenario) -> None:
    with pytest.raises(SpecError, match=r"/\^device-/ matches no topic"):
        plan(scenario, "namespace: iot\ntopics: [/^device-/]\n")


def test_a_table_that_would_stop_reports_why(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    commit(scenario, "s.a", "a", {0: 1})
    scenario.source.create("a")
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert table.action == "stop"
    assert "deleted and recreated" in table.document()["reason"]


def test_types_are_written_as_a_pipeline_file_writes_them() -> None:
    struct = StructType(NestedField(1, "a", DecimalType(9, 2)), NestedField(2, "b", ListType(3, StringType(), False)))
    kind = MapType(1, StringType(), 2, struct, False)
    assert format_type(kind) == "map<string, struct<a: decimal(9, 2), b: list<string>>>"


def test_a_flattened_table_is_planned_with_the_columns_it_would_get(scenario: Scenario) -> None:
    produce(scenario, "a", {"userId": 1, "order": {"total": "1.50", "secret": 1}}, {"order": {"lineCount": 2}})
    settings = (
        "flatten: true, column_case: snake, exclude: [order.secret],"
        " columns: {user_id: string, total: {type: 'decimal(9,2)', field: order.total},"
        " region: {type: string, constant: eu}}, metadata: [offset]"
    )
    table = plan(scenario, f"tables: {{s.a: {{topic: a, {settings}}}}}\n")["s.a"]
    assert (table.action, columns(table)) == (
        "create",
        [
            ("user_id", "string", "declared"),
            ("total", "decimal(9, 2)", "declared"),
            ("region", "string", "constant"),
            ("order_line_count", "long", "inferred"),
            ("_offset", "long", "metadata"),
        ],
    )
    assert table.problem is not None
    assert table.problem.message == "field userId: integer 1 does not fit string"


def test_two_fields_with_one_column_stop_the_table_where_bad_records_do(scenario: Scenario) -> None:
    produce(scenario, "a", {"a_b": 1, "a": {"b": 2}})
    words = (
        "the fields a_b and a.b would share the column a_b: give the field a column, `columns: {NAME: {type: TYPE,"
        " field: a.b}}`, or leave the field out with `exclude: [a.b]`"
    )
    table = plan(scenario, "tables: {s.a: {topic: a, flatten: true, on_bad_record: stop}}\n")["s.a"]
    assert (table.action, table.problem and table.problem.message) == ("stop", words)
    table = plan(scenario, "tables: {s.a: {topic: a, flatten: true}}\n")["s.a"]
    assert (table.action, [column.name for column in table.columns]) == ("create", ["a_b"])
    assert table.refused == (f"column a: {words}",)


def test_text_that_is_always_a_time_gets_a_declaration_proposed(scenario: Scenario) -> None:
    produce(
        scenario,
        "a",
        {"ts": "2026-07-01T12:00:00Z", "t": "x", "o": {"at": "2026-07-01T12:00:00"}, "days": ["2026-07-01"]},
        {"ts": "2026-07-01T12:00:00+02:00", "t": "2026-07-01"},
    )
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert table.warnings == (
        "every `ts` of the sample is a time, and its column would be string: write `columns: {ts: timestamptz}` or"
        " `infer: {timestamps: true}`",
        "every `o.at` of the sample is a time, and its column would be string: write `columns: {at: {type: timestamp,"
        " field: o.at}}` or `infer: {timestamps: true}`",
        "every `days.element` of the sample is a time, and its column would be string: write `infer:"
        " {timestamps: true}`",
    )
    told = plan(scenario, "tables: {s.a: {topic: a, infer: {timestamps: true}}}\n")["s.a"]
    assert told.warnings == ()
    assert columns(told)[0] == ("ts", "timestamptz", "inferred")


def test_a_partition_of_a_time_that_is_text_reports_what_to_write_and_that_works(scenario: Scenario) -> None:
    produce(scenario, "a", {"ts": "2026-07-01T12:00:00Z"})
    table = plan(scenario, 'tables: {s.a: {topic: a, partition_by: ["day(ts)"]}}\n')["s.a"]
    assert table.action == "stop"
    assert table.problem is not None
    assert "`columns: {ts: timestamptz}`" in table.problem.remedy
    followed = plan(scenario, 'tables: {s.a: {topic: a, partition_by: ["day(ts)"], columns: {ts: timestamptz}}}\n')
    assert followed["s.a"].action == "create"


def test_names_that_no_column_can_have_are_told(scenario: Scenario) -> None:
    produce(scenario, "a", {"n": 1}, {"n": 2, "_file": "f"}, {"n": 3, "N": 4}, {"a.b": 1}, {"n": 5, "a": {"b": 2}})
    table = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    reported = "; ".join([*table.refused, table.problem.message if table.problem else ""])
    assert "_file is the name of one of Iceberg's metadata columns" in reported
    assert "would both be the column `a.b`" in reported
    assert "the record has values in both `n` and `N`" in reported


def test_declared_columns_of_another_type_stop_the_table_or_widen_it(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    scenario.catalog.create("s.a", new_schema([("id", IntegerType()), ("t", StringType())]), {}, 2)
    table = plan(scenario, "tables: {s.a: {topic: a, columns: {t: long}}}\n")["s.a"]
    assert table.action == "stop"
    assert table.problem is not None
    assert "`columns` declares `t` as long, and the table has it as string" in table.problem.message
    widened = plan(scenario, "tables: {s.a: {topic: a, columns: {id: long}}}\n")["s.a"]
    assert (widened.action, columns(widened)) == ("change", [("id", "long", "widened")])


@needs("cdc")
def test_records_that_look_like_changes_are_reported_with_their_envelope(scenario: Scenario) -> None:
    metadata = {"operation": "load", "record-type": "data"}
    produce(scenario, "a", {"data": {"id": 1}, "metadata": metadata}, {"data": {"id": 2}, "metadata": metadata})
    planned = plan(
        scenario, "tables: {s.a: {topic: a}, s.b: {topic: a, envelope: dms, mode: upsert, key_columns: [id]}}\n"
    )
    (warning,) = planned["s.a"].warnings
    assert warning == (
        "the records look like changes as AWS DMS writes them, and each becomes a row as it is: for rows of the source"
        " table write `envelope: dms`, and `mode: upsert` for its current state"
    )
    assert (planned["s.b"].warnings, columns(planned["s.b"])) == ((), [("id", "long", "inferred")])


@needs("cdc")
def test_events_have_columns_of_their_attributes_and_of_their_data(scenario: Scenario) -> None:
    produce(scenario, "a", {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"id": 1}}, {"id": 2})
    table = plan(scenario, "tables: {s.a: {topic: a, envelope: cloudevents}}\n")["s.a"]
    assert (table.sampled, table.bad) == (2, 1)
    assert columns(table) == [
        ("id", "long", "inferred"),
        ("_ce_id", "string", "metadata"),
        ("_ce_source", "string", "metadata"),
        ("_ce_type", "string", "metadata"),
        ("_ce_time", "timestamptz", "metadata"),
        ("_ce_subject", "string", "metadata"),
    ]


_CHANGES = {"source": {"connector": "mysql"}, "ts_ms": 1, "databaseName": "shop", "ddl": "drop table t"}
_TRANSACTION = {"status": "END", "id": "571:1", "ts_ms": 1, "event_count": 1, "data_collections": []}


def test_topics_of_a_connector_without_changes_are_nothing_to_do(scenario: Scenario) -> None:
    produce(scenario, "shop", _CHANGES, _CHANGES)
    produce(scenario, "shop.transaction", _TRANSACTION, {"ts_ms": 1})
    produce(scenario, "shop.odd", _TRANSACTION, {"id": 1})
    text = "namespace: s\ntopics: /^shop/\ndefaults: {envelope: debezium, mode: upsert, key: {format: json}}\n"
    tables = plan(scenario, text)
    ignored = {"s.shop": "schema_change", "s.shop.transaction": "heartbeat, transaction"}
    for name, kinds in ignored.items():
        reason = f"the records so far change no row ({kinds}), so the table has no column yet"
        remedy = "nothing, or leave the topic out where it has no other records"
        table = tables[name]
        assert (table.action, table.is_idle, table.problem) == ("wait", True, Problem(reason, remedy, name))
    odd = tables["s.shop.odd"].problem
    assert odd is not None
    assert odd.message.startswith("the record has none of the fields of the envelope")
    found = {one.name: (one.is_ok, one.found) for one in check_records(tables.values(), ())}
    assert found["records of s.shop"] == (True, f"{tables['s.shop'].problem.message}; {remedy}")  # type: ignore[union-attr]


def test_updates_of_documents_without_their_document_are_reported(scenario: Scenario) -> None:
    source = {"connector": "mongodb", "collection": "c"}
    update = {"op": "u", "before": None, "after": None, "source": source}
    for number, value in enumerate(({**update, "op": "c", "after": '{"_id": 1, "v": "a"}'}, update, update)):
        if not number:
            scenario.source.create("c")
        scenario.source.produce("c", 0, json.dumps(value).encode(), key=b'{"id": "1"}')
    for settings in ("mode: upsert, key: {format: json}", "changelog: true", "mode: append"):
        table = plan(scenario, f"tables: {{s.c: {{topic: c, envelope: debezium, {settings}}}}}\n")["s.c"]
        assert (table.action, table.bad) == ("create", 0)
        (warning,) = table.warnings
        assert warning.startswith("2 updates of the sample without a document, which changes no row: ")
        (finding,) = check_records([table], ())
        assert (finding.is_ok, finding.found) == (True, f"warning: {warning}")


@pytest.mark.parametrize("kind", ["hive, uri: 'thrift://m:1', warehouse: 's3://b/w'", "glue, warehouse: 's3://b/w'"])
@pytest.mark.parametrize(("topic", "route"), [("shop.public.orders", r"shop\.public"), ("shop-1.lines", r"shop\-1")])
def test_topics_with_dots_get_tables_by_a_route_where_a_catalog_has_one_level(
    scenario: Scenario, kind: str, topic: str, route: str
) -> None:
    catalog = f"catalog: {{type: {kind}}}\n"
    for name in (topic, topic.replace(topic[-3:], "two")):
        produce(scenario, name, {"id": 1})
    planned = plan(scenario, f"{catalog}namespace: lake\ntopics: /^shop/\n")
    assert {table.action for table in planned.values()} == {"stop"}
    problem = planned[f"lake.{topic}"].problem
    assert problem is not None
    words = f"routes: [{{topics: /^{route}\\.(.*)$/, to: lake.$1}}]"
    assert problem.remedy == (
        f"select its topic by a route in place of `topics`, `{words}`, or leave its topic out of `topics`, and give it a"
        " table under `tables`"
    )
    followed = plan(scenario, f"{catalog}{words}\n")
    assert {name: table.action for name, table in followed.items()} == dict.fromkeys(
        (f"lake.{topic.rpartition('.')[2]}", f"lake.{topic.rpartition('.')[2][:-3]}two"), "create"
    )


def test_a_topic_whose_last_word_is_no_name_either_is_given_a_table_of_its_own(scenario: Scenario) -> None:
    produce(scenario, "shop.public.Orders", {"id": 1})
    catalog = "catalog: {type: glue, warehouse: 's3://b/w'}\n"
    problem = plan(scenario, f"{catalog}namespace: lake\ntopics: /^shop/\n")["lake.shop.public.Orders"].problem
    assert problem is not None
    assert problem.remedy == "leave its topic out of `topics`, and give it a table under `tables`"


def test_the_plan_of_one_table_is_made_alone_unless_a_route_makes_it(scenario: Scenario) -> None:
    for topic in ("a", "b"):
        produce(scenario, topic, {"id": 1, "kind": "order"})
    text = "tables: {s.a: {topic: a}}\nroutes: [{topic: b, by: kind, to: 's.${kind}', rest: s.others}]\n"

    def names(only: str) -> list[str]:
        spec = scenario.spec(text)
        planned = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, only=only)
        return [table.name for table in planned]

    assert (names("s.a"), names("s.order")) == (["s.a"], ["s.order"])
    with pytest.raises(SpecError, match=r"the pipeline has no table `s\.ordre`") as raised:
        names("s.ordre")
    assert raised.value.remedy == "did you mean `s.order`?"


@needs("state")
def test_a_count_of_records_is_planned_as_a_count(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1, "n": 2})
    table = plan(scenario, "tables: {s.a: {topic: a, mode: upsert, key_columns: [id], merge: {n: sum, rows: count}}}\n")
    assert columns(table["s.a"]) == [("rows", "long", "count"), ("id", "long", "inferred"), ("n", "long", "inferred")]


def test_a_branch_and_its_tags_are_planned(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    settings = (
        "branch: ingest, publish: {every: 5m, audits: {ids: 'select true', sums: 'select true'}},"
        ' tags: {daily: {at: "06:30 Europe/Berlin", keep: 30d}}'
    )
    tables = f"tables:\n  s.a: {{topic: a, {settings}}}\n  s.b: {{topic: a, branch: ingest}}\n  s.c: {{topic: a}}\n"
    assert {name: table.publishing for name, table in plan(scenario, tables).items()} == {
        "s.a": (
            "commits to the branch ingest; main, which readers see, follows every 5m if these audits hold: ids, sums",
            "tags a snapshot each day as daily-DATE, complete to 06:30 Europe/Berlin, kept for 30d",
        ),
        "s.b": ("commits to the branch ingest; main, which readers see, is moved by others",),
        "s.c": (),
    }
