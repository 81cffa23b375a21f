"""No record is lost and none doubled, whatever happens between any two steps. FRAZIL_SEED: play this one history."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.simulation.history import History
from tests.simulation.replay import Replay
from tests.simulation.upserts import UpsertHistory

_SEED = os.environ.get("FRAZIL_SEED")
_SLICE = [int(_SEED)] if _SEED else range(24)


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", _SLICE)
def test_rows_are_exactly_the_records_before_the_offsets(seed: int, tmp_path: Path) -> None:
    History(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _SLICE)
def test_a_record_is_a_row_or_a_letter_and_never_both_while_letters_are_retried(seed: int, tmp_path: Path) -> None:
    Replay(seed, tmp_path).play(rounds=50)


@pytest.mark.parametrize("seed", _SLICE)
def test_every_snapshot_of_an_upsert_table_is_what_a_dictionary_says(seed: int, tmp_path: Path) -> None:
    UpsertHistory(seed, tmp_path).play(rounds=60)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_replays_hold_too(tmp_path: Path) -> None:
    first = int(os.environ.get("FRAZIL_FIRST_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("FRAZIL_HISTORIES", "3000"))):
        root = tmp_path / str(seed)
        try:
            Replay(seed, root).play(rounds=50 + seed % 100)
        except BaseException as error:
            error.add_note(f"FRAZIL_SEED={seed}, rounds={50 + seed % 100}")
            raise
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_hold_too(tmp_path: Path) -> None:
    first = int(os.environ.get("FRAZIL_FIRST_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("FRAZIL_HISTORIES", "3000"))):
        root = tmp_path / str(seed)
        try:
            History(seed, root).play(rounds=60 + seed % 200)
        except BaseException as error:
            error.add_note(f"FRAZIL_SEED={seed}, rounds={60 + seed % 200}")
            raise
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_of_upserts_hold_too(tmp_path: Path) -> None:
    first = int(os.environ.get("FRAZIL_FIRST_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("FRAZIL_HISTORIES", "3000"))):
        root, rounds = tmp_path / str(seed), 1500 if seed % 100 == 0 else 60 + seed % 200
        try:
            UpsertHistory(seed, root).play(rounds)
        except BaseException as error:
            error.add_note(f"FRAZIL_SEED={seed}, rounds={rounds}")
            raise
        shutil.rmtree(root, ignore_errors=True)
