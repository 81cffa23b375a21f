"""Whatever stops a run for a reason that is visible beforehand is a problem of `check` and of `plan`, in the same words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from frazil.catalog.layout import Layout, partition_terms
from frazil.errors import SpecError
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ops.check import Finding, check_records, check_tables, comparison
from frazil.ops.plan import plan_tables
from frazil.schema.evolve import new_schema
from frazil.spec import PipelineSpec
from frazil.spec.partitioning import parse_term
from frazil.spec.syntax.types import parse_type
from frazil_testing.memory_kafka import MemoryOutbox
from frazil_testing.twins import FakeClock, MemoryJobs, StepWorkers
from tests.unit.ops.conftest import Scenario

_RECORD = {"id": 1, "c": "text", "o": {"n": 1}}


def run(scenario: Scenario, spec: PipelineSpec) -> Table:
    clock = FakeClock()
    parts = Services(
        source=scenario.source,
        catalog=scenario.catalog,
        jobs=MemoryJobs(scenario.source),
        clock=clock,
        workers=StepWorkers(clock),
        outbox=MemoryOutbox(),
    )
    service = Service(spec, parts, "run-1", lambda _: None)
    service.connect()
    for _ in range(60):
        service.turn()
    (table,) = service.tables
    return table


def check(scenario: Scenario, spec: PipelineSpec) -> list[Finding]:
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    tables = list(discovery.tables.values())
    found = list(check_tables(tables, comparison(spec, scenario.source, scenario.catalog)))
    stopped = {one.name.removeprefix("table ") for one in found if not one.is_ok}

    planned = plan_tables(spec, scenario.source, scenario.catalog, scenario.read)
    problems = [one for one in (*found, *check_records(planned, stopped)) if not one.is_ok]
    assert [one.action == "stop" for one in planned] == [bool(problems)]
    return problems


def make(scenario: Scenario, columns: Mapping[str, str], version: int = 2, *partition_by: str) -> None:
    """columns: those of the table, and its properties, whose names have dots."""
    schema = new_schema((name, parse_type(word)) for name, word in columns.items() if "." not in name)
    properties = {name: word for name, word in columns.items() if "." in name}
    layout = Layout(tuple(parse_term(text) for text in partition_by) or None, None)
    scenario.catalog.create("s.t", schema, properties, version, layout)


@pytest.mark.parametrize(
    ("settings", "there", "version", "reason"),
    [
        ("partition_by: ['year(\"c\")']", None, 2, "year"),
        ("partition_by: [year(c)]", None, 2, "year"),
        ("partition_by: [day(o.n)]", None, 2, "day"),
        ("partition_by: [o]", None, 2, "`o`"),
        ("sort_by: [month(c)]", None, 2, "month"),
        ("partition_by: [year(c)]", {"id": "long", "c": "string"}, 2, "year"),
        ("mode: upsert, key_columns: [id]", {"id": "long"}, 1, "format version 1"),
        ("mode: upsert, key_columns: [o]", {"id": "long", "o": "struct<n: long>"}, 2, "plain values only"),
        (
            "mode: upsert, key_columns: [id], order_by: o",
            {"id": "long", "o": "struct<n: long>"},
            2,
            "plain values only",
        ),
        ("mode: upsert, key_columns: [o]", None, 2, "plain values only"),
        ("columns: {c: string}, limits: {columns: 2}", {"id": "long"}, 2, "are bad, more than 20%"),
        ("start: {5: 0}", None, 2, "`start` has an offset of partition 5"),
        ("envelope: debezium, atomic: transaction", None, 2, "a transaction may span all 2 partitions"),
        ("", {"id": "long", "write.format.default": "orc"}, 2, "`write.format.default` is `orc`"),
        ("columns: {c: long}", None, 2, "are bad, more than 20%"),
        ("columns: {c: long}, on_bad_record: stop", None, 2, "does not fit long"),
        (
            "columns: {c: long}, dead_letters: {table: s.other, stop_above: 100%}",
            None,
            2,
            "is not a dead-letter table",
        ),
    ],
)
def test_what_stops_a_run_fails_check_and_plan(
    scenario: Scenario, settings: str, there: Mapping[str, str] | None, version: int, reason: str
) -> None:
    scenario.source.create("a", 2)
    for number in range(120):
        record: Any = {**_RECORD, "id": number}
        scenario.source.produce("a", number % 2, json.dumps(record).encode(), key=str(number).encode())
    if "s.other" in settings:
        scenario.catalog.create("s.other", new_schema([("x", parse_type("long"))]), {}, 2)
    if there is not None:
        make(scenario, there, version)
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, {settings}}}}}\n")
    found = check(scenario, spec)
    table = run(scenario, spec)
    assert (table.status.run_state, reason in table.status.reason) == (RunState.STOPPED, True), (
        table.status.run_state,
        table.status.reason,
    )
    assert [(reason in one.found, bool(one.remedy)) for one in found] == [(True, True)]


@pytest.mark.parametrize("there", [None, {"id": "long"}])
@pytest.mark.parametrize("settings", ["", "select: select * from records,"])
def test_more_columns_than_the_limit_fail_check_and_plan(
    scenario: Scenario, there: Mapping[str, str] | None, settings: str
) -> None:
    scenario.source.create("a", 1)
    for number in range(30):
        scenario.source.produce("a", 0, json.dumps({"id": number, f"user_{number}": 1}).encode())
    if there is not None:
        make(scenario, there)
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, {settings} limits: {{columns: 20}}}}}}\n")
    (problem,) = check(scenario, spec)
    assert problem.found == "records bring the table to 31 columns, nested ones counted, and its limit is 20"
    assert run(scenario, spec).status.reason == problem.found


def test_a_pipeline_that_runs_is_well(scenario: Scenario) -> None:
    scenario.source.create("a", 2)
    scenario.source.produce("a", 0, json.dumps(_RECORD).encode(), key=b"1")
    make(scenario, {"id": "long", "c": "string"}, 2, "bucket(id, 4)")
    spec = scenario.spec("tables: {s.t: {topic: a, mode: upsert, key_columns: [id], columns: {later: long}}}\n")
    assert check(scenario, spec) == []
    assert run(scenario, spec).status.run_state is RunState.WAITING


def test_a_declared_column_with_the_name_of_a_partition_field_is_a_problem(scenario: Scenario) -> None:
    scenario.source.create("a", 1)
    make(scenario, {"id": "long"}, 2, "bucket(id, 4)")
    state = scenario.catalog.load("s.t")
    assert state is not None
    (name,) = (field.name for field in state.partitioning.fields)
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, columns: {{{name}: string}}}}}}\n")
    (problem,) = check(scenario, spec)
    assert problem.found == f"records have a field `{name}`, and the table has a partition field of this name"


@pytest.mark.parametrize(
    ("terms", "planned"),
    [
        ("region", None),
        ("REGION, 'void(id)'", None),
        ("'void(id)', region", None),
        ("", ("void(id)",)),
        ("region, 'bucket(id, 2)'", ("region", "bucket(id, 2)", "void(id)")),
        ("'truncate(Region, 2)'", ("truncate(region, 2)", "void(id)")),
    ],
)
def test_a_plan_shows_the_partition_spec_that_a_run_makes(
    scenario: Scenario, terms: str, planned: tuple[str, ...] | None
) -> None:
    """A void field, as a table of format version 1 has in place of a removed one, stays whatever the file says."""
    scenario.source.create("a", 2)
    make(scenario, {"id": "long", "region": "string"}, 2, "void(id)", "region")
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, partition_by: [{terms}]}}}}\n")
    (table,) = plan_tables(spec, scenario.source, scenario.catalog, lambda _: [])
    layout = table.layout
    assert (layout.partition_spec if layout.is_changed else None) == planned
    assert table.action == ("none" if planned is None else "change")
    state = run(scenario, spec).state
    assert state is not None
    assert set(partition_terms(state.partitioning, state.schema)) == set(planned or ("void(id)", "region"))
    (table,) = plan_tables(spec, scenario.source, scenario.catalog, lambda _: [])
    assert not table.layout.is_changed


def test_a_table_that_a_reader_cannot_read_is_refused_until_it_is_taken_out(scenario: Scenario) -> None:
    scenario.source.create("a", 1)
    make(scenario, {"id": "long"}, 3)
    upsert = "mode: upsert, key_columns: [id], format_version: 2"

    def load(table: Table) -> None:
        table.state = scenario.catalog.load(table.name)

    def found(readers: str, settings: str = upsert) -> list[Finding]:
        spec = scenario.spec(f"tables: {{s.t: {{topic: a, {settings}, readers: {readers}}}}}\n")
        return list(
            check_tables(
                [Table(spec.tables[0])], lambda table: setattr(table, "state", scenario.catalog.load(table.name))
            )
        )

    (refused,) = found("[spark, athena]")
    assert (refused.is_ok, refused.found) == (
        False,
        "Amazon Athena is not known to read the table: it has format version 3",
    )
    assert refused.remedy.startswith("take it out of `readers`")
    assert "`format_version: 2`" in refused.remedy
    assert [finding.is_ok for finding in found("[spark]")] == [True]
    assert [finding.is_ok for finding in found("[clickhouse]")] == [False]
    assert [finding.is_ok for finding in found("[starrocks]", "format_version: 3")] == [True]


def test_a_table_with_position_deletes_is_refused_until_its_reader_is_taken_out(scenario: Scenario) -> None:
    scenario.source.create("a", 1)
    make(scenario, {"id": "long"}, 2)

    def found(readers: str) -> list[Finding]:
        settings = f"mode: upsert, key_columns: [id], readers: {readers}"
        spec = scenario.spec(f"tables: {{s.t: {{topic: a, {settings}}}}}\n")
        return list(
            check_tables(
                [Table(spec.tables[0])], lambda table: setattr(table, "state", scenario.catalog.load(table.name))
            )
        )

    (refused,) = found("[databricks]")
    assert (refused.is_ok, "`format_version: 3`" in refused.remedy) == (False, True)
    assert [finding.is_ok for finding in found("[trino]")] == [True]


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ("format_version: 3, readers: [athena]", "write `format_version: 2`, or take it out of `readers`"),
        ("format_version: 2, readers: [databricks]", "write `format_version: 3`, or take it out of `readers`"),
        (
            "readers: [athena, databricks]",
            "take it out of `readers`, or publish the table with `delete_mode: copy_on_write`",
        ),
    ],
)
def test_a_format_version_that_a_reader_cannot_read_has_the_remedy_that_helps(
    scenario: Scenario, settings: str, remedy: str
) -> None:
    table = f"topic: a, mode: upsert, key_columns: [id], {settings}"
    with pytest.raises(SpecError) as refused:
        scenario.spec(f"tables: {{s.t: {{{table}}}}}\n")
    assert refused.value.remedy == remedy
    if "copy_on_write" in remedy:
        scenario.spec(f"tables: {{s.t: {{{table}, branch: b, publish: {{}}, delete_mode: copy_on_write}}}}\n")
    else:
        _, version, _ = remedy.split("`", 2)
        corrected = re.sub(r"format_version: \d", version, table)
        scenario.spec(f"tables: {{s.t: {{{corrected}}}}}\n")


@pytest.mark.parametrize(
    ("readers", "version"),
    [("[spark, trino]", 3), ("[spark, athena]", 2), ("[starrocks]", 2), ("[flink]", 2), ("[databricks]", 3), ("[]", 3)],
)
def test_readers_choose_the_format_version_of_a_new_upsert_table(
    scenario: Scenario, readers: str, version: int
) -> None:
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, mode: upsert, key_columns: [id], readers: {readers}}}}}\n")
    assert spec.tables[0].layout.format_version == version


@pytest.mark.parametrize(
    ("settings", "version", "copies_rows"),
    [
        ("readers: [starrocks]", 3, True),
        ("readers: [athena]", 2, True),
        ("readers: [spark, trino]", 3, False),
        ("readers: [athena], delete_mode: merge_on_read", 2, False),
        ("delete_mode: copy_on_write", 3, True),
    ],
)
def test_readers_without_deletion_vectors_get_data_files_alone_where_a_table_is_published(
    scenario: Scenario, settings: str, version: int, copies_rows: bool
) -> None:
    published = f"mode: upsert, key_columns: [id], branch: ingest, publish: {{every: 5m}}, {settings}"
    spec = scenario.spec(f"tables: {{s.t: {{topic: a, {published}}}}}\n")
    assert (spec.tables[0].layout.format_version, spec.tables[0].publishing.copies_rows) == (version, copies_rows)
