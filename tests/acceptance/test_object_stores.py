"""One pipeline, from its first table to the expiry of snapshots, with kills in between, on every store whose server or
emulator packages have. `make stores` makes the servers and runs this; a server that is not there skips its tests.

In time: test_stores.py has the pipeline on S3, integration/test_signed_store.py a store that checks signatures, and
unit/store/test_addresses.py the addresses and keys of every kind.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jars import jars
from frazil.runtime.light_jvm import LightJvm
from frazil.store.file_io import StoreIO
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.verifier import Difference, Stored, compare, metadata_locations
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.hdfs import MiniHdfs
from tests.fixtures.stores.servers import Access, Azurite, GcsEmulator, S3Gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

COLUMNS = Schema(NestedField(1, "id", LongType(), required=False))
S3 = "org.apache.iceberg.aws.s3.S3FileIO"
HADOOP = "org.apache.iceberg.hadoop.HadoopFileIO"


class StoredLake:
    """Iceberg's JDBC catalog on SQLite, its tables in a store."""

    def __init__(self, folder: Path, access: Access) -> None:
        self.catalog_file = folder / "catalog.db"
        self.access = access
        self._names = {name: f"STORE_SECRET_{number}" for number, name in enumerate(sorted(access.secrets))}

    def section(self) -> dict[str, Any]:
        """As a user writes it, with the secrets in the environment."""
        secrets = {name: f"${{env:{variable}}}" for name, variable in self._names.items()}
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.catalog_file}",
            "warehouse": self.access.warehouse,
            "jars": [str(jar) for jar in self.access.jars],
            "properties": {**self.access.properties, **secrets},
        }

    def environment(self) -> dict[str, str]:
        """The secrets that the section refers to."""
        return {variable: self.access.secrets[name] for name, variable in self._names.items()}

    def properties(self) -> dict[str, str]:
        """What leads another reader to the store."""
        return self.access.all_properties()

    def locations(self, namespace: str) -> dict[str, str]:
        """As the database has them."""
        return metadata_locations(self.catalog_file, " where table_namespace = ?", namespace)


Granted = Callable[..., Access]


@dataclass(frozen=True)
class Kind:
    """A store, and how a pipeline comes to it."""

    open: Callable[[Path], S3Gateway | Azurite | GcsEmulator | MiniHdfs]
    #: What `access` of the server is given.
    access: Mapping[str, bool]
    #: What the store calls a missing bucket; empty where it has none.
    missing: str
    #: What it calls a wrong key; empty where it takes every key.
    wrong: str = ""
    #: Actions that the server cannot do: it is an emulator.
    skip: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "versitygw": Kind(S3Gateway, {}, "specified bucket does not exist", "signature"),
    "azurite, by key": Kind(Azurite, {}, "ContainerNotFound", "AuthorizationFailure", ("orphans",)),
    "azurite, by SAS token": Kind(
        Azurite, {"by_token": True}, "ContainerNotFound", "AuthorizationFailure", ("orphans",)
    ),
    "hdfs": Kind(MiniHdfs, {}, ""),
    "fake-gcs-server": Kind(GcsEmulator, {}, "404 Not Found POST .*/storage/v1/b/missing/o"),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def granted(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Granted]:
    """Makes ways to the bucket of a server that runs."""
    server = kind.open(tmp_path_factory.mktemp("store"))
    try:
        server.start()
        yield lambda *words, **wrong: server.access(*words, **{**kind.access, **wrong})
    finally:
        server.kill()


@pytest.fixture(scope="module")
def reader(granted: Granted) -> Iterator[ForeignSpark]:
    """Another team's Spark, with the store's jars."""
    made = ForeignSpark([*jars("spark"), *(granted().jars or jars("s3"))])
    yield made
    made.close()


@pytest.fixture(scope="module")
def jvm(granted: Granted) -> Iterator[LightJvm]:
    """Iceberg's client of the store, without Spark."""
    own = granted().jars
    with light_jvm(needs_s3=not own, conf={"spark.jars": ",".join(map(str, own))}) as running:
        running.listen()
        yield running


@contextmanager
def opened(folder: Path, servers: str, spark: ForeignSpark, access: Access) -> Iterator[Pipeline]:
    """A pipeline with its tables in the store."""
    folder.mkdir()
    made = Pipeline(folder / "pipeline", servers, spark, StoredLake(folder, access))
    try:
        yield made
    finally:
        made.close()


def rows_in(spark: ForeignSpark, pipeline: Pipeline, lake: StoredLake, table: str) -> list[dict[str, Any]]:
    """What Spark reads of the table's newest snapshot."""
    metadata = Stored(lake.locations(pipeline.name)[table], {"io-impl": S3, **lake.properties()})
    [newest] = spark.sql(f"select snapshot_id from {spark._registered(metadata)}.refs where name = 'main'")
    [found] = spark.read(metadata, [newest["snapshot_id"]])
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_a_pipeline_is_killed_maintained_and_read_in_every_store(
    kind: Kind, granted: Granted, broker: EmbeddedBroker, reader: ForeignSpark, tmp_path: Path
) -> None:
    """Append, upsert, compact and expire. The driver is killed between a commit and its answer, maintenance between the
    files of a compaction and their commit.
    """
    with opened(tmp_path / "lake", broker.bootstrap_servers, reader, granted()) as pipeline:
        lake = pipeline._lake
        assert isinstance(lake, StoredLake)
        pipeline.document["maintenance"] = {"min_input_files": 2, "snapshots": {"count": 1}, "skip": list(kind.skip)}
        table, topic = pipeline.add_fed_table("events", 1)
        orders = pipeline.new_topic("orders", 1)
        upserts = pipeline.add_table("orders", orders, mode="upsert", key_columns=["id"])
        pipeline.feed.produce(topic, events(200))
        pipeline.feed.produce(orders, ({"id": n % 10, "v": n} for n in range(50)))
        with pipeline.running("--until-caught-up", failpoints="commit.landed=kill@2") as run:
            assert run.wait() == -signal.SIGKILL, run.tail()
        pipeline.feed.produce(topic, events(200, 200, more="new"))
        pipeline.feed.produce(orders, ({"id": n % 10, "v": n} for n in range(50, 95)))
        pipeline.catch_up()
        assert pipeline.attempt("maintain", failpoints="maintenance.compact.written=kill") == -signal.SIGKILL
        for done in pipeline.command("maintain")["tables"].values():
            assert {"compact", "expire"} <= {action["action"] for action in done["actions"]}
            assert [action["failure"] for action in done["actions"]] == [""] * len(done["actions"])
        expected = {place: text for place, text in pipeline.ledger.records.items() if place[0] == topic}
        assert compare(rows_in(reader, pipeline, lake, table), expected) == Difference()
        rows = rows_in(reader, pipeline, lake, upserts)
        assert {row["id"]: row["v"] for row in rows} == {n % 10: n for n in range(95)}
        assert len(rows) == 10
        reported = pipeline.command("status")["tables"]
        assert {name: found["rows"] for name, found in reported.items()} == {table: 400, upserts: 10}


def _catalog(jvm: LightJvm, folder: Path, access: Access) -> IcebergCatalog:
    own = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / new_id()}.db", "jdbc.schema-version": "V1"}
    properties = {"io-impl": S3, **access.all_properties(), "warehouse": access.warehouse}
    return IcebergCatalog(jvm.gateway, "p", {**properties, **own}, {})


def test_driver_and_tasks_write_objects_that_the_other_one_reads(jvm: LightJvm, granted: Granted) -> None:
    """In one request and in parts, whatever characters are in the name."""
    access = granted()
    properties = {"io-impl": S3, **access.all_properties()}
    java = jvm.gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(properties["io-impl"], properties, None)
    tasks = StoreIO(access.all_properties())
    for size in (5, 12_000_000):
        name = f"{access.warehouse}/with spaces/é%2F+=&/{size}"
        with tasks.new_output(name).create() as stream:
            stream.write(bytes(size))
        assert java.newInputFile(name).getLength() == size
        stream = java.newOutputFile(f"{name} by Java").create()
        stream.write(bytes(size))
        stream.close()
        with tasks.new_input(f"{name} by Java").open() as found:
            assert found.read() == bytes(size)
        java.deleteFile(name)
        assert not tasks.new_input(name).exists()
    if properties["io-impl"] != HADOOP:  # It has nothing to close, and py4j does not find its method.
        java.close()


def test_a_wrong_key_and_a_missing_bucket_are_named(
    jvm: LightJvm, kind: Kind, granted: Granted, tmp_path: Path
) -> None:
    """To the driver, when it creates a table, and to a task."""
    if not kind.missing:
        pytest.skip("it has neither buckets nor keys: packages/hdfs/tests/acceptance/test_hdfs.py has what it refuses")
    refused = [(granted("missing"), kind.missing, "create the bucket, or correct `catalog.warehouse`")]
    if kind.wrong:
        refused.append((granted(is_wrong=True), kind.wrong, "check the credentials under `catalog.properties`"))
    for access, words, remedy in refused:
        with pytest.raises(UnavailableError, match=words) as raised:
            _catalog(jvm, tmp_path, access).create("shop.orders", COLUMNS, {}, 2)
        assert raised.value.remedy.startswith(remedy), raised.value
        stream = StoreIO(access.all_properties()).new_output(f"{access.warehouse}/refused").create(overwrite=True)
        with pytest.raises(OSError, match=r"NoSuchBucket|40[34]"):  # noqa: PT012
            stream.write(b"rows")
            stream.close()
