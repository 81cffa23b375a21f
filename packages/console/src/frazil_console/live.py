"""The list of tables, kept current for every page that is open: one rendering and one encoding for all of them.

Each cell has the number of the version that changed it. A page names the version it shows and gets the cells that are newer:
a slow or returning reader misses nothing, and no stream has a queue. Nothing is computed while nobody looks.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from frazil.clock import Clock
from frazil.ops.pipeline_status import TableStatus
from frazil.ops.state_file import StateFile
from frazil_console.figures import Figures, cells_of, figures_of, last_hour_of
from frazil_console.history import History

# An update a second would cost server and browser twice as much.
EVERY_S = 2.0
# Where a thousand tables change at once, updates are up to LONGEST_S apart, so that refreshing takes at most this share of
# the time.
LIVE_SHARE = 0.02
LONGEST_S = 5.0
# A small chart has a point for two minutes: each is drawn again once in so many samples, a minute, each time those of other
# tables. So are the other figures of the last hour, of a table that has none to change.
DRAWN_EVERY = 6
PING_EVERY_S = 15.0
MOST_STREAMS = 50


@dataclass
class Row:
    """One table."""

    figures: Figures
    #: The HTML of its cells behind the name.
    cells: tuple[str, ...]
    #: The version that last changed each cell.
    versions: list[int] = field(default_factory=list)
    #: The number of samples that its history had.
    sampled: int = -1
    #: Whether the loop has published something else of it since then.
    has_moved: bool = False


class LiveTables:
    """The rows of all tables. Any thread may ask."""

    def __init__(self, state_file: StateFile, history: History, clock: Clock) -> None:
        self._state_file = state_file
        self._history = history
        self._clock = clock
        self._lock = threading.Lock()
        self.rows: dict[str, Row] = {}
        #: Greater than every version of an earlier process, unless the clock was set back since.
        self.version = clock.now_ms()

    def refresh(self) -> int:
        """Brings the rows up to date; returns their version."""
        with self._lock:
            state, sampled, now_ms = self._state_file.state, self._history.sample_count, self._clock.now_ms()
            tables, version = state.tables if state is not None else {}, self.version + 1
            changed = [
                self._update(table, sampled, now_ms, version, (sampled + place) % DRAWN_EVERY == 0)
                for place, table in enumerate(tables.values())
            ]
            gone = self.rows.keys() - tables.keys()
            for name in gone:
                del self.rows[name]
            if any(changed):
                self.version = version
            return self.version

    def _update(self, table: TableStatus, sampled: int, now_ms: int, version: int, is_turn: bool) -> bool:
        """Brings one row up to date; returns whether a cell has changed. is_turn: whether its chart is drawn again."""
        row = self.rows.get(table.name)
        if row is None:
            figures = figures_of(table, last_hour_of(self._history.last_hour(table.name)), now_ms)
            cells = cells_of(figures, now_ms)
            self.rows[table.name] = Row(figures, cells, [version] * len(cells), sampled)
            return True
        is_same = row.figures.table == table
        row.has_moved |= not is_same
        hour = row.figures.hour
        if row.sampled != sampled and (is_turn or row.has_moved or hour.rate):
            hour = last_hour_of(self._history.last_hour(table.name), None if is_turn else hour.spark)
            row.sampled, row.has_moved = sampled, False
        # Only the lag of a table that is behind grows by itself.
        elif is_same and not table.lag.lag_records:
            return False
        figures = figures_of(table, hour, now_ms)
        cells = cells_of(figures, now_ms)
        before, row.figures, row.cells = row.cells, figures, cells
        row.versions = [version if old != new else at for at, old, new in zip(row.versions, before, cells, strict=True)]
        return version in row.versions

    def changes(self, after: int) -> dict[str, dict[int, str]]:
        """Returns the cells that are newer than the version `after`, by table and column, 0 for the one behind the name."""
        with self._lock:
            newer = {
                name: {
                    place: row.cells[place] for place, cell_version in enumerate(row.versions) if cell_version > after
                }
                for name, row in self.rows.items()
            }
        return {name: cells for name, cells in newer.items() if cells}


class Streams:
    """The open streams of changes, all on the event loop of the server."""

    def __init__(self, tables: LiveTables) -> None:
        self._tables = tables
        self._count = 0
        self._ticking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._encoded: tuple[int, int, str] = (0, 0, "")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ended = False

    @property
    def is_full(self) -> bool:
        """Whether no further stream may begin."""
        return self._count >= MOST_STREAMS

    def end(self) -> None:
        """Ends all streams, for a server that stops; any thread may call it."""
        self._is_ended = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def follow(self, after: int) -> AsyncIterator[str]:
        """Yields an event for each change since the version `after`, and a comment where there is none for a while. Of a
        version that this process has not come to nothing is known: all rows have changed since then.
        """
        if after > self._tables.version:
            after = 0
        self._count += 1
        self._loop = asyncio.get_running_loop()
        try:
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick())
            yield "retry: 2000\n\n"
            while not self._is_ended:
                if self._tables.version > after:
                    text, after = self._event(after)
                    yield text
                changed = self._changed
                try:
                    await asyncio.wait_for(changed.wait(), PING_EVERY_S)
                except TimeoutError:
                    yield ": ping\n\n"
        finally:
            self._count -= 1
            if not self._count and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None

    async def _tick(self) -> None:
        seen, loop = 0, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            version = await run_in_threadpool(self._tables.refresh)
            took_s = loop.time() - began_s
            if version != seen:  # A page may have refreshed them meanwhile.
                seen = version
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
            await asyncio.sleep(max(EVERY_S, min(took_s / LIVE_SHARE, LONGEST_S)))

    def _event(self, after: int) -> tuple[str, int]:
        """Returns the changes since a version as an event, and the version that they lead to."""
        version = self._tables.version
        if self._encoded[:2] != (after, version):
            text = json.dumps(self._tables.changes(after), separators=(",", ":"))
            self._encoded = (after, version, f"id: {version}\nevent: rows\ndata: {text}\n\n")
        return self._encoded[2], version
