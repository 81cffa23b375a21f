"""Options of Flink SQL in the spellings that Flink takes, and those that it refuses."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError
from packages.migrate.tests.unit.imports.test_details import only_table
from packages.migrate.tests.unit.imports.test_imports import imported, reasons


def script(source: str = "", target: str = "", query: str = "id FROM src") -> str:
    """A table over Kafka, one of Iceberg's, and what moves rows. source, target: further options."""
    options = f"'connector'='kafka', 'topic'='orders', 'format'='json'{source}"
    catalog = "CREATE CATALOG lake WITH ('type'='iceberg', 'catalog-type'='rest', 'uri'='http://c');\n"
    table = f"CREATE TABLE src (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ({options});\n"
    into = f"CREATE TABLE lake.shop.orders (id BIGINT) WITH ('format-version'='2'{target});\n"
    return f"{catalog}{table}{into}INSERT INTO lake.shop.orders SELECT {query};\n"


def test_switches_and_modes_are_read_in_any_case() -> None:
    source = ", 'json.ignore-parse-errors'='TRUE', 'scan.startup.mode'='LATEST_OFFSET'"
    table = only_table("flink-sql", script(source, ", 'write.upsert.enabled'='TRUE'"))
    assert (table["on_bad_record"], table["start"], table["mode"]) == ("skip", "latest", "upsert")


@pytest.mark.parametrize("offsets", ["0:5", "", "partition:0", "partition:0,offset:5;1"])
def test_offsets_that_are_not_a_list_of_them_are_reported(offsets: str) -> None:
    """Without them the table would read from the beginning."""
    key = "scan.startup.specific-offsets"
    source = f", 'scan.startup.mode'='specific-offsets', '{key}'='{offsets}'"
    assert f"src/{key}" in reasons(imported("flink-sql", script(source)))


def test_offsets_are_where_reading_begins() -> None:
    offsets = "partition:0,offset:42;partition:1,offset:7;"
    source = f", 'scan.startup.mode'='specific-offsets', 'scan.startup.specific-offsets'='{offsets}'"
    assert only_table("flink-sql", script(source))["start"] == {0: 42, 1: 7}


def test_a_quotation_mark_that_is_not_closed_is_refused() -> None:
    with pytest.raises(SpecError, match="a quotation mark is not closed"):
        imported("flink-sql", script(query="id, 'abc FROM src"))


def test_a_catalog_that_is_not_known_is_noted() -> None:
    text = script().partition("\n")[2]
    assert any("the catalog is not known" in note for note in imported("flink-sql", text).notes)
