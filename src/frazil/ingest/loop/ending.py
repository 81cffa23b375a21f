"""What an error that would be repeated stops: one table, or the process where it concerns every table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from frazil.clock import Clock
from frazil.errors import (
    ConflictError,
    FencedError,
    FrazilError,
    RecordError,
    SpecError,
    UnavailableError,
    unforeseen,
)
from frazil.ingest.failures import TableStopped, is_jvm_gone, jvm_has_ended
from frazil.ingest.loop.ownership import Ownership
from frazil.ingest.loop.table_updates import back_off, stop_table
from frazil.ingest.tables.table import Table
from frazil.schema.evolve import NameConflict

log = structlog.get_logger("frazil")


class Ending:
    """Stops tables and ends the process. Only the loop's thread calls it."""

    def __init__(self, ownership: Ownership, clock: Clock, publish: Callable[[], None]) -> None:
        """publish: shows that a table has stopped."""
        self._ownership = ownership
        self._clock = clock
        self._publish = publish
        #: Whether somebody has requested the end; may be set by a signal handler.
        self.is_requested = False
        #: The error that ends the process; None while there is none.
        self.fatal: BaseException | None = None

    @property
    def has_begun(self) -> bool:
        """Whether no more work is started, and running work is finished."""
        return self.is_requested or self.fatal is not None

    def end(self, error: FrazilError) -> None:
        """Ends the process with the error, unless another one has ended it."""
        if self.fatal is None:
            self.fatal = error
            log.error("process_ending", reason=error.message, where=error.where)

    def stop_or_end(self, table: Table, error: BaseException) -> None:
        """Stops the table after an error that would be repeated, or ends the process where it concerns every table."""
        if isinstance(error, FencedError):
            # The loaded state is the other run's, and may have pending dead letters: it must not be used.
            table.catalog.is_loaded = False
            if not self._ownership.become_standby(table):
                self.end(error)
        elif isinstance(error, ConflictError):
            back_off(table, error, self._clock.monotonic_s())
        elif isinstance(error, NameConflict):
            self._stop(table, TableStopped(str(error), "rename one of the columns", table.name))
        elif isinstance(error, (RecordError, TableStopped, SpecError)):
            self._stop(table, error)
        elif is_jvm_gone(error):
            self.end(jvm_has_ended())
        else:
            log.error("unexpected_error", table=table.name, error=f"{type(error).__name__}: {error}", exc_info=error)
            self._stop(table, unforeseen(error, table.name))

    @contextmanager
    def guarded(self, table: Table) -> Iterator[None]:
        """Stops the table when its block fails.

        Raises: UnavailableError, which concerns every table.
        """
        try:
            yield
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  (an error of one table does not stop the others)
            self.stop_or_end(table, error)

    def _stop(self, table: Table, error: FrazilError | TableStopped) -> None:
        stop_table(table, error)
        self._publish()
