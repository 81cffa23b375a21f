"""What operators request of single tables while the pipeline runs: any thread may request it, the loop's own thread decides.

A pause is kept in memory alone: a process that starts again reads all of its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from frazil.errors import ConflictError, SpecError
from frazil.ingest.batches.workers import Workers, pool_of
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.load import Loader, Restart
from frazil.ingest.loop.ownership import Ownership
from frazil.ingest.loop.table_updates import await_resume, pause_table, resume_table
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.state import adding_function
from frazil.spec.syntax.problems import nearest

_Result = TypeVar("_Result")
_FROM_NOTHING = "stop the pipeline, drop the table, and start the pipeline again"


class UnknownTable(SpecError):
    """the pipeline has no such table
    name a table that `frazil status` shows
    """


class Requests:
    """Requests, in the order in which they arrive. A request whose process ends is never answered."""

    def __init__(
        self,
        discovery: Discovery,
        loader: Loader,
        workers: Workers,
        ownership: Ownership,
        publish: Callable[[], None],
        acquit: Callable[[str], None],
    ) -> None:
        """publish: shows a change before its request is answered. acquit: forgets that the JVM has ended while it read a
        table.
        """
        self._discovery = discovery
        self._loader = loader
        self._workers = workers
        self._ownership = ownership
        self._publish = publish
        self._acquit = acquit
        self._waiting = SimpleQueue[Callable[[], None]]()

    def pause(self, name: str) -> Future[None]:
        """Lets no further batch of the table begin. Raises, in the future: UnknownTable."""
        return self._add(partial(self._change, name, pause_table))

    def resume(self, name: str) -> Future[None]:
        """Continues a paused or stopped table. Raises, in the future: UnknownTable."""
        return self._add(partial(self._change, name, self._resume))

    def restart(self, name: str, is_dry: bool) -> Future[Restart]:
        """Makes a paused or stopped table begin again at its setting `start`, unless `is_dry`.

        Raises, in the future: UnknownTable; SpecError where the table cannot begin again; the errors of `Loader.restart`.
        """
        return self._add(partial(self._restart, name, is_dry))

    def reload(self, name: str) -> None:
        """Loads the table again soon: something other than its batches has changed it. Does nothing for a table that the
        pipeline does not have, such as a dead-letter table.
        """
        self._add(partial(self._outdate, name))

    def stand_down(self) -> Future[None]:
        """Lets another process take over all tables. Raises, in the future: the errors of `Ownership.stand_down`."""
        return self._add(self._ownership.stand_down)

    def find(self, name: str) -> Table:
        """Returns the table of this name. Raises: UnknownTable."""
        tables = self._discovery.tables
        if name in tables:
            return tables[name]
        near = nearest(name, tables)
        raise UnknownTable(f"the pipeline has no table `{name}`", remedy=f"did you mean `{near}`?" if near else "")

    def run(self) -> bool:
        """Does what was requested; returns whether there was something. Only the loop's thread calls this."""
        is_any = False
        while True:
            try:
                request = self._waiting.get_nowait()
            except Empty:
                return is_any
            request()
            is_any = True

    def _add(self, act: Callable[[Future[_Result]], None]) -> Future[_Result]:
        future = Future[_Result]()
        self._waiting.put(partial(_answer, future, act))
        self._workers.wake()
        return future

    def _change(self, name: str, change: Callable[[Table], None], future: Future[None]) -> None:
        change(self._find_own(name))
        self._publish()
        future.set_result(None)

    def _outdate(self, name: str, future: Future[None]) -> None:
        if name in self._discovery.tables:
            self._discovery.tables[name].catalog.is_outdated = True
        future.set_result(None)

    def _resume(self, table: Table) -> None:
        if table.status.run_state is RunState.STOPPED:
            self._acquit(table.name)
        resume_table(table)

    def _find_own(self, name: str) -> Table:
        """Returns the table of this name. Raises: UnknownTable; ConflictError where another process works on it."""
        table = self.find(name)
        if not table.schedule.is_owned:
            owner = (self._ownership.state.owners or {}).get(name) or self._ownership.state.leader or "unknown"
            raise ConflictError(
                f"another process works on table `{name}`: {owner}",
                remedy="send the command to that process; `frazil status` shows it",
            )
        return table

    def _restart(self, name: str, is_dry: bool, future: Future[Restart]) -> None:
        table = self._find_own(name)
        _check_restart(table, is_dry)
        if not is_dry:
            table.schedule.in_flight = True
        done = partial(self._after_restart, table, is_dry, future)
        self._workers.submit(pool_of("commit", table), done, partial(self._loader.restart, table, is_dry))

    def _after_restart(self, table: Table, is_dry: bool, future: Future[Restart], done: Future[Restart]) -> None:
        error = done.exception()
        if not is_dry:
            table.schedule.in_flight = False
            table.catalog.is_loaded = error is None
        if error is None:
            if not is_dry and table.status.run_state is RunState.STOPPED:
                await_resume(table)
            self._publish()
            future.set_result(done.result())
        else:
            future.set_exception(error)


def _answer(future: Future[_Result], act: Callable[[Future[_Result]], None]) -> None:
    try:
        act(future)
    except Exception as error:  # noqa: BLE001  (it is the requester's)
        future.set_exception(error)


def _check_restart(table: Table, is_dry: bool) -> None:
    """Raises SpecError where the table cannot begin again, or, unless `is_dry`, where a batch may run for it."""
    if table.progress.snapshot_id is None:
        raise SpecError(
            f"table `{table.name}` has no progress yet: it begins at `start` by itself",
            remedy="wait for its first commit",
        )
    counting = adding_function(table.spec)
    if counting:
        message = f"a table with `{counting}` cannot begin again: its records would count a second time"
        raise SpecError(message, remedy=_FROM_NOTHING)
    share = table.spec.source.share
    if table.spec.changes.atomic is not None or share is not None:
        what = share.kind if share is not None else "with `atomic`"
        raise SpecError(
            f"a table {what} cannot begin again: its progress is more than offsets",
            remedy=_FROM_NOTHING,
        )
    is_idle = table.schedule.is_paused or table.status.run_state is RunState.STOPPED
    if not is_dry and (table.schedule.in_flight or not is_idle):
        raise SpecError(f"table `{table.name}` is running", remedy=f"run `frazil pause {table.name}` first")
