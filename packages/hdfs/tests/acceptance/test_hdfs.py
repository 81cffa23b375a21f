"""HDFS besides what tests/acceptance/test_object_stores.py has of every store.

That is settings that come from Hadoop, and a catalog of folders, whose pipelines are in tests/acceptance/test_catalogs.py.
`make stores` runs this. In time: packages/hdfs/tests/unit/test_hdfs_settings.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.commits import is_conflict
from frazil.catalog.iceberg.java import java_errors
from frazil.catalog.iceberg.store_access import probe_store
from frazil.clock import new_id
from frazil.dead_letters.tables import NEW_TABLE_PROPERTIES
from frazil.errors import SpecError, UnavailableError
from frazil.plugins.catalogs import CATALOGS
from frazil.runtime.light_jvm import LightJvm
from frazil.store.file_io import store_of
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.hdfs import MiniHdfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COLUMNS = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    server = MiniHdfs(tmp_path_factory.mktemp("store"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    with light_jvm() as running:
        running.listen()
        yield running


def name_service(hdfs: MiniHdfs) -> dict[str, str]:
    """Settings of a cluster with two name nodes, of which the first does not answer."""
    provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    return {
        "dfs.nameservices": "lake",
        "dfs.ha.namenodes.lake": "gone,here",
        "dfs.namenode.rpc-address.lake.gone": "127.0.0.1:1",
        "dfs.namenode.rpc-address.lake.here": hdfs.address.removeprefix("hdfs://"),
        "dfs.client.failover.proxy.provider.lake": provider,
    }


def open_catalog(jvm: LightJvm, warehouse: str, hadoop: Mapping[str, str] = MappingProxyType({})) -> IcebergCatalog:
    """A catalog of folders."""
    return IcebergCatalog(jvm.gateway, "p", {**CATALOGS.get("hadoop").properties, "warehouse": warehouse}, dict(hadoop))


def status_of(jvm: LightJvm, hadoop: dict[str, str], path: str) -> Any:
    """What Hadoop reports of a file: its replicas, the size of its blocks, its permissions and its owner."""
    configuration = jvm.gateway.jvm.org.apache.hadoop.conf.Configuration()
    for name, value in hadoop.items():
        configuration.set(name, value)
    named = jvm.gateway.jvm.org.apache.hadoop.fs.Path(path)
    found = named.getFileSystem(configuration).getFileStatus(named)
    return found.getReplication(), found.getBlockSize(), found.getPermission().toOctal(), found.getOwner()


def test_files_of_tasks_have_what_those_of_java_have(jvm: LightJvm, hdfs: MiniHdfs) -> None:
    """The settings of the pipeline file decide both, whatever the environment of tasks has: of a cluster with a name of its
    own too, whose first name node does not answer.
    """
    own = {"dfs.replication": "2", "dfs.blocksize": "16m", "fs.permissions.umask-mode": "u=rwx,g=r,o="}
    hadoop = {**own, **name_service(hdfs)}
    state = open_catalog(jvm, f"hdfs://lake/{new_id()}", hadoop).create("shop.orders", COLUMNS, {}, 2)
    tasks = store_of(tuple(sorted(state.io_properties.items())))
    path = f"{state.location}/data/x.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_USER_NAME", "nobody")
        with tasks.new_output(path).create() as stream:
            stream.write(b"rows")
    by_java = status_of(jvm, hadoop, f"{state.location}/metadata/v1.metadata.json")
    assert status_of(jvm, hadoop, path) == by_java
    assert by_java[:3] == (2, 16 * 1024 * 1024, 640)


def test_a_file_that_is_there_is_not_replaced_and_an_unfinished_one_has_no_rows(hdfs: MiniHdfs) -> None:
    tasks, path = store_of(()), f"{hdfs.address}/unfinished/x"
    stream = tasks.new_output(path).create()
    stream.write(b"rows")
    assert len(tasks.new_input(path)) == 0
    with pytest.raises(FileExistsError, match="x"):
        tasks.new_output(path).create()
    stream.close()
    version = tasks.version_of(path)
    assert version.startswith("4 bytes, ")
    with tasks.new_output(path).create(overwrite=True) as stream:
        stream.write(b"more rows")
    assert tasks.version_of(path) != version
    tasks.delete(path)
    with pytest.raises(FileNotFoundError):
        tasks.delete(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dfs.encrypt.data.transfer", "true"),
        ("dfs.data.transfer.protection", "privacy"),
        ("hadoop.security.key.provider.path", "kms://https@keys:9600/kms"),
    ],
)
def test_a_setting_that_tasks_cannot_obey_is_named_before_the_first_batch(
    jvm: LightJvm, hdfs: MiniHdfs, name: str, value: str
) -> None:
    with pytest.raises(SpecError, match=f"`{name}` cannot be obeyed") as raised:
        probe_store(jvm.gateway, {name: value}, hdfs.access().properties, f"{hdfs.address}/")
    assert raised.value.remedy


def test_a_missing_right_is_named(hdfs: MiniHdfs) -> None:
    """To tasks, whose user may not write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_USER_NAME", "another")  # It is as it was, or absent, after the test.
        tasks = store_of((("frazil.hadoop.user", "nobody"),))
        with pytest.raises(OSError, match="Permission denied: user=nobody, access=WRITE") as raised:
            tasks.new_output(f"{hdfs.address}/refused").create()
        assert "\n" not in str(raised.value)


def test_a_warehouse_that_may_not_be_written_to_is_named(hdfs: MiniHdfs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_USER_NAME", "nobody")
        with light_jvm() as own, pytest.raises(UnavailableError, match="user=nobody, access=WRITE") as raised:
            probe_store(own.gateway, {}, hdfs.access().properties, f"{hdfs.address}/none/yet")
    assert raised.value.message.startswith("the store cannot be written to: RemoteException: Permission denied")
    assert "FSPermissionChecker" not in raised.value.message
    assert raised.value.remedy.startswith("grant this user the right")


def test_a_warehouse_that_does_not_exist_yet_is_checked(jvm: LightJvm, hdfs: MiniHdfs) -> None:
    found = probe_store(jvm.gateway, {}, hdfs.access().properties, f"{hdfs.address}/none/yet")
    assert found == "it answers, and is empty"


def test_no_commit_of_two_processes_replaces_one_of_the_other(jvm: LightJvm, hdfs: MiniHdfs) -> None:
    warehouse, table, count = f"{hdfs.address}/{new_id()}", "shop.orders", 40
    open_catalog(jvm, warehouse).create(table, COLUMNS, NEW_TABLE_PROPERTIES, 2)

    def commit(process: LightJvm, name: str) -> list[str]:
        """The commits that the catalog answered for."""
        java, made = open_catalog(process, warehouse).java_table(table), []
        for number in range(count):
            with suppress(*java_errors()):  # It lost five times in a row.
                java.updateProperties().set(f"{name}{number}", "").commit()
                made.append(f"{name}{number}")
        return made

    with light_jvm() as other, ThreadPoolExecutor(2) as both:
        answered = [one for found in both.map(commit, (jvm, other), ("a", "b")) for one in found]
    java = open_catalog(jvm, warehouse).java_table(table)
    assert set(answered) <= set(java.properties())
    assert len(answered) > count
    version = java.operations().current().metadataFileLocation().rpartition("/")[2]
    assert version == f"v{len(answered) + 1}.metadata.json"


def test_a_process_that_wakes_after_many_commits_of_others_is_refused(jvm: LightJvm, hdfs: MiniHdfs) -> None:
    """Its commit would have a number whose file a table of other catalogs has removed by then: readers would see it as the
    newest.
    """
    warehouse, table = f"{hdfs.address}/{new_id()}", "shop.orders"
    open_catalog(jvm, warehouse).create(table, COLUMNS, NEW_TABLE_PROPERTIES, 2)
    asleep = open_catalog(jvm, warehouse).java_table(table).operations()
    base = asleep.current()
    other = open_catalog(jvm, warehouse).java_table(table)
    for number in range(25):
        other.updateProperties().set("n", str(number)).commit()
    changed = jvm.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(base).setProperties({"late": "x"}).build()
    with pytest.raises(java_errors()) as raised:
        asleep.commit(base, changed)
    assert is_conflict(raised.value)
    found = open_catalog(jvm, warehouse).java_table(table).properties()
    assert (found["n"], "late" in found) == ("24", False)
