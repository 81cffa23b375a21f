"""What a table does, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import FrazilError
from frazil.ingest.failures import TableStopped, describe_error


class RunState(StrEnum):
    """What a table is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


@dataclass
class Status:
    """What `frazil status` shows of a table first."""

    run_state: RunState = RunState.WAITING
    #: Why the table backs off, stopped, or waits; empty where there is nothing to report.
    reason: str = ""
    #: What to do about the reason.
    remedy: str = ""
    #: The topic, partition and offset, or the file and line, that the reason is about.
    where: str = ""

    def set(self, state: RunState, error: FrazilError | TableStopped | None = None) -> None:
        """Sets what the table does, with the error for its reason; without one the reason is cleared."""
        self.run_state = state
        self.reason, self.remedy, self.where = describe_error(error) if error is not None else ("", "", "")

    def wait_for(self, reason: str) -> None:
        """The table waits for something that is no error."""
        self.run_state, self.reason, self.remedy, self.where = RunState.WAITING, reason, "", ""
