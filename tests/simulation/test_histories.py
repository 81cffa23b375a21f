"""No record is lost and none doubled, whatever happens between any two steps. FRAZIL_SEED: play this one history."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from structlog.testing import capture_logs

from tests.fixtures.slices import sliced
from tests.simulation.databases import DatabaseHistory, DividedHistory, WornDatabase
from tests.simulation.history import History
from tests.simulation.late import LateReplay
from tests.simulation.replay import Replay
from tests.simulation.routes import RouteHistory
from tests.simulation.standbys import StandbyHistory, UpsertStandbyHistory
from tests.simulation.upserts import (
    ChangingUpserts,
    DividedUpserts,
    OperationUpserts,
    UpsertHistory,
    WornChangingUpserts,
    WornUpserts,
)

_SEED = os.environ.get("FRAZIL_SEED")
_MOST_SHOWN = 10
_DIVIDED = (DividedHistory, DividedUpserts)
_WORN = (WornUpserts, WornChangingUpserts, OperationUpserts, WornDatabase)


def _slice(seeds: Sequence[int], quick: int) -> list[Any]:
    return [int(_SEED)] if _SEED else sliced(seeds, quick)


_SLICE = _slice(range(8), 1)
_CHANGING_SLICE = _slice((1, 0, 2, 3), 1)
_DIVIDED_SLICE = _slice((22, 8, 0, 1, 2, 3, 4), 1)
"""22 and 8 fail where a tombstone that a task reads first is taken for one without a delete."""

_WORN_SLICE = _slice(range(3), 1)
_STANDBYS = (StandbyHistory, UpsertStandbyHistory)


class Playable(Protocol):
    """A history."""

    def play(self, rounds: int) -> None:
        """Plays it to its end, and checks."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("seed", _SLICE)
def test_rows_are_exactly_the_records_before_the_offsets(seed: int, tmp_path: Path) -> None:
    History(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _CHANGING_SLICE)
@pytest.mark.parametrize("history", _STANDBYS)
def test_tables_that_move_among_processes_are_what_one_process_makes_of_them(
    history: Callable[[int, Path], Playable], seed: int, tmp_path: Path
) -> None:
    history(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _CHANGING_SLICE)
def test_a_record_is_in_the_table_of_its_value_or_in_that_of_the_rest(seed: int, tmp_path: Path) -> None:
    RouteHistory(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _SLICE)
def test_a_record_is_a_row_or_a_dead_letter_and_never_both_during_replays(seed: int, tmp_path: Path) -> None:
    Replay(seed, tmp_path).play(rounds=50)


@pytest.mark.parametrize("seed", _SLICE)
def test_dead_letters_of_an_upsert_table_come_late_and_never_over_something_newer(seed: int, tmp_path: Path) -> None:
    LateReplay(seed, tmp_path).play(rounds=40)


@pytest.mark.parametrize("seed", _SLICE)
def test_every_snapshot_of_an_upsert_table_is_what_a_dictionary_reports(seed: int, tmp_path: Path) -> None:
    UpsertHistory(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _CHANGING_SLICE)
def test_every_snapshot_is_what_the_file_reported_when_it_was_made(seed: int, tmp_path: Path) -> None:
    ChangingUpserts(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("seed", _SLICE)
def test_every_snapshot_of_an_upsert_table_is_what_its_source_was(seed: int, tmp_path: Path) -> None:
    DatabaseHistory(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("history", _DIVIDED)
@pytest.mark.parametrize("seed", _DIVIDED_SLICE)
def test_every_snapshot_is_the_same_wherever_tasks_begin_to_read(
    history: Callable[[int, Path], Playable], seed: int, tmp_path: Path
) -> None:
    history(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize("history", _WORN)
@pytest.mark.parametrize("seed", _WORN_SLICE)
def test_every_snapshot_is_right_while_topics_are_compacted_and_snapshots_expire(
    history: Callable[[int, Path], Playable], seed: int, tmp_path: Path
) -> None:
    history(seed, tmp_path).play(rounds=60)


@pytest.mark.parametrize(
    ("seed", "rounds"),
    sliced([(22, 82), (2094, 60), (2132, 60), (5510032, 80), (5510036, 80), (1070, 60), (2075, 60), (248, 108)], 1),
)
def test_histories_that_have_failed_once_hold(seed: int, rounds: int, tmp_path: Path) -> None:
    DatabaseHistory(seed, tmp_path, is_plain=True).play(rounds)


def test_a_longer_history_that_has_failed_once_holds(tmp_path: Path) -> None:
    DatabaseHistory(2202, tmp_path).play(rounds=62)


def _play_all(
    history: Callable[[int, Path], Playable], root: Path, rounds: Callable[[int], int], count: int = 3000
) -> None:
    """From FRAZIL_FIRST_SEED on FRAZIL_HISTORIES of them, or `count`, whether or not some fail. rounds: how long the one of
    a seed is.
    """
    first, failed = int(os.environ.get("FRAZIL_FIRST_SEED", "1000")), []
    for seed in range(first, first + int(os.environ.get("FRAZIL_HISTORIES", count))):
        place = root / str(seed)
        try:
            history(seed, place).play(rounds(seed))
        except Exception as error:  # noqa: BLE001  (whatever one fails with, the others are played)
            error.add_note(f"FRAZIL_FIRST_SEED={seed} FRAZIL_HISTORIES=1 plays it again: {rounds(seed)} rounds")
            failed.append(error)
        shutil.rmtree(place, ignore_errors=True)
    if failed:
        raise ExceptionGroup(f"{len(failed)} histories", failed[:_MOST_SHOWN])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_replays_hold_too(tmp_path: Path) -> None:
    _play_all(Replay, tmp_path, lambda seed: 50 + seed % 100)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_of_late_dead_letters_hold_too(tmp_path: Path) -> None:
    _play_all(LateReplay, tmp_path, lambda seed: 40 + seed % 60, count=1000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_hold_too(tmp_path: Path) -> None:
    _play_all(History, tmp_path, lambda seed: 60 + seed % 200)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_of_upserts_hold_too(tmp_path: Path) -> None:
    _play_all(UpsertHistory, tmp_path, lambda seed: 60 + seed % 200 if seed % 100 else 1500)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_of_files_that_change_hold_too(tmp_path: Path) -> None:
    _play_all(ChangingUpserts, tmp_path, lambda seed: 60 + seed % 200)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_longer_histories_of_databases_hold_too(tmp_path: Path) -> None:
    _play_all(DatabaseHistory, tmp_path, lambda seed: 60 + seed % 200 if seed % 100 else 1000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("history", _DIVIDED)
def test_thousands_of_longer_histories_of_divided_ranges_hold_too(
    history: Callable[[int, Path], Playable], tmp_path: Path
) -> None:
    _play_all(history, tmp_path, lambda seed: 60 + seed % 200)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("history", _WORN)
def test_longer_histories_of_compacted_topics_and_expired_snapshots_hold_too(
    history: Callable[[int, Path], Playable], tmp_path: Path
) -> None:
    _play_all(history, tmp_path, lambda seed: 60 + seed % 200, count=1000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("history", _STANDBYS)
def test_longer_histories_of_tables_that_move_among_processes_hold_too(
    history: Callable[[int, Path], Playable], tmp_path: Path
) -> None:
    _play_all(history, tmp_path, lambda seed: 60 + seed % 200, count=1000)
