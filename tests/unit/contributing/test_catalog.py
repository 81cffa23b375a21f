"""docs/contributing/catalog.md: a catalog of a package, from the pipeline file to Iceberg's properties."""

from __future__ import annotations

from pathlib import Path

from frazil.runtime.properties import catalog_properties, properties_for_reading, spark_conf, uses_aws
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import Load, Refuse, with_section

CODE = """
from frazil.plugins.catalogs import CatalogKind
CATALOG = CatalogKind(
    {"catalog-impl": "org.example.Shelf", "a": "1"}, {"shelf:": {"b": "2"}}, {"d": "4"}, frozenset("a"), {"e": "5"},
    needs_uri=True, vends_credentials=True, jars=("/shelf.jar", "/client.jar"),
)
"""


def test_a_pipeline_file_takes_the_catalog_of_a_package(example: Install, load: Load, refuse: Refuse) -> None:
    example("catalog.md")
    spec = load(with_section("catalog: {type: dynamodb, warehouse: lake, properties: {dynamodb.table-name: lake}}"))
    assert catalog_properties(spec) == properties_for_reading(spec)
    assert catalog_properties(spec) == {
        "catalog-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog",
        "warehouse": str(Path.cwd() / "lake"),
        "dynamodb.table-name": "lake",
    }
    assert uses_aws(spec)
    error = refuse(with_section("catalog: {type: dynamo, warehouse: lake}"))
    assert (error.message, error.remedy) == ("`catalog.type` cannot be `dynamo`", "did you mean `dynamodb`?")
    error = refuse(with_section("catalog: {type: dynamodb}"))
    assert error.message == "`catalog.warehouse` is missing: a catalog of this type has no default"
    assert error.remedy == "write it, as `catalog: {warehouse: …}`"


def test_a_catalog_may_have_jars_an_address_and_properties_for_reading(package: Install, load: Load) -> None:
    package("shelf", CODE, "frazil.catalogs", "shelf = shelf:CATALOG")
    section = "catalog: {type: shelf, uri: 'shelf:1', warehouse: name}\nspark: {conf: {spark.jars: /own.jar}}"
    spec = load(with_section(section))
    found = {"catalog-impl": "org.example.Shelf", "b": "2", "uri": "shelf:1", "warehouse": "name"}
    found |= {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
    assert catalog_properties(spec) == {**found, "a": "1"}
    assert properties_for_reading(spec) == {**found, "d": "4"}
    assert spark_conf(spec) == {"spark.hadoop.e": "5", "spark.jars": "/own.jar,/shelf.jar,/client.jar"}
