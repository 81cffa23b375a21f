"""Queries of tables compared with the registry's newest schemas, before records are written with them."""

from __future__ import annotations

from pyiceberg.types import StringType

from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.queries import QueryTables, SparkQueries
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import RECORDS_SCHEMA
from frazil.ops.check import Finding
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil_registry.schema_check import check_schemas
from frazil_testing.memory_registry import MemoryRegistry
from packages.registry.tests.unit.test_schema_check import avro
from tests.unit.ops.conftest import Scenario


def _gate(scenario: Scenario, queries: SparkQueries, select: str) -> list[Finding]:
    registry = MemoryRegistry()
    registry.register("avro", avro(id="int", email="string", more="string"), subject="a-value")
    scenario.source.create("a")
    text = f'registry: {{url: http://r}}\ntables: {{s.a: {{topic: a, value: {{format: avro}}, select: "{select}"}}}}\n'
    spec = scenario.spec(text)
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    table = discovery.tables["s.a"]
    table.state = scenario.catalog.load("s.a")
    return list(check_schemas([table], Schemas(registry), spec.file.path, QueryTables(scenario.catalog, queries)))


def test_a_query_is_checked_against_the_newest_schema_of_the_registry(
    scenario: Scenario, queries: SparkQueries
) -> None:
    schema, query = _gate(scenario, queries, "select id, lower(emial) as email from records")
    assert schema.is_ok
    assert (query.name, query.is_ok) == ("query of s.a", False)
    assert "unknown column `emial`" in query.found
    assert "did you mean `email`?" in query.remedy


def test_a_schema_is_compared_with_the_fields_of_records_and_not_with_the_columns_that_the_query_makes(
    scenario: Scenario, queries: SparkQueries
) -> None:
    scenario.catalog.create("s.a", new_schema([("id", StringType())]), {}, 2)
    fields = new_schema([("id", parse_type("int")), ("email", StringType()), ("more", StringType())])
    scenario.catalog.mark("s.a", RECORDS_SCHEMA, fields.model_dump_json())
    [schema] = _gate(scenario, queries, "select cast(id as string) as id from records")
    assert (schema.is_ok, schema.found) == (True, "the table has all of it")
