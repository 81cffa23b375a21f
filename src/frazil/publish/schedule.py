"""Publishes the tables of a running pipeline, each as often as its pipeline file wants. Ingestion never waits for it.

One thread audits and publishes the tables that are due, one after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from frazil.catalog.maintenance_port import Transfer
from frazil.catalog.port import TableState
from frazil.clock import Clock
from frazil.errors import FrazilError, UnavailableError, unforeseen
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import transfer_of
from frazil.publish.groups import GroupPublisher
from frazil.publish.position import COMPLETE_TO, HELD, PUBLISHED, PUBLISHED_AT, is_published, number
from frazil.publish.publisher import Published, Publisher, held_report
from frazil.publish.report import PublishReport
from frazil.publish.tags import last_time_ms, past
from frazil.spec.models import TableSpec
from frazil.spec.publishing import PublishingSpec
from frazil.stages.table import table_stages
from frazil.types import MAIN

_NAP_S = 0.5
_TAG_EVERY_S = 60.0
LONGEST_CUT_S = 60.0
"""How long the tables of a group are waited for until another moment is chosen."""
RETRY_S = 10.0
"""The longest time until a table is tried again whose catalog did not answer, or that another process has published."""
log = structlog.get_logger("frazil")


def published_table(spec: TableSpec, transfer: Transfer | None = None) -> Published:
    """Returns what must hold of a table with `publish`. transfer: as of Published."""
    publish = spec.publishing.publish
    withheld = {name: text for stage in spec.stage_settings.values() for name, text in stage.withheld.items()}
    if publish is None:
        return Published(spec.name, (), withheld, spec.publishing.tags)
    name, tags, group = spec.name, spec.publishing.tags, publish.group or ""
    if not spec.publishing.copies_rows:
        return Published(name, publish.audits, withheld, tags, group)
    return Published(
        name, publish.audits, withheld, tags, group, is_copied=True, transfer=transfer, stages=table_stages(spec)
    )


def _published(table: Table) -> Published:
    """Returns a table of the running pipeline, whose keys show which rows were deleted meanwhile."""
    copies_rows = table.spec.publishing.copies_rows
    return published_table(table.spec, transfer_of(table) if copies_rows else None)


@dataclass
class _Turn:
    """When a table is published next, and what came of the last time."""

    due_s: float
    report: PublishReport
    #: What was logged last.
    logged: tuple[str, str] = ("", "")
    #: The times of the tags that the table has, in milliseconds since 1970.
    tagged: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Group:
    """Tables that are published together."""

    #: The name of the group; empty for a table alone.
    name: str
    tables: Sequence[Table]
    turns: Sequence[_Turn]
    every_s: float
    #: Whether this is the last time in the run.
    is_last: bool

    def unpublished(self, reason: str, remedy: str) -> dict[str, PublishReport]:
        """Returns the reports of tables that could not be published."""
        return {
            table.name: replace(turn.report, state="failed", reason=reason, remedy=remedy)
            for table, turn in zip(self.tables, self.turns, strict=True)
        }


@dataclass
class _Turns:
    turns: dict[str, _Turn] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class PublishSchedule:
    """Decides which table is published when. The first `note` with such a table starts the thread, `stop` ends it.

    open_publisher: opens the services for the thread alone.
    """

    def __init__(
        self,
        open_publisher: Callable[[], Publisher],
        clock: Clock,
        on_publish: Callable[[str], None] = lambda _: None,
        has_thread: bool = True,
        cuts: Cuts | None = None,
    ) -> None:
        """on_publish: called with the name of a table that was published. cuts: ends batches of a group's tables at one
        moment; None where their newest snapshots are of one. has_thread: False for a run that only catches up,
        and publishes at its end.
        """
        self._has_thread, self._cuts = has_thread, cuts
        self._open = open_publisher
        self._clock = clock
        self._on_publish = on_publish
        self._publisher: Publisher | None = None
        self._tables: Sequence[Table] = ()
        self._state = _Turns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="publish", daemon=True)

    def note(self, tables: Iterable[Table]) -> None:
        """Takes the tables of the process; returns at once."""
        self._tables = [table for table in tables if table.spec.publishing.branch != MAIN or table.spec.publishing.tags]
        has_work = any(table.spec.publishing.publish or table.spec.publishing.tags for table in self._tables)
        if self._has_thread and self._thread.ident is None and has_work:
            self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Publishes no further table; returns whether the current one ended within the time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> Mapping[str, PublishReport]:
        """Returns by table with a branch what readers see."""
        with self._state.lock:
            reports = {name: turn.report for name, turn in self._state.turns.items()}
        return {
            table.name: reports.get(table.name, report_of_state(table.spec.publishing, table.state))
            for table in self._tables
            if table.schedule.is_owned and table.spec.publishing.branch != MAIN
        }

    def held(self, table: str) -> tuple[int, ...]:
        """Returns the snapshots of a table that expiry must keep: those that are being audited."""
        publisher = self._publisher
        snapshot_id = None if publisher is None else publisher.auditing.get(table)
        return () if snapshot_id is None else (snapshot_id,)

    def run_last(self, is_stopped: Callable[[], bool] = lambda: False, wait_s: float = 0.0) -> None:
        """Publishes every table at the end of a run that has only caught up. is_stopped: whether the run has to end. wait_s:
        how long a table is tried again that another process moves, or whose services do not answer.

        Raises: UnavailableError where a table could not be published in that time.
        """
        if self._has_thread:
            return
        until_s = self._clock.monotonic_s() + wait_s
        self.run_due(is_last=True, is_stopped=is_stopped)
        while (failing := self._failing()) and not is_stopped():
            if self._clock.monotonic_s() >= until_s:
                name, report = failing[0]
                raise UnavailableError(f"the table is not published: {report.reason}", remedy=report.remedy, where=name)
            self._clock.sleep(_NAP_S)
            self.run_due(is_last=True, is_stopped=is_stopped, names={name for name, _ in failing})

    def _failing(self) -> list[tuple[str, PublishReport]]:
        with self._state.lock:
            return [(name, turn.report) for name, turn in self._state.turns.items() if turn.report.state == "failed"]

    def run_due(
        self,
        is_last: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
        names: Container[str] | None = None,
    ) -> None:
        """Publishes every table that is due. is_last: each. is_stopped: as of `run_last`. names: only these tables, and
        those of their groups.
        """
        for group, tables in self._groups():
            if not all(table.schedule.is_owned for table in tables):
                continue
            if names is not None and not any(table.name in names for table in tables):
                continue
            now_s, publishing = self._clock.monotonic_s(), tables[0].spec.publishing
            every_s = _TAG_EVERY_S if publishing.publish is None else publishing.publish.every_s
            turns = [self._turn_of(table, now_s + min(every_s, RETRY_S)) for table in tables]
            is_due = is_last or any(now_s >= turn.due_s for turn in turns)
            if is_due and not (self._stopping.is_set() or is_stopped()):
                self._take_turn(_Group(group, tables, turns, every_s, is_last))

    def _groups(self) -> list[tuple[str, list[Table]]]:
        """Returns the tables that are published together, each list with the group's name; empty for a table alone."""
        groups: dict[tuple[str, str], list[Table]] = {}
        for table in self._tables:
            publish = table.spec.publishing.publish
            if publish is not None or table.spec.publishing.tags:
                group = publish.group if publish is not None and publish.group is not None else ""
                groups.setdefault((group, "" if group else table.name), []).append(table)
        return [(group, tables) for (group, _), tables in groups.items()]

    def _turn_of(self, table: Table, first_due_s: float) -> _Turn:
        with self._state.lock:
            turn = self._state.turns.get(table.name)
            if turn is None:
                # Not at once: a process that is started again and again would audit the table each time.
                turn = _Turn(first_due_s, report_of_state(table.spec.publishing, table.state))
                self._state.turns[table.name] = turn
            return turn

    def _loop(self) -> None:
        while not self._stopping.wait(_NAP_S):
            try:
                self.run_due()
            except Exception as error:  # noqa: BLE001  (records are ingested, whatever is wrong here)
                if not self._stopping.is_set():
                    log.error("unexpected_error", error=f"{type(error).__name__}: {error}")

    def _take_turn(self, group: _Group) -> None:
        began_s, due_in_s = self._clock.monotonic_s(), group.every_s
        try:
            reports = self._reports(group)
            if reports is None:
                return
            for table, turn in zip(group.tables, group.turns, strict=True):
                if reports[table.name].snapshot_id != turn.report.snapshot_id:
                    self._on_publish(table.name)
        except FrazilError as error:
            reports, due_in_s = group.unpublished(error.message, error.remedy), min(group.every_s, RETRY_S)
        except Exception as error:  # The other tables are published, whatever is wrong with this one.
            name = group.tables[0].name
            if not self._stopping.is_set():
                log.error("unexpected_error", table=name, error=f"{type(error).__name__}: {error}", exc_info=error)
            stop = unforeseen(error, name)
            reports = group.unpublished(stop.message, stop.remedy)
        for table, turn in zip(group.tables, group.turns, strict=True):
            turn.due_s = began_s + due_in_s
            with self._state.lock:
                turn.report = reports[table.name]
            self._log(table.name, turn)

    def _reports(self, group: _Group) -> Mapping[str, PublishReport] | None:
        """Publishes tables; returns what readers see of each, or None where they wait for a moment of all of them."""
        table, turn = group.tables[0], group.turns[0]
        if group.name:
            return self._group_published(group)
        if table.spec.publishing.publish is None:
            return {table.name: self._tagged(table, turn)}
        if table.spec.changes.emit == "closed":
            windows = self._opened().windows
            assert windows is not None
            return {table.name: windows.publish(table.spec)}
        return {table.name: self._opened().publish(_published(table), last=turn.report)}

    def _group_published(self, group: _Group) -> Mapping[str, PublishReport] | None:
        """See `_reports`. A run that has caught up has the newest snapshots of one moment, unless a table has stopped."""
        offsets = None
        stopped = [table.name for table in group.tables if table.status.run_state is RunState.STOPPED]
        if group.is_last and stopped:
            self._report_wait(group, stopped)
            return None
        if self._cuts is not None and not group.is_last:
            names = {table.name for table in group.tables}
            cut, now_s = self._cuts.of(group.name), self._clock.monotonic_s()
            if cut is None or cut.tables != names or now_s >= cut.requested_s + LONGEST_CUT_S:
                self._cuts.request(group.name, names)
                if cut is not None:
                    self._report_wait(group, [table.name for table in group.tables if not cut.is_reached(table)])
                return None
            if not all(map(cut.is_reached, group.tables)):
                return None
            offsets = {table.name: cut.offsets_of(table) for table in group.tables}
            self._cuts.end(group.name)
        publisher = GroupPublisher(self._opened(), group.name)
        last = {table.name: turn.report for table, turn in zip(group.tables, group.turns, strict=True)}
        return publisher.publish([_published(table) for table in group.tables], offsets, last=last)

    def _report_wait(self, group: _Group, behind: Sequence[str]) -> None:
        """Reports which tables the others of the group wait for."""
        tables = ", ".join(behind)
        with self._state.lock:
            for turn in group.turns:
                reason = f"the tables of the group are published at one moment, up to which are not read yet: {tables}"
                turn.report = replace(turn.report, state="waiting", reason=reason, remedy="")

    def _tagged(self, table: Table, turn: _Turn) -> PublishReport:
        """Tags a table without `publish`. The catalog is asked only where its progress has passed the time of a tag, unless
        another tool moves main.
        """
        publishing = table.spec.publishing
        complete_ms = past(table.progress.watermark.complete_to_ms, self._clock.now_ms())
        times = () if complete_ms is None else tuple(last_time_ms(tag.at, complete_ms) for tag in publishing.tags)
        if times != turn.tagged or publishing.branch != MAIN:
            self._opened().tag(published_table(table.spec))
            turn.tagged = times
        return report_of_state(publishing, table.state)

    def _opened(self) -> Publisher:
        if self._publisher is None:
            self._publisher = self._open()
        return self._publisher

    def _log(self, name: str, turn: _Turn) -> None:
        """Logs why a table is not published, once."""
        report = turn.report
        if (report.state, report.reason) == turn.logged or self._stopping.is_set():
            return
        turn.logged = (report.state, report.reason)
        if report.state in ("held", "diverged"):
            audits = [failure.name for failure in report.failed_audits]
            log.error("publish_held", table=name, reason=report.reason, audits=audits, remedy=report.remedy)
        elif report.state == "failed":
            log.warning("publish_failed", table=name, reason=report.reason, remedy=report.remedy)


def report_of_state(publishing: PublishingSpec, state: TableState | None) -> PublishReport:
    """Returns what readers of a table with a branch see, from its state alone."""
    report = PublishReport(publishing.branch, "waiting" if publishing.publish is not None else "unpublished")
    if state is None:
        return report
    if publishing.publish is not None and state.main_id is not None and is_published(state):
        report = replace(report, state="published")
    if held := state.marks.get(HELD):
        report = held_report(report, held, state.name)
    is_own = state.marks.get(PUBLISHED) == str(state.main_id)
    times = {name: number(state.marks.get(name)) if is_own else None for name in (PUBLISHED_AT, COMPLETE_TO)}
    return replace(
        report, snapshot_id=state.main_id, published_ms=times[PUBLISHED_AT], complete_to_ms=times[COMPLETE_TO]
    )
