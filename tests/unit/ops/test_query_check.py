"""What check finds in the queries of tables: what they make, and what is wrong with them, before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.plan import _lines
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.table import RECORDS_SCHEMA
from frazil.ops.check import Finding, check_queries, check_records
from frazil.ops.plan import plan_tables
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from tests.unit.ops.conftest import Scenario

RECORDS = ({"id": 1, "email": "a", "at": "2026-01-01"}, {"id": 2, "email": None, "n": 7})


def look(scenario: Scenario, queries: SparkQueries, settings: str, *records: dict[str, Any]) -> list[Finding]:
    scenario.source.create("a")
    for record in records:
        scenario.source.produce("a", 0, json.dumps(record).encode(), 0, key=json.dumps({"id": 1}).encode())
    spec = scenario.spec(f"tables: {{s.a: {{topic: a, {settings}}}}}\n")
    planned = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, None, queries)
    return [*check_records(planned, ()), *check_queries(planned, ())]


def test_the_columns_of_a_query_are_shown(scenario: Scenario, queries: SparkQueries) -> None:
    query = "select id, upper(email) as email, cast(n as decimal(5,1)) as n, _offset as place from records"
    [found] = look(scenario, queries, f'select: "{query}"', *RECORDS)
    assert (found.name, found.is_ok) == ("query of s.a", True)
    assert found.found == "makes id: long, email: string, n: decimal(5, 1), place: long"


def test_a_warning_of_the_table_is_not_repeated_for_its_query(scenario: Scenario, queries: SparkQueries) -> None:
    settings = "columns: {at: timestamptz}, partition_by: [at], rename: {id: order_id}"
    [found] = look(scenario, queries, settings, {"id": 1, "at": "2026-01-01T00:00:00Z"})
    made, _, warning = found.found.partition("; warning: ")
    assert warning
    planned = plan_tables(
        scenario.spec(f"tables: {{s.a: {{topic: a, {settings}}}}}\n"),
        scenario.source,
        scenario.catalog,
        scenario.read,
        None,
        queries,
    )
    [shown] = check_queries(planned, (), [Finding("table s.a", True, "", f"there; warning: {warning}")])
    assert shown.found == made


def test_what_python_functions_make_is_shown_of_an_upsert_table_that_protects_fields(
    scenario: Scenario, queries: SparkQueries, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 40)
    query = "select clean(name) as who, email, soundex(clean_name) as sound from records where clean(name) <> ''"
    settings = (
        "mode: upsert, key_columns: [who], udf: tests.fixtures.functions.clean, protect: {email: hash}, protect_key: "
        f'"${{file:{tmp_path / "key"}}}", select: "{query}"'
    )
    record = {"name": "A", "clean_name": "a", "email": 5}
    [found] = look(scenario, queries, settings, record)
    assert (found.name, found.is_ok) == ("query of s.a", True)
    assert found.found == "makes who: string, email: string, sound: string"


@pytest.mark.parametrize("step", ["rename: {id: order_id}", 'select: "select id as order_id, at from records"'])
def test_a_key_that_the_query_makes_is_found_beside_declared_columns(
    scenario: Scenario, queries: SparkQueries, step: str
) -> None:
    settings = f"mode: upsert, key: {{format: json}}, key_columns: [order_id], columns: {{at: timestamptz}}, {step}"
    [found] = look(scenario, queries, settings, {"id": 1, "at": "2026-01-01T00:00:00Z"})
    assert (found.name, found.is_ok, found.remedy) == ("query of s.a", True, "")
    assert "order_id: long" in found.found


def test_a_field_that_a_setting_names_and_no_record_has_is_a_warning_with_the_nearest_name(
    scenario: Scenario, queries: SparkQueries, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 40)
    settings = (
        "exclude: [l.element.y, zip], rename: {e: mail, namo: x}, drop_fields: [addr.citi, addr.zip],"
        "keep_fields: [id, mail, addr, zzz],"
        "cast: {idd: int}, protect: {emial: hash, e: drop, l.x: mask, _key: hash, /ssn/: drop, addr.zipp: drop}, "
        f'protect_key: "${{file:{tmp_path / "key"}}}"'
    )
    record = {"id": 1, "e": "a", "email": "b", "name": "c", "addr": {"city": "d", "zip": "e"}, "l": [{"x": 1}]}
    [found] = look(scenario, queries, settings, record)
    made, *warnings = found.found.split("; warning: ")
    assert made == "makes id: long, addr: struct<city: string>"
    assert warnings == [
        f"`{setting}` names `{name}`, and none of 1 record in the sample has it{meant}"
        for setting, name, meant in (
            ("exclude", "l.element.y", "; did you mean `l.element.x`?"),
            ("exclude", "zip", ""),
            ("protect", "emial", "; did you mean `email`?"),
            ("protect", "/ssn/", ""),
            ("protect", "addr.zipp", "; did you mean `addr.zip`?"),
            ("rename", "namo", "; did you mean `name`?"),
            ("drop_fields", "addr.citi", "; did you mean `addr.city`?"),
            ("keep_fields", "zzz", ""),
            ("cast", "idd", "; did you mean `id`?"),
        )
    ]


def test_a_pattern_of_protect_that_finds_a_header_is_used(
    scenario: Scenario, queries: SparkQueries, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 40)
    scenario.source.create("a")
    scenario.source.produce("a", 0, b'{"id": 1}', headers=[("x-user-mail", b"a@b")])
    rules = f'protect: {{/mail$/: hash, /phone/: drop}}, protect_key: "${{file:{tmp_path / "key"}}}"'
    spec = scenario.spec(f"tables: {{s.a: {{topic: a, {rules}}}}}\n")
    (planned,) = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, None, queries)
    assert planned.warnings == ("`protect` names `/phone/`, and none of 1 record in the sample has it",)


def test_misspelt_fields_of_include_and_exclude_are_warnings_of_a_table_without_a_query(
    scenario: Scenario, queries: SparkQueries
) -> None:
    settings = "flatten: true, column_case: snake, include: [custId, user, emial], exclude: [user.taxNumbr, user.age]"
    record = {"custId": 1, "email": "a", "user": {"name": "b", "taxNumber": "c", "age": 5}, "more": 1}
    [found] = look(scenario, queries, settings, record)
    assert (found.name, found.is_ok) == ("records of s.a", True)
    assert found.found.split("; warning: ") == [
        "warning: `include` names `emial`, and none of 1 record in the sample has it; did you mean `email`?",
        "`exclude` names `user.taxNumbr`, and none of 1 record in the sample has it; did you mean `user.taxNumber`?",
    ]


@pytest.mark.parametrize(
    ("declared", "names", "meant"),
    [
        ("user_info: struct<first_name: string>", "user_info.first_name", "userInfo.firstName"),
        ("lines: list<struct<line_no: long>>", "lines.element.line_no", "lines.element.lineNo"),
        ("user_info: struct<firstName: string>", "", ""),
        ("lines: list<struct<lineNo: long>>", "", ""),
    ],
)
def test_members_of_declared_columns_in_another_case_than_records_have_are_warnings(
    scenario: Scenario, queries: SparkQueries, declared: str, names: str, meant: str
) -> None:
    column, _, kind = declared.partition(": ")
    settings = f'column_case: snake, columns: {{{column}: "{kind}"}}'
    record = {"userInfo": {"firstName": "a"}, "lines": [{"lineNo": 1}]}
    found = look(scenario, queries, settings, record)
    wanted = f"warning: `columns` names `{names}`, and none of 1 record in the sample has it; did you mean `{meant}`?"
    assert [one.found for one in found] == ([wanted] if names else [])


@pytest.mark.parametrize(
    ("settings", "words", "remedy"),
    [
        ('select: "select emial from records"', "unknown column `emial`", "did you mean `email`?"),
        ('where: "kind = 1"', "unknown column `kind`", "declare its type under `columns`"),
        (
            'select: "select id, null as x from records"',
            "Iceberg has no type for the column `x`",
            "cast(null as string)",
        ),
        ('select: "select id from (select id from records group by id) as records"', "GROUP BY", "use `merge`"),
        (
            'mode: upsert, key_columns: [id], select: "select id as order_id, email from records"',
            "leaves out id, which identifies rows",
            "add `id` to `select`",
        ),
        (
            'mode: upsert, key: {format: json}, select: "select email from records"',
            "leaves out id, which identifies rows",
            "add `id` to `select`",
        ),
    ],
)
def test_what_is_wrong_with_a_query_is_found_in_a_sample(
    scenario: Scenario, queries: SparkQueries, settings: str, words: str, remedy: str
) -> None:
    [problem] = look(scenario, queries, settings, *RECORDS)
    assert (problem.name, problem.is_ok) == ("query of s.a", False)
    assert words in problem.found
    assert remedy in problem.remedy


def test_of_an_empty_topic_only_what_is_no_query_is_a_problem(scenario: Scenario, queries: SparkQueries) -> None:
    assert look(scenario, queries, 'rename: {a: b}, filter: "b > 1", select: "select x from records"') == []
    [problem] = look(scenario, queries, 'select: "drop table x"')
    assert "DropTable" in problem.found
    [problem] = look(scenario, queries, 'where: "(select 1)"')
    assert not problem.is_ok


def test_a_new_field_with_the_name_of_a_column_of_the_query_is_planned_as_one_that_is_refused(
    scenario: Scenario, queries: SparkQueries
) -> None:
    scenario.catalog.create("s.a", new_schema([("id", parse_type("long")), ("y", parse_type("long"))]), {}, 2)
    scenario.catalog.mark("s.a", RECORDS_SCHEMA, new_schema([("id", parse_type("long"))]).model_dump_json())
    scenario.source.create("a")
    scenario.source.produce("a", 0, b'{"id": 1, "y": 2, "more": 3}', 0)
    spec = scenario.spec("tables: {s.a: {topic: a, select: 'select *, id as y from records'}}\n")
    (planned,) = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, None, queries)
    assert [(one.name, one.source) for one in planned.columns] == [("more", "query")]
    [refused] = planned.refused
    assert refused.startswith("column y: a new field has a name that is taken: the query has two columns `y`")


def test_what_is_protected_is_shown_of_a_table_with_protect_alone(
    scenario: Scenario, queries: SparkQueries, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 40)
    rules = "protect: {EMAIL: hash, user.ssn: drop, /card/: mask, _headers.ip: 'null', by_mail: {action: truncate}}"
    settings = f"{rules}, protect_key: '${{file:{tmp_path / 'key'}}}', metadata: [headers], mode: append"
    record = {"id": 1, "email": "a", "user": {"ssn": "1", "n": 2}, "cards": ["x"]}
    scenario.source.create("a")
    scenario.source.produce("a", 0, json.dumps(record).encode(), 0)
    spec = scenario.spec(f"tables: {{s.a: {{topic: a, {settings}}}}}\n")
    (planned,) = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, None, queries)
    assert planned.notes[0].masked == ("_headers.ip", "email", "user.ssn", "cards.element")
    assert planned.document()["protected"][1] == {"field": "email", "action": "hash"}
    assert "  protects _headers.ip (null), email (hash), user.ssn (drop), cards.element (mask)" in list(_lines(planned))
