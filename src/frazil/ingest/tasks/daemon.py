"""The process that Spark's Python workers are forked from, which imports what a task needs once, before the fork.

A worker then starts in milliseconds and shares this memory with its siblings. Spark starts it by name
(`spark.python.daemon.module`); nothing here may start a thread, or the fork would copy a held lock.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import zipimport
from functools import partial

from pyspark.daemon import manager

from frazil.ingest.tasks.task_limits import keep_freed_memory

# Compiled packages load in one version of Python only. Under another nothing is imported here, and the worker reports the
# two versions to the driver; a daemon that exits here would leave no reason.
if os.environ.get("FRAZIL_PYTHON") in (None, f"{sys.version_info.major}.{sys.version_info.minor}"):
    gc.disable()  # During the imports: nearly all objects stay, and collections would take a fifth of the start.
    from frazil.ingest.tasks.warm_up import warm_up

    warm_up()

PR_SET_PDEATHSIG = 1


def _die_with(family: list[int]) -> None:
    """Ties a new worker to the daemon, and a worker's child (see `isolate`) to the worker: a worker that was just
    forked ignores the daemon's last signal, and would continue a batch whose result nobody waits for.
    """
    parent, family[0] = family[0], os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _spare_every_task() -> None:
    """Removes two costs that PySpark's worker adds to each task: it reads the directories of the archives on its path
    again (0.15 s for PySpark's own, which never change while it runs) and collects garbage among all modules.
    """
    setattr(zipimport.zipimporter, "invalidate_caches", lambda _: None)  # noqa: B010  (mypy knows it as a method)
    gc.collect()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    keep_freed_memory()
    _spare_every_task()
    if sys.platform == "linux":
        os.register_at_fork(after_in_child=partial(_die_with, [os.getpid()]))
    manager()  # type: ignore[no-untyped-call]
