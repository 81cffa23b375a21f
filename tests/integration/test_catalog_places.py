"""What the servers of catalogs report of names and places that they do not have, or cannot make: each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from frazil.api.check import _check_tables
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.errors import UnavailableError
from frazil.ops.check import check_local_folder
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties
from frazil.schema.evolve import new_schema
from frazil.spec import PipelineSpec, load_spec
from tests.fixtures.jvms import light_jvm
from tests.fixtures.metastores import HiveMetastore, NessieServer

NO_LOCKS = {"spark.hadoop.iceberg.engine.hive.lock-enabled": "false"}
"""The metastore of the tests has no tables for them."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    with light_jvm(needs_spark_jars=True, conf=NO_LOCKS) as running:
        yield running


def spec_of(folder: Path, catalog: dict[str, object]) -> PipelineSpec:
    file = folder / "pipeline.yaml"
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": "localhost:1"},
        "catalog": catalog,
        "tables": {"n.t": {"topic": "t"}},
    }
    file.write_text(yaml.safe_dump(document))
    return load_spec(file)


def test_check_finds_a_folder_that_hives_metastore_cannot_make(jvm: LightJvm, tmp_path: Path) -> None:
    server = HiveMetastore(tmp_path / "metastore")
    server.start()
    try:
        warehouse = tmp_path / "w"
        spec = spec_of(tmp_path, {"type": "hive", "uri": server.uri, "warehouse": str(warehouse)})
        places: list[str] = []
        found = list(_check_tables(jvm, spec, [], None, None, places))
        assert [(one.name, one.is_ok) for one in found] == [("catalog", True)], found
        [place] = places
        assert place.endswith("/warehouse"), "of namespaces that others make"
        warehouse.write_text("no folder")
        assert not check_local_folder("store", warehouse).is_ok
        catalog = IcebergCatalog(jvm.gateway, "p", catalog_properties(spec), jvm.hadoop)
        with pytest.raises(UnavailableError) as refused:
            catalog.create("n.t", new_schema([]), {}, 2)
        assert refused.value.remedy.startswith("let the user of Hive's metastore make this folder"), refused.value
        warehouse.unlink()
        assert str(warehouse) in catalog.create("n.t", new_schema([]), {}, 2).location
    finally:
        server.kill()


@pytest.mark.slow
def test_a_branch_that_nessie_does_not_have_is_named_until_it_is_corrected(jvm: LightJvm, tmp_path: Path) -> None:
    server = NessieServer(tmp_path / "nessie")
    server.start()
    try:
        own: dict[str, object] = {"type": "nessie", "uri": server.uri, "warehouse": str(tmp_path / "w")}
        wrong = spec_of(tmp_path, {**own, "properties": {"ref": "nobranch"}})
        [found] = _check_tables(jvm, wrong, [], None, None, [])
        assert (found.name, found.is_ok) == ("catalog", False)
        assert "nobranch" in found.found
        assert found.remedy.startswith("correct `ref` under `catalog.properties`")
        right = spec_of(tmp_path, {**own, "properties": {"ref": "main"}})
        assert [one.is_ok for one in _check_tables(jvm, right, [], None, None, [])] == [True]
    finally:
        server.kill()
