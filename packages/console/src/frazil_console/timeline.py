"""What happened to a table, newest first: what people asked for, how its state changed, how its schema did."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from frazil_console.table_page import SchemaChange

MOST_EVENTS = 100
_AUDIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    at_ms: int
    what: str
    #: Who or what did it: a person by user or token, `ingestion`, `maintenance`, or `the pipeline`.
    by: str
    #: The reason, or what was given; empty where nothing was.
    why: str = ""


class StateChanges:
    """How the states of tables have changed since the process started, as seen each time samples are taken."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._changes: dict[str, deque[Event]] = {}

    def note(self, at_ms: int, name: str, state: str, reason: str) -> None:
        """Takes the state of a table. A table that waits or runs does its work: only what interrupts that, and its end, is a
        change.
        """
        state = "well" if state in ("waiting", "running") else state
        before, self._states[name] = self._states.get(name, "well"), state
        if before != state:
            what = f"{before} ended, it continues" if state == "well" else f"became {state}"
            self._changes.setdefault(name, deque(maxlen=MOST_EVENTS)).append(Event(at_ms, what, "the pipeline", reason))

    def of(self, name: str) -> list[Event]:
        """Returns the changes of a table."""
        return list(self._changes.get(name, ()))


def timeline(name: str, audit: Path, states: StateChanges, schemas: Sequence[SchemaChange]) -> list[Event]:
    """Returns the events of a table, the newest first. audit: the file of the audit log."""
    events = [*asked(name, audit), *states.of(name), *_of_schemas(schemas)]
    return sorted(events, key=lambda event: event.at_ms, reverse=True)[:MOST_EVENTS]


def asked(name: str, audit: Path) -> Iterator[Event]:
    """Yields what people have asked for of a table, from the newest mebibyte of the audit log. A line that was cut is left
    out: the log's own reader shows it.
    """
    try:
        with audit.open("rb") as opened:
            opened.seek(max(0, audit.stat().st_size - _AUDIT_BYTES))
            lines = opened.read().splitlines()
    except OSError:  # Nobody has asked for anything yet, or the file is of another user.
        return
    for line in lines:
        entry = _entry(line)
        arguments = entry.get("arguments")
        if not isinstance(arguments, dict) or arguments.get("table") != name:
            continue
        rest = ", ".join(f"{key} {value}" for key, value in arguments.items() if key != "table")
        at_ms = int(datetime.fromisoformat(entry["at"]).timestamp() * 1000)
        yield Event(at_ms, entry["operation"], f"{entry['who']} ({entry['through']})", rest)


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and {"at", "operation", "who", "through"} <= entry.keys() else {}


def _of_schemas(schemas: Sequence[SchemaChange]) -> Iterator[Event]:
    for change in schemas:
        if change.commit is not None and change.changes:
            words = "; ".join(
                f"{field.kind} {field.text}" if field.kind != "created" else field.text for field in change.changes
            )
            yield Event(change.commit.at_ms, words, change.commit.author, f"schema {change.id}")
