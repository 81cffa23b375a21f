"""What `check` reports of managed catalogs before anything is created in them."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.ingest.loop.discovery import Discovery
from frazil.ops.check import check_service, check_tables, comparison
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from tests.unit.ops.conftest import Scenario

S3_TABLES = "catalog: {type: rest, uri: 'https://s3tables.eu-west-1.amazonaws.com/iceberg', warehouse: 'arn:x'}\n"
GLUE = "catalog: {type: rest, uri: 'https://glue.eu-west-1.amazonaws.com/iceberg', warehouse: '123'}\n"
UNITY = "catalog: {type: rest, uri: 'https://ws.example/api/2.1/unity-catalog/iceberg-rest', warehouse: main}\n"
OTHER = "catalog: {type: rest, uri: 'https://catalog.example'}\n"
LEFT = "mind: it maintains tables by itself; write `maintenance: {skip: [compact, expire, orphans]}`"
LOCATION = "mind: it demands a location of new tables, as s.a; write `location` for each"
TWO = "tables: {s.a: {topic: a}, s.A: {topic: b}}\n"
ONE = "tables: {s.a: {topic: a}}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (S3_TABLES + ONE, [("service Amazon S3 Tables", True, LEFT)]),
        (f"{S3_TABLES}maintenance: false\n{ONE}", []),
        (f"{S3_TABLES}maintenance: {{skip: [orphans, compact, expire]}}\n{ONE}", []),
        (GLUE + ONE, [("service AWS Glue", True, LOCATION)]),
        (f"{GLUE}tables: {{s.a: {{topic: a, location: 's3://b/a'}}}}\n", []),
        (OTHER + ONE, []),
        (
            f"{UNITY}maintenance: false\n{TWO}",
            [("table names", False, "s.a and s.A differ in case alone: the catalog has one table for both")],
        ),
        (
            OTHER + TWO,
            [
                (
                    "table names",
                    True,
                    "mind: s.a and s.A differ in case alone, which many catalogs take for one name; leave its"
                    " topic out of `topics`, or give one of the two a table of its own under `tables`",
                )
            ],
        ),
    ],
)
def test_a_service_is_known_by_its_address(scenario: Scenario, text: str, found: list[tuple[str, bool, str]]) -> None:
    spec = scenario.spec(text)
    tables = Discovery(spec, scenario.source, scenario.catalog).tables.values()
    assert [(one.name, one.is_ok, one.found) for one in check_service(spec, tables)] == found


@pytest.mark.parametrize("section", [S3_TABLES, GLUE])
@pytest.mark.parametrize("name", ["s.A", "s.b.a", "s.a-b"])
def test_names_that_a_service_does_not_keep_are_errors_of_the_file(scenario: Scenario, section: str, name: str) -> None:
    with pytest.raises(SpecError, match="the catalog cannot have a table"):
        scenario.spec(f"{section}tables: {{{name}: {{topic: a}}}}\n")


def test_what_an_existing_table_keeps_is_reported(scenario: Scenario) -> None:
    scenario.source.create("a")
    properties = {"gc.enabled": "false"}
    made = scenario.catalog.create("s.a", new_schema([("x", parse_type("long"))]), properties, 2)
    spec = scenario.spec("tables: {s.a: {topic: a, format_version: 3, location: 's3://b/a'}}\n")
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    (found,) = check_tables(discovery.tables.values(), comparison(spec, scenario.source, scenario.catalog))
    for words in (
        f"keeps its location {made.location}: `location` is for new tables",
        "has format version 2, which `format_version` does not change",
        "keeps snapshots and orphan files, as its gc.enabled is false",
    ):
        assert words in found.found
