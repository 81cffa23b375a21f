"""Iceberg catalogs by name: the properties that make Iceberg open each, and what Frazil must know of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from frazil.errors import SpecError
from frazil.plugins.registration import Registered


@dataclass(frozen=True)
class CatalogKind:
    """One kind of catalog: a Java class, which Iceberg opens by properties."""

    #: Iceberg's catalog properties: `type`, or `catalog-impl` with the Java class, and further ones. Those of the
    #: pipeline file win.
    properties: Mapping[str, str]
    #: Further properties by the beginning of `catalog.uri`, of the first that matches.
    by_uri: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Properties for commands that only read, in place of `unread`.
    for_reading: Mapping[str, str] = field(default_factory=dict)
    #: Properties with which Iceberg would change the catalog's store as it opens it.
    unread: frozenset[str] = frozenset()
    #: Whether the pipeline file must have `catalog.uri`.
    needs_uri: bool = False
    #: Whether the pipeline file must have `catalog.warehouse`; a path in it is relative to the working directory.
    needs_warehouse: bool = False
    #: Whether the catalog vends credentials of the store with each table.
    vends_credentials: bool = False
    #: Paths of jars with its classes, besides those of Iceberg.
    jars: tuple[str, ...] = ()

    def check(self, written: Collection[str]) -> None:
        """Checks that the pipeline file has what the catalog needs. written: the keys of `catalog` that it has.

        Raises: SpecError.
        """
        for key, is_needed in (("uri", self.needs_uri), ("warehouse", self.needs_warehouse)):
            if is_needed and key not in written:
                message = f"`catalog.{key}` is missing: a catalog of this type has no default"
                raise SpecError(message, remedy=f"write it, as `catalog: {{{key}: …}}`")


_V1 = {"jdbc.schema-version": "V1"}
# Without these, a catalog that accepts a connection and never answers would be waited for without end.
_REST = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
# The same for a database, in the units of its driver; values in the address win.
_DATABASES = {
    "jdbc:sqlite:": {"jdbc.busy_timeout": "60000", "jdbc.journal_mode": "WAL"},
    "jdbc:postgresql:": {"jdbc.connectTimeout": "10", "jdbc.socketTimeout": "60"},
    "jdbc:mysql:": {"jdbc.connectTimeout": "10000", "jdbc.socketTimeout": "60000"},
    "jdbc:mariadb:": {"jdbc.connectTimeout": "10000", "jdbc.socketTimeout": "60000"},
}

CATALOGS: Registered[CatalogKind] = Registered(
    "frazil.catalogs",
    "catalog",
    CatalogKind,
    {
        "jdbc": CatalogKind(
            {"type": "jdbc", **_V1},
            by_uri=_DATABASES,
            for_reading={"jdbc.init-catalog-tables": "false"},
            unread=frozenset(("jdbc.schema-version", "jdbc.journal_mode")),
        ),
        "rest": CatalogKind({"type": "rest", **_REST}, needs_uri=True, vends_credentials=True),
    },
)
"""Every catalog; of a package `catalog: {type: NAME}` in its group `frazil.catalogs`."""
