"""The check of Spark's master: whether it answers and has what an executor needs. No application is started.

A standalone master is asked; of YARN and Kubernetes it is known whether something listens at the address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from frazil.errors import UnavailableError
from frazil.ops.check import Finding, failed
from frazil.printable import plural
from frazil_cluster.master import ANSWER_S, Master, ask_master, is_standalone

_NAME = "spark master"
_KUBERNETES = "k8s://"
_MANAGER, _MANAGER_PORT = "yarn.resourcemanager", 8032


def check_master(url: str, conf: Mapping[str, str], environment: Mapping[str, str], jvm: Any) -> Iterator[Finding]:
    """Yields whether the master of the pipeline file answers.

    conf: Spark's properties. environment: of this process. jvm: py4j's view of a JVM with Spark's classes; None where there
    is none, and then no standalone master is asked.
    """
    tried = f"asked {url} how it is"
    try:
        if is_standalone(url):
            if jvm is None:
                return
            master = ask_master(jvm, conf, url)
            lacking = master.lacking(conf, jvm.org.apache.spark.util.Utils.memoryStringToMb)
            yield failed(_NAME, tried, lacking) if lacking is not None else Finding(_NAME, True, tried, _words(master))
            return
        tried = f"connected to the master of {url}"
        addresses = _addresses(url, conf, environment)
        _connect(addresses)
        yield Finding(_NAME, True, tried, f"something listens at {_joined(addresses)}")
    except UnavailableError as error:
        yield failed(_NAME, tried, error)


def _words(master: Master) -> str:
    cores = sum(worker.cores for worker in master.workers)
    memory_mb = sum(worker.memory_mb for worker in master.workers)
    return f"knows {plural(len(master.workers), 'worker')} with {plural(cores, 'core')} and {memory_mb} MB"


def _addresses(url: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """Returns where the master of YARN or Kubernetes listens; one of them answers.

    Raises: UnavailableError for another URL, and where no address is known.
    """
    if url == "yarn":
        return _resource_managers(conf, environment)
    if url.startswith(_KUBERNETES):
        server = url.removeprefix(_KUBERNETES)
        parts = urlsplit(server if "://" in server else f"https://{server}")
        if parts.hostname:
            return [(parts.hostname, parts.port or (80 if parts.scheme == "http" else 443))]
    remedy = "write `spark: {master: …}` as spark://HOST:PORT, yarn, k8s://https://HOST:PORT or local[*]"
    raise UnavailableError("this is not an address of a Spark master", remedy=remedy, where=url)


def _resource_managers(conf: Mapping[str, str], environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """Returns the addresses of YARN's resource managers, of which one is active."""
    folders = [Path(environment[name]) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environment.get(name)]
    if not folders:
        raise UnavailableError(
            "the configuration of the YARN cluster is not known",
            remedy="name its folder in HADOOP_CONF_DIR",
            where="HADOOP_CONF_DIR",
        )
    settings: dict[str, str] = {}
    for folder in folders:
        settings |= _site(folder / "yarn-site.xml")
    settings |= {name.removeprefix("spark.hadoop."): value for name, value in conf.items()}
    ids = [f".{name.strip()}" for name in settings.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if name.strip()] or [""]
    addresses: list[tuple[str, int]] = []
    for own in ids:
        address = settings.get(f"{_MANAGER}.address{own}") or settings.get(f"{_MANAGER}.hostname{own}", "")
        host, _, port = address.partition(":")
        if host and "${" not in address:
            addresses.append((host, int(port) if port.isdigit() else _MANAGER_PORT))
    if not addresses:
        raise UnavailableError(
            "the configuration of the YARN cluster names no resource manager",
            remedy="copy the cluster's yarn-site.xml into the folder that HADOOP_CONF_DIR names",
            where=", ".join(map(str, folders)),
        )
    return addresses


def _site(file: Path) -> dict[str, str]:
    """Returns the properties of one of Hadoop's files; none of one that is not there."""
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    return {(element.findtext("name") or "").strip(): (element.findtext("value") or "").strip() for element in root}


def _connect(addresses: list[tuple[str, int]]) -> None:
    """Raises UnavailableError where nothing listens at any of the addresses."""
    reason = ""
    for address in addresses:
        try:
            socket.create_connection(address, ANSWER_S).close()
            return
        except OSError as error:
            reason = (error.strerror or str(error) or "no answer").lower()
    raise UnavailableError(
        f"no Spark master answers: {reason}",
        remedy="start the master, or correct `spark.master`",
        where=_joined(addresses),
    )


def _joined(addresses: list[tuple[str, int]]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in addresses)
