"""Where Spark's Python workers are forked from: everything a task needs is imported once, before the fork.

A worker then starts in milliseconds and shares this memory with its siblings. Spark starts it by name
(`spark.python.daemon.module`); nothing here may start a thread, or the fork would copy a held lock.
"""

from __future__ import annotations

import os
import sys

from pyspark.daemon import manager

# Compiled packages load in one version of Python only. Under another nothing is imported, and the worker itself tells
# the driver of the two versions; a daemon that dies here would tell nobody why.
if os.environ.get("FRAZIL_PYTHON") in (None, f"{sys.version_info.major}.{sys.version_info.minor}"):
    import frazil.ingest.task  # noqa: F401  (imported for the workers)

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
