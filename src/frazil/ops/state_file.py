"""The state of a running pipeline for `frazil status`: one small file, replaced as a whole.

It is a cache: without it only the reasons why tables stopped are lost, which the next run finds again.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from frazil.clock import Clock
from frazil.files import make_private_directory, make_private_file
from frazil.ingest.loop.leadership import LeadershipState
from frazil.ingest.loop.published_offsets import Published
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import RECORDED, Observations, ProcessState, TableStatus, status_of, table_document
from frazil.ops.reports import read_record, to_json

_REWRITE_EVERY_MS = 5000


class StateFile:
    """The file of one pipeline in `directory`. `redact` masks secrets in text."""

    def __init__(
        self, directory: Path, pipeline: str, clock: Clock, redact: Callable[[str], str], catalog: str = ""
    ) -> None:
        """catalog: the address of the catalog that has the tables."""
        self._catalog = catalog
        self.path = directory / f"{pipeline}.json"
        #: What this process wrote last; None before that.
        self.state: ProcessState | None = None
        self._clock = clock
        self._redact = redact
        self._last: tuple[dict[str, TableStatus], LeadershipState | None, str | None] = {}, None, None
        #: By table, what the file has of it, and its text: of a thousand tables only the changed ones are rendered.
        self._rendered: dict[str, tuple[TableStatus, str]] = {}
        self._written_ms = 0

    def write(
        self,
        tables: Sequence[Table],
        ended: bool = False,
        leadership: LeadershipState | None = None,
        offsets: Published | None = None,
        observed: Observations | None = None,
    ) -> None:
        """Replaces the file where something except the time has changed, or a few seconds have passed; a standby leaves
        that of another running process as it is. offsets: what is sent of the tables' offsets; None where nothing is.
        """
        statuses = {table.name: status_of(table, observed) for table in tables}
        now_ms = self._clock.now_ms()
        written = (statuses, leadership, None if offsets is None else offsets.failure)
        is_recent = 0 <= now_ms - self._written_ms < _REWRITE_EVERY_MS  # The clock may have been set back.
        if written == self._last and not ended and is_recent:
            return
        for name in [name for name, status in statuses.items() if status != self._last[0].get(name)]:
            status = self._redacted(statuses[name])
            self._rendered[name] = status, json.dumps(table_document(status, RECORDED))
        self._last, self._written_ms = written, now_ms
        self.state = ProcessState(
            pid=os.getpid(),
            host=socket.gethostname(),
            started=started_at(os.getpid()),
            catalog=self._redact(self._catalog),
            ended=ended,
            updated_ms=now_ms,
            leadership=leadership,
            published_offsets=self._redacted(offsets),
            tables={name: self._rendered[name][0] for name in statuses},
        )
        is_idle = ended or (tables and not any(table.schedule.is_owned for table in tables))
        if is_idle and self._is_of_another():
            return
        texts = ", ".join(f"{json.dumps(name)}: {self._rendered[name][1]}" for name in statuses)
        process = json.dumps(to_json(self.state, "tables")).removesuffix("}")
        text = f'{process}, "tables": {{{texts}}}}}'
        partial = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            make_private_directory(self.path.parent)
            make_private_file(partial)
            partial.write_text(text)
            partial.replace(self.path)
        except OSError:  # A full or read-only disk must not stop ingestion over a cache.
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def _is_of_another(self) -> bool:
        """Whether another process, which runs on this machine, has written the file."""
        state = self.read()
        return state.pid != os.getpid() and is_process_alive(state) is True

    def _redacted(self, value: Any) -> Any:
        """Returns the value with secrets masked in every text except names and states, which may equal a secret such as
        `false`.
        """
        if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.name not in ("name", "state")]
            texts = {name: getattr(value, name) for name in names}
            masked = {name: new for name, old in texts.items() if (new := self._redacted(old)) != old}
            return replace(value, **masked) if masked else value
        if isinstance(value, tuple):
            return tuple(map(self._redacted, value))
        return self._redact(value) if isinstance(value, str) else value

    def read(self) -> ProcessState:
        """Returns what the file has, as far as it can be read."""
        try:
            return read_state(json.loads(self.path.read_bytes()))
        except (OSError, ValueError, RecursionError):
            return ProcessState()


def read_state(document: Any) -> ProcessState:
    """Returns what the JSON of a state file has, which may be that of another version: see `read_record`."""
    if isinstance(document, dict) and isinstance(tables := document.get("tables"), dict):
        groups = {name: dict.fromkeys(RECORDED, table) for name, table in tables.items()}
        document = {**document, "tables": {name: {"name": name, **table} for name, table in groups.items()}}
    return read_record(ProcessState, document) or ProcessState()


def is_process_alive(state: ProcessState) -> bool | None:
    """Returns whether the process that wrote the file still runs; None where it runs on another machine."""
    if state.ended or not state.host:
        return False
    if state.host != socket.gethostname():
        return None
    if state.pid is None:
        return False
    try:
        os.kill(state.pid, 0)
    except PermissionError:
        return _is_the_same(state.pid, state.started)  # The process belongs to another user.
    except OSError:
        return False
    return _is_the_same(state.pid, state.started)


def _is_the_same(pid: int, started: str | None) -> bool:
    """Returns whether the process with the file's process id wrote it: ids are reused, most often those of the first
    processes in a container. True where that cannot be found out.
    """
    return not started or started_at(pid) in (None, started)


def started_at(pid: int) -> str | None:
    """Returns when a process was started, in clock ticks since boot; None where the system does not say."""
    try:
        # The name of the program, in parentheses, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
