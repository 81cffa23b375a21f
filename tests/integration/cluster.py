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
"""As docs/deploy/cluster.md has it, without the secret."""


MASTER = "master"


class Cluster:
    """`workers` of one core and a gigabyte each in `directory`. `python`: what executors are to run; `secret`: what a driver
    must know.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.port, self._web_port = free_port(), free_port()
        self._worker_count = workers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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
        self.start_master()
        self.start_workers()

    def start_master(self) -> None:
        """Starts the master, which knows nothing of another one before it."""
        words = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self._web_port)]
        self._spawn(MASTER, "org.apache.spark.deploy.master.Master", *words)
        wait_until(lambda: self._alive_workers() is not None, "the master answers")

    def start_workers(self) -> None:
        """Starts all workers, and waits until the master knows them."""
        for number in range(self._worker_count):
            words = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(self.directory / f"work-{number}"), self.url]
            self._spawn(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *words)
        wait_until(lambda: self._alive_workers() == self._worker_count, "the workers have registered")

    @property
    def workers(self) -> list[str]:
        """The names of the workers that run."""
        return [name for name in self._processes if name != MASTER]

    def kill_hard(self, *names: str) -> None:
        """SIGKILL for these processes, without a moment between them."""
        for name in names:
            self._processes[name].kill()
        for name in names:
            self._processes.pop(name).wait(20)

    def pid_of(self, name: str) -> int:
        """The process id of the master or a worker."""
        return self._processes[name].pid

    def output(self) -> str:
        """Whatever its processes wrote, executors included."""
        files = [*self.directory.glob("*.log"), *self.directory.glob("work-*/*/*/std*")]
        return "".join(file.read_text(errors="replace") for file in files)

    def kill(self) -> None:
        """Ends the workers first: an executor ends with its worker."""
        running = list(self._processes.values())
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(20)
        self._processes.clear()

    def _spawn(self, name: str, main: str, *words: str) -> None:
        own = ["--properties-file", str(self._settings)]
        command = [str(find_java().path), *_JVM, "-cp", f"{_SPARK_HOME}/jars/*", main, *own, *words]
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "JAVA_HOME") if name in os.environ}
        environment = {**kept, "SPARK_HOME": str(_SPARK_HOME), "SPARK_LOCAL_IP": HOST, "SPARK_SCALA_VERSION": "2.13"}
        log = self.directory / f"{name}.log"
        self._processes[name] = spawn_tethered(command, log=log, environment=environment)

    def _alive_workers(self) -> int | None:
        """How many workers the master knows; None while it does not answer."""
        log = self.directory / "master.log"
        for process in self._processes.values():
            assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=5) as answer:
                return int(answer.read().count(b'"ALIVE"')) - 1  # The master is alive too.
        except OSError:
            return None
