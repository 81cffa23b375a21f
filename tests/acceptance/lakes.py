"""A lake that is not on this disk: Iceberg's REST catalog, its tables in an S3 store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.servers import ObjectStore, RestCatalogServer, catalog_section

_BUCKET = "lake"


class RemoteLake:
    """Both servers, for pipelines that each have tables of their own."""

    def __init__(self, folder: Path) -> None:
        self._store = ObjectStore(folder / "store", "AKFRAZILTESTKEY", "s3cr3t/with+signs=and-more")
        self._catalog = RestCatalogServer(folder / "catalog", f"s3://{_BUCKET}/warehouse", self._store.properties())

    @property
    def port(self) -> int:
        """Of the catalog."""
        return self._catalog.port

    @property
    def store_port(self) -> int:
        """Of the store."""
        return self._store.port

    @property
    def secret(self) -> str:
        """The store's, which no log may show."""
        return self._store.secret

    @property
    def catalog_file(self) -> Path:
        """Where the catalog keeps its tables' locations."""
        return self._catalog.directory / "rest.db"

    def start(self) -> None:
        """Both, with a bucket."""
        self._store.start()
        self._store.make_bucket(_BUCKET)
        self._catalog.start()

    def section(self) -> dict[str, Any]:
        """The pipeline file's `catalog`."""
        return catalog_section(self._catalog, self._store.references())

    def environment(self) -> dict[str, str]:
        """The secrets that the section refers to."""
        return self._store.environment()

    def properties(self) -> dict[str, str]:
        """What leads another reader to the store."""
        return self._store.properties()

    def close(self) -> None:
        """Ends both."""
        self._catalog.kill()
        self._store.kill()
