"""The state of a running pipeline for `frazil status`: one small file, replaced as a whole.

It is a cache: without it only the reasons why tables stopped are lost, which the next run finds again.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from frazil.clock import Clock
from frazil.ingest.loop.leadership import LeadershipState
from frazil.ingest.loop.published_offsets import Published
from frazil.ingest.tables.table import Table
from frazil.ops.recorded import RecordedProcess
from frazil.runtime.private import make_private_directory, make_private_file
from frazil.types import list_names

_REWRITE_EVERY_MS = 5000


class StateFile:
    """The file of one pipeline in `directory`. `redact` masks secrets in text."""

    def __init__(
        self, directory: Path, pipeline: str, clock: Clock, redact: Callable[[str], str], catalog: str = ""
    ) -> None:
        """catalog: the address of the catalog that has the tables."""
        self._catalog = catalog
        self.path = directory / f"{pipeline}.json"
        #: The document that this process wrote last; empty before that.
        self.document: Mapping[str, Any] = {}
        self._clock = clock
        self._redact = redact
        self._last: tuple[dict[str, Any], dict[str, Any] | None, str | None] = {}, None, None
        #: By table, what the document has of it, and its text: of a thousand tables only the changed ones are rendered.
        self._shown: dict[str, tuple[Any, str]] = {}
        self._written_ms = 0

    def write(
        self,
        tables: Sequence[Table],
        ended: bool = False,
        maintenance: Mapping[str, Mapping[str, Any]] | None = None,
        verification: Mapping[str, Mapping[str, Any]] | None = None,
        leadership: LeadershipState | None = None,
        offsets: Published | None = None,
    ) -> None:
        """Replaces the file where something except the time has changed, or a few seconds have passed; a standby leaves
        that of another running process as it is. maintenance, verification: by table, the status of its
        maintenance, and what comparing its newest commits has found. offsets:
        what is published of the tables' offsets; None where nothing is.
        """
        beside = {"maintenance": maintenance or {}, "verification": verification or {}}
        described = {
            table.name: {**describe(table), **{name: of.get(table.name) for name, of in beside.items()}}
            for table in tables
        }
        leaders = None if leadership is None else leadership_document(leadership)
        now_ms = self._clock.now_ms()
        shown = (described, leaders, None if offsets is None else offsets.failure)
        is_recent = 0 <= now_ms - self._written_ms < _REWRITE_EVERY_MS  # The clock may have been set back.
        if shown == self._last and not ended and is_recent:
            return
        for name in [name for name, entry in described.items() if entry != self._last[0].get(name)]:
            entry = self._redacted(described[name])
            self._shown[name] = entry, json.dumps(entry)
        self._last, self._written_ms = shown, now_ms
        who = {"pid": os.getpid(), "host": socket.gethostname(), "started": started_at(os.getpid())}
        place = {"catalog": self._redact(self._catalog)}
        process = {**who, **place, "ended": ended, "updated_ms": now_ms, "leadership": leaders}
        process["published_offsets"] = None if offsets is None else self._redacted(asdict(offsets))
        self.document = {**process, "tables": {name: self._shown[name][0] for name in described}}
        is_idle = ended or (tables and not any(table.schedule.is_owned for table in tables))
        if is_idle and self._is_of_another():
            return
        texts = ", ".join(f"{json.dumps(name)}: {self._shown[name][1]}" for name in described)
        text = f'{json.dumps(process).removesuffix("}")}, "tables": {{{texts}}}}}'
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
        found = self.read()
        return found.get("pid") != os.getpid() and is_process_alive(found) is True

    def _redacted(self, value: Any) -> Any:
        """Returns the value with secrets masked in every text except names and states, which may equal a secret such as
        `false`.
        """
        if isinstance(value, dict):
            return {name: held if name == "state" else self._redacted(held) for name, held in value.items()}
        if isinstance(value, list | tuple):
            return [self._redacted(held) for held in value]
        return self._redact(value) if isinstance(value, str) else value

    def read(self) -> dict[str, Any]:
        """Returns the document with every key of `RecordedProcess`; empty where none can be read."""
        try:
            return RecordedProcess.model_validate_json(self.path.read_bytes()).model_dump()
        except (OSError, ValidationError):
            return {}


def is_process_alive(document: dict[str, Any]) -> bool | None:
    """Returns whether the process that wrote the file still runs; None where it runs on another machine."""
    if not document or document.get("ended"):
        return False
    if document.get("host") != socket.gethostname():
        return None
    if document.get("pid") is None:
        return False
    try:
        os.kill(document["pid"], 0)
    except PermissionError:
        return _is_the_same(document)  # The process belongs to another user.
    except OSError:
        return False
    return _is_the_same(document)


def _is_the_same(document: dict[str, Any]) -> bool:
    """Returns whether the process with the file's process id wrote it: ids are reused, most often those of the first
    processes in a container. True where that cannot be found out.
    """
    noted = document.get("started")
    found = started_at(document["pid"]) if noted else None
    return found is None or found == noted


def started_at(pid: int) -> str | None:
    """Returns when a process was started, in clock ticks since boot; None where the system does not say."""
    try:
        # The name of the program, in parentheses, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def leadership_document(state: LeadershipState) -> dict[str, Any]:
    """Returns the JSON of who works on which tables."""
    document = asdict(state)
    for member in document["members"]:
        member["warm"] = member.pop("is_warm")
    return document


def describe(table: Table) -> dict[str, Any]:
    """Returns the state of one table for `status`."""
    progress, status = table.progress, table.shown_status
    return {
        "state": status.run_state.value,
        "reason": status.reason,
        "remedy": status.remedy,
        "where": status.where,
        "topics": sorted(table.offsets.topics),
        "lag_records": table.offsets.lag_records,
        "open_transactions": [asdict(one) for one in table.offsets.open_transactions],
        "behind_since_ms": table.offsets.behind_since_ms,
        "freshness_ms": table.sizes.freshness_ms,
        "records_per_s": round(table.sizes.records_per_s, 1),
        "committed": bool(progress.offsets),
        "watermark_ms": progress.watermark.complete_to_ms,
        "last_commit_ms": progress.committed_at_ms,
        "dropped_fields": list_names(table.schema.dropped),
        "dead_letters": table.catalog.dead_letter_count,
        "bad_skipped": progress.bad_skipped,
        "skipped_offsets": table.offsets.skipped_offsets,
        "ignored_records": dict(progress.ignored_records),
        "expectations": dict(progress.unmet),
        "rest_records": dict(progress.rest_records),
        "refused_changes": list_names(table.schema.refusals),
        "size": dict(vars(table.catalog.size)) if table.catalog.size else None,
        "last_upsert": dict(vars(table.key_updates.resolved)) if table.key_updates.resolved else None,
    }
