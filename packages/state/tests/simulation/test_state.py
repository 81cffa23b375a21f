"""Tables that are their own state hold what a query over all records gives, whatever happens between any two steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from packages.state.tests.simulation.dedupes import DedupeHistory
from packages.state.tests.simulation.merges import MergeHistory
from packages.state.tests.simulation.versions import VersionHistory
from tests.fixtures.slices import sliced

_SEED = os.environ.get("FRAZIL_SEED")
_SEEDS = [int(_SEED)] if _SEED else sliced(range(12), 6)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_snapshot_of_a_merged_table_is_what_a_query_gives(seed: int, tmp_path: Path) -> None:
    with capture_logs():
        MergeHistory(seed, tmp_path).play(rounds=50)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_snapshot_has_each_event_once(seed: int, tmp_path: Path) -> None:
    with capture_logs():
        DedupeHistory(seed, tmp_path).play(rounds=50)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_snapshot_has_the_versions_that_its_records_make(seed: int, tmp_path: Path) -> None:
    with capture_logs():
        VersionHistory(seed, tmp_path).play(rounds=50)
