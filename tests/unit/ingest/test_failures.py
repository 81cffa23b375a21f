"""What is reported of a task that failed: the line of Spark's long answer with what happened, and where."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from frazil.ingest.batches.job import cause_of

SPARK = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["  File task.py, line 3, in run", "OSError: [Errno 28] No space"], "OSError: [Errno 28] No space"),
        (
            ["\tat org.apache.hadoop.Client.read", "Caused by: java.io.IOException: No route", "\tat java.net.Socket"],
            "java.io.IOException: No route",
        ),
        (
            ["Caused by: java.io.UncheckedIOException: x", "Caused by: java.io.IOException: FAILED(5)"],
            "java.io.IOException: FAILED(5)",
        ),
        ([], SPARK),
    ],
)
def test_the_cause_of_a_failed_task_is_one_line_with_its_place(lines: list[str], expected: str) -> None:
    assert cause_of(PySparkException("\n".join([SPARK, *lines]))) == expected
