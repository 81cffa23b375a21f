"""The recent past of every table, for the console: lag, freshness and rate, a day at ten seconds and a month at ten minutes.

The newest two chunks of each table are in memory: two hours at ten seconds, two days at ten minutes. All are written to a
small SQLite file, which may be deleted: without it the older past is lost and nothing else. The loop never waits for it.
Several processes may share the file: each adds the samples of the tables that it works on.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from frazil.clock import Clock
from frazil.files import make_private_directory, make_private_file
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import status_of
from frazil.ops.running import RunningPipeline
from frazil_console.timeline import StateChanges

log = structlog.get_logger("frazil")

FLUSH_EVERY_S = 300
_LOCK_TIMEOUT_S = 1.0
_CREATE = "create table if not exists chunks (step_s, begin_s, name, samples, primary key (step_s, begin_s, name))"
_CHUNK = "select samples from chunks where step_s = ? and begin_s = ? and name = ?"
Samples = npt.NDArray[np.float32]
"""Samples of one table, of shape (3, n_samples): lag in records, freshness in seconds, records per second. NaN where nothing
is known, such as while the process did not run.
"""


@dataclass(frozen=True)
class Resolution:
    """How finely the past is kept, and for how long."""

    step_s: int
    #: Samples of a chunk, which is compressed and written as one value.
    size: int
    keep_s: int

    def begin_of(self, at_s: int) -> int:
        """Returns when the chunk with this time begins."""
        return at_s - at_s % (self.step_s * self.size)

    def place_of(self, at_s: int) -> int:
        """Returns the index of this time in its chunk."""
        return (at_s - self.begin_of(at_s)) // self.step_s


FINE = Resolution(10, 360, 86_400)
COARSE = Resolution(600, 144, 30 * 86_400)
_PER_COARSE = COARSE.step_s // FINE.step_s


@dataclass(frozen=True)
class Sample:
    """A table at one moment."""

    #: None while it is not known.
    lag_records: int | None
    #: See `TableStatus.freshness_s`.
    freshness_s: float | None
    #: The sum of the committed offsets, whose growth is the number of records read.
    position: int
    #: Whether this process works on the table; otherwise another one writes its past.
    is_owned: bool = True
    #: What it is doing, and why.
    state: str = "waiting"
    reason: str = ""


def sample_of(table: Table, now_ms: int) -> Sample:
    """Returns the sample of a table of the running pipeline."""
    position = sum(sum(partitions.values()) for partitions in table.progress.offsets.values())
    status = status_of(table)
    condition, freshness_s = status.condition, status.freshness_s(now_ms)
    owned = table.schedule.is_owned
    return Sample(table.offsets.lag_records, freshness_s, position, owned, condition.state, condition.reason)


def open_history(pipeline: RunningPipeline) -> History:
    """Returns the past of the tables of a running pipeline, in a file beside its state file; it is not started."""

    def samples() -> dict[str, Sample]:
        now_ms = pipeline.clock.now_ms()
        tables = () if pipeline.parts is None else pipeline.tables
        return {table.name: sample_of(table, now_ms) for table in tables}

    file = pipeline.spec.file.state_dir / f"{pipeline.spec.pipeline}.history.db"
    return History(file, pipeline.clock, samples)


class _Recent:
    """The newest two chunks of every table at one resolution."""

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        #: By begin and table.
        self._chunks: dict[int, dict[str, Samples]] = {}
        #: Begin and table of chunks that were not written since they changed.
        self.changed: set[tuple[int, str]] = set()

    def put(self, at_s: int, name: str, values: Sequence[float], is_kept: bool) -> None:
        """Adds a sample. is_kept: whether it is to be written."""
        begin_s = self.resolution.begin_of(at_s)
        if begin_s not in self._chunks:
            self._chunks = dict(sorted([*self._chunks.items(), (begin_s, {})])[-2:])
            self.changed = {place for place in self.changed if place[0] in self._chunks}
        self.own_chunk(begin_s, name)[:, self.resolution.place_of(at_s)] = values
        if is_kept:
            self.changed.add((begin_s, name))

    def own_chunk(self, begin_s: int, name: str) -> Samples:
        """Returns one chunk, which the caller may change."""
        chunks = self._chunks.setdefault(begin_s, {})
        if name not in chunks:
            chunks[name] = _nothing(self.resolution)
        return chunks[name]

    def chunk(self, begin_s: int, name: str) -> Samples | None:
        """Returns one chunk; None where it is not in memory."""
        return self._chunks.get(begin_s, {}).get(name)

    def last(self, name: str, count: int, now_s: int) -> Samples:
        """Returns the last `count` samples of a table, fewer than two chunks."""
        return _line(self.resolution, count, now_s, lambda begin_s: self.chunk(begin_s, name))


def _line(resolution: Resolution, count: int, now_s: int, chunk: Callable[[int], Samples | None]) -> Samples:
    """Returns the last `count` samples from the chunks by begin."""
    line = np.full((3, count), np.nan, np.float32)
    first_s = now_s - now_s % resolution.step_s - (count - 1) * resolution.step_s
    place = 0
    while place < count:
        at_s = first_s + place * resolution.step_s
        start = resolution.place_of(at_s)
        number = min(resolution.size - start, count - place)
        samples = chunk(resolution.begin_of(at_s))
        if samples is not None:
            line[:, place : place + number] = samples[:, start : start + number]
        place += number
    return line


class History:
    """The past of the tables of one pipeline. `measure` returns the present sample of every table, by name."""

    def __init__(self, file: Path, clock: Clock, measure: Callable[[], Mapping[str, Sample]]) -> None:
        self._file = file
        self._clock = clock
        self._measure = measure
        self._fine = _Recent(FINE)
        self._coarse = _Recent(COARSE)
        self._positions: dict[str, tuple[int, int]] = {}
        self._is_failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="history", daemon=True)
        self.states = StateChanges()
        #: The number of samples taken of every table.
        self.sample_count = 0

    def start(self) -> None:
        """Starts the thread that samples."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, which writes what it has."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * _LOCK_TIMEOUT_S)

    def _loop(self) -> None:
        self.restore()
        flushed_s = self._clock.monotonic_s()
        while not self._stopping.wait(FINE.step_s):
            self.sample()
            if self._clock.monotonic_s() - flushed_s >= FLUSH_EVERY_S:
                flushed_s = self._clock.monotonic_s()
                self.flush()
        self.flush()

    def sample(self) -> None:
        """Adds a sample of every table."""
        now_s = self._now_s()
        for name, sample in self._measure().items():
            self.states.note(now_s * 1000, name, sample.state, sample.reason)
            shown = (np.nan if number is None else number for number in (sample.lag_records, sample.freshness_s))
            self._fine.put(now_s, name, (*shown, self._rate(name, sample, now_s)), sample.is_owned)
            if (now_s // FINE.step_s) % _PER_COARSE == _PER_COARSE - 1:
                # One sample for several: the largest lag, the worst freshness and the average rate.
                present = [row[~np.isnan(row)] for row in self._fine.last(name, _PER_COARSE, now_s)]
                lag, fresh = (float(row.max()) if row.size else np.nan for row in present[:2])
                rate = float(present[2].mean()) if present[2].size else np.nan
                self._coarse.put(now_s, name, (lag, fresh, rate), sample.is_owned)
        self.sample_count += 1

    def _rate(self, name: str, sample: Sample, now_s: int) -> float:
        """Returns the records per second since the last sample; NaN for the first one."""
        before_s, position = self._positions.get(name, (now_s, sample.position))
        self._positions[name] = (now_s, sample.position)
        return max(0, sample.position - position) / (now_s - before_s) if now_s > before_s else np.nan

    def last_hour(self, name: str) -> Samples:
        """Returns a table's samples of the last hour, every ten seconds."""
        return self._fine.last(name, FINE.size, self._now_s())

    def read(self, name: str, seconds: int) -> tuple[int, Samples]:
        """Returns the seconds between two samples of a table, and its samples of the last `seconds`, at most a month."""
        recent = self._fine if seconds <= FINE.keep_s else self._coarse
        resolution = recent.resolution
        stored = self._stored(resolution, name, self._now_s() - seconds)

        def chunk(begin_s: int) -> Samples | None:
            own = recent.chunk(begin_s, name)
            return own if own is not None else stored.get(begin_s)

        return resolution.step_s, _line(resolution, seconds // resolution.step_s, self._now_s(), chunk)

    def flush(self) -> None:
        """Writes what has changed, and removes what is too old."""
        self._with_file(self._write)

    def restore(self) -> None:
        """Takes the newest chunks of an earlier process into memory."""
        self._with_file(self._load)

    def _write(self, database: sqlite3.Connection) -> None:
        database.execute("begin immediate")  # Another process must not write a chunk between its read and its write.
        for recent in (self._fine, self._coarse):
            step_s = recent.resolution.step_s
            for begin_s, name in recent.changed:
                samples = recent.own_chunk(begin_s, name)
                for (packed,) in database.execute(_CHUNK, (step_s, begin_s, name)).fetchall():
                    stored = _unpacked(packed, recent.resolution)
                    np.copyto(samples, stored, where=~np.isnan(stored))
                # Compressed bfloat16, the upper half of float32: a chart needs no more than two digits.
                values = (
                    step_s,
                    begin_s,
                    name,
                    zlib.compress((samples.view(np.uint32) >> 16).astype(np.uint16).tobytes(), 1),
                )
                database.execute("insert or replace into chunks values (?, ?, ?, ?)", values)
            oldest_s = recent.resolution.begin_of(self._now_s() - recent.resolution.keep_s)
            database.execute("delete from chunks where step_s = ? and begin_s < ?", (step_s, oldest_s))
        database.commit()
        self._fine.changed, self._coarse.changed = set(), set()  # On a full disk they are written later.

    def _load(self, database: sqlite3.Connection) -> None:
        query = "select begin_s, name, samples from chunks where step_s = ? and begin_s between ? and ?"
        for recent in (self._fine, self._coarse):
            resolution, now_s = recent.resolution, self._now_s()
            since_s = resolution.begin_of(now_s - resolution.step_s * resolution.size)
            for begin_s, name, packed in database.execute(query, (resolution.step_s, since_s, now_s)):
                own = recent.own_chunk(begin_s, name)
                np.copyto(own, _unpacked(packed, resolution), where=np.isnan(own))

    def _stored(self, resolution: Resolution, name: str, since_s: int) -> dict[int, Samples]:
        chunks: dict[int, Samples] = {}
        query = "select begin_s, samples from chunks where step_s = ? and name = ? and begin_s >= ?"
        values = (resolution.step_s, name, resolution.begin_of(since_s))

        def load(database: sqlite3.Connection) -> None:
            for begin_s, packed in database.execute(query, values):
                chunks[begin_s] = _unpacked(packed, resolution)

        self._with_file(load)
        return chunks

    def _with_file(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Opens the file for `work`, which is left undone, with one warning, where that fails."""
        try:
            make_private_directory(self._file.parent)
            make_private_file(self._file)
            with closing(sqlite3.connect(self._file, timeout=_LOCK_TIMEOUT_S)) as database:
                database.execute(_CREATE)
                work(database)
            self._is_failing = False
        except (OSError, sqlite3.Error) as error:
            if not self._is_failing:
                remedy = "free the disk, or delete the file: it holds the console's charts alone"
                log.warning("history_unavailable", file=str(self._file), reason=str(error), remedy=remedy)
            self._is_failing = True

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000


def _unpacked(packed: bytes, resolution: Resolution) -> Samples:
    """Returns a stored chunk; one that is damaged has no samples."""
    try:
        halves = np.frombuffer(zlib.decompress(packed), np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(3, resolution.size)
    except (zlib.error, ValueError, TypeError):
        return _nothing(resolution)


def _nothing(resolution: Resolution) -> Samples:
    return np.full((3, resolution.size), np.nan, np.float32)
