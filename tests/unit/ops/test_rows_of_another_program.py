"""A table that another program has filled is named before a run reads its topics from their beginning, and how to continue
where that program has stopped.
"""

from __future__ import annotations

import pytest
from pyiceberg.types import LongType

from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.queries import SparkQueries
from frazil.ops.check import check_tables, comparison
from frazil.ops.plan import plan_tables
from frazil.schema.evolve import new_schema
from frazil.types import DataFile
from tests.needs import needs
from tests.unit.ops.conftest import Scenario
from tests.unit.ops.test_plan import commit, plan, produce

WARNING = (
    "the table has 1,500 rows of another program, and a run reads its topics from their beginning: records that are rows"
    " already become rows again. `frazil adopt s.a --from TOOL` continues where that program has stopped;"
    " `start: latest` reads new records alone"
)


def fill(scenario: Scenario, **properties: str) -> None:
    """Makes a table with rows of another program, and a record that is not a row of the pipeline yet."""
    produce(scenario, "a", {"id": 1})
    scenario.catalog.create("s.a", new_schema([("id", LongType())]), properties, 2)
    scenario.catalog.append_foreign("s.a", (DataFile("f.parquet", 1500, 10, "{}"),))


def warnings(scenario: Scenario, settings: str = "topic: a", **properties: str) -> tuple[str, ...]:
    """The plan's warnings of a table with rows of another program."""
    fill(scenario, **properties)
    planned = plan(scenario, f"tables: {{s.a: {{{settings}}}}}\n")["s.a"]
    return tuple(words for words in planned.warnings if "become rows again" in words)


def test_plan_names_adopt_for_a_table_with_rows_of_another_program(scenario: Scenario) -> None:
    assert warnings(scenario) == (WARNING,)


@pytest.mark.parametrize("settings", ["topic: a, drop_fields: [note]", "topic: a, where: id > 0"])
def test_a_table_with_a_query_is_named_too(scenario: Scenario, queries: SparkQueries, settings: str) -> None:
    fill(scenario)
    spec = scenario.spec(f"tables: {{s.a: {{{settings}}}}}\n")
    [planned] = plan_tables(spec, scenario.source, scenario.catalog, scenario.read, None, queries)
    assert WARNING in planned.warnings


def test_check_names_it_too(scenario: Scenario) -> None:
    warnings(scenario)
    spec = scenario.spec("tables: {s.a: {topic: a}}\n")
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    compare = comparison(spec, scenario.source, scenario.catalog)
    (finding,) = check_tables(discovery.tables.values(), compare)
    assert finding.is_ok
    assert f"; warning: {WARNING}" in finding.found


@pytest.mark.parametrize(
    "settings",
    [
        "topic: a, start: latest",
        "topic: a, start: 2026-01-31T00:00:00Z",
        "topic: a, mode: upsert, key_columns: [id]",
        pytest.param("topic: a, dedupe: {by: [id]}", marks=needs("state")),
    ],
)
def test_nothing_is_said_where_no_record_becomes_a_second_row(scenario: Scenario, settings: str) -> None:
    assert warnings(scenario, settings) == ()


@needs("state")
def test_sums_would_have_the_records_twice(scenario: Scenario) -> None:
    settings = "topic: a, mode: upsert, key_columns: [id], merge: {n: count}"
    assert warnings(scenario, settings) == (WARNING,)


def test_a_pipeline_with_another_name_is_named_with_the_way_to_take_its_offsets_along(scenario: Scenario) -> None:
    (warning,) = warnings(scenario, **{"frazil.shop.eu.created": "true"})
    assert warning == (
        "the table has 1,500 rows of the pipeline `shop.eu`, and a run reads its topics from their beginning: records that"
        " are rows already become rows again. `frazil adopt s.a --from group --offsets FILE` continues at its offsets, if"
        " this is that pipeline under another name; `start: latest` reads new records alone"
    )


def test_nothing_is_said_of_a_table_that_the_pipeline_itself_has_filled(scenario: Scenario) -> None:
    produce(scenario, "a", {"id": 1})
    commit(scenario, "s.a", "a", {0: 1, 1: 0})
    scenario.catalog.append_foreign("s.a", (DataFile("f.parquet", 1500, 10, "{}"),))
    planned = plan(scenario, "tables: {s.a: {topic: a}}\n")["s.a"]
    assert [words for words in planned.warnings if "become rows again" in words] == []
