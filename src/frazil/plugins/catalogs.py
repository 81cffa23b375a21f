"""Iceberg catalogs by name, and stores of packages.

A kind has the properties that make Iceberg open the catalog, and what Frazil must know of it. Of managed REST catalogs,
which are known by their address, it is what each does otherwise than Iceberg's REST protocol has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import SpecError
from frazil.plugins.registration import Registered, function_of


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
    #: Settings of Hadoop's; those of the pipeline file, `spark.hadoop.…` under `spark.conf`, win.
    hadoop: Mapping[str, str] = field(default_factory=dict)
    #: Whether the pipeline file must have `catalog.uri`.
    needs_uri: bool = False
    #: What `catalog.uri` begins with; empty: anything.
    uri_schemes: tuple[str, ...] = ()
    #: Whether the pipeline file must have `catalog.warehouse`; a path in it is relative to the working directory.
    needs_warehouse: bool = False
    #: Whether two processes lose commits of each other without a lock, except on HDFS, whose renames replace nothing.
    needs_lock: bool = False
    #: Whether the catalog refuses to replace another version than the one that a commit was made for, which Iceberg no
    #: longer asks of it under a lock.
    compares_versions: bool = False
    #: Whether the catalog keeps names as Hive does: in lower case, in namespaces of one level.
    lowers_names: bool = False
    #: Whether the catalog may keep its tables under its own name, `catalog.name`.
    keeps_name: bool = False
    #: Whether the catalog vends credentials of the store with each table.
    vends_credentials: bool = False
    #: Whether its Java class needs classes of Spark's jars, beside Hadoop's client.
    needs_spark_jars: bool = False
    #: Paths of jars with its classes, besides those of Iceberg.
    jars: tuple[str, ...] = ()

    def check(self, uri: str | None, warehouse: str | None, properties: Mapping[str, str]) -> None:
        """Checks that the section `catalog` of the pipeline file has what the catalog needs.

        Raises: SpecError.
        """
        example = f"{self.uri_schemes[0]}…" if self.uri_schemes else "…"
        for key, text, written in (("uri", uri, example), ("warehouse", warehouse, "…")):
            if text is None and getattr(self, f"needs_{key}"):
                message = f"`catalog.{key}` is missing: a catalog of this type has no default"
                raise SpecError(message, remedy=f"write it, as `catalog: {{{key}: {written}}}`")
        if uri and self.uri_schemes and not uri.startswith(self.uri_schemes):
            message = "`catalog.uri` is not an address of a catalog of this type"
            raise SpecError(message, remedy=f"begin it with {' or '.join(self.uri_schemes)}")
        if self.needs_lock and "lock-impl" not in properties and not (warehouse or "").startswith("hdfs://"):
            message = "two processes lose commits of each other in this warehouse: its renames replace files"
            raise SpecError(message, remedy=_LOCK_REMEDY)
        if self.compares_versions and "lock-impl" in properties:
            message = "with `lock-impl` a process whose lock has expired overwrites commits of others in this catalog"
            raise SpecError(message, remedy=_NO_LOCK_REMEDY)

    def check_name(self, table: str) -> None:
        """Checks that the catalog keeps the full name of a table as it is.

        Raises: SpecError with a name that it keeps.
        """
        size = len(table.rpartition(".")[2].encode("utf-8", "surrogatepass"))
        if size > _MAX_BYTES:
            message = f"the table's name behind its namespace has {size} bytes: {_MAX_BYTES} are the most"
            raise SpecError(message, remedy="give the table a shorter name under `tables`")
        if not self.lowers_names or _LOWERED.fullmatch(table):
            return
        *namespace, name = (re.sub(r"\W", "_", part.lower(), flags=re.ASCII) for part in table.split("."))
        message = (
            f"the catalog cannot have a table `{table}`: it keeps names of `a-z`, `0-9` and `_` alone, and a namespace"
            " has one level"
        )
        raise SpecError(message, remedy=f"name the table, such as `{'_'.join(namespace)}.{name}`, under `tables`")


_MAX_BYTES = 241
"""File systems and catalogs take 255 for this part of a name, and the dead-letter table has `__dead_letters` behind it."""
_LOWERED = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
_LOCK_REMEDY = (
    "write `type: jdbc`, or set `lock-impl` under `catalog.properties` to a lock that all writers use, such as"
    " org.apache.iceberg.aws.dynamodb.DynamoDbLockManager with `lock.table`"
)
_NO_LOCK_REMEDY = (
    "remove `lock-impl` under `catalog.properties`, and from all other writers of the tables: without it the catalog"
    " itself compares versions"
)
KEEPS_METADATA = {"table-override.write.metadata.delete-after-commit.enabled": "false"}
"""The properties of catalogs whose tables must keep the metadata files of older commits."""
_V1 = {"jdbc.schema-version": "V1"}
_HTTP = ("https://", "http://")
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
            keeps_name=True,
        ),
        "rest": CatalogKind({"type": "rest", **_REST}, needs_uri=True, uri_schemes=_HTTP, vends_credentials=True),
        "hive": CatalogKind(
            {"type": "hive"},
            hadoop={
                "hive.metastore.client.socket.timeout": "20s"
            },  # Four times, with Hive's retries; its own is ten minutes.
            needs_uri=True,
            uri_schemes=("thrift://",),
            needs_warehouse=True,
            lowers_names=True,
            needs_spark_jars=True,
        ),
        "glue": CatalogKind(
            {"type": "glue", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
            needs_warehouse=True,
            compares_versions=True,
            lowers_names=True,
        ),
        # Other branches may need metadata files that one branch has replaced.
        "nessie": CatalogKind(
            {"type": "nessie", **KEEPS_METADATA},
            needs_uri=True,
            uri_schemes=_HTTP,
            needs_warehouse=True,
        ),
        # A commit takes the next number that no file has: a process that was paused would take one that others have used and
        # removed, and hide all their later commits. The removal of orphans removes old files after days.
        "hadoop": CatalogKind({"type": "hadoop", **KEEPS_METADATA}, needs_warehouse=True, needs_lock=True),
    },
)
"""Every catalog; of a package `catalog: {type: NAME}` in its group `frazil.catalogs`."""


@dataclass(frozen=True)
class Service:
    """A managed catalog."""

    name: str
    #: What its addresses contain, as a regular expression.
    address: str
    #: Whether names are of lower-case letters, digits and underscores, in namespaces of one level.
    lowers_names: bool = False
    #: Whether names that differ in letter case alone are names of one table.
    ignores_case: bool = False
    #: Whether a new table must have a location.
    needs_location: bool = False
    #: Actions of table maintenance that the service does by itself, as `maintenance.skip` names them.
    maintains: tuple[str, ...] = ()


_ALL = ("compact", "expire", "orphans")
SERVICES = (
    Service("Amazon S3 Tables", r"//s3tables\.[^/]+\.amazonaws\.com", lowers_names=True, maintains=_ALL),
    Service("AWS Glue", r"//glue\.[^/]+\.amazonaws\.com", lowers_names=True, needs_location=True),
    Service("Unity Catalog", r"/api/2\.1/unity-catalog/iceberg", ignores_case=True, maintains=_ALL),
    Service("Alibaba Cloud OSS Tables", r"\.oss-tables\.aliyuncs\.com", lowers_names=True, maintains=_ALL),
)
"""Services by address; Polaris, Lakekeeper and Gravitino have none of their own."""


def service_at(uri: str) -> Service | None:
    """Returns the service at this address; None for another one."""
    return next((service for service in SERVICES if re.search(service.address, uri)), None)


@dataclass(frozen=True)
class StoreKind:
    """A kind of store that is not an object store."""

    #: `open(properties, host)` returns the `store.file_io.StoreCluster` of a host, from the properties of a table's store
    #: that tasks have, as `module:name`.
    open: str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens it."""
        return function_of(self.open)


STORES: Registered[StoreKind] = Registered("frazil.stores", "store", StoreKind, {})
"""The one kind is `hdfs`, of a package."""
