"""`frazil repair`: makes the rows of a table those of its records, where a report names differences.

The table is judged again first: only differences that the report names and that still exist are mended. They are mended
in one commit under the protocol of every commit, so that a batch of a running pipeline and a repair cannot both build on
the same state. The commit carries the report's signature: a report that was applied is not applied again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from frazil.api.wiring import catalog_for_reading, known_state, open_topics, read_spec
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.port import TableState
from frazil.catalog.progress import is_recorded, key
from frazil.catalog.scans import LiveFile
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.clock import new_id
from frazil.dead_letters.tables import DeadLetterTables
from frazil.errors import ConflictError, SpecError
from frazil.failpoints import hit
from frazil.ingest.tables.table import Table
from frazil.kafka.outbox import KafkaOutbox
from frazil.ledger import MODULUS
from frazil.ops.audit import record_command
from frazil.ops.status import find_tables
from frazil.printable import plural
from frazil.schema.arrow import Ints
from frazil.spec import PipelineSpec
from frazil.types import Commit, DataFile, DeleteFile, Progress, RowDelta, by_partition
from frazil.upsert.lookup.delete_files import bits_of, live_rows, write_deletes
from frazil.write.digests import row_hashes
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from frazil_replay.snapshots import FilePosition, FileRows, read_rows
from frazil_verify.copies import has_lost_records
from frazil_verify.findings import Finding, Kind
from frazil_verify.history import read_history
from frazil_verify.independent.judge import Judge, Judgement, Repair
from frazil_verify.independent.rules import NotJudged
from frazil_verify.independent.stored import RowsNotReadable
from frazil_verify.independent.topic import Range, TopicNotReadable
from frazil_verify.judging import judge_of
from frazil_verify.ledger_check import REPAIR_ID
from frazil_verify.opened import Level, Opened, Options
from frazil_verify.report import read_report
from frazil_verify.routed import with_values

PLANNED = 4
_OLDEST = 2
_MOST_TRIES = 10
_SHOWN = 20


@dataclass(frozen=True)
class RepairPlan:
    """What a repair adds and removes."""

    table: str
    #: The signature of the report.
    report: str
    repairs: tuple[Repair, ...] = ()
    #: The differences that are mended.
    findings: tuple[Finding, ...] = ()
    #: Whether the report was applied before.
    is_applied: bool = False
    #: Whether this call has applied it.
    is_done: bool = False
    #: What was found when the table was judged again.
    judgement: Judgement = field(default_factory=Judgement, repr=False)

    @property
    def added(self) -> list[Mapping[str, Any]]:
        """The rows to be added."""
        return [repair.added for repair in self.repairs if repair.added is not None]

    @property
    def removed(self) -> Counter[int]:
        """How many rows of each hash are to be removed."""
        return Counter(repair.removed for repair in self.repairs if repair.removed is not None)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the plan."""
        return {
            "table": self.table,
            "report": self.report,
            "add": len(self.added),
            "remove": self.removed.total(),
            "applied": self.is_applied or self.is_done,
            "findings": [finding.document() for finding in self.findings],
        }


def command(
    output: Output,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.")],
    report: Annotated[Path, typer.Option("--from", metavar="REPORT", help="A report of `frazil verify`, as JSON.")],
    file: SpecFile = DEFAULT_FILE,
    apply: Annotated[bool, typer.Option("--apply", help="Commit the plan.")] = False,
) -> int:
    """Repair the differences in a report of `frazil verify --independent`: show the rows to add and to remove, and with
    `--apply` commit the changes, once.

    The command first compares the table again, and skips differences that no longer exist. A report that was applied is
    not applied again. The pipeline may run meanwhile: the command does not change rows whose key is in later records.

    Exit code: 0 when there is nothing to do or the plan was committed; 2 when the pipeline file is wrong; 4 when a plan
    is shown.
    """
    plan = repair(read_spec(output, file), table, report, apply, output.doing)
    output.result(plan.document(), "\n".join(_lines(plan)))
    return PLANNED if plan.repairs and not plan.is_done and not plan.is_applied else 0


def repair(spec: PipelineSpec, name: str, report: Path, is_applying: bool, note: Callable[[str], None]) -> RepairPlan:
    """Returns the plan of a repair, which is committed where `is_applying`.

    Raises: SpecError for a report that does not name the table, or for a table that cannot be repaired; ConflictError
    where a batch was committed meanwhile; UnavailableError as the catalog does.
    """
    document = read_report(report)
    findings = document["tables"].get(name, {}).get("findings")
    if findings is None or document["pipeline"] != spec.pipeline:
        raise SpecError(
            f"the report has nothing of {name}",
            remedy=f"write one with `frazil verify {name} --independent --report FILE`",
        )
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    with catalog_for_reading(spec, commits=True) as catalog:
        assert isinstance(catalog, IcebergCatalog)
        (table,) = with_values(spec, catalog, tables, is_every=False)
        table.state = state = catalog.load(name)
        if state is None or state.head_id is None:
            raise SpecError("the table has no rows yet", remedy="run the pipeline first", where=name)
        if not state.progress.offsets:  # Every row would be one that no record makes.
            words = f"the table has no progress of the pipeline {spec.pipeline}"
            raise SpecError(words, remedy="mend it by the tool that fills it", where=name)
        signature = str(document["signature"])
        if is_recorded(catalog.history(name, [REPAIR_ID]), REPAIR_ID, signature, None):
            return RepairPlan(name, signature, is_applied=True)
        opened = Opened(spec, catalog, source, Options(Level.INDEPENDENT, keeps_all=True), note)
        try:
            judge = judge_of(opened, table, state)
            judgement = judge.run(keeps_all=True, is_partial=has_lost_records(table, source, catalog))
        except (NotJudged, TopicNotReadable, RowsNotReadable) as error:
            raise SpecError(
                f"the table cannot be repaired: {error}",
                remedy="write its rows by another way, such as `frazil reset`",
                where=name,
            ) from None
        if judgement.findings.counts[Kind.UNREADABLE]:  # The rows would be there twice, should the files come back.
            words = f"{plural(judgement.findings.counts[Kind.UNREADABLE], 'file')} of the table cannot be read"
            remedy = "restore them from a copy of the store; `frazil verify --independent` names them"
            raise SpecError(words, remedy=remedy, where=name)
        plan = _plan(name, signature, findings, judgement)
        if not is_applying or not plan.repairs:
            return plan
        record_command(spec, "repair", table=name, report=str(report))
        return _commit(opened, table, judge, plan)


def _commit(opened: Opened, table: Table, judge: Judge, plan: RepairPlan) -> RepairPlan:
    """Commits a plan on top of the newest state, and again where batches are committed meanwhile: of them only those repairs
    are left out whose keys have changed since the table was judged.

    Raises: ConflictError where another writer has changed the table meanwhile, or batches are committed each time.
    """
    catalog, judged = opened.catalog, table.state
    assert judged is not None
    scanned: dict[LiveFile, list[tuple[int, int]]] = {}
    reason = ""
    for _ in range(_MOST_TRIES):
        state = table.state
        assert state is not None
        # The repair's progress replaces the one that names pending dead letters.
        DeadLetterTables(catalog, KafkaOutbox(opened.spec.kafka), opened.spec.pipeline).settle(table)
        try:
            _apply(opened.spec.pipeline, catalog, replace(state, progress=table.progress), plan, judged, scanned)
            return replace(plan, is_done=True)
        except ConflictError as moved:
            reason = moved.message
        table.state = catalog.load(table.name)
        plan = _still_due(opened, table, judge, judged, plan)
        if not plan.repairs:
            return plan
    remedy = "repeat the command; if batches are committed meanwhile each time, stop the pipeline first"
    raise ConflictError(reason, remedy=remedy, where=table.name)


def _still_due(opened: Opened, table: Table, judge: Judge, judged: TableState, plan: RepairPlan) -> RepairPlan:
    """Returns a plan without the repairs of keys that records after the judged state have changed.

    Raises: ConflictError where more than batches and maintenance has changed the table since.
    """
    state = table.state
    snapshots = read_history(opened.catalog, table.name).progress(opened.spec.pipeline)
    place = next((n for n, (of, _) in enumerate(snapshots) if of.snapshot_id == judged.head_id), None)
    others = [of for of, progress in snapshots[place or 0 :][1:] if progress is None and of.operation != "replace"]
    ends = {} if state is None else by_partition(state.progress.offsets)
    before = by_partition(judged.progress.offsets)
    goes_back = any(ends.get(partition, 0) < end for partition, end in before.items())
    is_recreated = state is None or not judged.progress.topic_ids.items() <= state.progress.topic_ids.items()
    if place is None or others or goes_back or is_recreated:
        remedy = "verify the table again, and repair it from the new report"
        raise ConflictError("the table was changed by more than batches", remedy=remedy, where=table.name)
    newer = [Range(*partition, before.get(partition, 0), end) for partition, end in sorted(ends.items())]
    changed_keys = judge.changed_keys([of for of in newer if of.start < of.end])
    gone = {of.place for of in plan.repairs if of.added is not None and judge.key_of(of.added) in changed_keys}
    kept = tuple(of for of in plan.repairs if of.place is None or of.place not in gone)
    return replace(plan, repairs=kept)


def _plan(name: str, signature: str, findings: list[dict[str, Any]], judgement: Judgement) -> RepairPlan:
    """Returns what mends the differences that the report names and that still exist."""
    places = {(finding.get("topic"), finding.get("partition"), finding.get("offset")) for finding in findings}
    kinds = {finding["kind"] for finding in findings if finding.get("topic") is None}

    def is_named(kind: str, place: tuple[str, int, int] | None) -> bool:
        return place in places if place is not None else kind in kinds

    repairs = tuple(of for of in judgement.repairs if is_named(of.kind, of.place))
    mended = tuple(
        finding
        for finding in judgement.findings.first
        if is_named(
            finding.kind, (finding.topic, finding.partition or 0, finding.offset or 0) if finding.topic else None
        )
    )
    return RepairPlan(name, signature, repairs, mended, judgement=judgement)


def _apply(
    pipeline: str,
    catalog: IcebergCatalog,
    state: TableState,
    plan: RepairPlan,
    judged: TableState,
    scanned: dict[LiveFile, list[tuple[int, int]]],
) -> None:
    """Commits a plan; files of a refused commit are deleted. judged: the state that the plan is for. scanned: as of
    `_removed`.
    """
    if state.format_version < _OLDEST:
        raise SpecError(
            "a table of format 1 has no deletes",
            remedy="upgrade it: set its property format-version to 2",
            where=state.name,
        )
    target = plain_target(state)
    scan = catalog.scan(state.name)
    rows, deletes = list[DataFile](), list[DeleteFile]()
    hit("repair.before")
    try:
        removed = _removed(target, scan.files, plan.removed, scanned)
        deletes = write_deletes(target, {file: bits_of(gone) for file, gone in removed.items()}, state.format_version)
        rows = _written(target, plan.added)
        replaced = [old for file in removed for old in file.deletes if old.is_of_one_file]
        touched = tuple(file.path for file in removed)
        delta = RowDelta(scan.read_at, tuple(deletes), tuple(replaced), touched=touched)
        entries = {key(pipeline, REPAIR_ID): plan.report}
        progress = _progress(state.progress, plan, judged.progress)
        hit("repair.written")
        catalog.commit(
            Commit(state.name, tuple(rows), progress, state.progress, delta, state.shape, state.head_id, entries)
        )
        hit("repair.landed")
    except BaseException:
        if not is_recorded(catalog.history(state.name, [REPAIR_ID]), REPAIR_ID, plan.report, None):
            written = [*(file.path for file in rows), *(file.path for file in deletes)]
            catalog.delete_files(state.name, written)
        raise


def _removed(
    target: TableTarget,
    files: tuple[LiveFile, ...],
    wanted: Counter[int],
    scanned: dict[LiveFile, list[tuple[int, int]]],
) -> dict[LiveFile, Ints]:
    """Returns the positions of all deleted rows of files with rows to be removed, those that were deleted before too.
    scanned: positions and hashes of rows to be removed, of the files that were read before; it gets those of other files.
    """
    left, gone = Counter(wanted), dict[LiveFile, list[int]]()
    names, hashes = [field.name for field in target.arrow_schema], np.array(sorted(wanted), np.uint64)
    unread = [file for file in files if file not in scanned] if left else []
    scanned |= {file: [] for file in unread}
    for stored in read_rows(target, [FileRows(file) for file in unread], FilePosition(), None) if unread else ():
        values = row_hashes(stored.batch.select(names))
        is_wanted = np.isin(values, hashes)
        pairs = zip(stored.positions[is_wanted].tolist(), values[is_wanted].tolist(), strict=True)
        scanned[stored.source.file].extend(pairs)
    for file in files:
        for position, value in scanned.get(file, ()):
            if left[value] > 0:
                left[value] -= 1
                gone.setdefault(file, []).append(position)
    every = {}
    for file, positions in gone.items():
        before = np.setdiff1d(np.arange(file.record_count), live_rows(target, file), assume_unique=True)
        every[file] = np.union1d(before, np.array(positions, np.int64))
    return every


def _written(target: TableTarget, rows: list[Mapping[str, Any]]) -> list[DataFile]:
    if not rows:
        return []
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in target.arrow_schema]
    writer = FileWriter(target)
    try:
        writer.write(pa.Table.from_arrays(columns, schema=target.arrow_schema))
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _progress(before: Progress, plan: RepairPlan, judged: Progress) -> Progress:
    """Returns the progress of the commit: that of the newest one, with the rows that the records make in its ledger. judged:
    the progress that the plan is for; batches since have added their rows to the ledger.
    """
    ledger, old, judgement = before.ledger, judged.ledger, plan.judgement
    is_whole = len(plan.repairs) == len(judgement.repairs)
    if (
        ledger is not None
        and ledger.rows is not None
        and ledger.row_digest is not None
        and old is not None
        and is_whole
    ):
        rows = judgement.expected_rows + ledger.rows - (old.rows or 0)
        digest = (judgement.expected_digest + ledger.row_digest - (old.row_digest or 0)) % MODULUS
        ledger = replace(ledger, rows=rows, row_digest=digest)
    batch = replace(before.batch, balance=None, skipped={})
    return replace(before, commit_id=new_id(), batch=batch, dead_letters=None, ledger=ledger)


def _lines(plan: RepairPlan) -> list[str]:
    if plan.is_applied:
        return [f"{plan.table}: this report was applied before"]
    added, removed = plural(len(plan.added), "row"), plural(plan.removed.total(), "row")
    if not plan.repairs:
        return [f"{plan.table}: no difference of the report exists any longer"]
    verb = "added {}, removed {}" if plan.is_done else "to add {}, to remove {}"
    lines = [f"{plan.table}: {verb.format(added, removed)}"]
    lines += [f"  {finding.kind}: {finding.text}" for finding in plan.findings[:_SHOWN]]
    return lines if plan.is_done else [*lines, "add --apply to commit this"]
