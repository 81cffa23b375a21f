"""The content of the live view at one moment, from the state file, the tables and the producers."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.clock import Clock
from frazil.demo.events import KINDS, Kind
from frazil.demo.session import Session

_RATE_OVER_S = 6.0
_KEPT_EVENTS = 8


@dataclass(frozen=True)
class Row:
    """One table; None for what is not known yet."""

    table: str
    state: str
    sent: int
    rows: int
    rows_per_s: float
    lag_records: int
    freshness_ms: int | None
    files: int
    size_bytes: int
    last_commit_ms: int | None


@dataclass(frozen=True)
class Frame:
    """The whole view."""

    #: What the demo is doing.
    phase: str
    #: The time since its start.
    elapsed_s: float
    #: The current time.
    now_ms: int
    #: The address of the broker.
    servers: str
    #: The demo's folder.
    directory: str
    #: How Frazil is called from that folder.
    command: str
    #: The tables.
    rows: tuple[Row, ...]
    #: Events of the demo, with the seconds since its start.
    happened: tuple[tuple[float, str], ...]


class Watcher:
    """Makes frames of a session; remembers what rates and news need."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._history: deque[tuple[float, dict[str, int]]] = deque()
        self._happened: deque[tuple[float, str]] = deque(maxlen=_KEPT_EVENTS)
        self._columns: dict[str, tuple[str, ...]] = {}
        self._metadata: dict[str, str] = {}
        self._is_late = False

    def happen(self, words: str) -> None:
        """Adds an event of the demo."""
        self._happened.append((self._clock.monotonic_s() - self._began_s, words))

    def frame(self, phase: str) -> Frame:
        """Returns the current view."""
        now_s = self._clock.monotonic_s()
        state: dict[str, Any] = self._session.state().get("tables", {})
        self._history.append((now_s, {name: _size(table, "row_count") for name, table in state.items()}))
        while len(self._history) > 2 and now_s - self._history[0][0] > _RATE_OVER_S:
            self._history.popleft()
        self._notice()
        return Frame(
            phase=phase,
            elapsed_s=now_s - self._began_s,
            now_ms=self._clock.now_ms(),
            servers=self._session.broker.bootstrap_servers,
            directory=str(self._session.directory),
            command=command_from(self._session.directory),
            rows=tuple(self._row(kind, state.get(kind.table, {})) for kind in sorted(KINDS, key=lambda k: k.table)),
            happened=tuple(self._happened),
        )

    def _row(self, kind: Kind, state: Mapping[str, Any]) -> Row:
        sent, rows = self._session.producers.ledger[kind.topic].records, _size(state, "row_count")
        return Row(
            table=kind.table,
            state=state.get("state", "starting"),
            sent=sent,
            rows=rows,
            rows_per_s=self._rate(kind.table),
            lag_records=max(0, sent - rows),
            freshness_ms=state.get("freshness_ms"),
            files=_size(state, "file_count"),
            size_bytes=_size(state, "size_bytes"),
            last_commit_ms=state.get("last_commit_ms"),
        )

    def _rate(self, table: str) -> float:
        (began_s, before), (ended_s, after) = self._history[0], self._history[-1]
        return (after.get(table, 0) - before.get(table, 0)) / (ended_s - began_s) if ended_s > began_s else 0.0

    def _notice(self) -> None:
        if self._session.producers.is_late and not self._is_late:
            self._is_late = True
            self.happen("the events get new fields: " + ", ".join(kind.late_field for kind in KINDS))
        for table, metadata in self._session.lake.metadata_files().items():
            if self._metadata.get(table) != metadata:
                self._metadata[table] = metadata
                self._notice_columns(table, metadata)

    def _notice_columns(self, table: str, metadata: str) -> None:
        try:
            now = self._session.lake.columns(metadata)
        except OSError:
            return  # The pipeline has replaced it meanwhile; the next frame finds its successor.
        before = self._columns.get(table)
        self._columns[table] = now
        added = [name for name in now if name not in (before or ())]
        if before is None:
            self.happen(f"{table}: made with {', '.join(now)}")
        elif added:
            self.happen(f"{table}: new {'column' if len(added) == 1 else 'columns'} {', '.join(added)}")


def command_from(directory: Path) -> str:
    """Returns how a shell in the directory calls this program: `frazil` may not be on the path."""
    program = Path(sys.argv[0]).absolute()
    if program.name != "frazil" or shutil.which("frazil"):
        return "frazil"
    return min(str(program), os.path.relpath(program, directory), key=len)


def _size(state: Mapping[str, Any], name: str) -> int:
    return int((state.get("size") or {}).get(name, 0))
