"""Opens the catalog of a pipeline file; turns permanent errors into remedies.

Such errors refuse to open the catalog, to create a table, or to show what a client may not see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError

from frazil.catalog.iceberg.commits import is_conflict
from frazil.catalog.iceberg.java import (
    FORBIDDEN,
    array_of,
    cause_of,
    configuration_of,
    is_named,
    is_not_there,
    java_errors,
    mistake_of,
    strings,
    unavailable,
)
from frazil.catalog.iceberg.store_access import build_client
from frazil.errors import FrazilError, SpecError, UnavailableError

_REFUSAL = "BadRequestException"
REST = "org.apache.iceberg.rest.RESTCatalog"
JDBC = "org.apache.iceberg.jdbc.JdbcCatalog"
_REST_OPERATIONS = "org.apache.iceberg.rest.RESTTableOperations"
_POOL = "org.apache.iceberg.ClientPoolImpl"
_OTHER_NAMES = (
    "select catalog_name, metadata_location from iceberg_tables where table_namespace = ? and table_name = ? and"
    " catalog_name <> ?"
)


def open_catalog(gateway: Any, name: str, properties: Mapping[str, str], hadoop: Mapping[str, str]) -> Any:
    """Returns the Java catalog of these properties. name: of the catalog, which a JDBC catalog keeps in its rows. hadoop:
    Hadoop's settings.

    Raises: SpecError for one that cannot be used; UnavailableError for one that does not answer.
    """
    configuration = configuration_of(gateway, hadoop)
    address = properties.get("uri") or properties.get("warehouse", "")
    try:
        opened = gateway.jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(name, dict(properties), configuration)
        is_rest = is_instance_of(gateway, opened, REST)
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


def ask_catalog(gateway: Any, catalog: Any, address: str, namespace: str) -> str:
    """Asks a Java catalog for a namespace: some are opened without a question to their service. Returns the address of the
    files of its new tables; empty where nothing is known of that.

    Raises: UnavailableError where the catalog does not answer; SpecError as `refused_catalog`.
    """
    wanted = gateway.jvm.org.apache.iceberg.catalog.Namespace.of(strings(gateway, namespace.split(".")))
    try:
        if catalog.namespaceExists(wanted) and (place := catalog.loadNamespaceMetadata(wanted).get("location")):
            return str(place)
        if not is_instance_of(gateway, catalog, REST):
            return ""
        places = (catalog.properties().get(name) for name in ("default-base-location", "warehouse"))
        return next((str(place) for place in places if "://" in str(place)), "")
    except java_errors() as error:
        if is_not_there(error) or is_named(error, FORBIDDEN, "UnsupportedOperationException"):
            return ""  # It answers.
        raise refused_catalog(error, address) from None
    except Py4JError:  # A class of somebody else's may have no namespaces.
        return ""


def settings_of_driver(gateway: Any, address: str) -> dict[str, tuple[str, ...]]:
    """Returns the properties that the driver of a database at a JDBC address lists, with the values of those that have a
    list of values; empty without a driver. The database is not asked.
    """
    jvm = gateway.jvm
    try:
        driver_properties = jvm.java.sql.DriverManager.getDriver(address).getPropertyInfo(
            address, jvm.java.util.Properties()
        )
    except java_errors():
        return {}
    listed = json.loads(jvm.org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(driver_properties))
    return {str(driver_property["name"]): tuple(driver_property["choices"] or ()) for driver_property in listed}


def _endpoints(catalog: Any) -> Any:
    """Returns the endpoints of a REST catalog's server, as a Java set: those of its configuration, or the usual ones."""
    session = _field(catalog.getClass(), catalog, "sessionCatalog")
    return _field(session.getClass(), session, "endpoints")


def _field(kind: Any, java: Any, name: str) -> Any:
    """Returns a field of a Java object that is not public. kind: the Java class that declares it."""
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)


def commits_together(gateway: Any, catalog: Any) -> bool:
    """Returns whether a Java catalog has commits of several tables: a REST catalog whose server lists their endpoint."""
    endpoint = gateway.jvm.org.apache.iceberg.rest.Endpoint.V1_COMMIT_TRANSACTION
    return is_instance_of(gateway, catalog, REST) and bool(_endpoints(catalog).contains(endpoint))


def commit_where(gateway: Any, operations: Any, base: Any, updated: Any, branch: str) -> None:
    """Commits a change of one table, where the branch still has the snapshot that it has in `base`: the Java metadata before
    the change, which `updated` is after it. operations: of the table.

    Iceberg asks a REST catalog to compare only the branches that a change sets: the requirement of this branch is sent in
    addition, to the table's own endpoint. Other catalogs compare the whole metadata. Raises what the JVM raises.
    """
    if not is_instance_of(gateway, operations, _REST_OPERATIONS):
        operations.commit(base, updated)
        return
    iceberg, ref = gateway.jvm.org.apache.iceberg, base.ref(branch)
    requirements = gateway.jvm.java.util.ArrayList(iceberg.UpdateRequirements.forUpdateTable(base, updated.changes()))
    expected = None if ref is None else ref.snapshotId()
    requirements.add(iceberg.UpdateRequirement.AssertRefSnapshotID(branch, expected))
    class_of = gateway.jvm.java.lang.Class.forName
    client, path, headers = (
        _field(class_of(_REST_OPERATIONS), operations, name) for name in ("client", "path", "mutationHeaders")
    )
    client.post(
        path,
        iceberg.rest.requests.UpdateTableRequest(requirements, updated.changes()),
        class_of("org.apache.iceberg.rest.responses.LoadTableResponse"),
        headers,
        iceberg.rest.ErrorHandlers.tableCommitHandler(),
    )


def refused_catalog(error: Exception, where: str) -> FrazilError:
    """Returns why a catalog cannot be opened: an outage, or an error in the pipeline file."""
    cause = cause_of(error)
    if "No suitable driver" in cause:
        kind = ":".join(where.split(":")[:2])
        return SpecError(
            f"Frazil has no JDBC driver for `{kind}:`",
            remedy="name its jar, as `catalog: {jars: [/path/to/driver.jar]}`, or correct `catalog.uri`",
            where=where,
        )
    if _has_no_tables(cause):
        return UnavailableError(
            f"the database has no tables of the catalog, and `jdbc.init-catalog-tables` is false: {cause}",
            remedy="remove `jdbc.init-catalog-tables: false`, or let its owner make them; Frazil retries with back-off",
            where=where,
        )
    mistake = mistake_of("the catalog cannot be opened", error, where, is_opening=True)
    return mistake or unavailable("the catalog", error, where)


def is_unmade(properties: Mapping[str, str], error: Exception) -> bool:
    """Returns whether a JDBC catalog has no tables of its own in the database yet, which the first run makes."""
    return properties.get("jdbc.init-catalog-tables") == "false" and _has_no_tables(cause_of(error))


def _has_no_tables(cause: str) -> bool:
    return "iceberg_tables" in cause and ("exist" in cause or "no such table" in cause)


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
    if is_not_there(error):
        refuse_other_name(gateway, catalog, identifier)
    if what:
        message = f"the catalog has {what} of this name, and Frazil writes to Iceberg tables"
        raise SpecError(message, remedy="give the table another name, or drop it", where=str(identifier))


def refuse_other_name(gateway: Any, catalog: Any, identifier: Any) -> None:
    """Raises a SpecError where the database of a JDBC catalog has the table under another catalog's name, with files in the
    folder that a table of this catalog would have: each of the two would take the other's files for orphans.
    """
    if catalog.getClass().getName() != JDBC:
        return
    with suppress(*java_errors()):  # A database without the catalog's tables has no other table either.
        folder = str(_called(gateway, JDBC, catalog, "defaultWarehouseLocation", identifier)).rstrip("/")
        for name, metadata in _named_otherwise(gateway, catalog, identifier):
            if metadata.startswith(f"{folder}/"):
                raise SpecError(
                    f"the database has the table under the catalog name `{name}`, and this catalog's is `{catalog.name()}`",
                    remedy=f"write `catalog: {{name: {name}}}`, or give the table another name",
                    where=str(identifier),
                )


def _named_otherwise(gateway: Any, catalog: Any, identifier: Any) -> list[tuple[str, str]]:
    """Returns the names of other catalogs in the database of a JDBC catalog that have a table, with its metadata file."""
    field = catalog.getClass().getDeclaredField("connections")
    field.setAccessible(True)
    pool = field.get(catalog)
    connection = _called(gateway, _POOL, pool, "get")
    try:
        query = connection.prepareStatement(_OTHER_NAMES)
        words = (str(identifier.namespace()), str(identifier.name()), str(catalog.name()))
        for place, word in enumerate(words, 1):
            query.setString(place, word)
        rows, named = query.executeQuery(), list[tuple[str, str]]()
        while rows.next():
            named.append((str(rows.getString(1)), str(rows.getString(2))))
        return named
    finally:
        _called(gateway, _POOL, pool, "release", connection)


def _called(gateway: Any, kind: str, java: Any, name: str, *arguments: Any) -> Any:
    """Returns what a method of a Java object returns that is not public. kind: the class that declares it."""
    methods = gateway.jvm.java.lang.Class.forName(kind).getDeclaredMethods()
    method = next(candidate for candidate in methods if candidate.getName() == name)
    method.setAccessible(True)
    return method.invoke(java, array_of(gateway, gateway.jvm.java.lang.Object, *arguments))


def create_twice(create: Callable[[], Any]) -> Any:
    """Returns what `create` does, of a table or its namespaces, called once more where it is refused: a refusal stops the
    table for good, and one alone may come from a proxy on the way.
    """
    try:
        return create()
    except java_errors() as error:
        if not is_named(error, _REFUSAL):
            raise
    return create()


def refused_creation(error: Exception, table: str) -> FrazilError:
    """Returns the error of a table that does not exist after `error`; a SpecError where it would be refused again."""
    if is_named(error, _REFUSAL):
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
    return str(wanted).lower() in {str(name).lower() for name in listed}
