"""Where Spark's Python workers are forked from: everything a task needs is imported (and compiled) once, before the fork.

A worker then starts in milliseconds and shares this memory with its siblings. Spark starts it by name
(`spark.python.daemon.module`); nothing here may start a thread, or the fork would copy a held lock.
"""

from __future__ import annotations

from pyspark.daemon import manager

import frazil.ingest.task  # noqa: F401  (imported for the workers)

if __name__ == "__main__":
    manager()
