"""The state of a pipeline for `frazil status`: of tables, topics and the running process.

Progress is from the tables, ends of topics from Kafka, and the rest from the state file. Nothing is changed; what is
known is reported also where a service does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property

from frazil.catalog.layout import partition_terms, sort_terms
from frazil.catalog.port import Catalog, catalog_without_tables
from frazil.catalog.progress import DEAD_LETTERS_MARK
from frazil.dead_letters.files import count_waiting
from frazil.errors import FrazilError, SpecError, UnavailableError, unforeseen, without_retry
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.topics import empty_patterns, missing_topics
from frazil.ingest.plan import known_lag, open_transactions
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.maintenance.due import RoundsStatus
from frazil.ops.pipeline_status import (
    Derived,
    Lag,
    MaintenanceReport,
    PipelineReport,
    Process,
    ProcessState,
    TableCondition,
    TableStatus,
    progress_of,
    shown_reports,
)
from frazil.ops.reports import Problem
from frazil.ops.state_file import is_process_alive
from frazil.printable import counted
from frazil.schema.conflicts import refused_changes
from frazil.spec import PipelineSpec
from frazil.spec.syntax.problems import nearest
from frazil.types import OffsetRange

NOT_RUNNING = "not running"
SILENT_AFTER_MS = 60_000
_GIVE_UP_AFTER = 2
_REMEDY = "check that the named service is running and accepts this machine; `frazil check` checks all services"
_NEVER_REMEDY = "start `frazil run`; if it was started, its log has why it ended before the first commit"
MaintenanceStatus = Callable[[Catalog, Table, RoundsStatus], MaintenanceReport | None]
_BAD_STATES = (RunState.STOPPED, RunState.BACKING_OFF)
_MOST_COMPARED = 20


class MissingTopics:
    """Remedies for topics that do not exist, or that the broker hides from this client. Kafka is asked for topic names
    once, and only the first missing topics are compared with them: among thousands of topics a comparison takes a third
    of a second.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = _MOST_COMPARED

    def remedy(self, name: str) -> str:
        """Returns the remedy, with the topic that `name` most probably means.

        Raises: UnavailableError where Kafka does not answer.
        """
        self._left -= 1
        near = nearest(name, self._names) if self._left >= 0 else None
        advice = f"did you mean `{near}`? otherwise " if near else ""
        return f"{advice}create the topic, correct its name, or let this client describe it"

    def problem(self, name: str) -> Problem:
        """Returns the problem that the topic does not exist."""
        remedy = "create the topic, or correct its name in the pipeline file"
        with suppress(UnavailableError):
            remedy = self.remedy(name)
        return Problem(f"topic {name} does not exist", remedy, f"topic {name}")

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._source.topics(lambda topic: not topic.startswith("__")))


@dataclass(frozen=True)
class Shown:
    """What of a pipeline is shown."""

    #: The name of the one table; None for all tables.
    only: str | None = None
    #: Receives which table is loaded.
    note: Callable[[str], None] = lambda _: None

    def chosen(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """Returns the tables that are shown, by name.

        Raises: SpecError where none has the name.
        """
        if self.only is None:
            return dict(tables)
        if self.only not in tables:
            raise no_such_table(self.only, tables)
        return {self.only: tables[self.only]}


def no_such_table(name: str, names: Iterable[str]) -> SpecError:
    """Returns the error of a name that none of the pipeline's tables has."""
    near = nearest(name, [*names])
    hint = f"did you mean `{near}`?" if near else "see the tables in the pipeline file"
    return SpecError(f"the pipeline has no table `{name}`", remedy=hint)


@dataclass
class _Found:
    """One table as far as it could be loaded."""

    table: Table
    #: Whether the catalog returned it.
    is_reached: bool = False
    problem: Problem | None = None
    maintenance: MaintenanceReport | None = None
    lag_records: int | None = None
    open_transactions: tuple[OffsetRange, ...] = ()
    #: Whether its offsets are those of the topics that exist now.
    is_comparable: bool = True


def report_pipeline(
    spec: PipelineSpec,
    source: Source,
    catalog: AbstractContextManager[Catalog],
    state: ProcessState,
    now_ms: int,
    maintenance_status: MaintenanceStatus | None = None,
    shown: Shown = Shown(),
) -> PipelineReport:
    """Returns the state of every table. `catalog` is opened here, because that may fail. state: what the state file has.
    maintenance_status: returns the health of a loaded table, given what the process reported of its maintenance. shown:
    which tables.

    Raises: SpecError where only a table is shown that does not exist.
    """
    problems: list[Problem] = []
    process = find_process(state, now_ms)
    if process.is_silent:
        problems.append(_silence(process, now_ms))
    facts_by_name = _collect(spec, source, catalog, state, problems, maintenance_status, shown)
    tables = tuple(_report(facts_by_name[name], process, state, now_ms) for name in sorted(facts_by_name))
    published = state if process.is_running else ProcessState()
    return PipelineReport(
        spec.pipeline, process, tuple(problems), tables, now_ms, published.leadership, published.published_offsets
    )


def report_running(
    pipeline: str,
    tables: Iterable[Table],
    state: ProcessState,
    maintenance: Mapping[str, MaintenanceReport],
    now_ms: int,
) -> PipelineReport:
    """Returns the state of every table as the process that calls this published it in `state`; asks no service.
    maintenance: health and due maintenance by table, as the process last measured them.
    """
    # The state may have the end of this process already, which still sends its last metrics.
    process = find_process(replace(state, ended=False), now_ms)
    problems = (_silence(process, now_ms),) if process.is_silent else ()
    all_facts = (_Found(table, maintenance=maintenance.get(table.name)) for table in tables)
    reports = tuple(_report(facts, process, state, now_ms) for facts in all_facts)
    return PipelineReport(pipeline, process, problems, reports, now_ms, state.leadership, state.published_offsets)


def find_process(state: ProcessState, now_ms: int) -> Process:
    """Returns the process that wrote the state file. A process on another machine counts as running while it keeps
    writing.
    """
    is_recent = state.updated_ms is not None and now_ms - state.updated_ms < SILENT_AFTER_MS
    alive = is_process_alive(state)
    is_running = is_recent if alive is None else alive
    return Process(is_running, is_running and not is_recent, state.pid, state.host, state.updated_ms)


def _silence(process: Process, now_ms: int) -> Problem:
    seconds = (now_ms - (process.updated_ms or 0)) // 1000
    return Problem(
        f"the running process has not written its state for {seconds} s",
        "check whether it is stopped (SIGSTOP) or starved; if it hangs, end it and start `frazil run` again",
        f"pid {process.pid} on {process.host}",
    )


def problem_of(error: FrazilError | TableStopped) -> Problem:
    """Returns the error as a problem, without the advice that a running pipeline retries."""
    reason, remedy, where = describe_error(error)
    return Problem(reason, _REMEDY if remedy == UnavailableError().remedy else without_retry(remedy), where)


# ---- loading


def _collect(
    spec: PipelineSpec,
    source: Source,
    catalog: AbstractContextManager[Catalog],
    state: ProcessState,
    problems: list[Problem],
    maintenance_status: MaintenanceStatus | None,
    shown: Shown,
) -> dict[str, _Found]:
    with ExitStack() as stack:
        opened: Catalog | None = None
        try:
            opened = stack.enter_context(catalog)
        except UnavailableError as error:
            problems.append(problem_of(error))
        discovery = Discovery(spec, source, opened or catalog_without_tables())
        _add_remembered(spec, discovery, state)  # Before the topics, so that these tables get theirs too.
        cluster_id = _ask_for_topics(source, discovery, problems)
        if opened is not None:
            with suppress(FrazilError):  # What is wrong with a table is reported of the table.
                discovery.load_derived()
        facts_by_name = {name: _Found(table) for name, table in shown.chosen(discovery.tables).items()}
        if opened is not None:
            _load_all(discovery, opened, facts_by_name, cluster_id, shown.note)
            if maintenance_status is not None:
                _maintenance_status(maintenance_status, opened, facts_by_name, state)
    if cluster_id:
        _measure_lags(discovery, source, facts_by_name, cluster_id, problems)
        advice = MissingTopics(source)
        for table, topic in missing_topics([held.table for held in facts_by_name.values()]):
            facts_by_name[table.name].problem = advice.problem(topic)
    if cluster_id and shown.only is None:
        known_topics = {topic for table in discovery.tables.values() for topic in table.offsets.topics}
        literals = (selector.literal for selector in spec.selected.topics if selector.literal not in known_topics)
        problems += [advice.problem(topic) for topic in literals if topic]
        with suppress(UnavailableError):  # It has just answered; if it no longer does, that is already reported.
            problems += map(problem_of, empty_patterns(spec, source))
    return facts_by_name


def _maintenance_status(
    maintenance_status: MaintenanceStatus, catalog: Catalog, facts_by_name: Mapping[str, _Found], state: ProcessState
) -> None:
    is_over = is_process_alive(state) is False
    for name, held in facts_by_name.items():
        if held.is_reached and held.table.state is not None:
            rounds = state.table(name).recorded.maintenance
            if is_over:  # The failures of an ended process are in its log; actions that it left are due.
                rounds = RoundsStatus(rounds.last_ms)
            with suppress(UnavailableError):  # The table has just been loaded: only its figures are missing.
                held.maintenance = maintenance_status(catalog, held.table, rounds)


def _ask_for_topics(source: Source, discovery: Discovery, problems: list[Problem]) -> str:
    try:
        cluster_id = source.cluster_id()
        discovery.refresh_topics()
    except UnavailableError as error:
        problems.append(problem_of(error))
        return ""
    return cluster_id


def _add_remembered(spec: PipelineSpec, discovery: Discovery, state: ProcessState) -> None:
    """Adds tables of top-level topics that only the last run can name while Kafka does not answer."""
    prefix = f"{spec.selected.namespace}."
    for name in state.tables:
        topic = name.removeprefix(prefix)
        if topic != name and any(selector.matches(topic) for selector in spec.selected.topics):
            discovery.tables.setdefault(name, Table(spec.table_for(topic)))
        named = spec.named_table(name)
        if named is not None:
            discovery.tables.setdefault(name, Table(named))


def known_tables(spec: PipelineSpec, source: Source, state: ProcessState) -> list[Table]:
    """Returns the pipeline's tables by name, without loading them: declared tables, those of Kafka's topics, those of
    the last run.

    Raises: UnavailableError where only Kafka could name them and it does not answer.
    """
    discovery = Discovery(spec, source, catalog_without_tables())
    _add_remembered(spec, discovery, state)
    if spec.selected.follows_topic_keys or any(selector.pattern for selector in spec.selected.topics):
        problems: list[Problem] = []
        _ask_for_topics(source, discovery, problems)
        if problems and not state.tables:
            raise UnavailableError(problems[0].message, remedy=problems[0].remedy, where=problems[0].where)
    for topic in (selector.literal for selector in spec.selected.topics):
        if topic is not None:
            discovery.tables.setdefault(f"{spec.selected.namespace}.{topic}", Table(spec.table_for(topic)))
    return [discovery.tables[name] for name in sorted(discovery.tables)]


def _load_all(
    discovery: Discovery,
    catalog: Catalog,
    facts_by_name: Mapping[str, _Found],
    cluster_id: str,
    note: Callable[[str], None],
) -> None:
    """Loads every table; after a second failure the remaining ones are not requested, because each would wait for its
    own time-out.
    """
    failures = 0
    for number, held in enumerate(facts_by_name.values(), 1):
        note(counted(f"loading {held.table.name}", number, len(facts_by_name)))
        if failures >= _GIVE_UP_AFTER:
            held.problem = Problem("the catalog does not answer", "see the tables above", held.table.name)
            continue
        try:
            _load(discovery, catalog, held.table, cluster_id)
            held.is_reached = True
        except TableStopped as error:
            held.problem = problem_of(error)
            held.is_reached = held.table.state is not None
        except UnavailableError as error:
            held.problem = problem_of(error)
            failures += 1
        except FrazilError as error:
            held.problem = problem_of(error)
        except Exception as error:  # noqa: BLE001  (whatever is wrong with one table, the others are loaded)
            held.problem = problem_of(unforeseen(error, held.table.name))


def _load(discovery: Discovery, catalog: Catalog, table: Table, cluster_id: str) -> None:
    try:
        if cluster_id:
            discovery.load(table, cluster_id)
        else:
            table.state = catalog.load(table.name)
    finally:
        if table.state is not None and table.catalog.size is None:  # Also of a table that a run would stop.
            table.catalog.size = catalog.size(table.name)
        name = table.state.marks.get(DEAD_LETTERS_MARK) if table.state is not None else None
        dead_letters = catalog.load(name) if name else None
        if name and dead_letters is not None:
            table.catalog.dead_letter_count = catalog.size(name).row_count
            if table.spec.query.waits:
                table.catalog.waiting_count = count_waiting(catalog, dead_letters)


def _measure_lags(
    discovery: Discovery, source: Source, facts_by_name: Mapping[str, _Found], cluster_id: str, problems: list[Problem]
) -> None:
    try:
        partitions = {partition for held in facts_by_name.values() for partition in held.table.partitions()}
        log_ends = source.log_ends(partitions)
        ends = source.ends(partitions)
        for held in facts_by_name.values():
            # Offsets mean nothing where a topic was deleted, or recreated.
            held.is_comparable = held.table.has_its_topics and held.table.progress.cluster_id in ("", cluster_id)
            if held.is_reached and held.is_comparable:
                discovery.add_first_offsets(held.table)
                position = held.table.position()
                held.open_transactions = open_transactions(position, ends, log_ends)
                held.lag_records = known_lag(position, ends, held.open_transactions)
    except UnavailableError as error:
        problems.append(problem_of(error))


# ---- report


def _report(facts: _Found, process: Process, state: ProcessState, now_ms: int) -> TableStatus:
    """Returns the status of a table: from the table and Kafka; what they could not answer, as the process last reported
    it.
    """
    table, stored = facts.table, facts.table.state
    last = state.table(table.name)
    run_state = _state(facts, last, process, state.updated_ms or 0)
    # The last process has read the records without finding a row, and no table records what it has read.
    is_unfed = facts.is_reached and facts.table.state is None and last.condition.state == RunState.WAITING
    note = last.condition.problem if run_state == last.condition.state or is_unfed else None
    problem = note or facts.problem or _loss(facts, last)
    lag = _lag(facts, last, is_remembered=process.is_running and (facts.lag_records is None or is_unfed))
    status = replace(last, lag=lag, progress=progress_of(table) if facts.is_reached else last.progress)
    if problem is None and run_state == NOT_RUNNING and lag.lag_records != 0:
        problem = _unread(facts, status, state.updated_ms or 0)
    reports = shown_reports(table, last.recorded)
    is_right = all(report is None or report.is_well for report in reports.values())
    size = table.catalog.size if facts.is_reached else last.recorded.size
    reason = problem or Problem("")
    return replace(
        status,
        condition=TableCondition(run_state, reason.message, reason.remedy, reason.where),
        derived=Derived(
            is_well=run_state not in _BAD_STATES and problem in (None, note) and is_right,
            lag_s=status.lag_s(now_ms),
            rows=size.live_row_count if size else None,
            files=size.file_count if size else None,
            size_bytes=size.size_bytes if size else None,
            average_file_bytes=round(size.size_bytes / size.file_count) if size and size.file_count else None,
            snapshots=size.snapshot_count if size else None,
            partition_spec=partition_terms(stored.partitioning, stored.schema) if stored is not None else None,
            sort_order=sort_terms(stored.sorting, stored.schema) if stored is not None else None,
            stale=_stale(table, now_ms),
            refused_changes=tuple(refused_changes(last.recorded.refused_changes)),
            maintenance=facts.maintenance,
            **reports,
        ),
    )


def _lag(facts: _Found, last: TableStatus, is_remembered: bool) -> Lag:
    """Returns the lag as measured, or, where it `is_remembered`, as the process measured it, for topics that are still the
    same ones.
    """
    lag_records, waiting = facts.lag_records, facts.open_transactions
    if is_remembered and facts.is_comparable and last.lag.lag_records is not None:
        lag_records = last.lag.lag_records
    if facts.lag_records is None:
        waiting = last.lag.open_transactions
    topics = tuple(sorted(facts.table.offsets.topics)) or last.lag.topics
    return Lag(topics, lag_records, waiting if lag_records else ())


def _state(facts: _Found, last: TableStatus, process: Process, recorded_at_ms: int) -> str:
    if process.is_running:
        return last.condition.state
    # What stopped a table stops the next run too, unless another process has committed to it since.
    is_stopped = last.condition.state == RunState.STOPPED and not _has_moved_on(facts, recorded_at_ms)
    return RunState.STOPPED.value if is_stopped else NOT_RUNNING


def _has_moved_on(facts: _Found, recorded_at_ms: int) -> bool:
    """Whether another process has committed to the table since its state was recorded."""
    return (facts.table.progress.committed_at_ms or 0) > recorded_at_ms


def _unread(facts: _Found, status: TableStatus, recorded_at_ms: int) -> Problem | None:
    """Returns why records of a pipeline that is not running wait, where its last run could not read them or none has
    read any; None where they only wait for the next run.
    """
    reason = status.condition.problem
    if status.condition.state == RunState.BACKING_OFF and reason and not _has_moved_on(facts, recorded_at_ms):
        message = f"the last run ended while the table was backing off: {reason.message}"
        return replace(reason, message=message, remedy=without_retry(reason.remedy))
    if status.progress.committed is False:
        return Problem("no run has committed to the table yet", _NEVER_REMEDY, facts.table.name)
    return None


def _loss(facts: _Found, last: TableStatus) -> Problem | None:
    if not facts.is_reached or facts.table.state is not None or last.progress.last_commit_ms is None:
        return None
    return Problem(
        "the table no longer exists", "find out who dropped the table; `frazil run` creates it again", facts.table.name
    )


def _stale(table: Table, now_ms: int) -> dict[str, float]:
    """Returns the age of the newest record in seconds, by the names that it is too great for."""
    times = [ms for partitions in table.progress.watermark.partitions.values() for ms in partitions.values()]
    age_s = (now_ms - max(times)) / 1000 if times else 0.0
    return {name: age_s for stage in table.spec.stage_settings.values() for name in stage.outdated(age_s)}


def find_tables(spec: PipelineSpec, source: Source, state: ProcessState, name: str | None) -> list[Table]:
    """Returns the pipeline's tables, or the one of this name, for which Kafka is not asked. state: what the state
    file has, for when Kafka does not answer.

    Raises: SpecError for a name that no table of the pipeline has.
    """
    if name is not None:
        topic = name.removeprefix(f"{spec.selected.namespace}.")
        mine = [table for table in spec.tables if table.name == name]
        if topic != name and any(selector.matches(topic) for selector in spec.selected.topics):
            mine.append(spec.table_for(topic))
        if mine:
            return [Table(mine[0])]
    try:
        tables = known_tables(spec, source, state)
    except UnavailableError:  # Only Kafka could name the tables of `topics`.
        tables = [Table(table) for table in spec.tables]
    named = [table for table in tables if name in (None, table.name)]
    if named or name is None:
        return named
    raise no_such_table(name, [table.name for table in tables])
