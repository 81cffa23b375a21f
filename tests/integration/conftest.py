"""The real servers that the integration tests share: give every test topics and tables of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.servers import RestCatalogServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog of the file's own, whose tables are local files; nobody has to log in to it."""
    folder = tmp_path_factory.mktemp("catalog")
    running = RestCatalogServer(folder, str(folder / "warehouse"))
    running.start()
    yield running
    running.kill()
