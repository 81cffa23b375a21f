"""How a batch ends: one of five outcomes, which the service tells apart in one `match`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from frazil.catalog.port import TableState
from frazil.clock import Clock
from frazil.errors import ConflictError, UnavailableError
from frazil.ingest.batch import Planned
from frazil.report.task_report import TaskReport
from frazil.types import Resolved


class Finding(Protocol):
    """What a batch has found out that must change before its offsets can be committed: one class, with its own log event and
    its own effect on the next plan (`ingest.findings`).
    """

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:
        """Logs the finding, and notes in the table what the next plan of these offsets needs."""


@dataclass(frozen=True)
class Committed:
    """The batch is in the table."""

    #: The table with its new progress.
    state: TableState
    report: TaskReport
    #: Of an upsert table, what the changes did to its rows.
    resolved: Resolved | None = None


@dataclass(frozen=True)
class Replan:
    """Nothing of the batch is committed; its offsets are planned again, with what was found out."""

    #: The table afterwards; its schema may have changed. None while there is no table.
    state: TableState | None
    report: TaskReport
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Reload:
    """The commit was refused, or what was read is no longer there: the table is loaded before it is planned again."""

    error: ConflictError


@dataclass(frozen=True)
class Retry:
    """A service did not answer: the table backs off, is loaded, and is planned again."""

    error: UnavailableError


@dataclass(frozen=True)
class Stop:
    """Trying again would come to the same: the table stops, or all of them where `error` concerns the process."""

    error: BaseException


Outcome = Committed | Replan | Reload | Retry | Stop


def outcome_of(error: BaseException) -> Reload | Retry | Stop:
    """The outcome of a batch that failed."""
    if isinstance(error, ConflictError):
        return Reload(error)
    return Retry(error) if isinstance(error, UnavailableError) else Stop(error)
