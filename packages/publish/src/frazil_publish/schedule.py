"""Publishes the tables of a running pipeline, each as often as its pipeline file wants. Ingestion never waits for it.

One thread audits and publishes the tables that are due, one after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from frazil.catalog.maintenance_port import Transfer
from frazil.clock import Clock
from frazil.errors import FrazilError, UnavailableError, unforeseen
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import transfer_of
from frazil.ops.observers import Observer
from frazil.ops.pipeline_status import Reports
from frazil.ops.seen_by_readers import PublishReport, report_of_state
from frazil.spec.models import TableSpec
from frazil.stages.table import table_stages
from frazil.types import MAIN, Offsets, by_partition
from frazil_publish.groups import GroupPublisher
from frazil_publish.publisher import Published, Publisher
from frazil_publish.tags import last_time_ms, past
from frazil_publish.transactions import TransactionCuts

_NAP_S = 0.5
_STOP_S = 2.0
_TAG_EVERY_S = 60.0
LONGEST_CUT_S = 60.0
"""How long the tables of a group are waited for until another moment is chosen."""
RETRY_S = 10.0
"""The longest time until a table is tried again whose catalog did not answer, or that another process has published."""
_OF_GROUP = " of the source, at whose end the tables of the group are published"
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


def _not_read(behind: Sequence[str]) -> str:
    """Returns why a group waits for these tables."""
    tables = ", ".join(behind)
    return f"the tables of the group are published at one moment, up to which are not read yet: {tables}"


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

    @property
    def transaction_topic(self) -> str | None:
        """Debezium's topic of transactions, at whose ends the tables are published."""
        publish = self.tables[0].spec.publishing.publish
        return None if publish is None else publish.transaction_topic

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


class PublishSchedule(Observer):
    """Decides which table is published when. The first `take_tables` with such a table starts the thread, `stop` ends it.

    open_publisher: opens the services for the thread alone.
    """

    def __init__(
        self,
        open_publisher: Callable[[], Publisher],
        clock: Clock,
        on_publish: Callable[[str], None] = lambda _: None,
        has_thread: bool = True,
        cuts: Cuts | None = None,
        open_transactions: Callable[[], TransactionCuts] | None = None,
    ) -> None:
        """on_publish: called with the name of a table that was published. cuts: ends batches of a group's tables at one
        moment; None where their newest snapshots are of one. open_transactions: opens what moves such a moment to the end of
        a transaction. has_thread: False for a run that only catches up, and publishes at its end.
        """
        self._has_thread, self._cuts = has_thread, cuts
        self._open, self._open_transactions = open_publisher, open_transactions
        self._transactions: TransactionCuts | None = None
        self._clock = clock
        self._on_publish = on_publish
        self._publisher: Publisher | None = None
        self._tables: Sequence[Table] = ()
        self._state = _Turns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="publish", daemon=True)

    def take_tables(self, tables: Sequence[Table]) -> None:
        """See Observer."""
        self._tables = [table for table in tables if table.spec.publishing.branch != MAIN or table.spec.publishing.tags]
        has_work = any(table.spec.publishing.publish or table.spec.publishing.tags for table in self._tables)
        if self._has_thread and self._thread.ident is None and has_work:
            self._thread.start()

    def stop(self) -> None:
        """Publishes no further table; the current one has two seconds to end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def reports(self) -> Reports:
        """See Observer."""
        with self._state.lock:
            return {"publishing": {name: turn.report for name, turn in self._state.turns.items()}}

    def kept_snapshots(self, table: str) -> tuple[int, ...]:
        """Returns the snapshots of a table that are being audited."""
        publisher = self._publisher
        snapshot_id = None if publisher is None else publisher.auditing.get(table)
        return () if snapshot_id is None else (snapshot_id,)

    def finish(self, is_stopped: Callable[[], bool], wait_s: float) -> None:
        """Publishes every table at the end of a run that has only caught up. is_stopped: whether the run has to end. wait_s:
        how long a table is tried again that another process moves, or whose services do not answer; RETRY_S at least.

        Raises: UnavailableError where a table could not be published in that time.
        """
        if self._has_thread:
            return
        until_s = self._clock.monotonic_s() + max(wait_s, RETRY_S)
        self._run_last(is_stopped)
        while (failing := self._failing()) and not is_stopped():
            if self._clock.monotonic_s() >= until_s:
                name, report = failing[0]
                raise UnavailableError(f"the table is not published: {report.reason}", remedy=report.remedy, where=name)
            self._clock.sleep(_NAP_S)
            self._run_last(is_stopped, {name for name, _ in failing})

    def _run_last(self, is_stopped: Callable[[], bool], names: Container[str] | None = None) -> None:
        """Publishes in a thread that nobody waits for once the run has to end: an audit may take half an hour."""
        self._thread = threading.Thread(
            target=self.run_due, args=(True, is_stopped, names), name="publish", daemon=True
        )
        self._thread.start()
        while self._thread.is_alive() and not is_stopped():
            self._thread.join(_NAP_S / 10)

    def _failing(self) -> list[tuple[str, PublishReport]]:
        with self._state.lock:
            return [(name, turn.report) for name, turn in self._state.turns.items() if turn.report.state == "failed"]

    def run_due(
        self,
        is_last: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
        names: Container[str] | None = None,
    ) -> None:
        """Publishes every table that is due. is_last: each. is_stopped: as of `finish`. names: only these tables, and
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
            self._report_wait(group, _not_read(stopped))
            return None
        if group.is_last and not self._ends_whole(group):
            self._report_wait(group, f"the run has caught up inside of a transaction{_OF_GROUP}")
            return None
        if self._cuts is not None and not group.is_last:
            offsets = self._reached(group, self._cuts)
            if offsets is None:
                return None
        publisher = GroupPublisher(self._opened(), group.name)
        last = {table.name: turn.report for table, turn in zip(group.tables, group.turns, strict=True)}
        reports = publisher.publish([_published(table) for table in group.tables], offsets, last=last)
        if reports is None:
            self._report_wait(group, "a table no longer has a snapshot of the last moment; the next one is published")
        return reports

    def _reached(self, group: _Group, cuts: Cuts) -> Mapping[str, Offsets] | None:
        """Returns by table the offsets of the group's cut, once all tables have reached it; begins one where there is none,
        or tables take too long.

        Raises: as TransactionCuts.close.
        """
        names, topic = {table.name for table in group.tables}, group.transaction_topic
        cut = cuts.of(group.name)
        if cut is None or cut.tables != names or self._clock.monotonic_s() >= cut.requested_s + LONGEST_CUT_S:
            cuts.request(group.name, names, is_moved=topic is not None)
            if cut is not None:
                is_open = bool(cut.moment) and not cut.bounds
                behind = [table.name for table in group.tables if not cut.is_reached(table)]
                self._report_wait(group, f"a transaction{_OF_GROUP}, is not complete" if is_open else _not_read(behind))
            return None
        if topic is not None and cut.moment and not cut.bounds:
            bounds = self._closer().close(group.name, cut.moment, group.tables, topic)
            if bounds is not None:
                cuts.move(group.name, cut, bounds)
            return None
        if not all(map(cut.is_reached, group.tables)):
            return None
        cuts.end(group.name)
        return {table.name: cut.offsets_of(table) for table in group.tables}

    def _ends_whole(self, group: _Group) -> bool:
        """Whether no transaction of the source is in a part of what the group's tables have read."""
        if group.transaction_topic is None:
            return True
        read = {place: offset for table in group.tables for place, offset in by_partition(table.position()).items()}
        return self._closer().close(group.name, read, group.tables, group.transaction_topic) == read

    def _closer(self) -> TransactionCuts:
        if self._transactions is None:
            assert self._open_transactions is not None
            self._transactions = self._open_transactions()
        return self._transactions

    def _report_wait(self, group: _Group, reason: str) -> None:
        """Reports what the tables of the group wait for."""
        with self._state.lock:
            for turn in group.turns:
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
