"""Real servers of a lake, each a process on the loopback that ends with the tests: Iceberg's REST catalog (its own
test server) and an S3 store.

A catalog that is started again has its port and its tables. The store holds everything in memory: it is left running,
and the way to it is cut instead.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
from pyiceberg.catalog.rest import RestCatalog

from frazil.runtime.gateway import class_archive, sharing_options
from frazil.runtime.jars import jars
from frazil.runtime.java import find_java
from frazil.runtime.tether import spawn_tethered
from tests.acceptance.ledger import Place
from tests.acceptance.verifier import metadata_at, verify
from tests.fixtures.fetching import installed
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger

HOST = "127.0.0.1"
REGION = "us-east-1"
_START_TIMEOUT_S = 60.0
_IVY_FILE = Path(__file__).parent.parent / "fixtures/rest-ivy.xml"
_S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "http-client.type": "urlconnection"}
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def free_port() -> int:
    """A port below those that systems give to clients: it may be seconds until its server has it."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port


class Server:
    """A process that answers HTTP on a port of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self, command: list[str], environment: Mapping[str, str], path: str = "/") -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        process = self._process = spawn_tethered(command, log=self.log, environment=environment)

        def is_up() -> bool:
            assert process.poll() is None, self.log.read_text()[-2000:]
            return self.answers(path)

        wait_until(is_up, f"{self.log.stem} answers", _START_TIMEOUT_S)

    def answers(self, path: str) -> bool:
        return _answers(self.url + path)

    def stop(self) -> None:
        """SIGTERM: it ends as it does by itself."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        process.wait(_START_TIMEOUT_S)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(20)


class ObjectStore(Server):
    """S3 in a process; `key` and `secret` are let in (as anything else is: this one does not check)."""

    def __init__(self, directory: Path, key: str, secret: str) -> None:
        super().__init__(directory, "store")
        self.key, self.secret = key, secret

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]
        self.launch(command, {"MOTO_IAM_LOAD_MANAGED_POLICIES": "false"}, "/moto-api/")

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
        )

    def make_bucket(self, name: str) -> None:
        self.client().create_bucket(Bucket=name)

    def texts(self, suffix: str) -> Iterator[str]:
        """The objects whose names end so."""
        client = self.client()
        for bucket in client.list_buckets()["Buckets"]:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket["Name"]):
                for found in page.get("Contents", ()):
                    if found["Key"].endswith(suffix):
                        content: bytes = client.get_object(Bucket=bucket["Name"], Key=found["Key"])["Body"].read()
                        yield content.decode("utf-8", "replace")

    def properties(self) -> dict[str, str]:
        """Iceberg's names for all of it, as a Java or Python client takes them."""
        return {
            "s3.endpoint": self.url,
            "s3.path-style-access": "true",
            "s3.access-key-id": self.key,
            "s3.secret-access-key": self.secret,
            "client.region": REGION,
        }

    def references(self, port: int = 0) -> dict[str, str]:
        """The same for a pipeline file, which must not hold secrets (`environment` does), by way of `port`."""
        return {
            **self.properties(),
            "s3.endpoint": f"http://{HOST}:{port or self.port}",
            "s3.access-key-id": "${env:LAKE_KEY}",
            "s3.secret-access-key": "${env:LAKE_SECRET}",
        }

    def environment(self) -> dict[str, str]:
        return {"LAKE_KEY": self.key, "LAKE_SECRET": self.secret}


class RestCatalogServer(Server):
    """Iceberg's REST catalog over a SQLite file, its tables in `warehouse`.

    properties: of the catalog behind it; what it is told of the store.
    """

    def __init__(self, directory: Path, warehouse: str, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, "catalog")
        self.warehouse = warehouse
        self._properties = dict(properties or {})

    def start(self) -> None:
        settings = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.directory / 'rest.db'}",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
            **(_S3 if self.warehouse.startswith("s3:") else {}),
            **self._properties,
        }
        environment = {_variable(name): value for name, value in settings.items()}
        paths = [*_rest_jars(), *(jars("s3") if self.warehouse.startswith("s3:") else ())]
        sharing = sharing_options(rest_archive())
        command = [str(find_java().path), *_JVM, *sharing, "-cp", ":".join(map(str, paths))]
        command.append("org.apache.iceberg.rest.RESTCatalogServer")
        self.launch(command, {**environment, "CATALOG_REST_PORT": str(self.port)}, "/v1/config")


def rest_archive() -> Path:
    """The class archive of REST catalogs, whatever their store; it may not exist."""
    return class_archive(_rest_jars(), _JVM)


def _rest_jars() -> list[Path]:
    return sorted((installed(_IVY_FILE) / "rest").glob("*.jar"))


def _variable(name: str) -> str:
    """The server reads its catalog's properties from variables spelt like this."""
    return "CATALOG_" + name.replace("-", "__").replace(".", "_").upper()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class Relay:
    """A way to another port that can be cut: while it is, connections are refused and those that were are broken. Or it is
    silent.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None
        #: Held while it is cut, so that nothing is left open that was accepted meanwhile.
        self._cutting = threading.Lock()
        self._is_silent = False

    def join(self) -> None:
        self._listener = listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Cut while the block lasts."""
        self.cut()
        try:
            yield
        finally:
            self.join()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """While the block lasts connections are taken, and what is sent over them is swallowed. A connection that has lost
        something stays silent.
        """
        self._is_silent = True
        try:
            yield
        finally:
            self._is_silent = False

    def sever(self) -> None:
        """Breaks the connections that are open; further ones are taken."""
        broken, self._open = self._open, []
        for end in broken:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        with self._cutting:
            listener, self._listener = self._listener, None
            broken, self._open = self._open, []
        for end in [*([listener] if listener else []), *broken]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self._listener is listener:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection((HOST, self._target))
                except OSError:  # Nobody is there: whoever came is told so.
                    near.close()
                    continue
                with self._cutting:
                    if self._listener is not listener:
                        near.close()
                        far.close()
                        return
                    self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        has_lost = False
        with contextlib.suppress(OSError):
            while content := source.recv(65536):
                has_lost = has_lost or self._is_silent
                if not has_lost:
                    sink.sendall(content)
            sink.shutdown(socket.SHUT_WR)


def pipeline_on(catalog: RestCatalogServer, brokers: str, topic: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """A pipeline file of one table, with the catalog's own name for it; see `assert_whole`."""
    return {
        "pipeline": _pipeline_of(topic),
        "kafka": {"bootstrap.servers": brokers},
        "catalog": catalog_section(catalog, properties),
        "tables": {table_of(topic): {"topic": topic, "metadata": ["topic", "partition", "offset"]}},
    }


def catalog_section(catalog: RestCatalogServer, properties: Mapping[str, str]) -> dict[str, Any]:
    """A pipeline file's `catalog`."""
    return {"type": "rest", "uri": catalog.url, "warehouse": catalog.warehouse, "properties": dict(properties)}


def table_of(topic: str) -> str:
    return f"lake.t{topic.replace('-', '')}"


def _pipeline_of(topic: str) -> str:
    return f"p-{topic}"


def assert_whole(
    catalog: RestCatalogServer, ledger: Ledger, properties: Mapping[str, str], but: Place | None = None
) -> None:
    """At every snapshot that other readers are shown each record is there once, at its place, with its value; at the newest
    one all of them. but: a record that nobody has written.
    """
    with RestCatalog("reader", uri=catalog.url, **properties) as reader:
        location = reader.load_table(table_of(ledger.topic)).metadata_location
    records = {place: value for place, value in ledger.records.items() if place != but}
    verdict = verify(metadata_at(location, properties), _pipeline_of(ledger.topic), records)
    assert (verdict.problems, verdict.row_count) == ([], ledger.count), verdict.problems
    assert verdict.snapshot_count > 0
