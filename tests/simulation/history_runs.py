"""The courses of some histories, as a program, so that they can be had of processes that differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from structlog.testing import capture_logs

from tests.simulation.databases import DatabaseHistory
from tests.simulation.history import History
from tests.simulation.upserts import UpsertHistory

HISTORIES = (History, UpsertHistory, DatabaseHistory)


def history_runs(seeds: range) -> list[list[str]]:
    """The steps of these histories."""
    found = []
    for history in HISTORIES:
        for seed in seeds:
            with TemporaryDirectory() as folder, capture_logs():
                played = history(seed, Path(folder))
                played.play(rounds=20)
                found.append(played.fate.steps)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(history_runs(range(int(sys.argv[1])))))
