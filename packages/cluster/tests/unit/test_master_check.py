"""What is said of the masters of YARN and Kubernetes, and of a URL that is no master's. A standalone one:
packages/cluster/tests/integration/test_spark_master.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from frazil.ops.check import Finding, check_cluster

YARN = "<configuration><property><name>{}</name><value>{}</value></property></configuration>"


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of a service."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def check(url: str, environment: Mapping[str, str] | None = None, **conf: str) -> Finding | None:
    """The finding of a master."""
    return next(check_cluster(url, conf, environment or {}, None), None)


@pytest.mark.parametrize("url", ["local", "local[*]", "local[4]", "local[2,3]", "local-cluster[1,1,1024]"])
def test_a_master_in_this_process_is_not_looked_for(url: str) -> None:
    assert check(url) is None


@pytest.mark.parametrize("url", ["sparc://host:7077", "locale", "k8s://", "yarn-client", "host:7077"])
def test_what_is_no_master_is_said_with_what_one_is(url: str) -> None:
    found = check(url)
    assert found is not None
    assert (found.is_ok, found.found, found.where) == (False, "this is not an address of a Spark master", url)
    assert "spark://HOST:PORT, yarn, k8s://https://HOST:PORT or local[*]" in found.remedy


def test_the_server_of_kubernetes_is_connected_to(listening: str, silent: str) -> None:
    well = check(f"k8s://https://{listening}")
    assert well is not None
    assert (well.is_ok, well.found) == (True, f"something listens at {listening}")
    missing = check(f"k8s://https://{silent}")
    assert missing is not None
    assert (missing.is_ok, missing.found, missing.where) == (
        False,
        "no Spark master answers: connection refused",
        silent,
    )
    assert missing.remedy == "start the master, or correct `spark.master`"


def test_one_of_yarns_resource_managers_must_listen(listening: str, silent: str, tmp_path: Path) -> None:
    unknown = check("yarn")
    assert unknown is not None
    assert (unknown.is_ok, unknown.remedy) == (False, "name its folder in HADOOP_CONF_DIR")
    environment = {"HADOOP_CONF_DIR": str(tmp_path)}
    empty = check("yarn", environment)
    assert empty is not None
    assert (empty.found, empty.where) == (
        "the configuration of the YARN cluster names no resource manager",
        str(tmp_path),
    )
    (tmp_path / "yarn-site.xml").write_text(YARN.format("yarn.resourcemanager.address", silent))
    missing = check("yarn", environment)
    assert missing is not None
    assert (missing.is_ok, missing.where) == (False, silent)
    pair = {
        "spark.hadoop.yarn.resourcemanager.ha.rm-ids": "a, b",
        "spark.hadoop.yarn.resourcemanager.address.a": silent,
        "spark.hadoop.yarn.resourcemanager.address.b": listening,
    }
    well = check("yarn", environment, **pair)
    assert well is not None
    assert (well.is_ok, well.found) == (True, f"something listens at {silent}, {listening}")
