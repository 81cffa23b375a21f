"""Lakes that are not in the folder of a pipeline; the one of most tests is Iceberg's REST catalog with an S3 store."""

from __future__ import annotations

from typing import Any, Protocol

from tests.acceptance.verifier import metadata_locations
from tests.integration.servers import ObjectStore, RestCatalogServer, catalog_section


class Lake(Protocol):
    """A catalog with its store, for pipelines that each have a namespace of their own."""

    def section(self) -> dict[str, Any]:
        """The pipeline file's `catalog`."""

    def environment(self) -> dict[str, str]:
        """The secrets that the section refers to, and what clients take from their environment."""

    def properties(self) -> dict[str, str]:
        """What leads another reader to the store."""

    def locations(self, namespace: str) -> dict[str, str]:
        """Where the current metadata files of a namespace's tables are, by the tables' full names."""


class RemoteLake:
    """Both servers, for pipelines that each have tables of their own."""

    def __init__(self, store: ObjectStore, catalog: RestCatalogServer) -> None:
        """Of servers that run."""
        self._store = store
        self._catalog = catalog

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

    def section(self) -> dict[str, Any]:
        """The pipeline file's `catalog`."""
        return catalog_section(self._catalog, self._store.references())

    def environment(self) -> dict[str, str]:
        """The secrets that the section refers to."""
        return self._store.environment()

    def properties(self) -> dict[str, str]:
        """What leads another reader to the store."""
        return self._store.properties()

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database of the catalog has them."""
        return metadata_locations(self._catalog.directory / "rest.db", " where table_namespace = ?", namespace)
