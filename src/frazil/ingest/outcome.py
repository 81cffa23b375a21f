"""The end of a batch: one of five outcomes, which the service handles in one `match`."""

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
    """A finding of a batch that must be handled before its offsets can be committed: one class, with its own log event
    and its own effect on the next plan (`ingest.findings`).
    """

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:
        """Logs the finding, and sets the fields of the table that the next plan of these offsets needs."""


@dataclass(frozen=True)
class Committed:
    """The batch is committed."""

    #: The table with its new progress.
    state: TableState
    #: The merged report of its tasks.
    report: TaskReport
    #: How the changes affected the rows of an upsert table; None for other tables.
    resolved: Resolved | None = None


@dataclass(frozen=True)
class Replan:
    """Nothing of the batch is committed; its offsets are planned again, with its findings."""

    #: The table after the batch; its schema may have changed. None while the table does not exist.
    state: TableState | None
    #: The merged report of its tasks.
    report: TaskReport
    #: The findings, in the order in which they are applied.
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Reload:
    """The commit was refused, or records that were read no longer exist: the table is loaded before it is planned
    again.
    """

    #: The error of the commit or of the read.
    error: ConflictError


@dataclass(frozen=True)
class Retry:
    """A service did not answer: the table backs off, is loaded, and is planned again."""

    #: The error of the service.
    error: UnavailableError


@dataclass(frozen=True)
class Stop:
    """Another attempt would fail as well: the table stops, or all tables where `error` concerns the process."""

    #: The error that another attempt would repeat.
    error: BaseException


Outcome = Committed | Replan | Reload | Retry | Stop


def outcome_of(error: BaseException) -> Reload | Retry | Stop:
    """Returns the outcome of a batch that failed with `error`."""
    if isinstance(error, ConflictError):
        return Reload(error)
    return Retry(error) if isinstance(error, UnavailableError) else Stop(error)
