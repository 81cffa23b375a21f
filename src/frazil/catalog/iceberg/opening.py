"""Opens a catalog of Iceberg's by its properties, and explains why one cannot be opened."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import is_instance_of

from frazil.catalog.iceberg.java import (
    cause_of,
    is_named,
    is_not_there,
    java_errors,
    mistake_of,
    unavailable,
)
from frazil.catalog.iceberg.store_access import build_client
from frazil.errors import FrazilError, SpecError

NAME = "frazil"
"""The name of every catalog that Frazil opens; a JDBC catalog keeps it in its rows."""
_REST = "org.apache.iceberg.rest.RESTCatalog"


def open_catalog(gateway: Any, properties: Mapping[str, str], hadoop: Mapping[str, str]) -> Any:
    """Returns the Java catalog of these properties. hadoop: Hadoop's settings.

    Raises: SpecError for one that cannot be used; UnavailableError for one that does not answer.
    """
    configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
    for name, value in hadoop.items():
        configuration.set(name, value)
    address = properties.get("uri") or properties.get("warehouse", "")
    try:
        opened = gateway.jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(NAME, dict(properties), configuration)
        is_rest = is_instance_of(gateway, opened, _REST)
        shows_one_snapshot = is_rest and "nessie.is-nessie-catalog" in opened.properties()
        takes_commits = not is_rest or _endpoints(opened).contains(
            gateway.jvm.org.apache.iceberg.rest.Endpoint.V1_UPDATE_TABLE
        )
        if not is_rest:  # A server reads metadata files by itself, and may vend other properties.
            build_client(gateway, properties)
    except java_errors() as error:
        raise refused_catalog(error, address) from None
    if shows_one_snapshot:
        raise SpecError(
            "Nessie's REST endpoint shows only the newest snapshot of a table, and older ones hold the progress",
            remedy="write `type: nessie`, with the address of its own API, such as https://nessie/api/v2",
            where=address,
        )
    if not takes_commits:
        raise SpecError(
            "the catalog can only be read at this address: its configuration lists no endpoint for commits",
            remedy="correct `catalog.uri`: some services have another address for writers, and some have none",
            where=address,
        )
    return opened


def _endpoints(catalog: Any) -> Any:
    """Returns the endpoints of a REST catalog's server, as a Java set: those of its configuration, or the usual ones."""
    found = catalog
    for name in ("sessionCatalog", "endpoints"):
        field = found.getClass().getDeclaredField(name)
        field.setAccessible(True)
        found = field.get(found)
    return found


def refused_catalog(error: Exception, where: str) -> FrazilError:
    """Returns why a catalog cannot be opened: an outage, or an error in the pipeline file."""
    cause = cause_of(error)
    if "No suitable driver" in cause:
        kind = ":".join(where.split(":")[:2])
        return SpecError(
            f"there is no JDBC driver for `{kind}:`",
            remedy="name its jar, as `catalog: {jars: [/path/to/driver.jar]}`, or correct `catalog.uri`",
            where=where,
        )
    mistake = mistake_of("the catalog cannot be opened", error, where, is_opening=True)
    return mistake or unavailable("the catalog", error, where)


def is_unmade(properties: Mapping[str, str], error: Exception) -> bool:
    """Returns whether a JDBC catalog has no tables of its own in the database yet, which the first run makes."""
    cause = cause_of(error)
    return properties.get("jdbc.init-catalog-tables") == "false" and "iceberg_tables" in cause and "exist" in cause


def refuse_other_kind(gateway: Any, catalog: Any, identifier: Any, error: Exception) -> None:
    """Raises a SpecError where a table could not be loaded, with `error`, because its name is something else's, or its
    format or store needs what this process does not have.
    """
    if "Cannot read unsupported version" in cause_of(error):
        raise SpecError(
            f"the table has a newer format than this Frazil reads: {cause_of(error)}",
            remedy="install a newer Frazil, or give the table another name in the pipeline file",
            where=str(identifier),
        )
    if mistake := mistake_of("the table cannot be loaded", error, str(identifier)):
        raise mistake
    what = "a table of another format" if is_named(error, "NoSuchIcebergTableException") else ""
    if is_not_there(error) and is_instance_of(gateway, catalog, "org.apache.iceberg.catalog.ViewCatalog"):
        with suppress(*java_errors()):  # A catalog without views may refuse the question.
            what = "a view" if catalog.viewExists(identifier) else ""
    if what:
        message = f"the catalog has {what} of this name, and Frazil writes to Iceberg tables"
        raise SpecError(message, remedy="give the table another name, or drop it", where=str(identifier))
