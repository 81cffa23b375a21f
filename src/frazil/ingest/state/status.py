"""What a table is doing, and the reason."""

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
    """The first lines that `frazil status` shows of a table."""

    #: What the table is doing.
    run_state: RunState = RunState.WAITING
    #: Why the table backs off, stopped, or waits; empty where there is nothing to report.
    reason: str = ""
    #: What to do about the reason.
    remedy: str = ""
    #: The topic, partition and offset, or the file and line, that the reason is about.
    where: str = ""

    def set(self, state: RunState, error: FrazilError | TableStopped | None = None) -> None:
        """Sets what the table is doing, with the error as its reason; without an error the reason is cleared."""
        self.run_state = state
        self.reason, self.remedy, self.where = describe_error(error) if error is not None else ("", "", "")

    def wait_for(self, reason: str) -> None:
        """Sets the table to waiting, for a reason that is no error."""
        self.run_state, self.reason, self.remedy, self.where = RunState.WAITING, reason, "", ""
