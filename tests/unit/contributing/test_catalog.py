"""docs/contributing/catalog.md: a catalog of a package, from the pipeline file to Iceberg's properties."""

from __future__ import annotations

from pathlib import Path

from frazil.runtime.connect import catalog_properties, conf_with_jars, properties_for_reading
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import Load, Refuse, with_section

CODE = """
from frazil.plugins.catalogs import CatalogKind
CATALOG = CatalogKind(
    {"catalog-impl": "org.example.Shelf", "a": "1"}, {"shelf:": {"b": "2"}}, {"d": "4"}, frozenset("a"),
    needs_uri=True, vends_credentials=True, jars=("/shelf.jar", "/client.jar"),
)
"""


def test_a_pipeline_file_takes_the_catalog_of_a_package(example: Install, load: Load, refuse: Refuse) -> None:
    example("catalog.md")
    spec = load(with_section("catalog: {type: folder, warehouse: lake, properties: {clients: 3}}"))
    assert catalog_properties(spec) == properties_for_reading(spec)
    assert catalog_properties(spec) == {
        "catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog",
        "warehouse": str(Path.cwd() / "lake"),
        "clients": "3",
    }
    error = refuse(with_section("catalog: {type: foldr, warehouse: lake}"))
    assert (error.message, error.remedy) == ("`catalog.type` cannot be `foldr`", "did you mean `folder`?")
    error = refuse(with_section("catalog: {type: folder}"))
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
    assert conf_with_jars(spec) == {"spark.jars": "/own.jar,/shelf.jar,/client.jar"}


def test_a_type_that_is_planned_may_come_from_a_package(package: Install, load: Load, refuse: Refuse) -> None:
    section = with_section("catalog: {type: nessie, uri: 'jdbc:sqlite:n'}")
    assert refuse(section).message == "`catalog.type: nessie` is not available in this version"
    package("shelf", CODE, "frazil.catalogs", "nessie = shelf:CATALOG")
    assert load(section).catalog.type == "nessie"
