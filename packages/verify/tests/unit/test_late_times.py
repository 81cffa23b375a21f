"""Windows whose late records depend on the batches: a copy drops what the commits of the table have dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from frazil.catalog.progress import REPLAY_ID, key
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.status import find_tables
from frazil.types import OrderProgress, Progress, Watermark
from frazil_testing.twins import FakeClock, MemoryCatalog, StepWorkers, live_rows
from frazil_verify.copies import UpTo, copying, load_for_copy, plan_copies
from frazil_verify.history import History, Snapshot
from frazil_verify.late_times import LateTimes, late_times
from packages.state.tests.unit.grouping.grouping import Grouped, moment
from packages.verify.tests.unit.test_ledger_check import PIPELINE, commit, committed, snapshot


def _history(grouped: Grouped) -> History:
    snapshots = [
        Snapshot(number, number - 1 or None, number, "append", logged.summary)
        for number, logged in enumerate(reversed(list(grouped.catalog.ancestors("n.t"))), 1)
    ]
    return History(tuple(snapshots))


def _copied(grouped: Grouped, folder: Path, late: Mapping[str, LateTimes]) -> list[tuple[object, ...]]:
    """The rows of a copy in a folder. late: what commits have recorded."""
    (table,) = find_tables(grouped.spec, grouped.source, ProcessState(), "n.t")
    assert load_for_copy(table, grouped.catalog, grouped.source) is None
    (copies,) = plan_copies([table])
    catalog, source, clock = MemoryCatalog(folder, "p"), UpTo(grouped.source, copies.goal), FakeClock()
    services = Services(source, catalog, grouped.jobs, clock, StepWorkers(clock), queries=grouped.queries)
    copy = Service(copying(grouped.spec, copies, folder, late=late), services, "copy", lambda _: None)
    copy.connect()
    for _ in range(5000):
        if copy.is_over(until_caught_up=True):
            break
        copy.turn(until_caught_up=True)
    return sorted((row["user"], row["minute"], row["n"]) for row in live_rows(catalog, "n.t"))


def test_a_copy_drops_the_records_that_came_late_to_an_idle_partition(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, settings="late: 10m", partitions=2)
    grouped.pay("a", 1200)
    grouped.catch_up()
    grouped.pay("b", 0, partition=1)  # Late, as all partitions with records had reached 1200 s.
    grouped.pay("b", 660, partition=1)
    grouped.catch_up()
    grouped.pay("c", 0, partition=1)  # Late by its own partition.
    grouped.pay("c", 1300, partition=1)
    grouped.catch_up()
    rows = grouped.table_rows("user", "minute", "n")
    assert rows == [("a", moment(1200), 1), ("b", moment(660), 1), ("c", moment(1260), 1)]
    assert grouped.progress().totals.ignored_records == {"late": 2}
    late = late_times(_history(grouped), "p")
    assert late.unknown == ""
    assert _copied(grouped, tmp_path / "copy", {"n.t": late}) == rows
    # In one batch, without what the commits recorded, the first of them is in time.
    assert ("b", moment(0), 1) in _copied(grouped, tmp_path / "plain", {})


def _at(number: int, complete_us: int) -> Progress:
    """The progress after so many batches, when all partitions had reached a time."""
    return replace(commit(number), order=OrderProgress(event_times=Watermark({"t": {0: 9}}, complete_us)))


def test_records_are_late_by_the_time_of_the_commit_before_theirs() -> None:
    snapshots = (
        committed(1, _at(1, 5)),
        snapshot(2, None, "replace"),
        committed(3, _at(2, 7)),
        committed(4, _at(3, 8)),
    )
    assert late_times(History(snapshots), PIPELINE) == LateTimes((("t", 0, 10, 5), ("t", 0, 20, 7)))


def test_what_expired_commits_and_replays_have_done_is_not_known() -> None:
    cut = late_times(History((committed(4, _at(4, 7)), committed(5, _at(5, 8)))), PIPELINE)
    assert (cut.times, cut.unknown) == (
        (("t", 0, 40, 7),),
        "commits that recorded which records were late have expired",
    )
    replay = replace(snapshot(2, None), summary={key(PIPELINE, REPLAY_ID): "r"})
    assert (
        late_times(History((committed(1, _at(1, 5)), replay)), PIPELINE).unknown == "a replay has counted late records"
    )
