"""Publishes the tables of a group together, at snapshots that have the records of their topics up to one moment.

A catalog without commits of several tables moves their main one after another. So each table's properties have the number
of its generation, by which readers see whether all tables are of one, and the plan of the generation, by which any process
completes what another one has begun: every snapshot of a plan has passed the audits together with the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from frazil.catalog.maintenance_port import BranchMove, Tag
from frazil.catalog.progress import key
from frazil.catalog.table_metadata import TableMetadata
from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.failpoints import hit
from frazil.ops.seen_by_readers import HELD, PUBLISHED, PUBLISHED_FROM, FailedAudit, PublishReport, number
from frazil.spec.publishing import view_of
from frazil.types import MAIN, Offsets, as_json
from frazil_publish.audits import Audited, names
from frazil_publish.position import (
    GENERATION,
    PLAN,
    Position,
    find_at,
    find_position,
    is_on_branch,
    leads_to,
)
from frazil_publish.publisher import Mode, Published, Publisher, audited, diverged, held, marks_of, report_of, withheld
from frazil_publish.tags import tags_of_group, tags_of_left_group, tags_of_publish

_TAG_AGE_MS = 90 * 86_400_000
"""How long the tags of a publish are kept; the next publish but one removes them."""
log = structlog.get_logger("frazil")


@dataclass(frozen=True)
class _Member:
    """A table of the group that has a snapshot to publish."""

    table: Published
    metadata: TableMetadata
    position: Position

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def candidate_id(self) -> int:
        """The snapshot that would be published."""
        assert self.position.candidate_id is not None
        return self.position.candidate_id

    @property
    def is_outdated(self) -> bool:
        """Whether main has a later snapshot of the branch already; one of another writer is not on the branch."""
        own_id = self.position.source_id or self.position.published_id
        return (
            not self.position.is_ahead
            and own_id is not None
            and is_on_branch(self.metadata, own_id)
            and leads_to(self.metadata, self.candidate_id, own_id)
        )


@dataclass(frozen=True, order=True)
class _Generation:
    """A publish of the group: of two with one number, both processes know the winner by the plan."""

    number: int = 0
    plan: str = "{}"

    @property
    def snapshots(self) -> Mapping[str, int]:
        """The snapshot of each table."""
        return {name: int(snapshot_id) for name, snapshot_id in json.loads(self.plan).items()}


class GroupPublisher:
    """Publishes the tables of one group by what publishes single tables."""

    def __init__(self, publisher: Publisher, group: str) -> None:
        self._publisher = publisher
        self._branches, self._pipeline = publisher.branches, publisher.pipeline
        self._group = group
        #: The tables without a snapshot, with None; and those that do not exist yet.
        self._empty: dict[str, None] = {}
        self._absent: frozenset[str] = frozenset()

    def publish(
        self,
        tables: Sequence[Published],
        cut: Mapping[str, Offsets] | None = None,
        mode: Mode = "scheduled",
        last: Mapping[str, PublishReport] | None = None,
    ) -> dict[str, PublishReport] | None:
        """Publishes the tables if everything holds; returns what readers see of each. cut: the offsets of the moment, by
        table; None: the newest snapshots of the branches are of one moment. None is returned where a table has no snapshot
        of the moment. last: the reports of the last time.

        Raises: as Publisher.publish. After a ConflictError, or a lost answer, the next call completes what has begun.
        """
        members = self._members(tables, cut)
        if members is None or (cut is not None and any(member.is_outdated for member in members)):
            return None
        reports = {table.name: PublishReport() for table in tables}
        reports |= {member.name: report_of(member.position) for member in members}
        if self._are_published(members):
            return reports
        if mode == "by hand" and len(members) > 1 and not self._compares(members):
            return self._released(members, reports)
        for member in members:
            obstacle = self._obstacle(member, reports[member.name], mode)
            if obstacle is not None:
                return self._held(reports, {member.name: obstacle})
        if last is not None and _is_known(last, members, reports):
            return {name: last.get(name, report) for name, report in reports.items()}
        with self._publisher.keeping({member.name: member.candidate_id for member in members}):
            return self._passed(members, reports, mode)

    def _passed(
        self, members: Sequence[_Member], reports: dict[str, PublishReport], mode: Mode
    ) -> dict[str, PublishReport]:
        """Audits the candidates, and moves main of all tables to them if everything holds."""
        failures = {} if mode == "override" else self._failures(members)
        audited_ms = self._publisher.clock.now_ms()
        reports |= {
            m.name: replace(reports[m.name], candidate_id=m.candidate_id, audited_ms=audited_ms) for m in members
        }
        if failures:
            return self._held(
                reports, {name: held(reports[name], table_failures, name) for name, table_failures in failures.items()}
            )
        hit("publish.audited")
        return reports | self._move(members)

    def _are_published(self, members: Sequence[_Member]) -> bool:
        """Whether readers see all that the branches have, and in one generation."""
        positions = [member.position for member in members]
        are_of_one = len({self._generation(member.metadata).number for member in members}) <= 1
        return are_of_one and all(position.is_published and HELD not in position.marks for position in positions)

    def _members(self, tables: Sequence[Published], cut: Mapping[str, Offsets] | None) -> list[_Member] | None:
        """Returns the tables that have snapshots, after completing what another call has begun; None where one has none of
        the moment.
        """
        metadata = self._metadata(tables)
        if self._complete(tables, metadata):
            metadata = self._metadata(tables)
        self._empty = {name: None for name, loaded in metadata.items() if loaded.head is None}
        self._absent = frozenset(table.name for table in tables) - metadata.keys()
        members = []
        for table in tables:
            table_metadata = metadata.get(table.name)
            if table_metadata is None or table_metadata.head is None:
                continue
            at = None if cut is None else find_at(table_metadata, self._pipeline, cut[table.name])
            if cut is not None and at is None:
                return None
            members.append(_Member(table, table_metadata, find_position(table_metadata, self._pipeline, at)))
        return members

    def _metadata(self, tables: Sequence[Published]) -> dict[str, TableMetadata]:
        loaded = {table.name: self._branches.metadata(table.name) for table in tables}
        return {name: metadata for name, metadata in loaded.items() if metadata is not None}

    def _complete(self, published: Sequence[Published], tables: Mapping[str, TableMetadata]) -> bool:
        """Moves the tables that lack the newest generation, and are in its plan, to it; returns whether there were some."""
        generations = {name: self._generation(metadata) for name, metadata in tables.items()}
        newest = max(generations.values(), default=_Generation())
        positions = {
            name: find_position(tables[name], self._pipeline, snapshot_id)
            for name, snapshot_id in newest.snapshots.items()
            # Whoever discards a branch does not want its snapshots on main.
            if name in tables and generations[name] != newest and is_on_branch(tables[name], snapshot_id)
        }
        behind = {
            name: position
            for name, position in positions.items()
            if position.is_ahead and not position.is_set_back and HELD not in position.marks
        }
        oldest = min((generation.number for generation in generations.values()), default=0)
        for table in published:
            if (position := behind.get(table.name)) is not None:
                move = self._move_of(table, tables[table.name], position, newest, new_id(), oldest)
                self._moved([move], [table])
        return bool(behind)

    def _generation(self, metadata: TableMetadata) -> _Generation:
        generation, plan = (metadata.properties.get(key(self._pipeline, name)) for name in (GENERATION, PLAN))
        return _Generation(number(generation) or 0, plan or "{}")

    def _obstacle(self, member: _Member, report: PublishReport, mode: Mode) -> PublishReport | None:
        """Returns why the table cannot be published; None where its audits decide."""
        obstacle = self._publisher.obstacle(member.table, member.position, report, mode)
        if obstacle is None and not member.position.is_ahead:
            return diverged(report, member.name)
        return obstacle

    def _failures(self, members: Sequence[_Member]) -> dict[str, list[FailedAudit]]:
        """Returns what does not hold of each table, without tables of which everything holds."""
        snapshots = self._empty | {member.name: member.candidate_id for member in members}
        failures: dict[str, list[FailedAudit]] = {}
        audits: list[Audited] = []
        for member in members:
            others = {name: snapshot_id for name, snapshot_id in snapshots.items() if name != member.name}
            unreadable = [*self._unreadable(member.table)]
            failures[member.name] = [*withheld(member.table, member.position), *unreadable]
            if not unreadable and (not member.position.is_published or self._reads(member.table, others)):
                audits.append(audited(member.table, member.position, others))
        for table, failing in zip(audits, self._publisher.failures(audits), strict=True):
            failures[table.table] += failing
        return {name: failing for name, failing in failures.items() if failing}

    def _unreadable(self, table: Published) -> Iterator[FailedAudit]:
        """Yields the audits that read a table of the group that does not exist yet, as no record of it has come."""
        for name, query in table.audits:
            for other in sorted(self._absent):
                if names(query, view_of(other)):
                    yield FailedAudit(name, f"the table {other}, which it reads, has no record yet", has_failed=True)

    def _compares(self, members: Sequence[_Member]) -> bool:
        """Returns whether an audit reads several tables."""
        return any(
            self._reads(member.table, {other.name: other.candidate_id for other in members if other is not member})
            for member in members
        )

    def _released(self, members: Sequence[_Member], reports: Mapping[str, PublishReport]) -> dict[str, PublishReport]:
        """Leaves the tables to the next moment, as nobody knows whether their newest snapshots fit each other; main that was
        set back follows from then on.
        """
        for member in members:
            main_id, position = member.position.published_id, member.position
            if HELD in position.marks or position.is_set_back:
                assert main_id is not None
                marks = (
                    {}
                    if HELD in position.marks
                    else marks_of(main_id, self._publisher.clock.now_ms(), position.published)
                )
                marks |= {HELD: None}
                self._branches.move(BranchMove(member.name, MAIN, main_id, main_id, new_id(), marks))
        reason = (
            f"the newest snapshots of the group `{self._group}` may be of different moments, and no audit compares them"
        )
        override = f"frazil publish {members[0].name} --override"
        remedy = f"`frazil run` publishes its next moment; `{override}` publishes these snapshots"
        return {name: replace(report, state="held", reason=reason, remedy=remedy) for name, report in reports.items()}

    def _reads(self, table: Published, others: Iterable[str]) -> bool:
        return any(names(query, view_of(other)) for _, query in table.audits for other in others)

    def _held(
        self, reports: Mapping[str, PublishReport], obstacles: Mapping[str, PublishReport]
    ) -> dict[str, PublishReport]:
        """Returns the reports of tables that are not published because of some of them."""
        name, obstacle = next(iter(obstacles.items()))
        reason = f"{name}, of the group `{self._group}`, is not published: {obstacle.reason}"
        others = {n: replace(r, state="held", reason=reason, remedy=obstacle.remedy) for n, r in reports.items()}
        return {**others, **obstacles}

    def _move(self, members: Sequence[_Member]) -> dict[str, PublishReport]:
        """Moves main of all tables; returns what readers see from then on."""
        numbers = [self._generation(member.metadata).number for member in members]
        plan = as_json({member.name: member.candidate_id for member in members})
        generation = _Generation(max(self._publisher.clock.now_ms(), max(numbers) + 1), plan)
        move_id = new_id()
        moves: list[BranchMove] = []
        try:
            moves.extend(
                self._move_of(member.table, member.metadata, member.position, generation, move_id, min(numbers))
                for member in members
            )
        except (ConflictError, UnavailableError):  # Of the copy of a later table.
            self._publisher.abandon(moves)
            raise
        main_ids = self._moved(moves, [member.table for member in members])
        return {
            m.name: self._publisher.published(m.position.branch, main_id, m.candidate_id, m.position.candidate)
            for m, main_id in zip(members, main_ids, strict=True)
        }

    def _moved(self, moves: Sequence[BranchMove], tables: Sequence[Published]) -> list[int]:
        """Moves main of the tables; returns the snapshots that they have then."""
        try:
            main_ids = [main_id for main_id in self._branches.move_together(moves) if main_id is not None]
        except ConflictError:
            self._publisher.abandon(moves)
            raise
        for move, table, main_id in zip(moves, tables, main_ids, strict=True):
            log.info("table_published", table=move.table, snapshot=main_id, group=self._group)
            self._publisher.follow(table, move.copy)
        return main_ids

    def _move_of(
        self,
        table: Published,
        metadata: TableMetadata,
        position: Position,
        generation: _Generation,
        move_id: str,
        oldest: int,
    ) -> BranchMove:
        """Returns the move of main to the candidate. oldest: the generation that readers of all tables find until then."""
        snapshot_id, now_ms = position.candidate_id, self._publisher.clock.now_ms()
        assert snapshot_id is not None
        copy = None if position.is_published else self._publisher.copied(table, snapshot_id)
        marks = {**marks_of(snapshot_id, now_ms, position.candidate), HELD: None}
        marks |= {GENERATION: str(generation.number), PLAN: generation.plan}
        main_id = snapshot_id
        if copy is not None:
            marks[PUBLISHED_FROM] = str(snapshot_id)
        elif position.is_published and position.source_id is not None:
            assert position.published_id is not None
            main_id, marks[PUBLISHED_FROM] = position.published_id, str(snapshot_id)
        tags = tags_of_publish(table.tags, position, position.candidate, main_id, now_ms)
        old = {name for name in tags_of_group(position, self._group) if int(name.rpartition("-")[2]) < oldest}
        # A tag is as old as its snapshot.
        age_ms = now_ms - metadata.snapshots[snapshot_id].at_ms if snapshot_id in metadata.snapshots else 0
        tags |= {f"{self._group}-{generation.number}": Tag(main_id, max(0, age_ms) + _TAG_AGE_MS)}
        return BranchMove(
            table.name,
            MAIN,
            position.published_id,
            main_id,
            move_id,
            marks,
            tags,
            frozenset(old | tags_of_left_group(position, self._group)),
            source=position.branch if main_id == snapshot_id else None,
            copy=copy,
            names_snapshot=PUBLISHED,
        )


def _is_known(
    last: Mapping[str, PublishReport], members: Sequence[_Member], reports: Mapping[str, PublishReport]
) -> bool:
    """Returns whether the last audits were of the same snapshots of all tables, and have found what does not hold."""
    before = [last.get(member.name, PublishReport()) for member in members]
    failures = [failure for report in before for failure in report.failed_audits]
    are_same = all(
        (report.candidate_id, report.snapshot_id) == (member.candidate_id, reports[member.name].snapshot_id)
        for member, report in zip(members, before, strict=True)
    )
    return are_same and bool(failures) and not any(failure.has_failed for failure in failures)
