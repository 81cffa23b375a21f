"""Hadoop's settings of HDFS: what tasks get of them, and which are refused."""

from __future__ import annotations

from pathlib import Path

import hdfs_native
import pytest

from frazil.errors import SpecError
from frazil.plugins.catalogs import CATALOGS
from frazil.store.properties import HDFS, StoreProperty, hadoop_settings_of_tasks, task_properties
from frazil_hdfs.files import HdfsCluster

REFUSED = [known for known in HDFS if known.treatment == "refused"]


def test_tasks_get_what_differs_from_the_default_and_concerns_files() -> None:
    settings = {
        "dfs.ha.namenodes.lake": "a,b",
        "dfs.client.use.datanode.hostname": "false",
        "dfs.client.read.shortcircuit": "true",
        "dfs.namenode.name.dir": "/disk",
        "io.file.buffer.size": "1",
    }
    sent = hadoop_settings_of_tasks(settings, {"dfs.client.use.datanode.hostname": "false"})
    assert sent == {"frazil.hadoop.dfs.ha.namenodes.lake": "a,b"}
    assert task_properties({**sent, "warehouse": "hdfs://lake/x"}) == sent


@pytest.mark.parametrize("known", REFUSED, ids=lambda known: known.name)
def test_a_setting_that_tasks_cannot_obey_is_refused_with_its_name_and_a_remedy(known: StoreProperty) -> None:
    name = f"{known.name}x" if known.name.endswith(".") else known.name
    with pytest.raises(SpecError, match=name) as raised:
        hadoop_settings_of_tasks({name: "other"}, {})
    assert raised.value.remedy == known.note
    assert hadoop_settings_of_tasks({name: "other"}, {name: "other"}) == {}
    for harmless in known.harmless:
        assert hadoop_settings_of_tasks({name: harmless}, {}) == {}


def test_a_file_has_the_replicas_blocks_and_permissions_of_the_driver() -> None:
    own = {"dfs.replication": "2", "dfs.blocksize": "1048576", "fs.permissions.umask-mode": "027"}
    cluster = HdfsCluster({f"frazil.hadoop.{name}": value for name, value in own.items()}, "name:8020")
    options = cluster.options(overwrite=False)
    found = (options.replication, options.block_size, oct(options.permission), options.overwrite)
    assert found == (2, 1048576, "0o640", False)


def test_a_name_service_without_settings_is_an_error_of_the_store() -> None:
    with pytest.raises(OSError, match=r"hdfs://lake: .*No NameNode hosts found"):
        HdfsCluster({}, "lake").probe("hdfs://lake/t", "t")


def test_a_catalog_of_folders_needs_no_lock_on_hdfs() -> None:
    CATALOGS.get("hadoop").check(None, "hdfs://name:8020/wh", {})
    with pytest.raises(SpecError):
        CATALOGS.get("hadoop").check(None, "/shared/warehouse", {})


def test_every_setting_that_is_sent_is_one_that_the_client_of_tasks_reads() -> None:
    [library] = Path(hdfs_native.__file__).parent.glob("*.so")
    content = library.read_bytes()
    honoured = [known.name.rstrip(".") for known in HDFS if known.treatment == "honoured"]
    assert [name for name in honoured if name.encode() not in content] == []
