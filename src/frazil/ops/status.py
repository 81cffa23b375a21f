"""The state of a pipeline for `frazil status`: of tables, topics and the running process.

Progress is from the tables, ends of topics from Kafka, and the rest from the state file. Nothing is changed; what is
known is reported also where a service does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from frazil.catalog.layout import partition_terms, sort_terms
from frazil.catalog.memory import MemoryCatalog
from frazil.catalog.port import Catalog
from frazil.catalog.progress import DEAD_LETTERS_MARK
from frazil.errors import FrazilError, UnavailableError, unforeseen, without_retry
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.topics import empty_patterns, missing_topics
from frazil.ingest.plan import known_lag, open_transactions
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.ops.reports import (
    MaintenanceReport,
    PipelineReport,
    Problem,
    Process,
    TableReport,
    VerificationReport,
    lag_s,
)
from frazil.ops.state_file import is_process_alive
from frazil.schema.rejected_changes import refused_changes
from frazil.spec import PipelineSpec
from frazil.spec.syntax.problems import nearest
from frazil.types import OffsetRange

NOT_RUNNING = "not running"
SILENT_AFTER_MS = 60_000
_GIVE_UP_AFTER = 2
_REMEDY = "check that the named service is running and accepts this machine; `frazil check` checks all services"
_NEVER_REMEDY = "start `frazil run`; if it was started, its log has why it ended before the first commit"
MaintenanceStatus = Callable[[Catalog, Table, Mapping[str, Any]], MaintenanceReport | None]
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
    known_state: Mapping[str, Any],
    now_ms: int,
    maintenance_status: MaintenanceStatus | None = None,
) -> PipelineReport:
    """Returns the state of every table. `catalog` is opened here, because that may fail. known_state: the state file's
    document. maintenance_status: returns the health of a loaded table, given what the process reported of its
    maintenance.
    """
    problems: list[Problem] = []
    process = find_process(known_state, now_ms)
    if process.is_silent:
        problems.append(_silence(process, now_ms))
    found = _collect(spec, source, catalog, known_state, problems, maintenance_status)
    tables = (_report(found[name], process, known_state, now_ms) for name in sorted(found))
    return PipelineReport(
        spec.pipeline, process, tuple(problems), tuple(tables), now_ms, **_of_process(known_state, process.is_running)
    )


def report_running(
    pipeline: str,
    tables: Iterable[Table],
    document: Mapping[str, Any],
    maintenance: Mapping[str, MaintenanceReport],
    now_ms: int,
) -> PipelineReport:
    """Returns the state of every table as the process that calls this published it in `document`; asks no service.
    maintenance: health and due maintenance by table, as the process last measured them.
    """
    # The document may have the end of this process already, which still sends its last metrics.
    process = find_process({**document, "ended": False}, now_ms)
    problems = (_silence(process, now_ms),) if process.is_silent else ()
    found = (_Found(table, maintenance=maintenance.get(table.name)) for table in tables)
    reports = tuple(_report(one, process, document, now_ms) for one in found)
    return PipelineReport(pipeline, process, problems, reports, now_ms, **_of_process(document))


def _of_process(document: Mapping[str, Any], is_running: bool = True) -> dict[str, Any]:
    """Returns what a running process has published of itself."""
    return {name: document.get(name) if is_running else None for name in ("leadership", "published_offsets")}


def find_process(known_state: Mapping[str, Any], now_ms: int) -> Process:
    """Returns the process that wrote the state file. A process on another machine counts as running while it keeps
    writing.
    """
    updated_ms = known_state.get("updated_ms")
    is_recent = updated_ms is not None and now_ms - updated_ms < SILENT_AFTER_MS
    alive = is_process_alive(dict(known_state))
    is_running = is_recent if alive is None else alive
    return Process(
        is_running, is_running and not is_recent, known_state.get("pid"), known_state.get("host", ""), updated_ms
    )


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
    known_state: Mapping[str, Any],
    problems: list[Problem],
    maintenance_status: MaintenanceStatus | None,
) -> dict[str, _Found]:
    with ExitStack() as stack:
        opened: Catalog | None = None
        try:
            opened = stack.enter_context(catalog)
        except UnavailableError as error:
            problems.append(problem_of(error))
        discovery = Discovery(spec, source, opened or MemoryCatalog(spec.state_dir, spec.pipeline))
        _add_remembered(spec, discovery, known_state)  # Before the topics, so that these tables get theirs too.
        cluster_id = _ask_for_topics(source, discovery, problems)
        if opened is not None:
            with suppress(FrazilError):  # What is wrong with a table is reported of the table.
                discovery.load_routes()
        found = {name: _Found(table) for name, table in discovery.tables.items()}
        if opened is not None:
            _load_all(discovery, opened, found, cluster_id)
            if maintenance_status is not None:
                _maintenance_status(maintenance_status, opened, found, known_state)
    if cluster_id:
        _measure_lags(discovery, source, found, cluster_id, problems)
        advice = MissingTopics(source)
        for table, topic in missing_topics(discovery.tables.values()):
            found[table.name].problem = advice.problem(topic)
        known = {topic for table in discovery.tables.values() for topic in table.offsets.topics}
        literals = (selector.literal for selector in spec.topics if selector.literal not in known)
        problems += [advice.problem(topic) for topic in literals if topic]
        with suppress(UnavailableError):  # It has just answered; if it no longer does, that is already reported.
            problems += map(problem_of, empty_patterns(spec, source))
    return found


def _maintenance_status(
    maintenance_status: MaintenanceStatus, catalog: Catalog, found: Mapping[str, _Found], known_state: Mapping[str, Any]
) -> None:
    is_over = is_process_alive(dict(known_state)) is False
    for name, held in found.items():
        if held.is_reached and held.table.state is not None:
            recorded = known_state.get("tables", {}).get(name, {}).get("maintenance") or {}
            if is_over:  # The failures of an ended process are in its log; actions that it left are due.
                recorded = {"last_ms": recorded.get("last_ms")}
            with suppress(UnavailableError):  # The table has just been loaded: only its figures are missing.
                held.maintenance = maintenance_status(catalog, held.table, recorded)


def _ask_for_topics(source: Source, discovery: Discovery, problems: list[Problem]) -> str:
    try:
        cluster_id = source.cluster_id()
        discovery.refresh_topics()
    except UnavailableError as error:
        problems.append(problem_of(error))
        return ""
    return cluster_id


def _add_remembered(spec: PipelineSpec, discovery: Discovery, known_state: Mapping[str, Any]) -> None:
    """Adds tables of top-level topics that only the last run can name while Kafka does not answer."""
    prefix = f"{spec.namespace}."
    for name in known_state.get("tables", {}):
        topic = name.removeprefix(prefix)
        if topic != name and any(selector.matches(topic) for selector in spec.topics):
            discovery.tables.setdefault(name, Table(spec.table_for(topic)))
        route = next((one for one in spec.routes if one.to.may_make(name)), None)
        if route is not None:
            discovery.tables.setdefault(name, Table(route.as_table(name=name, line=0)))


def known_tables(spec: PipelineSpec, source: Source, known_state: Mapping[str, Any]) -> list[Table]:
    """Returns the pipeline's tables by name, without loading them: declared tables, those of Kafka's topics, those of
    the last run.

    Raises: UnavailableError where only Kafka could name them and it does not answer.
    """
    discovery = Discovery(spec, source, MemoryCatalog(spec.state_dir, spec.pipeline))
    _add_remembered(spec, discovery, known_state)
    if spec.follows_topic_keys or any(selector.pattern for selector in spec.topics):
        problems: list[Problem] = []
        _ask_for_topics(source, discovery, problems)
        if problems and not known_state.get("tables"):
            raise UnavailableError(problems[0].message, remedy=problems[0].remedy, where=problems[0].where)
    for topic in (selector.literal for selector in spec.topics):
        if topic is not None:
            discovery.tables.setdefault(f"{spec.namespace}.{topic}", Table(spec.table_for(topic)))
    return [discovery.tables[name] for name in sorted(discovery.tables)]


def _load_all(discovery: Discovery, catalog: Catalog, found: Mapping[str, _Found], cluster_id: str) -> None:
    """Loads every table; after a second failure the remaining ones are not requested, because each would wait for its
    own time-out.
    """
    failures = 0
    for held in found.values():
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
        _count_dead_letters(catalog, table)


def _count_dead_letters(catalog: Catalog, table: Table) -> None:
    name = table.state.marks.get(DEAD_LETTERS_MARK) if table.state is not None else None
    if name and catalog.load(name) is not None:
        table.catalog.dead_letter_count = catalog.size(name).row_count


def _measure_lags(
    discovery: Discovery, source: Source, found: Mapping[str, _Found], cluster_id: str, problems: list[Problem]
) -> None:
    try:
        partitions = {partition for held in found.values() for partition in held.table.partitions()}
        log_ends = source.log_ends(partitions)
        ends = source.ends(partitions)
        for held in found.values():
            held.is_comparable = _is_comparable(held.table, cluster_id)
            if held.is_reached and held.is_comparable:
                discovery.add_first_offsets(held.table)
                position = held.table.position()
                held.open_transactions = open_transactions(position, ends, log_ends)
                held.lag_records = known_lag(position, ends, held.open_transactions)
    except UnavailableError as error:
        problems.append(problem_of(error))


def _is_comparable(table: Table, cluster_id: str) -> bool:
    """Whether the table's offsets mean something in the topics: they do not where one was deleted, or recreated."""
    return table.has_its_topics and table.progress.cluster_id in ("", cluster_id)


# ---- report


def _report(found: _Found, process: Process, document: Mapping[str, Any], now_ms: int) -> TableReport:
    """Returns the state of a table: from the table and Kafka; what they could not answer, as the process last reported
    it.
    """
    table, progress, stored = found.table, found.table.progress, found.table.state
    known_state: Mapping[str, Any] = document.get("tables", {}).get(table.name, {})
    recorded = (
        Problem(known_state["reason"], known_state["remedy"], known_state["where"])
        if known_state.get("reason")
        else None
    )
    state = _state(found, known_state, process, document.get("updated_ms") or 0)
    is_unfed = _is_without_rows(found, known_state)
    size = _size(found, known_state)
    remembered_lag = known_state.get("lag_records") if process.is_running else None
    is_remembered = found.lag_records is None or is_unfed
    lag = remembered_lag if is_remembered and remembered_lag is not None and found.is_comparable else found.lag_records
    committed = bool(progress.offsets) if found.is_reached else known_state.get("committed")
    waiting = found.open_transactions if found.lag_records is not None else _recorded_ranges(known_state)
    is_current = state == known_state.get("state") or is_unfed
    problem = recorded if is_current and recorded else found.problem or _loss(found, known_state)
    if problem is None and state == NOT_RUNNING and lag != 0:
        problem = _unread(found, known_state, recorded, committed, document.get("updated_ms") or 0)
    is_note = problem is recorded and state not in _BAD_STATES
    watermark_ms = progress.watermark.complete_to_ms if found.is_reached else known_state.get("watermark_ms")
    verification = _verification(known_state.get("verification"))
    differs = verification is not None and verification.is_equal is False
    return TableReport(
        name=table.name,
        state=state,
        is_well=state not in _BAD_STATES and (problem is None or is_note) and not differs,
        problem=problem,
        topics=tuple(sorted(table.offsets.topics) or known_state.get("topics", ())),
        lag_records=lag,
        open_transactions=waiting if lag else (),
        lag_s=lag_s(lag, watermark_ms, known_state.get("behind_since_ms"), now_ms),
        watermark_ms=watermark_ms,
        committed=committed,
        last_commit_ms=progress.committed_at_ms if found.is_reached else known_state.get("last_commit_ms"),
        rows=size.get("live_row_count"),
        files=size.get("file_count"),
        size_bytes=size.get("size_bytes"),
        snapshots=size.get("snapshot_count"),
        dropped_fields=tuple(known_state.get("dropped_fields", ())),
        dead_letters=table.catalog.dead_letter_count if found.is_reached else known_state.get("dead_letters"),
        bad_skipped=progress.bad_skipped if found.is_reached else known_state.get("bad_skipped"),
        skipped_offsets=known_state.get("skipped_offsets"),
        ignored_records=progress.ignored_records if found.is_reached else known_state.get("ignored_records"),
        expectations=progress.unmet if found.is_reached else known_state.get("expectations"),
        stale=_stale(table, now_ms),
        refused_changes=tuple(refused_changes(known_state.get("refused_changes", ()))),
        rest_records=progress.rest_records if found.is_reached else known_state.get("rest_records"),
        last_upsert=known_state.get("last_upsert"),
        maintenance=found.maintenance,
        verification=verification,
        partition_spec=partition_terms(stored.partitioning, stored.schema) if stored is not None else None,
        sort_order=sort_terms(stored.sorting, stored.schema) if stored is not None else None,
    )


def _state(found: _Found, known_state: Mapping[str, Any], process: Process, said_at_ms: int) -> str:
    if process.is_running:
        return str(known_state.get("state", RunState.WAITING.value))
    # What stopped a table stops the next run too, unless another process has committed to it since.
    is_stopped = known_state.get("state") == RunState.STOPPED and not _has_moved_on(found, said_at_ms)
    return RunState.STOPPED.value if is_stopped else NOT_RUNNING


def _has_moved_on(found: _Found, said_at_ms: int) -> bool:
    """Whether another process has committed to the table since its state was recorded."""
    return (found.table.progress.committed_at_ms or 0) > said_at_ms


def _unread(
    found: _Found, known_state: Mapping[str, Any], recorded: Problem | None, committed: bool | None, said_at_ms: int
) -> Problem | None:
    """Returns why records of a pipeline that is not running wait, where its last run could not read them or none has
    read any; None where they only wait for the next run.
    """
    if known_state.get("state") == RunState.BACKING_OFF and recorded and not _has_moved_on(found, said_at_ms):
        return replace(recorded, message=f"the last run ended while the table was backing off: {recorded.message}")
    if committed is False:
        return Problem("no run has committed to the table yet", _NEVER_REMEDY, found.table.name)
    return None


def _recorded_ranges(known_state: Mapping[str, Any]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(**one) for one in known_state.get("open_transactions", ()))


def _is_without_rows(found: _Found, known_state: Mapping[str, Any]) -> bool:
    """Whether the last process has read the table's records without finding a row, so that the table does not exist: what
    it has read is recorded by no table.
    """
    return found.is_reached and found.table.state is None and known_state.get("state") == RunState.WAITING


def _verification(recorded: Mapping[str, Any] | None) -> VerificationReport | None:
    """Returns what a process has recorded, which may be one of another version with other keys."""
    known = {field.name for field in fields(VerificationReport)}
    return VerificationReport(**{name: recorded[name] for name in known & recorded.keys()}) if recorded else None


def _loss(found: _Found, known_state: Mapping[str, Any]) -> Problem | None:
    if not found.is_reached or found.table.state is not None or known_state.get("last_commit_ms") is None:
        return None
    return Problem(
        "the table no longer exists", "find out who dropped the table; `frazil run` creates it again", found.table.name
    )


def _size(found: _Found, known_state: Mapping[str, Any]) -> Mapping[str, int]:
    size = found.table.catalog.size
    if found.is_reached:
        return {} if size is None else {**vars(size), "live_row_count": size.live_row_count}
    recorded: Mapping[str, int] = known_state.get("size") or {}
    if "row_count" not in recorded:
        return recorded
    return {**recorded, "live_row_count": max(recorded["row_count"] - recorded.get("deleted_row_count", 0), 0)}


def _stale(table: Table, now_ms: int) -> dict[str, float]:
    """Returns the age of the newest record in seconds, by the expectations that it is too great for."""
    times = [ms for partitions in table.progress.watermark.partitions.values() for ms in partitions.values()]
    age_s = (now_ms - max(times)) / 1000 if times else 0.0
    return {one.name: age_s for one in table.spec.expect if one.max_age_s is not None and age_s > one.max_age_s}
