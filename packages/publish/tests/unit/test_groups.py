"""Tables that are published together, on the twin in memory: one moment, audits over all of them, kills between moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil import failpoints
from frazil.catalog.maintenance_port import BranchMove, Copy, Tag, Transfer
from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.ops.seen_by_readers import FailedAudit, PublishReport
from frazil.spec.publishing import DailyTime, TagSpec
from frazil.types import MAIN, Commit, Offsets, Progress, Watermark
from frazil_publish.audits import Audited
from frazil_publish.groups import GroupPublisher
from frazil_publish.position import GENERATION, progress_at
from frazil_publish.publisher import Published, Publisher
from frazil_testing.memory_branches import MemoryBranches
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import FakeClock
from tests.contracts.tables import SCHEMA

CUSTOMERS, ORDERS = "shop.customers", "shop.orders"
DANGLING: tuple[tuple[str, str], ...] = (("dangling", "select * from candidate anti join customers using (id)"),)
TABLES = (Published(CUSTOMERS, group="shop"), Published(ORDERS, DANGLING, group="shop"))

_UNKNOWN = Watermark({})


class Shop:
    """Two tables with branches; an order of the offset n needs a customer of the offset n."""

    def __init__(self, folder: Path) -> None:
        self.main = MemoryCatalog(folder, "p")
        self.catalog = self.main.for_pipeline("p").with_branches(lambda _: "ingest")
        for name in (CUSTOMERS, ORDERS):
            self.main.create(name, SCHEMA, {}, 2)
        self.clock = FakeClock()
        self.branches = MemoryBranches(self.catalog)
        self.asked: list[tuple[str, Mapping[str, int | None]]] = []
        self.group = self.another()

    def another(self) -> GroupPublisher:
        """That of a second process."""
        return GroupPublisher(Publisher(self.branches, self, "p", self.clock), "shop")

    def run(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        """The audits: an order must not be newer than the customers."""
        return [self._failing(audited) for audited in tables]

    def _failing(self, audited: Audited) -> list[FailedAudit]:
        self.asked += [(audited.table, audited.others)] if audited.audits else []
        snapshots = {audited.table: audited.candidate_id, **audited.others}
        offsets = {name: self.offset_of(name, snapshot) for name, snapshot in snapshots.items()}
        is_dangling = audited.table == ORDERS and offsets[ORDERS] > offsets.get(CUSTOMERS, 0)
        return [FailedAudit(name, "the query returns 1 row") for name, _ in audited.audits if is_dangling]

    def ingest(self, table: str, offset: int, watermark: Watermark = _UNKNOWN) -> int:
        """Commits records up to an offset to the branch; the snapshot."""
        state = self.catalog.load(table)
        assert state is not None
        progress = Progress({table: {0: offset}}, commit_id=new_id(), watermark=watermark)
        committed = self.catalog.commit(Commit(table, (), progress, state.progress))
        assert committed.snapshot_id is not None
        return committed.snapshot_id

    def ingest_both(self, offset: int) -> None:
        for table in (CUSTOMERS, ORDERS):
            self.ingest(table, offset)

    def offset_of(self, table: str, snapshot_id: int | None) -> int:
        metadata = self.branches.metadata(table)
        assert metadata is not None
        return progress_at(metadata, "p", snapshot_id).offsets.get(table, {}).get(0, 0)

    def publish(self, last: Mapping[str, PublishReport] | None = None, **cut: int) -> list[str]:
        """The states of the tables. cut: their offsets."""
        offsets: dict[str, Offsets] = {f"shop.{name}": {f"shop.{name}": {0: offset}} for name, offset in cut.items()}
        reports = self.group.publish(TABLES, offsets or None, last=last)
        return ["no moment"] if reports is None else [reports[table.name].state for table in TABLES]

    @property
    def seen(self) -> list[int]:
        """The offsets of both tables that readers see."""
        states = [self.main.load(name) for name in (CUSTOMERS, ORDERS)]
        return [
            0 if state is None or state.main_id is None else self.offset_of(state.name, state.main_id)
            for state in states
        ]

    @property
    def generations(self) -> list[str | None]:
        states = [self.main.load(name) for name in (CUSTOMERS, ORDERS)]
        return [None if state is None else state.marks.get(GENERATION) for state in states]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_tables_are_published_at_one_moment(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.ingest(ORDERS, 12)
    assert shop.publish() == ["held", "held"]
    assert (shop.seen, shop.publish(customers=10, orders=10), shop.seen) == ([0, 0], ["published"] * 2, [10, 10])
    shop.ingest(CUSTOMERS, 12)
    assert shop.publish(customers=13, orders=13) == ["no moment"]
    assert (shop.publish(customers=12, orders=12), shop.seen) == (["published"] * 2, [12, 12])
    assert shop.publish(customers=10, orders=10) == ["no moment"]
    assert shop.publish() == ["published"] * 2


def test_a_table_without_new_rows_is_of_the_generation_too(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    first = shop.generations
    shop.ingest(CUSTOMERS, 12)
    shop.publish()
    second = shop.generations
    assert (first[0], second[0]) == (first[1], second[1])
    assert int(second[0] or 0) > int(first[0] or 0)
    shop.publish()
    assert shop.generations == second


def test_a_table_whose_audit_fails_holds_the_others_and_is_not_audited_again(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    shop.ingest(CUSTOMERS, 11)
    shop.ingest(ORDERS, 12)
    shop.asked.clear()
    reports = shop.group.publish(TABLES)
    assert reports is not None
    assert [reports[name].reason for name in (CUSTOMERS, ORDERS)] == [
        "shop.orders, of the group `shop`, is not published: `dangling` does not hold",
        "`dangling` does not hold",
    ]
    assert (shop.publish(reports), [table for table, _ in shop.asked]) == (["held"] * 2, [ORDERS])
    assert shop.seen == [10, 10]
    assert shop.group.publish(TABLES, mode="override") is not None
    assert shop.seen == [11, 12]


def test_rows_of_another_table_are_audited_when_only_they_are_new(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    shop.asked.clear()
    newest = shop.ingest(CUSTOMERS, 11)
    shop.publish()
    assert shop.asked == [(ORDERS, {CUSTOMERS: newest})]


@pytest.mark.parametrize("point", ["publish.audited", "branch.between"])
def test_a_process_that_dies_between_two_tables_leaves_the_rest_to_the_next(shop: Shop, point: str) -> None:
    shop.ingest_both(10)
    failpoints.arm({failpoints.VARIABLE: f"{point}=error"})
    try:
        with pytest.raises(RuntimeError):
            shop.publish()
    finally:
        failpoints.arm({})
    assert shop.seen == ([0, 0] if point == "publish.audited" else [10, 0])
    shop.ingest(ORDERS, 12)  # The newest snapshots do not pass.
    assert shop.publish() == ["held", "held"]
    assert shop.seen == ([0, 0] if point == "publish.audited" else [10, 10])
    assert shop.generations[0] == shop.generations[1]


def test_two_processes_end_in_one_generation(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    shop.ingest_both(11)
    move, other = shop.branches.move, shop.another()

    def meanwhile(moved: BranchMove) -> int | None:
        main_id = move(moved)
        if moved.table == CUSTOMERS:
            shop.branches.move = move  # type: ignore[method-assign]
            shop.ingest_both(12)
            assert other.publish(TABLES) is not None
        return main_id

    setattr(shop.branches, "move", meanwhile)  # noqa: B010
    with pytest.raises(ConflictError):
        shop.publish()
    assert shop.seen == [12, 12]
    assert shop.publish() == ["published"] * 2
    assert shop.generations[0] == shop.generations[1]


def test_an_answer_that_is_lost_between_two_tables(shop: Shop) -> None:
    shop.ingest_both(10)
    move = shop.branches.move

    def lose(moved: BranchMove) -> None:
        move(moved)
        raise UnavailableError("the answer was lost")

    setattr(shop.branches, "move", lose)  # noqa: B010
    with pytest.raises(UnavailableError):
        shop.publish()
    shop.branches.move = move  # type: ignore[method-assign]
    shop.ingest(ORDERS, 12)
    shop.publish()
    assert shop.seen == [10, 10]


def test_readers_of_one_generation_have_its_tag_on_both_tables(shop: Shop) -> None:
    tags: list[set[str]] = []
    for offset in (10, 11, 12, 13):
        shop.ingest_both(offset)
        shop.publish()
        names = [shop.branches.metadata(name).refs.keys() - {MAIN, "ingest"} for name in (CUSTOMERS, ORDERS)]  # type: ignore[union-attr]
        assert names[0] == names[1]
        assert f"shop-{shop.generations[0]}" in names[0]
        tags.append(set(names[0]))
    assert [len(names) for names in tags] == [1, 2, 2, 2]
    assert tags[3].isdisjoint(tags[0])


def test_a_tag_of_somebody_else_stays_though_it_begins_as_those_of_the_group(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    (snapshot_id,) = {ref.snapshot for ref in shop.branches.metadata(CUSTOMERS).refs.values()}  # type: ignore[union-attr]
    tags = {"shop-20261129": Tag(snapshot_id, 10**9), "shop-2": Tag(snapshot_id, 10**9)}
    shop.branches.move(BranchMove(CUSTOMERS, None, None, None, new_id(), tags=tags))
    for offset in (11, 12):
        shop.ingest_both(offset)
        shop.publish()
    Publisher(shop.branches, shop, "p", shop.clock).publish(Published(CUSTOMERS))
    assert tags.keys() <= shop.branches.metadata(CUSTOMERS).refs.keys()  # type: ignore[union-attr]


def test_main_of_one_table_that_was_set_back_holds_the_group(shop: Shop) -> None:
    first = shop.ingest(CUSTOMERS, 10)
    shop.ingest(ORDERS, 10)
    shop.publish()
    shop.ingest_both(11)
    shop.publish()
    Publisher(shop.branches, shop, "p", shop.clock).publish_snapshot(TABLES[0], first)
    shop.ingest_both(12)
    assert (shop.publish(), shop.seen) == (["held"] * 2, [10, 11])
    assert shop.group.publish(TABLES, mode="by hand") is not None
    assert shop.seen == [12, 12]


def test_readers_see_that_main_of_one_table_was_set_by_hand(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    shop.ingest_both(11)
    shop.publish()
    older, newest = shop.generations[0], shop.ingest(CUSTOMERS, 12)
    Publisher(shop.branches, shop, "p", shop.clock).publish_snapshot(TABLES[0], newest)
    assert (shop.seen, shop.generations[1]) == ([12, 11], older)
    assert int(shop.generations[0] or 0) > int(older or 0)
    metadata = shop.branches.metadata(CUSTOMERS)
    assert metadata is not None
    assert f"shop-{older}" in metadata.refs
    shop.ingest(ORDERS, 12)
    assert (shop.publish(), shop.seen, len(set(shop.generations))) == (["published"] * 2, [12, 12], 1)
    kept = shop.branches.metadata(CUSTOMERS)
    assert kept is not None
    assert f"shop-{older}" in kept.refs  # Readers between the two moves look for it.
    Publisher(shop.branches, shop, "p", shop.clock).publish_snapshot(TABLES[0], newest)
    assert (shop.publish(), shop.seen, len(set(shop.generations))) == (["published"] * 2, [12, 12], 1)


def test_readers_see_that_another_tool_has_set_main_of_one_table_back(shop: Shop) -> None:
    first = shop.ingest(CUSTOMERS, 10)
    shop.ingest(ORDERS, 10)
    shop.publish()
    shop.ingest_both(11)
    shop.publish()
    shop.main.roll_back(CUSTOMERS, first)
    shop.ingest_both(12)
    assert (shop.publish(), shop.seen) == (["held"] * 2, [10, 11])
    assert int(shop.generations[0] or 0) > int(shop.generations[1] or 0)


def test_what_a_process_that_dies_has_left_gets_its_tags(shop: Shop) -> None:
    day = TagSpec(name="daily", at=DailyTime(0, "UTC"), keep_s=30 * 86_400.0)
    tables = tuple(replace(table, tags=(day,)) for table in TABLES)
    complete = Watermark({}, shop.clock.now_ms())
    for name in (CUSTOMERS, ORDERS):
        shop.ingest(name, 10, complete)
    failpoints.arm({failpoints.VARIABLE: "branch.between=error"})
    try:
        with pytest.raises(RuntimeError):
            shop.group.publish(tables)
    finally:
        failpoints.arm({})
    shop.ingest(ORDERS, 12)  # The newest snapshots do not pass.
    shop.group.publish(tables)
    customers, orders = (shop.branches.metadata(name) for name in (CUSTOMERS, ORDERS))
    assert customers is not None
    assert orders is not None
    (tag,) = (name for name in customers.refs if name.startswith("daily-"))
    assert tag in orders.refs


def test_a_table_that_leaves_its_group_loses_the_tags_of_the_group(shop: Shop) -> None:
    for offset in (10, 11):
        shop.ingest_both(offset)
        shop.publish()
    shop.ingest_both(12)
    Publisher(shop.branches, shop, "p", shop.clock).publish(Published(CUSTOMERS))
    GroupPublisher(Publisher(shop.branches, shop, "p", shop.clock), "other").publish([Published(ORDERS, group="other")])
    alone, other = (shop.branches.metadata(name) for name in (CUSTOMERS, ORDERS))
    assert alone is not None
    assert other is not None
    assert alone.refs.keys() == {MAIN}
    assert shop.generations[0] is None
    assert other.refs.keys() == {MAIN, f"other-{shop.generations[1]}"}


def commit_elsewhere(shop: Shop, table: str) -> None:
    """Another writer's commit to main."""
    before = shop.main.load(table)
    assert before is not None
    other = shop.main.for_pipeline("q")
    state = other.load(table)
    assert state is not None
    other.commit(Commit(table, (), Progress({"other": {0: 1}}, commit_id=new_id()), state.progress))


def test_another_writer_on_main_of_an_idle_table_is_reported(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    commit_elsewhere(shop, ORDERS)
    shop.ingest(CUSTOMERS, 11)
    assert shop.publish(customers=11, orders=10) == ["held", "diverged"]


def test_a_branch_that_was_discarded_after_a_death_does_not_block_the_group(shop: Shop) -> None:
    shop.ingest_both(10)
    shop.publish()
    shop.ingest_both(11)
    failpoints.arm({failpoints.VARIABLE: "branch.between=error"})
    try:
        with pytest.raises(RuntimeError):
            shop.publish()
    finally:
        failpoints.arm({})
    Publisher(shop.branches, shop, "p", shop.clock).discard(ORDERS)
    assert (shop.publish(), shop.seen) == (["published"] * 2, [11, 10])
    shop.ingest_both(12)
    assert (shop.publish(), shop.seen) == (["published"] * 2, [12, 12])


def test_a_table_of_which_nothing_was_read_yet_is_published_as_it_is(shop: Shop) -> None:
    """Such as one that another tool has filled, whose topic has no records."""
    commit_elsewhere(shop, CUSTOMERS)
    shop.ingest(ORDERS, 0)
    assert shop.publish(customers=0, orders=0) == ["published"] * 2


def test_by_hand_nothing_is_published_that_no_audit_compares(shop: Shop) -> None:
    tables = (Published(CUSTOMERS, group="shop"), Published(ORDERS, group="shop"))
    first = shop.ingest(CUSTOMERS, 10)
    shop.ingest(ORDERS, 10)
    shop.publish()
    shop.ingest_both(11)
    shop.publish()
    Publisher(shop.branches, shop, "p", shop.clock).publish_snapshot(TABLES[0], first)
    shop.ingest(CUSTOMERS, 12)
    shop.ingest(ORDERS, 13)
    reports = shop.group.publish(tables, mode="by hand")
    assert reports is not None
    assert [(report.state, report.reason) for report in reports.values()] == [
        ("held", "the newest snapshots of the group `shop` may be of different moments, and no audit compares them")
    ] * 2
    assert shop.seen == [10, 11]
    shop.ingest(CUSTOMERS, 13)
    assert shop.publish(customers=13, orders=13) == ["published"] * 2  # It is not held any more.
    shop.ingest(ORDERS, 14)
    shop.group.publish(tables, mode="override")
    assert shop.seen == [13, 14]


@dataclass(frozen=True)
class WrittenCopy:
    """Files that a copy has written."""

    table: str
    snapshot_id: int


class Files:
    """Copies that note which files were written and deleted."""

    def __init__(self) -> None:
        self.left: list[str] = []
        #: The table whose files cannot be written.
        self.failing = ""

    def write(self, table: str, snapshot_id: int, stages: tuple[Any, ...] = ()) -> Copy | None:  # noqa: ARG002
        if table == self.failing:
            raise UnavailableError("the store does not answer")
        self.left.append(table)
        return WrittenCopy(table, snapshot_id)

    def follow(self, copy: Copy, transfer: Transfer | None) -> None:
        """Nothing is compacted."""

    def abandon(self, copy: Copy) -> None:
        self.left.remove(copy.table)


def test_copies_of_a_publish_that_does_not_land_are_deleted(shop: Shop) -> None:
    files, tables = Files(), tuple(replace(table, is_copied=True) for table in TABLES)
    group = GroupPublisher(Publisher(shop.branches, shop, "p", shop.clock, files), "shop")
    shop.ingest_both(10)
    files.failing = ORDERS
    with pytest.raises(UnavailableError):
        group.publish(tables)
    assert files.left == []
    files.failing = ""
    group.publish(tables)
    files.left.clear()
    shop.ingest_both(11)
    move = shop.branches.move

    def conflict(moved: BranchMove) -> int | None:
        if moved.table == ORDERS:
            raise ConflictError("the branch was moved in the meantime")
        return move(moved)

    setattr(shop.branches, "move", conflict)  # noqa: B010
    with pytest.raises(ConflictError):
        group.publish(tables)
    assert (files.left, shop.seen) == ([CUSTOMERS], [11, 10])  # Main of the first table has its files.


def test_nothing_dangles_whatever_is_interrupted(shop: Shop) -> None:
    """What is published dangles only between two moves, and no longer than until the next turn."""
    chance = np.random.default_rng(1)
    for newest in range(1, 101):
        shop.ingest(CUSTOMERS, newest)
        shop.ingest(ORDERS, newest + int(chance.integers(-1, 2)))
        move, left = shop.branches.move, int(chance.integers(4))

        def interrupted(moved: BranchMove, move: Callable[[BranchMove], int | None] = move) -> int | None:
            nonlocal left
            left -= 1
            if left == 0:
                raise UnavailableError("the catalog does not answer")
            return move(moved)

        setattr(shop.branches, "move", interrupted)  # noqa: B010
        with suppress(UnavailableError):
            shop.publish()
        shop.branches.move = move  # type: ignore[method-assign]
        shop.publish()
        customers, orders = shop.seen
        assert orders <= customers
