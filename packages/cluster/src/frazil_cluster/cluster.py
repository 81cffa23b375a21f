"""The port `frazil.runtime.jvm.SparkCluster`: what the driver asks of the cluster whose master the pipeline file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from frazil.clock import Clock
from frazil.ops.check import Finding
from frazil_cluster.check import check_master
from frazil_cluster.master import ask_master, is_standalone
from frazil_cluster.ship import executor_python, ship_settings
from frazil_cluster.watch import ApplicationWatch


class SparkCluster:
    """A cluster by the URL of its master."""

    def __init__(self, url: str) -> None:
        self._url = url

    def python(self, conf: Mapping[str, str]) -> str:
        """See SparkCluster."""
        return executor_python(conf)

    def settings(self, conf: Mapping[str, str], limit_s: float | None) -> dict[str, str]:
        """See SparkCluster."""
        return ship_settings(conf, self._url, limit_s)

    def ask(self, jvm: Any, conf: Mapping[str, str]) -> None:
        """See SparkCluster. Only a standalone master is asked."""
        if is_standalone(self._url):
            ask_master(jvm, conf, self._url)

    def watch(self, jvm: Any, context: Any, conf: Mapping[str, str], clock: Clock) -> ApplicationWatch:
        """See SparkCluster."""
        watch = ApplicationWatch(jvm, context, conf, clock)
        watch.start()
        return watch

    def check(self, conf: Mapping[str, str], environment: Mapping[str, str], jvm: Any) -> Iterator[Finding]:
        """See SparkCluster."""
        return check_master(self._url, conf, environment, jvm)
