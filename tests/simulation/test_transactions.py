"""Whole transactions: a slice of seeds in the suite, thousands as soak. FRAZIL_SEED and FRAZIL_HISTORIES choose others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fixtures.slices import sliced
from tests.simulation.transfers import TransferHistory


@pytest.mark.parametrize("seed", sliced(range(16), 2))
def test_no_snapshot_shows_a_part_of_a_transaction(seed: int, tmp_path: Path) -> None:
    TransferHistory(seed, tmp_path).play(rounds=80)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_histories_of_transactions(tmp_path: Path) -> None:
    first = int(os.environ.get("FRAZIL_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("FRAZIL_HISTORIES", "1000"))):
        root = tmp_path / str(seed)
        root.mkdir()
        try:
            TransferHistory(seed, root).play(rounds=80 + seed % 200)
        except BaseException as error:
            error.add_note(f"FRAZIL_SEED={seed}, rounds={80 + seed % 200}")
            raise
