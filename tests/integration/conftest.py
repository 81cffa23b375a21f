"""The real servers that the integration tests share: give every test topics and tables of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.servers import ObjectStore, RestCatalogServer

_BUCKET = "lake"
_KEY, _SECRET = "AKFRAZILTESTKEY", "s3cr3t/with+signs=and-more"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A running S3 store with a bucket."""
    server = ObjectStore(tmp_path_factory.mktemp("store"), _KEY, _SECRET)
    server.start()
    server.make_bucket(_BUCKET)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def catalog(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A running REST catalog whose tables are in the store."""
    server = RestCatalogServer(tmp_path_factory.mktemp("catalog"), f"s3://{_BUCKET}/warehouse", store.properties())
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog of the file's own, whose tables are local files; nobody has to log in to it."""
    folder = tmp_path_factory.mktemp("catalog")
    running = RestCatalogServer(folder, str(folder / "warehouse"))
    running.start()
    yield running
    running.kill()
