"""A small JVM with Iceberg's classes and without Spark, for commands that read no topic.

It starts in a fraction of the time of spark-submit, with a quarter of the memory, and ends with this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.java_gateway import (
    CallbackServerParameters,
    GatewayClient,
    GatewayConnection,
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JError

from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.runtime.gateway import (
    OF_JVM,
    class_archive,
    hadoop_folders,
    hadoop_settings,
    options_file,
    prompt_stream,
    sharing_options,
    wait_for_end,
)
from frazil.runtime.jars import jars, own_jars, spark_home
from frazil.runtime.java import find_java, with_one_collector
from frazil.runtime.jvm import JVM_OPTIONS

_FOR_ARROW = "--add-opens=java.base/java.nio=ALL-UNNAMED"
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    _FOR_ARROW,
)
# The jars of PySpark that Iceberg needs; opening all of them doubles the time.
_NEEDED = ("hadoop-client-", "slf4j-api", "jcl-over-", "log4j-", "commons-", "py4j-")


def archive_of_small_jvm() -> Path:
    """Returns the path of the class archive for small JVMs without all of Spark's jars; it may not exist."""
    return class_archive(own_jars(needs_s3=False), [*_OPTIONS, *_NEEDED])


class _Connection(GatewayConnection):  # type: ignore[misc]
    def start(self) -> None:
        """Connects."""
        super().start()
        self.stream = prompt_stream(self.socket)

    def shutdown_socket(self, *_: int) -> None:
        """Closes the connection: what py4j's client calls at Ctrl-C, and its plain connections do not have."""
        self.close()


class _Client(GatewayClient):  # type: ignore[misc]
    def _create_connection(self) -> _Connection:
        connection = _Connection(self.gateway_parameters, self.gateway_property)
        connection.start()
        return connection

    def _should_retry(self, retry: bool, connection: object, failure: Exception | None = None) -> bool:
        """Returns whether a call that has failed is sent again. One that the end of the JVM interrupts is, and fails without
        a connection, as py4j logs a stack trace of every failure that it does not retry.
        """
        return not self.is_connected or bool(super()._should_retry(retry, connection, failure))

    def disconnect(self) -> None:
        """Closes the connections. Objects that Python forgets from now on are not reported to Java: other threads have some,
        and so has the traceback of an error that leaves the block of the JVM.
        """
        self.is_connected = False
        self.close()


class Gateway(JavaGateway):  # type: ignore[misc]
    """py4j's gateway, whose calls Ctrl-C can interrupt."""

    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)


class LightJvm:
    """A running JVM without Spark."""

    def __init__(self, conf: Mapping[str, str], needs_s3: bool = False, needs_spark_jars: bool = False) -> None:
        """Starts the JVM. conf: Spark's properties, of which Hadoop's and the jars are used. needs_spark_jars: whether
        all of Spark's jars are on the class path, in the order of the JVM of `frazil run`, whose class archive then fits.

        Raises: UnavailableError without Java.
        """
        java = find_java()
        user_options = conf.get("spark.driver.extraJavaOptions", "").split()
        #: Hadoop's settings among Spark's.
        self.hadoop = hadoop_settings(conf)
        log4j = f"-Dlog4j2.configurationFile={resources.files('frazil.runtime') / 'log4j2.properties'}"
        self._held = ExitStack()
        try:
            first, *path = _classpath(needs_spark_jars)
            # With Spark's jars the class archive is that of `frazil run`.
            of_run = class_archive(own_jars(needs_s3=False), JVM_OPTIONS) if needs_spark_jars else None
            sharing = sharing_options(of_run or archive_of_small_jvm())
            temporary = f"-Djava.io.tmpdir={self._held.enter_context(temporary_folder(OF_JVM))}"
            with options_file(
                [*with_one_collector(_OPTIONS, user_options), *sharing, temporary, *user_options, log4j]
            ) as options:
                port, token, self._process = launch_gateway(
                    jarpath=str(first),
                    classpath=":".join([*map(str, path), *_declared_jars(conf, needs_s3)]),
                    javaopts=[f"@{options}"],
                    java_path=str(java.path),
                    die_on_exit=True,
                    enable_auth=True,
                    create_new_process_group=True,
                    return_proc=True,
                )
        except (Py4JError, ValueError) as error:
            remedy = "run frazil doctor: the machine may lack memory"
            raise UnavailableError("the JVM did not start", remedy=remedy, where=str(java.path)) from error
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        #: py4j's gateway.
        self.gateway: Any = Gateway(gateway_parameters=parameters, java_process=self._process)
        self._clients = [self.gateway._gateway_client]

    def listen(self) -> None:
        """Makes Java able to call Python, as a commit does: its validators are written in Python. To be called before
        `gateway` is used. A second gateway is opened: the first cannot authenticate calls to Python.
        """
        jvm, token = self.gateway.jvm, self.gateway.gateway_parameters.auth_token
        address = jvm.java.net.InetAddress.getLoopbackAddress()
        builder = jvm.py4j.GatewayServer.GatewayServerBuilder()
        server = builder.javaPort(0).authToken(token).callbackClient(0, address, token).build()
        server.start(True)
        calls = CallbackServerParameters(port=0, auth_token=token, daemonize=True, daemonize_connections=True)
        self.gateway = Gateway(
            gateway_parameters=GatewayParameters(port=server.getListeningPort(), auth_token=token, auto_convert=True),
            callback_server_parameters=calls,
            java_process=self._process,
        )
        self._clients.append(self.gateway._gateway_client)
        server.resetCallbackClient(address, self.gateway.get_callback_server().get_listening_port())

    def close(self) -> None:
        """Ends the JVM, which it does itself when its standard input closes."""
        for client in self._clients:
            client.disconnect()
        self.gateway.shutdown_callback_server()
        self._process.stdin.close()
        wait_for_end(self._process)
        self._held.close()


def _classpath(needs_spark_jars: bool) -> list[Path]:
    """Returns the jars that do not depend on the pipeline file. py4j puts its own in front of a class path: another one may
    be there too.
    """
    jars, shipped = own_jars(needs_s3=False), sorted(spark_home().glob("jars/*.jar"))
    if needs_spark_jars:
        return [*jars, *shipped]
    needed = [jar for jar in shipped if jar.name.startswith(_NEEDED)]
    return [next(jar for jar in needed if jar.name.startswith("py4j-")), *needed, *jars]


def _declared_jars(conf: Mapping[str, str], needs_s3: bool) -> Iterator[str]:
    yield from map(str, jars("s3") if needs_s3 else ())
    yield from filter(None, conf.get("spark.jars", "").split(","))
    yield from filter(None, [conf.get("spark.driver.extraClassPath")])
    yield from hadoop_folders()
