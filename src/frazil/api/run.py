"""A run of a pipeline: the JVM starts first, and `running.py`, with most of Frazil, is imported while it does."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from frazil.api.redaction import Redaction
from frazil.api.results import RunResult
from frazil.api.stopping import NothingInHand, Stopping
from frazil.runtime.connect import running_jvm
from frazil.spec import PipelineSpec

log = structlog.get_logger("frazil")

CAUGHT_UP_TIMEOUT_S = 300.0
"""How long a run until it has caught up waits for services, by default."""
_RUNNING = "frazil.api.running"


@dataclass(frozen=True)
class Limits:
    """When a run ends by itself."""

    #: How long the run waits for services that do not answer until it has caught up; None for a run without an end.
    wait_s: float | None = None
    #: Whether topics that do not exist are waited for as long.
    awaits_topics: bool = False

    @property
    def until_caught_up(self) -> bool:
        """Whether the run ends when it has read up to the ends of the topics as they were at its start."""
        return self.wait_s is not None


def run_pipeline(
    spec: PipelineSpec,
    redaction: Redaction,
    stopping: Stopping,
    limits: Limits,
    note: Callable[[str], None] = lambda _: None,
    load: Callable[[str], Any] = importlib.import_module,
) -> RunResult:
    """Runs a pipeline until it is stopped, or until everything that was there at the start is committed. note: receives
    how far the run is. load: imports a module.

    Raises: the errors of `Service.run`.
    """
    log.info("starting", pipeline=spec.pipeline, master=spec.spark.master)
    try:
        with running_jvm(spec, lambda: load(_RUNNING), limits.wait_s) as jvm:
            tables = load(_RUNNING).run(spec, redaction, jvm, stopping, limits, note)
        result: RunResult = load(_RUNNING).result_of(tables, limits.until_caught_up)
    except NothingInHand:
        tables = stopping.tables()
        if not tables:
            return RunResult(is_early=True)
        result = load(_RUNNING).result_of(tables, until_caught_up=False)
    return result
