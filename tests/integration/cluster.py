"""A standalone Spark cluster on the loopback, from PySpark's own jars: a master and workers, each a process of its own.

Its executors find a Python that has no packages: what tasks need must come with the job.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import urllib.request
import venv
from pathlib import Path

import pyspark

from frazil.runtime.java import find_java
from frazil.runtime.tether import spawn_tethered
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.waiting import wait_until
from tests.integration.servers import HOST, free_port

_SPARK_HOME = Path(pyspark.__file__).parent
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", *QUICK_JVM.split(), "-Xshare:auto")


PROTECTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""As docs/how-to/cluster.md has it, without the secret."""


class Cluster:
    """`workers` of one core and a gigabyte each in `directory`. `python`: what executors are to run; `secret`: what a driver
    must know.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.port, self._web_port = free_port(), free_port()
        self._worker_count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.secret = secrets.token_hex(16)
        self._settings = directory / "spark.properties"
        bare = directory / "bare"
        venv.create(bare, symlinks=True, with_pip=False)
        self.python = bare / "bin" / "python"

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {**PROTECTED, "spark.authenticate.secret": self.secret}
        self._settings.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        master = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self._web_port)]
        self._spawn("master", "org.apache.spark.deploy.master.Master", *master)
        for number in range(self._worker_count):
            words = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(self.directory / f"work-{number}"), self.url]
            self._spawn(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *words)
        wait_until(lambda: self._alive_workers() == self._worker_count, "the workers have registered")

    def output(self) -> str:
        """Whatever its processes wrote, executors included."""
        files = [*self.directory.glob("*.log"), *self.directory.glob("work-*/*/*/std*")]
        return "".join(file.read_text(errors="replace") for file in files)

    def kill(self) -> None:
        """Ends the workers first: an executor ends with its worker."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(20)
        self._processes.clear()

    def _spawn(self, name: str, main: str, *words: str) -> None:
        own = ["--properties-file", str(self._settings)]
        command = [str(find_java().path), *_JVM, "-cp", f"{_SPARK_HOME}/jars/*", main, *own, *words]
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "JAVA_HOME") if name in os.environ}
        environment = {**kept, "SPARK_HOME": str(_SPARK_HOME), "SPARK_LOCAL_IP": HOST, "SPARK_SCALA_VERSION": "2.13"}
        log = self.directory / f"{name}.log"
        self._processes.append(spawn_tethered(command, log=log, environment=environment))

    def _alive_workers(self) -> int:
        log = self.directory / "master.log"
        for process in self._processes:
            assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=5) as answer:
                return int(answer.read().count(b'"ALIVE"')) - 1  # The master is alive too.
        except OSError:
            return 0
