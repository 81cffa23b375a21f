"""The ports' suites run on the twin in memory and on the real thing; the real one is asked for only once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.catalog.port import Catalog
from tests.contracts.catalogs import IcebergLake, Lake, MemoryLake
from tests.fixtures.registry import ApicurioRegistry


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    """A real schema registry for the session: give every test subjects and schemas of its own."""
    server = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where tables go."""
    return tmp_path / "warehouse"


@pytest.fixture(params=["memory", pytest.param("iceberg", marks=pytest.mark.jvm)])
def lake(request: pytest.FixtureRequest, folder: Path) -> Lake:
    """Tables of the twin in memory, or of Iceberg's own JDBC catalog."""
    return MemoryLake(folder) if request.param == "memory" else IcebergLake(request.getfixturevalue("jvm"), folder)


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    """The lake's catalog, as a fresh process sees it."""
    return lake.catalog()
