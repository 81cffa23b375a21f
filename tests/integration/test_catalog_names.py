"""A JDBC catalog keeps its tables under its name: a pipeline finds those of another one by `catalog.name` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.errors import SpecError
from frazil.runtime.jvm import Jvm
from frazil.runtime.properties import catalog_properties
from frazil.schema.evolve import new_schema
from frazil.spec import load_spec

pytestmark = pytest.mark.jvm
TABLE = "shop.orders"


def opened(jvm: Jvm, folder: Path, warehouse: str = "warehouse", **catalog: Any) -> IcebergCatalog:
    """The catalog of a pipeline file in a folder."""
    file = folder / "frazil.yaml"
    section = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": str(folder / warehouse), **catalog}
    lines = [f"  {name}: {value}" for name, value in section.items()]
    file.write_text("\n".join(['pipeline: p\nkafka: {bootstrap.servers: "k:9092"}\ncatalog:', *lines]))
    with file.open("a") as written:
        written.write("\ntables: {shop.orders: {topic: orders}}\n")
    spec = load_spec(file)
    return IcebergCatalog(jvm.gateway, "p", catalog_properties(spec), {}, name=spec.catalog.name)


def test_a_table_of_another_name_is_found_by_it_and_refused_without(jvm: Jvm, tmp_path: Path) -> None:
    lake = opened(jvm, tmp_path, name="lake")
    made = lake.create(TABLE, new_schema([("id", LongType())]), {}, 2)
    found = opened(jvm, tmp_path, name="lake").load(TABLE)
    assert found is not None
    assert found.uuid == made.uuid
    with pytest.raises(SpecError) as refused:
        opened(jvm, tmp_path).load(TABLE)
    assert refused.value.message == (
        "the database has the table under the catalog name `lake`, and this catalog's is `frazil`"
    )
    assert refused.value.remedy == "write `catalog: {name: lake}`, or give the table another name"


def test_another_table_and_another_warehouse_are_no_concern_of_a_name(jvm: Jvm, tmp_path: Path) -> None:
    lake = opened(jvm, tmp_path, name="lake")
    lake.create(TABLE, new_schema([("id", LongType())]), {}, 2)
    assert opened(jvm, tmp_path).load("shop.returns") is None
    other = opened(jvm, tmp_path, "other")
    assert other.load(TABLE) is None
    assert other.create(TABLE, new_schema([("id", LongType())]), {}, 2).location.startswith(str(tmp_path / "other"))


def test_a_class_gets_the_name_too(jvm: Jvm, tmp_path: Path) -> None:
    opened(jvm, tmp_path, name="lake").create(TABLE, new_schema([("id", LongType())]), {}, 2)
    named = opened(jvm, tmp_path, impl="org.apache.iceberg.jdbc.JdbcCatalog", name="lake")
    assert named.load(TABLE) is not None
    with pytest.raises(SpecError, match="under the catalog name `lake`"):
        opened(jvm, tmp_path, impl="org.apache.iceberg.jdbc.JdbcCatalog").load(TABLE)


def test_a_database_without_the_catalogs_tables_has_no_other_name(jvm: Jvm, tmp_path: Path) -> None:
    assert opened(jvm, tmp_path).load(TABLE) is None
