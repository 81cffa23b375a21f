"""Memory that a worker has freed and asks for again."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import resource
import numpy as np
{before}
def fault_count():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def batch():
    return [np.ones(size, np.uint8) for size in (20_000_000, 8_000_000, 3_000_000)]
batch()
before = fault_count()
for _ in range(5):
    batch()
print(fault_count() - before)
"""
KEEPING = "from frazil.ingest.tasks.task_limits import keep_freed_memory; keep_freed_memory()"


@pytest.mark.skipif(sys.platform != "linux", reason="a matter of glibc")
def test_the_arrays_of_the_next_batch_cost_no_new_pages() -> None:
    assert _faults(KEEPING) < 500 < _faults("")


def _faults(before: str) -> int:
    """New pages of five batches of 31 MB, which have 7,600 each."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM.format(before=before)], capture_output=True, check=True)
    return int(done.stdout)
