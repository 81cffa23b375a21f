"""A small JVM with Iceberg's classes and without Spark, for commands that read no topic. It starts in a fraction of the
time of spark-submit, with a quarter of the memory, and ends with this process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from frazil.errors import UnavailableError
from frazil.runtime.gateway import options_file, wait_for_end
from frazil.runtime.jars import Use, jars
from frazil.runtime.java import find_java, with_one_collector

_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# The jars of PySpark that Iceberg needs; opening all of them doubles the time.
_NEEDED = ("hadoop-client-", "slf4j-api", "jcl-over-", "log4j-", "commons-", "py4j-")


class LightJvm:
    """A running JVM without Spark."""

    def __init__(self, conf: Mapping[str, str], needs_s3: bool = False) -> None:
        """Starts the JVM. conf: Spark's properties, of which Hadoop's and the jars are used.

        Raises: UnavailableError without Java.
        """
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # noqa: PLC0415
        from py4j.protocol import Py4JError  # noqa: PLC0415

        java = find_java()
        own = conf.get("spark.driver.extraJavaOptions", "").split()
        self._conf = dict(conf)
        shipped = _shipped_jars()
        log4j = f"-Dlog4j2.configurationFile={resources.files('frazil.runtime') / 'log4j2.properties'}"
        try:
            with options_file([*with_one_collector(_OPTIONS, own), *own, log4j]) as options:
                port, token, self._process = launch_gateway(
                    jarpath=next(str(jar) for jar in shipped if jar.name.startswith("py4j-")),
                    classpath=":".join([*map(str, shipped), *_declared_jars(conf, needs_s3)]),
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
        self._gateway = JavaGateway(gateway_parameters=parameters, java_process=self._process)

    @property
    def gateway(self) -> Any:
        """py4j's gateway."""
        return self._gateway

    @property
    def hadoop(self) -> dict[str, str]:
        """Hadoop's settings among Spark's."""
        prefix = "spark.hadoop."
        return {name.removeprefix(prefix): value for name, value in self._conf.items() if name.startswith(prefix)}

    def listen(self) -> None:
        """Makes Java able to call Python, as a commit does: its validators are written in Python. To be called before
        `gateway` is used. A second gateway is opened: the first cannot authenticate calls to Python.
        """
        from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway  # noqa: PLC0415

        jvm, token = self._gateway.jvm, self._gateway.gateway_parameters.auth_token
        address = jvm.java.net.InetAddress.getLoopbackAddress()
        builder = jvm.py4j.GatewayServer.GatewayServerBuilder()
        server = builder.javaPort(0).authToken(token).callbackClient(0, address, token).build()
        server.start(True)
        calls = CallbackServerParameters(port=0, auth_token=token, daemonize=True, daemonize_connections=True)
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=server.getListeningPort(), auth_token=token, auto_convert=True),
            callback_server_parameters=calls,
            java_process=self._process,
        )
        server.resetCallbackClient(address, self._gateway.get_callback_server().get_listening_port())

    def close(self) -> None:
        """Ends the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()
        wait_for_end(self._process)


def _declared_jars(conf: Mapping[str, str], needs_s3: bool) -> Iterator[str]:
    uses: tuple[Use, ...] = ("spark", "s3") if needs_s3 else ("spark",)
    yield from (str(jar) for use in uses for jar in jars(use))
    yield from filter(None, conf.get("spark.jars", "").split(","))
    yield from filter(None, [conf.get("spark.driver.extraClassPath")])


def _shipped_jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(folder) / "jars" for folder in (spec.submodule_search_locations or ())] if spec else []
    return [jar for folder in folders for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_NEEDED)]
