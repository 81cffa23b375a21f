"""Lakes of every other kind of catalog, each on a real server, and what the servers themselves report of their tables: the
product is not asked.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from hdfs_native import Client
from pyiceberg.catalog.hive import HiveCatalog

from tests.acceptance.verifier import metadata_locations
from tests.fixtures.metastores import HiveMetastore, NessieServer
from tests.fixtures.postgres import DATABASE, PostgresServer
from tests.fixtures.stores.hdfs import READER, MiniHdfs
from tests.integration.servers import HOST, REGION, ObjectStore, RestCatalogServer, catalog_section

_KEY, _SECRET = "AKFRAZILTESTKEY", "s3cr3t/with+signs=and-more"
_AMAZON = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
_LOCK_FREE = {"spark.hadoop.iceberg.engine.hive.lock-enabled": "false"}


class LocalLake:
    """One whose files are in a folder and need no secrets."""

    #: Spark's configuration in the pipeline file.
    conf: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def properties(self) -> dict[str, str]:
        """Nothing."""
        return {}


class SqliteLake(LocalLake):
    """Iceberg's JDBC catalog on SQLite, as by default."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = None
        self._file = folder / "catalog.db"

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        return {"type": "jdbc", "uri": f"jdbc:sqlite:{self._file}", "warehouse": str(self.warehouse)}

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database has them."""
        return metadata_locations(self._file, " where table_namespace = ?", namespace)


class RestLake(LocalLake):
    """Iceberg's REST catalog over local files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = RestCatalogServer(folder / "rest", str(self.warehouse))

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        return catalog_section(self.server, {})

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database of the server has them."""
        return metadata_locations(self.server.directory / "rest.db", " where table_namespace = ?", namespace)


class HiveLake(LocalLake):
    """Hive's metastore, without locks: that of the tests has no tables for them."""

    conf = _LOCK_FREE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = HiveMetastore(folder / "metastore")

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        return {"type": "hive", "uri": self.server.uri, "warehouse": str(self.warehouse)}

    def locations(self, namespace: str) -> dict[str, str]:
        """As PyIceberg's client reads them."""
        reader = HiveCatalog("reader", uri=self.server.uri)
        if (namespace,) not in reader.list_namespaces():
            return {}
        names = [".".join(name) for name in reader.list_tables(namespace)]
        return {name: reader.load_table(name).metadata_location for name in names}


class NessieLake(LocalLake):
    """Nessie's own API."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = NessieServer(folder / "nessie")

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        return {"type": "nessie", "uri": self.server.uri, "warehouse": str(self.warehouse)}

    def locations(self, namespace: str) -> dict[str, str]:
        """As its API reports the branch `main`."""
        with urllib.request.urlopen(f"{self.server.uri}/trees/main/entries?content=true") as answer:
            entries = json.loads(answer.read())["entries"]
        tables = {
            ".".join(one["name"]["elements"]): one["content"] for one in entries if one["type"] == "ICEBERG_TABLE"
        }
        own = {name: table for name, table in tables.items() if name.startswith(f"{namespace}.")}
        return {name: table["metadataLocation"] for name, table in own.items()}


class PostgresLake(LocalLake):
    """Iceberg's JDBC catalog on PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = PostgresServer()

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        uri = f"jdbc:postgresql://{HOST}:{self.server.port}/{DATABASE}"
        return {"type": "jdbc", "uri": uri, "warehouse": str(self.warehouse), "properties": {"jdbc.user": "postgres"}}

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database has them."""
        if not self.server.rows("select 1 from pg_tables where tablename = 'iceberg_tables'"):
            return {}
        rows = self.server.rows("select table_namespace, table_name, metadata_location from iceberg_tables")
        own = [row for row in rows if row["table_namespace"] == namespace]
        return {f"{namespace}.{row['table_name']}": row["metadata_location"] for row in own}


class GlueLake:
    """Amazon's Glue, with S3."""

    conf: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.server = ObjectStore(folder / "amazon", _KEY, _SECRET)

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        properties = {**self.server.references(), "glue.endpoint": self.server.url}
        return {"type": "glue", "warehouse": "s3://lake/glue", "properties": properties}

    def environment(self) -> dict[str, str]:
        """Glue's client takes its keys from the environment, or a role."""
        return {**self.server.environment(), **_AMAZON}

    def properties(self) -> dict[str, str]:
        """Of the store."""
        return self.server.properties()

    def locations(self, namespace: str) -> dict[str, str]:
        """As Glue reports them."""
        glue = boto3.client(
            "glue",
            endpoint_url=self.server.url,
            region_name=REGION,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
        )
        if namespace not in {found["Name"] for found in glue.get_databases()["DatabaseList"]}:
            return {}
        tables = glue.get_tables(DatabaseName=namespace)["TableList"]
        return {f"{namespace}.{table['Name']}": table["Parameters"]["metadata_location"] for table in tables}


class HadoopLake(LocalLake):
    """Tables in a folder, commits under a lock in Amazon's DynamoDB."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = ObjectStore(folder / "amazon", _KEY, _SECRET)

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        lock = {
            "lock-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager",
            "lock.table": "locks",
            "dynamodb.endpoint": self.server.url,
            "client.region": REGION,
        }
        return {"type": "hadoop", "warehouse": str(self.warehouse), "properties": lock}

    def environment(self) -> dict[str, str]:
        """DynamoDB's client takes its keys from the environment, or a role."""
        return dict(_AMAZON)

    def locations(self, namespace: str) -> dict[str, str]:
        """The greatest version in each folder, which is what the catalog is."""
        found = {}
        for metadata in self.warehouse.glob(f"{namespace}/*/metadata"):
            versions = [int(file.name[1:].split(".")[0]) for file in metadata.glob("v*.metadata.json")]
            if versions:
                found[f"{namespace}.{metadata.parent.name}"] = f"{metadata}/v{max(versions)}.metadata.json"
        return found


class HdfsLake:
    """Tables in folders of HDFS, commits without a lock: its renames replace nothing."""

    conf: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.server = MiniHdfs(folder / "hdfs")

    def section(self) -> dict[str, Any]:
        """As a user writes it."""
        return {"type": "hadoop", "warehouse": f"{self.server.address}/lake"}

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def properties(self) -> dict[str, str]:
        """The clients of other readers."""
        return {**self.server.access().properties, "py-io-impl": READER}

    def locations(self, namespace: str) -> dict[str, str]:
        """The greatest version in each folder, by a client of the name node."""
        client, found = Client(self.server.address, {}, "/dev/null"), dict[str, int]()
        try:
            paths = [Path(file.path) for file in client.list_status(f"/lake/{namespace}", recursive=True)]
        except FileNotFoundError:
            return {}
        for path in paths:
            if version := re.fullmatch(r"v(\d+)\.metadata\.json", path.name):
                folder = str(path.parent)
                found[folder] = max(found.get(folder, 0), int(version[1]))
        return {
            f"{namespace}.{Path(folder).parent.name}": f"{self.server.address}{folder}/v{newest}.metadata.json"
            for folder, newest in found.items()
        }


AnyLake = SqliteLake | RestLake | PostgresLake | HiveLake | GlueLake | NessieLake | HadoopLake | HdfsLake
KINDS: Mapping[str, Callable[[Path], AnyLake]] = {
    "jdbc on SQLite": SqliteLake,
    "jdbc on PostgreSQL": PostgresLake,
    "rest": RestLake,
    "hive": HiveLake,
    "glue": GlueLake,
    "nessie": NessieLake,
    "hadoop": HadoopLake,
    "hadoop on HDFS": HdfsLake,
}


@contextmanager
def running_lake(kind: str, folder: Path) -> Iterator[AnyLake]:
    """A lake whose server runs while the block does."""
    lake = KINDS[kind](folder)
    if lake.server is None:
        yield lake
        return
    lake.server.start()
    try:
        if isinstance(lake, GlueLake):
            lake.server.make_bucket("lake")
        yield lake
    finally:
        lake.server.kill()
        if isinstance(lake.server, PostgresServer):
            lake.server.close()
