"""`emit: closed`: main has each window once, when it is complete, whoever closes it and whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil.cli.main import main as command
from frazil.clock import Clock
from frazil.errors import ConflictError, SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ops.seen_by_readers import PublishReport
from frazil.types import MAIN, Commit
from frazil_publish.closed_windows import ClosedWindows
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import FakeClock
from packages.state.tests.unit.grouping.grouping import PER_MINUTE, Grouped, moment
from tests.unit.spec.pipeline_file import with_table

CLOSED = "late: 10m, emit: closed"


class Closing(Grouped):
    """A table whose windows are closed on request."""

    def __init__(self, root: Path, queries: SparkQueries, select: str = PER_MINUTE, settings: str = CLOSED) -> None:
        super().__init__(root, queries, select, settings)
        (self.table,) = self.spec.tables
        self.catalog.with_branches(lambda _: self.table.publishing.branch)
        self.clock: Clock = FakeClock()

    def close(self) -> PublishReport:
        return ClosedWindows(self.catalog, self.clock).publish(self.table)

    def closed(self, *columns: str) -> list[tuple[Any, ...]]:
        """What readers see."""
        files = self.catalog.on_main("n.t").data_files("n.t")
        rows = [row for file in files for row in pq.ParquetFile(file.path).read().to_pylist()]
        return sorted(tuple(row[column] for column in columns) for row in rows)


def test_a_window_is_in_main_once_it_is_complete(tmp_path: Path, queries: SparkQueries) -> None:
    closing = Closing(tmp_path, queries)
    assert closing.table.publishing.branch == "windows"
    assert closing.close() == PublishReport("windows")
    closing.pay("a", 0, 5)
    closing.pay("b", 10, 6)
    closing.pay("a", 60, 7)
    closing.catch_up()
    report = closing.close()
    assert (report.state, report.complete_to_ms) == ("published", round(moment(-540).timestamp() * 1000))
    assert closing.closed("user", "minute") == []
    closing.pay("a", 30, 1)
    closing.pay("a", 660, 2)  # Complete to the end of the first minute.
    closing.catch_up()
    closing.close()
    assert closing.closed("user", "minute", "n", "total") == [("a", moment(0), 2, 6), ("b", moment(0), 1, 6)]
    head = closing.close().snapshot_id
    assert closing.close().snapshot_id == head  # Nothing is committed where no window has closed.
    closing.pay("a", 59, 100)  # Late.
    closing.pay("a", 1320, 3)
    closing.catch_up()
    closing.close()
    assert closing.closed("user", "minute", "n") == [
        ("a", moment(0), 2),
        ("a", moment(60), 1),
        ("a", moment(660), 1),
        ("b", moment(0), 1),
    ]
    assert closing.table_rows("minute", "n")[-1] == (moment(1320), 1)


def test_sliding_windows_close_by_their_ends(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select window.end as `to`, count(*) as n from records group by window(ts, '10 minutes', '5 minutes')"
    closing = Closing(tmp_path, queries, select)
    for seconds in (0, 400, 1200):
        closing.pay("a", seconds)
    closing.catch_up()
    closing.close()
    assert closing.closed("to", "n") == [(moment(300), 1), (moment(600), 2)]


def test_a_table_does_not_continue_from_complete_windows_alone(tmp_path: Path, queries: SparkQueries) -> None:
    closing = Closing(tmp_path, queries)
    for seconds in (0, 660):
        closing.pay("a", seconds)
    closing.catch_up()
    closing.close()
    before = closing.spec
    closing.spec = Grouped(tmp_path / "other", queries, PER_MINUTE, "late: 10m").spec
    closing.catalog.with_branches(lambda _: MAIN)
    closing.pay("a", 661)
    reason = closing.catch_up().status.reason
    assert reason.startswith("the table would continue from main, which has complete windows alone")
    assert closing.closed("minute", "n") == [(moment(0), 1)]
    closing.spec = before
    closing.catalog.with_branches(lambda _: closing.table.publishing.branch)
    closing.catch_up()
    closing.pay("a", 1400)
    closing.catch_up()
    closing.close()
    assert closing.closed("minute", "n") == [(moment(0), 1), (moment(660), 2)]


def test_windows_that_were_emitted_at_once_are_not_closed_a_second_time(tmp_path: Path, queries: SparkQueries) -> None:
    closing = Closing(tmp_path, queries)
    before, at_once = closing.spec, Grouped(tmp_path / "other", queries, PER_MINUTE, "late: 10m").spec
    closing.spec = at_once
    closing.catalog.with_branches(lambda _: MAIN)
    for seconds in (0, 660, 661):
        closing.pay("a", seconds)
    closing.catch_up()
    closing.spec = before
    closing.catalog.with_branches(lambda _: closing.table.publishing.branch)
    closing.pay("a", 1400)
    closing.catch_up()
    with pytest.raises(SpecError, match="main has windows that were not complete"):
        closing.close()
    assert closing.closed("minute", "n") == [(moment(0), 1), (moment(660), 2)]
    closing.spec = at_once
    closing.catalog.with_branches(lambda _: MAIN)
    closing.catch_up()
    assert closing.table_rows("minute", "n") == [(moment(0), 1), (moment(660), 2), (moment(1380), 1)]


class _Beaten(MemoryCatalog):
    """Another process closes the same windows just before this one commits them."""

    def __init__(self, catalog: MemoryCatalog, quicker: Any) -> None:
        vars(self).update(vars(catalog))
        self._quicker = quicker

    def on_main(self, table: str) -> MemoryCatalog:
        readers, quicker = super().on_main(table), self._quicker

        class Main(MemoryCatalog):
            def __init__(self) -> None:
                vars(self).update(vars(readers))

            def commit(self, commit: Commit) -> Any:
                quicker()
                return super().commit(commit)

        return Main()


def test_of_two_processes_one_closes_a_window(tmp_path: Path, queries: SparkQueries) -> None:
    closing = Closing(tmp_path, queries)
    closing.pay("a", 0)
    closing.pay("a", 660)
    closing.catch_up()

    def quicker() -> None:
        closing.pay("a", 1320)
        closing.catch_up()
        closing.close()

    with pytest.raises(ConflictError):
        ClosedWindows(_Beaten(closing.catalog, quicker), closing.clock).publish(closing.table)
    closing.close()
    assert closing.closed("minute", "n") == [(moment(0), 1), (moment(660), 1)]


def test_windows_are_not_published_by_hand_and_are_all_in_the_branch(
    tmp_path: Path, queries: SparkQueries, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(with_table(f'select: "{PER_MINUTE}", {CLOSED}'))
    assert command(["publish", "shop.x", "-f", str(file)]) == 2
    assert "has `emit: closed`" in capsys.readouterr().err
    closing = Closing(tmp_path / "table", queries)
    for seconds in (0, 660):
        closing.pay("a", seconds)
    closing.catch_up()
    closing.close()
    assert closing.table_rows("minute", "n") == [(moment(0), 1), (moment(660), 1)]
    closing.pay("a", 1400)
    closing.catch_up()
    closing.close()
    assert closing.closed("minute", "n") == [(moment(0), 1), (moment(660), 1)]
