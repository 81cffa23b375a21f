"""A seed gives a history its course, whatever else differs from process to process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.history_runs import history_runs

_SEEDS = 1


def test_a_seed_gives_the_same_course_in_every_process() -> None:
    """Sets of texts, above all, have another order in each."""
    program = [sys.executable, "-m", "tests.simulation.history_runs", str(_SEEDS)]
    environment = {**os.environ, "PYTHONHASHSEED": "20"}
    root = Path(__file__).parents[2]
    done = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == history_runs(range(_SEEDS))
