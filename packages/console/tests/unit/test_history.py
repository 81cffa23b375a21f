"""The recent past of tables: what is kept, how finely, across processes, and without a file."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from frazil_console.history import COARSE, FINE, History, Sample
from frazil_testing.twins import FakeClock

DAY_S, MONTH_S = 86_400, 30 * 86_400


class Past:
    """A history whose table `n.a` reads 20 records in ten seconds; lag and freshness are the number of the sample."""

    def __init__(self, file: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.taken = 0
        self.is_owned = True
        self.history = History(file, clock, self._measure)

    def _measure(self) -> dict[str, Sample]:
        self.taken += 1
        return {"n.a": Sample(self.taken, float(self.taken), 20 * self.taken, self.is_owned)}

    def live(self, samples: int) -> None:
        """Lets time pass."""
        for _ in range(samples):
            self.clock.sleep(FINE.step_s)
            self.history.sample()


def test_an_hour_is_kept_every_ten_seconds(tmp_path: Path) -> None:
    past = Past(tmp_path / "h.db", FakeClock())
    past.live(400)
    lag, freshness, rate = past.history.last_hour("n.a")
    assert (lag.tolist(), freshness.tolist()) == ([*map(float, range(41, 401))],) * 2
    assert set(rate.tolist()) == {2.0}
    assert np.isnan(past.history.last_hour("n.unknown")).all()


def test_a_day_is_read_from_the_file_and_a_month_in_worst_values(tmp_path: Path) -> None:
    past = Past(tmp_path / "h.db", FakeClock())
    for _ in range(8_640 // 240):
        past.live(240)
        past.history.flush()
    step_s, (lag, _, rate) = past.history.read("n.a", DAY_S)
    assert (step_s, len(lag)) == (10, 8_640)
    # Two digits are kept of a value.
    assert np.allclose(lag[1:], np.arange(2, 8_641), rtol=0.01)
    assert set(rate[1:].tolist()) == {2.0}
    step_s, (lag, _, rate) = past.history.read("n.a", MONTH_S)
    known = lag[~np.isnan(lag)]
    assert (step_s, len(lag), 142 <= len(known) <= 144) == (600, 4_320, True)
    assert np.allclose(np.diff(known)[2:], 60, atol=60)
    assert set(rate[~np.isnan(rate)].tolist()) == {2.0}


def test_another_process_continues_the_past_and_the_time_between_is_unknown(tmp_path: Path) -> None:
    clock = FakeClock()
    first = Past(tmp_path / "h.db", clock)
    first.live(30)
    first.history.flush()
    clock.sleep(600)
    second = Past(tmp_path / "h.db", clock)
    second.history.restore()
    second.live(10)
    lag, _, rate = second.history.last_hour("n.a")
    assert np.nan_to_num(lag[-10:], nan=-1).tolist() == [*map(float, range(1, 11))]
    assert np.isnan(lag[-69:-10]).all()
    assert lag[-100:-70].tolist() == [*map(float, range(1, 31))]
    assert np.isnan(rate[-10])


def test_what_is_too_old_leaves_the_file(tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "h.db"
    past = Past(file, clock)
    past.live(5)
    past.history.flush()
    clock.sleep(2 * MONTH_S)
    past.live(60)
    past.history.flush()
    with closing(sqlite3.connect(file)) as database:
        kept = dict(database.execute("select step_s, begin_s from chunks").fetchall())
    assert kept == {one.step_s: one.begin_of(clock.now_ms() // 1000) for one in (FINE, COARSE)}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_used_is_one_warning_and_the_past_continues_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    file.write_bytes(b"this is no database, as long as it may be" * 100)
    past = Past(file, FakeClock())
    with capture_logs() as logs:
        past.history.restore()
        past.live(5)
        past.history.flush()
        past.history.flush()
    assert [(one["event"], one["log_level"]) for one in logs] == [("history_unavailable", "warning")]
    assert logs[0]["remedy"] == "free the disk, or delete the file: it holds the console's charts alone"
    assert past.history.last_hour("n.a")[0][-5:].tolist() == [1, 2, 3, 4, 5]
    file.unlink()
    past.live(1)
    past.history.flush()
    other = Past(file, past.clock)
    other.history.restore()
    assert other.history.last_hour("n.a")[0][-1] == 6


def test_what_another_process_keeps_from_being_written_is_written_later(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    past = Past(file, FakeClock())
    past.history.flush()
    while FINE.place_of(past.clock.now_ms() // 1000) < FINE.size - 1:
        past.live(1)
    with closing(sqlite3.connect(file)) as other_writer:
        other_writer.execute("begin immediate")
        past.history.flush()
    taken = past.taken
    past.live(5)  # In the next chunk: the first one does not change any more.
    past.history.flush()
    other = Past(file, past.clock)
    other.history.restore()
    lag = other.history.read("n.a", 7 * FINE.step_s)[1][0]
    assert np.allclose(lag, np.arange(taken - 1, taken + 6), rtol=0.01)


def test_processes_that_share_the_file_keep_what_each_knows_of_the_tables_that_it_works_on(tmp_path: Path) -> None:
    clock = FakeClock()
    leader, standby = Past(tmp_path / "h.db", clock), Past(tmp_path / "h.db", clock)
    leader.live(2)
    leader.history.flush()
    standby.is_owned, standby.taken = False, 50
    standby.live(2)
    standby.history.flush()
    leader.live(2)
    leader.history.flush()
    standby.is_owned = True
    standby.live(2)
    standby.history.flush()
    leader.history.flush()
    reader = Past(tmp_path / "h.db", clock)
    reader.history.restore()
    # What the standby knew of a table that nobody had written at that time is better than nothing.
    assert reader.history.read("n.a", 8 * FINE.step_s)[1][0].tolist() == [1, 2, 51, 52, 3, 4, 53, 54]
    assert standby.history.last_hour("n.a")[0][-8:].tolist() == [1, 2, 51, 52, 3, 4, 53, 54]


@pytest.mark.parametrize("damaged", ["text", b"no zlib", zlib.compress(b"123"), zlib.compress(b"1234"), None])
def test_a_damaged_chunk_is_none_and_written_anew(tmp_path: Path, damaged: object) -> None:
    past = Past(tmp_path / "h.db", FakeClock())
    past.live(2)
    past.history.flush()
    with closing(sqlite3.connect(tmp_path / "h.db")) as database:
        database.execute("update chunks set samples = ?", (damaged,))
        database.commit()
    other = Past(tmp_path / "h.db", past.clock)
    with capture_logs() as logs:
        other.history.restore()
        assert np.isnan(other.history.read("n.a", 20)[1]).all()
        past.live(1)
        past.history.flush()
        other.history.restore()
    assert (other.history.last_hour("n.a")[0][-3:].tolist(), logs) == ([1, 2, 3], [])
