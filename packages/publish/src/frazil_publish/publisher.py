"""Publishes a table: audits the newest snapshot of its branch, and moves main to it when everything holds.

Nothing is remembered between two calls except in the table. A process that dies leaves main where it was, or where it was to
be; two processes at a time are one compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import structlog

from frazil.catalog.maintenance_port import MOVE_ID, Branches, BranchMove, Copies, Copy, Tag, Transfer
from frazil.catalog.progress import key
from frazil.catalog.table_metadata import TableMetadata
from frazil.clock import Clock, new_id
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.kafka.port import Partition
from frazil.ops.seen_by_readers import (
    COMPLETE_TO,
    HELD,
    PUBLISHED,
    PUBLISHED_AT,
    PUBLISHED_FROM,
    FailedAudit,
    PublishReport,
    held_report,
    number,
)
from frazil.spec.publishing import TagSpec
from frazil.stages.stage import TableStage
from frazil.types import MAIN, Progress, by_partition
from frazil_publish.audits import Audit, Audited, Audits
from frazil_publish.closed_windows import ClosedWindows
from frazil_publish.position import (
    GENERATION,
    PLAN,
    Position,
    find_position,
    find_unread,
    is_on_branch,
    oldest_progress,
    progress_at,
)
from frazil_publish.tags import tags_of_commits, tags_of_left_group, tags_of_publish

Mode = Literal["scheduled", "by hand", "override"]
Beginnings = Callable[[Iterable[Partition]], Mapping[Partition, int]]
_REMEDY = (
    "correct the data or the audit; `frazil publish TABLE --override` publishes it as it is, `frazil publish TABLE"
    " --discard` makes the branch begin again at main"
)
log = structlog.get_logger("frazil")


@dataclass(frozen=True)
class Published:
    """A table, and what must hold of it."""

    name: str
    audits: tuple[Audit, ...] = ()
    #: As `StageSettings.withheld`: such rows are in the branch.
    withheld: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[TagSpec, ...] = ()
    #: The name of its group; empty without one.
    group: str = ""
    #: Whether main gets data files alone, with the deletes applied.
    is_copied: bool = False
    #: How rows that are deleted meanwhile are found in the files of main, as of TableMaintenance.compact.
    transfer: Transfer | None = None
    #: What writes values of the rows beside these files, as of Compaction.
    stages: tuple[TableStage, ...] = ()


class Publisher:
    """Publishes tables of one pipeline."""

    def __init__(
        self,
        branches: Branches,
        audits: Audits,
        pipeline: str,
        clock: Clock,
        copies: Copies | None = None,
        windows: ClosedWindows | None = None,
    ) -> None:
        """copies: None where no table gets data files without deletes. windows: None where no table has `emit: closed`."""
        self.branches = branches
        self._audits, self._copies = audits, copies
        self.windows = windows
        #: The pipeline whose tables are published.
        self.pipeline = pipeline
        self.clock = clock
        #: By table the snapshot whose audits are running: expiry keeps it.
        self.auditing: dict[str, int] = {}

    def publish(self, table: Published, mode: Mode = "scheduled", last: PublishReport | None = None) -> PublishReport:
        """Publishes the newest snapshot of the table's branch, if everything holds; returns what readers see then. last: the
        report of the last time; a snapshot that did not hold then is not audited again.

        Raises: ConflictError where another process moved main meanwhile; UnavailableError where a service does not answer,
        or the outcome is unknown.
        """
        metadata = self.branches.metadata(table.name)
        if metadata is None:
            return PublishReport()
        position = find_position(metadata, self.pipeline)
        report = report_of(position)
        if position.is_published and HELD not in position.marks:
            return report
        obstacle = self.obstacle(table, position, report, mode)
        if obstacle is not None:
            return obstacle
        if not position.is_ahead:
            return diverged(report, table.name)
        assert position.candidate_id is not None
        if last is not None and _is_known(last, report, position.candidate_id):
            return last
        with self.keeping({table.name: position.candidate_id}):
            return self._passed(table, position, report, mode)

    def _passed(self, table: Published, position: Position, report: PublishReport, mode: Mode) -> PublishReport:
        """Audits the candidate, and moves main to it if everything holds."""
        assert position.candidate_id is not None
        failures: Sequence[FailedAudit] = ()
        if mode != "override" and not position.is_published:
            [failing] = self.failures([audited(table, position)])
            failures = [*withheld(table, position), *failing]
        report = replace(report, candidate_id=position.candidate_id, audited_ms=self.clock.now_ms())
        if failures:
            return held(report, failures, table.name)
        hit("publish.audited")
        candidate, now_ms = position.candidate, self.clock.now_ms()
        tags = tags_of_publish(table.tags, position, candidate, position.candidate_id, now_ms)
        return self._move(table, position, position.candidate_id, candidate, {HELD: None}, tags)

    def tag(self, table: Published) -> tuple[str, ...]:
        """Gives a table without `publish` the tags that it lacks, at snapshots of main; returns their names.

        Raises: as `publish`.
        """
        metadata = self.branches.metadata(table.name)
        if metadata is None:
            return ()
        head = find_position(metadata, self.pipeline).published_id
        tags = tags_of_commits(table.tags, metadata, head, self.pipeline, self.clock.now_ms())
        if tags:
            self.branches.move(BranchMove(table.name, None, None, None, new_id(), tags=tags))
            _log_tags(table.name, tags)
        return tuple(tags)

    def publish_snapshot(self, published: Published, snapshot_id: int) -> PublishReport:
        """Moves main to a snapshot of the branch, without audits. Where that sets main back, nothing is published by
        schedule until `publish` is called by hand; ingestion continues. In a group the table gets a generation of its own.

        Raises: SpecError where the branch does not have the snapshot; as `publish`.
        """
        table = published.name
        metadata, position = self._position_of(table)
        if not is_on_branch(metadata, snapshot_id):
            raise SpecError(
                f"the branch `{position.branch}` does not have the snapshot {snapshot_id}: it was expired, or is of another"
                " branch",
                remedy=f"choose one of its snapshots, such as by `SELECT * FROM {table}.snapshots` in Spark",
                where=table,
            )
        is_newest, now_ms = snapshot_id == position.candidate_id, self.clock.now_ms()
        held = f"main was set to the snapshot {snapshot_id} by `frazil publish --to`"
        progress = progress_at(metadata, self.pipeline, snapshot_id)
        marks = {**_parted(published, position, now_ms), HELD: None if is_newest else held}
        tags = tags_of_publish(published.tags, position, progress, snapshot_id, now_ms)
        return self._move(published, position, snapshot_id, progress, marks, tags)

    def discard(self, table: str, beginnings: Beginnings = lambda _: {}) -> Progress:
        """Makes the branch begin again at main; returns the progress from which records are read again. Records since then
        are read again, as their progress goes with the snapshots that are discarded. beginnings: returns the first offset
        that partitions have.

        Raises: SpecError where rows of the branch would not be read again; as `publish`.
        """
        metadata, position = self._position_of(table)
        if not position.is_published:
            loss = self._loss_of(metadata, position, beginnings)
            if loss is not None:
                raise SpecError(
                    loss,
                    remedy=f"publish it by `frazil publish {table} --override`, or give its rows up by `ALTER TABLE {table}"
                    f" DROP BRANCH {position.branch}` in Spark, after which the branch begins again at main",
                    where=table,
                )
            move = BranchMove(table, position.branch, position.candidate_id, position.published_id, new_id())
            self.branches.move(move)
            log.warning("branch_discarded", table=table, branch=position.branch, snapshot=position.candidate_id)
        return position.published

    def _loss_of(self, metadata: TableMetadata, position: Position, beginnings: Beginnings) -> str | None:
        """Returns which rows no record would bring back; None where all are read again."""
        unread_id = find_unread(metadata, position, self.pipeline)
        if unread_id is not None:
            return (
                f"the snapshot {unread_id} of the branch `{position.branch}` has rows that are not read again: it is another"
                " writer's, or of replayed dead letters"
            )
        before = by_partition(position.published.offsets or oldest_progress(metadata, self.pipeline).offsets)
        after, first = by_partition(position.candidate.offsets), beginnings(before)
        for place, offset in before.items():
            if offset < min(first.get(place, offset), after.get(place, offset)):
                topic, partition = place
                return (
                    f"the branch `{position.branch}` has rows of records that are no longer in Kafka: partition"
                    f" {partition} of the topic {topic} has lost those from offset {offset} on"
                )
        return None

    def report(self, table: str) -> PublishReport:
        """Returns what readers of the table see. Raises: UnavailableError."""
        metadata = self.branches.metadata(table)
        return PublishReport() if metadata is None else report_of(find_position(metadata, self.pipeline))

    def _position_of(self, table: str) -> tuple[TableMetadata, Position]:
        metadata = self.branches.metadata(table)
        if metadata is None:
            raise UnavailableError(
                "the table does not exist", remedy="start `frazil run`, which creates it", where=table
            )
        position = find_position(metadata, self.pipeline)
        if position.branch == MAIN:
            message = "the table has no branch: commits go to main, where readers see them at once"
            raise SpecError(message, remedy="write `branch: ingest` for the table", where=table)
        return metadata, position

    def _hold(self, report: PublishReport, position: Position, table: Published) -> PublishReport:
        """Publishes nothing by schedule from now on: the next turn would undo what somebody has done to main. The table's
        properties show what main has now.
        """
        main_id, now_ms = position.published_id, self.clock.now_ms()
        assert main_id is not None
        reason = f"main was set back to the snapshot {main_id}, not by this pipeline"
        marks = {**marks_of(main_id, now_ms, position.published), **_parted(table, position, now_ms), HELD: reason}
        self.branches.move(BranchMove(table.name, MAIN, main_id, main_id, new_id(), marks))
        return held_report(replace(report, published_ms=now_ms), reason, table.name)

    def obstacle(self, table: Published, position: Position, report: PublishReport, mode: Mode) -> PublishReport | None:
        """Returns why nothing is published by schedule; None where audits decide."""
        if HELD in position.marks and mode == "scheduled":
            return held_report(report, position.marks[HELD], table.name)
        if position.is_set_back and mode == "scheduled":
            return self._hold(report, position, table)
        return None

    def failures(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        """Returns the audits of each table that do not hold."""
        return self._audits.run(tables) if any(audited.audits for audited in tables) else [[] for _ in tables]

    @contextmanager
    def keeping(self, snapshots: Mapping[str, int]) -> Iterator[None]:
        """Keeps a snapshot of each table from expiry in its block."""
        self.auditing.update(snapshots)
        try:
            yield
        finally:
            for table in snapshots:
                del self.auditing[table]

    def _move(
        self,
        table: Published,
        position: Position,
        snapshot_id: int,
        progress: Progress,
        marks: Mapping[str, str | None],
        tags: Mapping[str, Tag] = MappingProxyType({}),
    ) -> PublishReport:
        """Moves main, and returns what readers see from then on."""
        now_ms, complete_to_ms = self.clock.now_ms(), progress.watermark.complete_to_ms
        copy = self.copied(table, snapshot_id)
        of_group = {} if table.group else {GENERATION: None, PLAN: None}
        copied_from = {PUBLISHED_FROM: str(snapshot_id) if copy else None}
        move = BranchMove(
            table.name,
            MAIN,
            position.published_id,
            snapshot_id,
            new_id(),
            {**marks_of(snapshot_id, now_ms, progress), **of_group, **marks, **copied_from},
            tags,
            tags_of_left_group(position, table.group),
            source=position.branch,  # Whoever discards it while its audits run does not want it on main.
            copy=copy,
            names_snapshot=PUBLISHED,
        )
        try:
            main_id = self.branches.move(move)
        except ConflictError:
            self.abandon([move])
            raise
        assert main_id is not None
        log.info("table_published", table=table.name, snapshot=main_id, complete_to_ms=complete_to_ms)
        _log_tags(table.name, tags)
        self.follow(table, copy)
        return self.published(position.branch, main_id, snapshot_id, progress)

    def copied(self, table: Published, snapshot_id: int) -> Copy | None:
        """Returns the files of a snapshot without deletes; None where it has none, or main gets them too."""
        if not table.is_copied:
            return None
        assert self._copies is not None
        return self._copies.write(table.name, snapshot_id, table.stages)

    def abandon(self, moves: Iterable[BranchMove]) -> None:
        """Deletes the files of copies whose move has not landed, and never will."""
        for move in moves:
            metadata = None if move.copy is None else self.branches.metadata(move.table)
            if metadata is None or _has_landed(metadata, key(self.pipeline, MOVE_ID), move.id):
                continue
            assert self._copies is not None
            assert move.copy is not None
            self._copies.abandon(move.copy)

    def follow(self, table: Published, copy: Copy | None) -> None:
        """Lets the branch have the files that main has, so that the next publish writes only what has changed since."""
        if copy is None or self._copies is None:
            return
        try:
            self._copies.follow(copy, table.transfer)
        except (ConflictError, UnavailableError) as error:  # Main is published; the next copy writes more files.
            log.info("maintenance_conflict", table=table.name, action="publish", reason=error.message)

    def published(self, branch: str, snapshot_id: int, candidate_id: int, progress: Progress) -> PublishReport:
        """Returns the report of a table whose main was just moved. snapshot_id: of main; candidate_id: of the branch."""
        now_ms = self.clock.now_ms()
        return PublishReport(
            branch=branch,
            state="published",
            snapshot_id=snapshot_id,
            published_ms=now_ms,
            complete_to_ms=progress.watermark.complete_to_ms,
            candidate_id=candidate_id,
            audited_ms=now_ms,
        )


def _has_landed(metadata: TableMetadata, name: str, move_id: str) -> bool:
    """Returns whether the table has had the change, also where another one has followed."""
    summaries = (snapshot.summary for snapshot in metadata.snapshots.values())
    return any(entries.get(name) == move_id for entries in (metadata.properties, *summaries))


def marks_of(snapshot_id: int, now_ms: int, progress: Progress) -> dict[str, str | None]:
    """Returns the properties of a table whose main has the snapshot since `now_ms`. progress: of the snapshot."""
    complete_to_ms = progress.watermark.complete_to_ms
    return {
        PUBLISHED: str(snapshot_id),
        PUBLISHED_FROM: None,
        PUBLISHED_AT: str(now_ms),
        COMPLETE_TO: None if complete_to_ms is None else str(complete_to_ms),
    }


def _parted(table: Published, position: Position, now_ms: int) -> dict[str, str]:
    """Returns the properties of a table whose main leaves its group, by which readers of all tables see that what it has
    does not fit the others; none without a group.
    """
    last = number(position.marks.get(GENERATION)) or 0
    return {GENERATION: str(max(now_ms, last + 1)), PLAN: "{}"} if table.group else {}


def _log_tags(table: str, tags: Mapping[str, Tag]) -> None:
    for name, tag in tags.items():
        log.info("table_tagged", table=table, tag=name, snapshot=tag.snapshot_id)


def report_of(position: Position) -> PublishReport:
    """Returns what readers see of a table, before anything is audited."""
    return PublishReport(
        branch=position.branch,
        state="published" if position.is_published and position.published_id is not None else "waiting",
        snapshot_id=position.published_id,
        published_ms=position.published_ms,
        complete_to_ms=position.published.watermark.complete_to_ms,
    )


def _is_known(last: PublishReport, now: PublishReport, candidate_id: int) -> bool:
    """Returns whether the last audit was of the same two snapshots, and has found what does not hold."""
    is_same = (last.candidate_id, last.snapshot_id) == (candidate_id, now.snapshot_id)
    return is_same and bool(last.failed_audits) and not any(failure.has_failed for failure in last.failed_audits)


def held(report: PublishReport, failures: Sequence[FailedAudit], table: str) -> PublishReport:
    """Returns the report of a table whose audits do not hold."""
    names = ", ".join(f"`{failure.name}`" for failure in failures)
    verb = "does" if len(failures) == 1 else "do"
    remedy = _REMEDY.replace("TABLE", table)
    reason = f"{names} {verb} not hold"
    return replace(report, state="held", reason=reason, remedy=remedy, failed_audits=tuple(failures))


def diverged(report: PublishReport, table: str) -> PublishReport:
    """Returns the report of a table whose main has commits of another writer."""
    return replace(
        report,
        state="diverged",
        reason=f"main has commits that the branch `{report.branch}` lacks, which publishing would undo",
        remedy=f"let other writers commit to the branch; `frazil publish {table} --to SNAPSHOT` abandons what main has",
    )


def audited(table: Published, position: Position, others: Mapping[str, int | None] = MappingProxyType({})) -> Audited:
    """Returns what is audited of a table. others: as of Audited."""
    assert position.candidate_id is not None
    return Audited(table.name, position.candidate_id, position.published_id, table.audits, others)


def withheld(table: Published, position: Position) -> list[FailedAudit]:
    """Returns the expectations that records since what is published did not meet."""
    return [
        FailedAudit(name, f"{number} {table.withheld[name]}")
        for name, number in position.findings.items()
        if name in table.withheld
    ]
