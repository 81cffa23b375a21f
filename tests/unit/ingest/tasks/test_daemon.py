"""The process that Python workers are forked from: what it has loaded, and what it has not."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
import sys
import frazil.ingest.tasks.daemon
from frazil.ingest.tasks import task
print(*(name for name in ("pandas", "frazil.spec") if name in sys.modules))
import pyarrow
print(len(pyarrow.table({"n": [1, 2]}).to_pandas()), "pandas" in sys.modules)
"""


def test_workers_load_neither_pandas_nor_the_pipeline_file_and_pandas_works_where_it_is_asked_for() -> None:
    seen = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines() == ["", "2 True"]
