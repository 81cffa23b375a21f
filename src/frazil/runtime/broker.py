"""A real Kafka broker on this machine: one node, KRaft, loopback only, for `frazil dev broker`, the demo and the tests.

It runs in a JVM of its own that ends with this process, however this process ends. A broker that is started again with
the same directory and port has its topics, offsets and cluster id again.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from frazil.clock import SystemClock, new_id
from frazil.errors import UnavailableError
from frazil.files import make_private_directory, make_private_file
from frazil.runtime.gateway import (
    RECORDED_TIMEOUT_S,
    class_archive,
    keep_recorded,
    recording_options,
    sharing_options,
)
from frazil.runtime.jars import jars
from frazil.runtime.java import find_java, with_one_collector
from frazil.runtime.tether import spawn_tethered

HOST = "127.0.0.1"
_MESSAGE_MAX_BYTES = 20 * 1024 * 1024
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.05
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM  # The exit status of a JVM that has ended by itself after the signal.
_TRIES_FOR_A_PORT = 3
_PORT_IS_TAKEN = "Address already in use"
_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
_NOTHING: Mapping[str, str] = MappingProxyType({})


def broker_properties(directory: Path, port: int, controller_port: int, overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the broker in `directory`; `overrides` win."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "message.max.bytes": str(_MESSAGE_MAX_BYTES),
        "replica.fetch.max.bytes": str(_MESSAGE_MAX_BYTES),
        "fetch.max.bytes": str(3 * _MESSAGE_MAX_BYTES),
        # Kafka maps every index of every partition at its full size: the default of 10 MiB each is too much for 200 topics.
        "log.dirs": str(directory / "data"),
        "log.index.size.max.bytes": str(1024 * 1024),
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "auto.create.topics.enable": "false",
        # A single node.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a SIGKILL the controller refuses the broker until its old session ends; the default is 9 s.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        # Nobody follows the metadata of a single node: with less of both an idle broker takes 3.4 % of a core, not 4.8 %.
        "metadata.max.idle.interval.ms": "0",
        **overrides,
    }


def render(properties: Mapping[str, str]) -> str:
    """Returns the text of a Java properties file in ASCII: Java reads its bytes as Latin-1."""
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    return "".join(character if character.isascii() else _units(character) for character in text.replace("\\", "\\\\"))


def _units(character: str) -> str:
    """Returns a character as one or two escaped UTF-16 units."""
    raw = character.encode("utf-16-be")
    return "".join(f"\\u{raw[start : start + 2].hex()}" for start in range(0, len(raw), 2))


def broker_archive() -> Path:
    """Returns the path of the class archive for brokers; it may not exist."""
    return class_archive(jars("broker"), _JVM)


class EmbeddedBroker:
    """One broker in `directory`. Port 0 chooses a free port at the first start and keeps it. `properties` are Kafka's
    own and override Frazil's. records_classes: whether its end writes the class archive for brokers.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        properties: Mapping[str, str] = _NOTHING,
        *,
        records_classes: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self._properties = dict(properties)
        self._records_classes = records_classes
        self._data = self.directory / "data"
        #: The folder for the temporary files of its JVM.
        self._temporary = self.directory / "tmp"
        self._clock = SystemClock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file with the broker's output."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int:
        """The process id of the started broker."""
        if self._process is None:
            raise UnavailableError("the broker is not running", remedy="start it first", where=str(self.directory))
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the broker, if it does not run, and waits until it answers."""
        if self.is_running:
            return
        chosen = self.port
        self._check_is_free(chosen)
        for tries_left in reversed(range(_TRIES_FOR_A_PORT)):
            self.port = chosen or _free_port()
            try:
                self._launch()
                self._wait_until_it_answers()
                return
            except BaseException as error:
                self.kill()
                self.port = chosen
                if chosen or not tries_left or _PORT_IS_TAKEN not in str(error):
                    raise

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL to a broker that does not end; does nothing without a running broker."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check_is_free(self, port: int) -> None:
        """Checks that no other broker uses the folder, whose files it would lose, and that nothing listens on the port.

        Raises: UnavailableError where one does.
        """
        with suppress(FileNotFoundError), (self._data / ".lock").open("r+") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # As Kafka locks it.
            except BlockingIOError:
                raise UnavailableError(
                    "a broker runs in this folder already",
                    remedy="end it, or name another folder with --dir",
                    where=str(self.directory),
                ) from None
        try:
            with socket.socket() as probe:  # Listens for a moment where the broker will.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As Java does.
                probe.bind((HOST, port))
                probe.listen(1)
        except OSError as error:
            raise UnavailableError(
                f"the broker cannot listen on {HOST}:{port}: {error.strerror}",
                remedy="end the process that listens there, or name another port with --port",
                where=f"{HOST}:{port}",
            ) from None

    def _launch(self) -> None:
        make_private_directory(self.directory)
        shutil.rmtree(self._temporary, ignore_errors=True)  # What a killed one has unpacked.
        self._temporary.mkdir(mode=0o700)
        properties = broker_properties(self.directory, self.port, _free_port(), self._properties)
        (self.directory / "server.properties").write_text(render(properties))
        self._data = Path(properties["log.dirs"])
        if not (self._data / "meta.properties").exists():
            self._format()
        make_private_file(self.log)
        self.log.write_bytes(b"")
        archive = broker_archive()
        sharing = recording_options(archive) if self._records_classes else sharing_options(archive)
        self._process = spawn_tethered(self._java(sharing, "kafka.Kafka"), log=self.log)

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.UUID(new_id()).bytes).decode().rstrip("=")
        words = ("format", f"--cluster-id={cluster}", "-c")
        tool = self._java(sharing_options(broker_archive()), "kafka.tools.StorageTool", *words)
        answer = subprocess.run(tool, capture_output=True, text=True, check=False)
        self.log.write_text(answer.stdout + answer.stderr)
        if answer.returncode:
            raise self._failed(f"the broker's directory cannot be formatted: {_last_error(self.log)}")

    def _java(self, sharing: Sequence[str], main: str, *words: str) -> list[str]:
        """Returns the command of a main class of Kafka's, whose last word is the file with the broker's properties."""
        options = [*with_one_collector(_JVM), *sharing, *_LOGGING, f"-Djava.io.tmpdir={self._temporary}"]
        # Jar by jar: Java puts what `*` stands for in the order of the file system, and an archive knows one order.
        path = os.pathsep.join(map(str, jars("broker")))
        return [str(find_java().path), *options, "-cp", path, main, *words, str(self.directory / "server.properties")]

    def _wait_until_it_answers(self) -> None:
        deadline = self._clock.monotonic_s() + _START_TIMEOUT_S
        # Another broker may listen on the port and answer; the cluster id distinguishes them.
        meta_properties = self._data / "meta.properties"
        lines = meta_properties.read_text().splitlines()
        # Java's properties files put a backslash before some characters of a value.
        cluster = next(line.partition("=")[2].replace("\\", "") for line in lines if line.startswith("cluster.id="))
        while not (_accepts_connections(self.port) and _answering_cluster(self.bootstrap_servers) == cluster):
            if not self.is_running:
                raise self._failed(f"the broker ended while starting: {_last_error(self.log)}")
            if self._clock.monotonic_s() > deadline:
                raise self._failed(f"the broker did not answer in time: timeout_s={_START_TIMEOUT_S:.0f}")
            self._clock.sleep(_POLL_S)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(RECORDED_TIMEOUT_S if self._records_classes else _STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._records_classes:
            keep_recorded(is_whole=process.returncode == _ENDED_BY_SIGTERM)

    def _failed(self, message: str) -> UnavailableError:
        return UnavailableError(message, remedy="read the broker's log", where=str(self.log))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts_connections(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _answering_cluster(bootstrap_servers: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        cluster = admin.list_topics(timeout=5)
    except KafkaException:
        return None
    return cluster.cluster_id if cluster.brokers else None


def _last_error(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")]
    exceptions = [line for line in lines if "Exception: " in line and not line.startswith("\tat ")]
    return (causes or exceptions or lines or ["it printed nothing"])[-1].removeprefix("Caused by: ").strip()
