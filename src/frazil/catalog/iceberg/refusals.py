"""What catalogs refuse for good: new tables, and answers about what a client may not see."""

from __future__ import annotations

from typing import Any

from frazil.catalog.iceberg.answers import is_conflict
from frazil.catalog.iceberg.java import (
    FORBIDDEN,
    cause_of,
    is_named,
    is_not_there,
    java_errors,
    mistake_of,
    strings,
    unavailable,
)
from frazil.errors import FrazilError, SpecError, UnavailableError


def refused_creation(error: Exception, table: str) -> FrazilError:
    """Returns the error of a table that does not exist after `error`; a SpecError where it would be refused again."""
    if is_named(error, "BadRequestException"):
        return SpecError(
            f"the catalog refuses to create the table: {cause_of(error)}",
            remedy="correct what the catalog names: the table's name, `properties`, `format_version` or `location`",
            where=table,
        )
    if is_named(error, "UnsupportedOperationException"):
        return SpecError(
            f"the catalog creates no tables: {cause_of(error)}",
            remedy="name a catalog that takes new tables, or create the table by the tool that the catalog has for it",
            where=table,
        )
    if is_named(error, "AlreadyExistsException"):  # Iceberg takes a refused lock of Hive's for another process.
        return UnavailableError(
            f"the table cannot be created: {cause_of(error)}",
            remedy="if this is Hive's metastore and has no tables for locks, write `spark: {conf:"
            ' {spark.hadoop.iceberg.engine.hive.lock-enabled: "false"}}`, as for all other writers',
            where=table,
        )
    what = "the table cannot be created"
    return mistake_of(what, error, table) or unavailable(what, error, table)


def refuse_failed(what: str, failure: Exception | None, table: str) -> None:
    """Checks that a change which the table, loaded again, does not have may be repeated.

    Raises: UnavailableError where it did not fail by another writer's.
    """
    if failure is not None and not is_conflict(failure):
        raise unavailable(what, failure, table)


def is_absent(gateway: Any, catalog: Any, identifier: Any, error: Exception) -> bool:
    """Returns whether a table that could not be loaded does not exist, though the catalog answers `error`: some, such as
    Lakekeeper, forbid what does not exist. What the client may list decides.
    """
    if not is_named(error, FORBIDDEN):
        return False
    namespace = identifier.namespace()
    try:
        return not _has(catalog.listTables(namespace), identifier)
    except java_errors() as refused:
        return _may_be_absent(refused) and _is_namespace_absent(gateway, catalog, namespace)


def _is_namespace_absent(gateway: Any, catalog: Any, namespace: Any) -> bool:
    if namespace.isEmpty():
        return False
    levels = [namespace.level(level) for level in range(namespace.length() - 1)]
    parent = gateway.jvm.org.apache.iceberg.catalog.Namespace.of(strings(gateway, levels))
    try:
        return not _has(catalog.listNamespaces(parent), namespace)
    except java_errors() as refused:
        return _may_be_absent(refused) and _is_namespace_absent(gateway, catalog, parent)


def _may_be_absent(error: Exception) -> bool:
    return is_named(error, FORBIDDEN) or is_not_there(error)


def _has(listed: Any, wanted: Any) -> bool:
    """Returns whether a list of the catalog has a name, in any letter case."""
    return str(wanted).lower() in {str(one).lower() for one in listed}
