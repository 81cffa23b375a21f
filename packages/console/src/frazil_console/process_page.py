"""What the page of the process shows: memory, threads and age of it and of the processes that it has started."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import __version__ as spark_version

import frazil
from frazil.ops.pipeline_status import PipelineReport
from frazil.ops.running import RunningPipeline
from frazil_http.own_process import own_metrics

_KIB = 1024


@dataclass(frozen=True)
class ProcessRow:
    """One process of the tree."""

    pid: int
    name: str
    memory_bytes: int
    thread_count: int


@dataclass(frozen=True)
class ProcessFigures:
    """The process that runs the pipeline."""

    #: Itself first; its JVM, and the Python workers of Spark in this machine.
    tree: tuple[ProcessRow, ...]
    thread_names: tuple[str, ...]
    started_ms: int | None
    cpu_s: float | None
    versions: tuple[tuple[str, str], ...]
    #: The greatest epoch and its run of any table; None before the first commit.
    epoch: int | None
    run_id: str


def process_figures(pipeline: RunningPipeline, report: PipelineReport) -> ProcessFigures:
    """Returns the figures of this process."""
    values = {metric.name: metric.value for metric in own_metrics()}
    started_s = values.get("process_start_time_seconds")
    epoch, run_id = max((table.progress.writer for table in pipeline.tables), default=(0, ""))
    own_pid = report.process.pid or os.getpid()
    return ProcessFigures(
        tree=tuple(_tree(own_pid)),
        thread_names=tuple(sorted(thread.name for thread in threading.enumerate())),
        started_ms=None if started_s is None else int(started_s * 1000),
        cpu_s=values.get("process_cpu_seconds_total"),
        versions=(("Frazil", frazil.__version__), ("Spark", spark_version), ("Python", platform.python_version())),
        epoch=epoch or None,
        run_id=run_id,
    )


def _tree(pid: int) -> Iterator[ProcessRow]:
    """Yields a process and those that it has started, as far as Linux shows them."""
    with suppress(OSError, ValueError, KeyError):
        lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        status = {name: text.strip() for name, _, text in lines}
        memory = int(status["VmRSS"].split()[0]) * _KIB
        yield ProcessRow(pid, status["Name"], memory, int(status["Threads"]))
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
