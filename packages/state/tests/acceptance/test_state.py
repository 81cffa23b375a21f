"""Tables that are their own state, on real services: SIGKILL between look-up and commit and right behind a commit, doubled
records, a second process. What Python computes of all records is what Spark, PyIceberg, DuckDB and Polars read.

In time: a kill with a batch at each of the two steps, here; a second process, which any table refuses alike, in
tests/acceptance/test_lost_answers.py.
"""

from __future__ import annotations

import datetime
import json
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from frazil.runtime.jvm import Jvm
from packages.state.tests.unit.history.versions import Model
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.points import Points, wait_until_gone
from tests.acceptance.running import Run
from tests.acceptance.verifier import open_duckdb, read_newest, read_snapshot

pytestmark = pytest.mark.timeout(900)

_FENCED = 3
_STEPS = ("upsert.resolved", "commit.landed")
_HOUR = 3_600_000
_BEGIN = 1_700_000_000_000


class Totals:
    """A topic of orders, merged by customer, with lists that a query makes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.rows = pipeline, list[dict[str, Any]]()
        self.table, self.topic = pipeline.add_fed_table(
            "totals",
            2,
            mode="upsert",
            key_columns=["customer"],
            select="select customer, amount, at, array(tag) as tags from records where amount >= 0",
            merge={"amount": "sum", "orders": "count", "at": "max", "tags": "collect_set"},
            metadata=[],  # Which record of two partitions is a group's last depends on the batches.
            format_version=3,
        )

    def feed(self, count: int) -> None:
        for _ in range(count):
            number = len(self.rows)
            row = {
                "customer": f"c{number * 7 % 11}",
                "amount": number % 13 - 1,
                "at": number * 5 % 101,
                "tag": f"t{number % 3}",
            }
            self.rows.append(row)
            self.pipeline.feed.send(self.topic, [row], number % 2)
        self.pipeline.feed.flush()

    def check(self) -> None:
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            if row["amount"] >= 0:
                groups[row["customer"]].append(row)
        wanted = [
            {
                "customer": customer,
                "amount": sum(row["amount"] for row in rows),
                "orders": len(rows),
                "at": max(row["at"] for row in rows),
                "tags": sorted({row["tag"] for row in rows}),
            }
            for customer, rows in sorted(groups.items())
        ]
        names = ("customer", "amount", "orders", "at")
        rows = _rows_of(self.pipeline, self.table, "customer")
        assert [{**{name: row[name] for name in names}, "tags": sorted(row["tags"])} for row in rows] == wanted


class Groups:
    """A topic of changes of a source's table, merged by city."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.rows, self.count = pipeline, dict[int, dict[str, Any]](), 0
        self.table, self.topic = pipeline.add_fed_table(
            "groups",
            2,
            envelope="debezium",
            mode="upsert",
            key_columns=["city"],
            merge={"amount": "sum", "orders": "count"},
            metadata=[],
            format_version=2,
        )

    def feed(self, count: int) -> None:
        for _ in range(count):
            number, self.count = self.count * 3 % 17, self.count + 1
            before = self.rows.pop(number, None)
            after = None
            if before is None or self.count % 5:
                after = {"id": number, "city": f"city{self.count % 4}", "amount": self.count % 9}
                self.rows[number] = after
            op = "d" if after is None else "c" if before is None else "u"
            value = {"op": op, "before": before, "after": after}
            self.pipeline.feed.send(self.topic, [value], number % 2, json.dumps({"id": number}).encode())
        self.pipeline.feed.flush()

    def check(self) -> None:
        cities = sorted({row["city"] for row in self.rows.values()})
        of_city = {city: [row["amount"] for row in self.rows.values() if row["city"] == city] for city in cities}
        wanted = [{"city": city, "amount": sum(amounts), "orders": len(amounts)} for city, amounts in of_city.items()]
        rows = _rows_of(self.pipeline, self.table, "city")
        assert [{name: row[name] for name in ("city", "amount", "orders")} for row in rows] == wanted


class Events:
    """A topic whose producer sends every third record twice, and each event again after two days."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.kept, self.count = pipeline, list[dict[str, Any]](), 0
        self.table, self.topic = pipeline.add_fed_table(
            "events", 1, dedupe={"by": ["id"], "within": "24h"}, format_version=3
        )

    def feed(self, count: int) -> None:
        for _ in range(count):
            number, self.count = self.count, self.count + 1
            row = {"id": f"e{number % 40}", "v": number}
            at_ms = _BEGIN + number // 40 * 48 * _HOUR + number % 40
            self.kept.append(row)
            self.pipeline.feed.send(self.topic, [row], 0, at_ms=at_ms)
            if number % 3 == 0:
                self.pipeline.feed.send(self.topic, [{**row, "v": -1}], 0, at_ms=at_ms + _HOUR)
            if number % 7 == 0 and number % 40 >= 5:
                self.pipeline.feed.send(self.topic, [{"id": f"e{(number - 5) % 40}", "v": -2}], 0, at_ms=at_ms)
        self.pipeline.feed.flush()

    def check(self) -> None:
        rows = _rows_of(self.pipeline, self.table, "v")
        assert [{name: row[name] for name in ("id", "v")} for row in rows] == self.kept


class Versions:
    """A topic of customers whose records are late now and then, with every version of them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.models, self.count = pipeline, dict[int, Model](), 0
        self.table, self.topic = pipeline.add_fed_table(
            "versions",
            2,
            mode="history",
            key_columns=["k"],
            key={"format": "json"},
            select="select k, upper(name) as name, n, timestamp_millis(at) as at from records",
            order_by="at",
            track=["name"],
        )

    def feed(self, count: int) -> None:
        for _ in range(count):
            number, self.count = self.count, self.count + 1
            key = number * 7 % 13
            at_ms = _BEGIN + (number - number * 5 % 11) * 1000
            row = {"k": key, "name": f"name{number * 3 % 4}", "n": number, "at": at_ms}
            model = self.models.setdefault(key, Model(True, lambda row: row["name"]))
            model.apply(at_ms, row, is_placed=True)
            self.pipeline.feed.send(self.topic, [row], key % 2, json.dumps({"k": key}).encode(), at_ms=_BEGIN)
            if number % 17 == 0:
                model.apply(_BEGIN + number * 1000, None, is_placed=False)
                at_ms = _BEGIN + number * 1000
                self.pipeline.feed.send(self.topic, [None], key % 2, json.dumps({"k": key}).encode(), at_ms=at_ms)
        self.pipeline.feed.flush()

    def check(self) -> None:
        wanted = [
            (key, version.start, version.end, version.row["name"].upper(), version.row["n"])
            for key, model in sorted(self.models.items())
            for version in model.versions
        ]
        rows = _rows_of(self.pipeline, self.table, "k")
        shown = [(row["k"], *map(_millis, (row["valid_from"], row["valid_to"])), row["name"], row["n"]) for row in rows]
        assert sorted(shown, key=lambda version: version[:2]) == wanted
        assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)


class Minutes:
    """A topic of payments, grouped by user and overlapping windows; every ninth is late, and every seventh is sent twice."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.kept, self.count, self.late = pipeline, list[tuple[str, int, int]](), 0, 0
        select = (
            "select user, window.start as begin, count(*) as n, sum(amount) as total, avg(amount) as mean"
            " from records group by user, window(ts, '2 minutes', '1 minute')"
        )
        self.table, self.topic = pipeline.add_fed_table("minutes", 2, select=select, late="10m", metadata=[])
        #: Whose readers see windows that are complete alone.
        self.closed = pipeline.add_table(
            "closed", self.topic, select=select, late="10m", emit="closed", publish={"every": "1s"}, metadata=[]
        )

    def feed(self, count: int) -> None:
        for _ in range(count):
            number, self.count = self.count, self.count + 1
            is_late = number % 9 == 8 and number > 100
            at_s = _BEGIN // 1000 + 20 * number - (1200 if is_late else number % 5 * 30)
            row = {
                "user": f"u{number % 3}",
                "ts": datetime.datetime.fromtimestamp(at_s, datetime.UTC).isoformat(),
                "amount": number % 11,
            }
            for _ in range(2 if number % 7 == 0 else 1):
                self.pipeline.feed.send(self.topic, [row], number % 2, at_ms=1000 * (at_s + 2000))
                self.late += is_late
                if not is_late:
                    self.kept.append((str(row["user"]), at_s, number % 11))
        self.pipeline.feed.flush()

    def wanted(self) -> list[dict[str, Any]]:
        """What a query over all records that are not late gives."""
        groups: dict[tuple[datetime.datetime, str], list[int]] = defaultdict(list)
        for user, at_s, amount in self.kept:
            for start_s in (at_s // 60 * 60, at_s // 60 * 60 - 60):
                groups[datetime.datetime.fromtimestamp(start_s, datetime.UTC), user].append(amount)
        return [
            {
                "user": user,
                "begin": begin,
                "n": len(amounts),
                "total": sum(amounts),
                "mean": sum(amounts) / len(amounts),
            }
            for (begin, user), amounts in sorted(groups.items())
        ]

    def check(self) -> None:
        assert _shown(_rows_of(self.pipeline, self.table, "begin")) == self.wanted()
        assert self.pipeline.summary(self.table, "ignored-records").get("late", 0) == self.late

    def check_closed(self) -> None:
        """Main of the other table has the windows that are complete, each once, and no delete files."""
        metadata = self.pipeline.metadata(self.closed)
        assert metadata is not None
        document = json.loads(metadata.read_text())
        [main] = [one for one in document["snapshots"] if one["snapshot-id"] == document["current-snapshot-id"]]
        complete_us = int(main["summary"][f"frazil.{self.pipeline.name}.windows-complete-to"])
        with open_duckdb() as reader:
            rows = _shown(read_snapshot(reader, metadata, main["snapshot-id"]))
        ends = datetime.timedelta(minutes=2)
        wanted = [row for row in self.wanted() if (row["begin"] + ends).timestamp() * 1e6 <= complete_us]
        assert rows == wanted
        assert len(wanted) > 100
        assert main["summary"].get("total-delete-files", "0") == "0"


Table = Totals | Groups | Events | Versions | Minutes


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("user", "begin", "n", "total", "mean")
    return [{name: row[name] for name in names} for row in sorted(rows, key=lambda row: (row["begin"], row["user"]))]


def _millis(moment: datetime.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _rows_of(pipeline: Pipeline, table: str, order: str) -> list[dict[str, Any]]:
    metadata = pipeline.metadata(table)
    assert metadata is not None
    return sorted(read_newest(metadata), key=lambda row: row[order])


def _strike(points: Points, run: Run, steps: Mapping[str, Table]) -> None:
    """Kills the driver while a batch of each of these tables is at its step."""
    with ExitStack() as armed:
        for step, table in steps.items():
            armed.enter_context(points[step, "hold"].armed())
            table.feed(50)
            points[step, "hold"].wait(run)
        run.kill(run.pid, run.jvm_pid)
        wait_until_gone(run)
    assert run.wait() == -signal.SIGKILL


# The first is past the step of the second, at which it would be held too.
_BLOW: Mapping[str, int] = {"commit.landed": 4, "upsert.resolved": 0}


def test_a_merged_table_is_what_a_query_gives_after_kills(pipeline: Pipeline, jvm: Jvm) -> None:
    _check_after_kills(pipeline, jvm, _BLOW, has_second=False)


@pytest.mark.slow
def test_a_merged_table_is_what_a_query_gives_after_kills_and_with_a_second_process(
    pipeline: Pipeline, jvm: Jvm
) -> None:
    _check_after_kills(pipeline, jvm, _BLOW)


@pytest.mark.slow
def test_every_kind_of_state_is_what_a_query_gives_after_a_kill(pipeline: Pipeline, jvm: Jvm) -> None:
    blows = ({"commit.landed": 1}, {"upsert.resolved": 2}, {"commit.landed": 3}, {"upsert.resolved": 4})
    _check_after_kills(pipeline, jvm, *blows)


@pytest.mark.slow
def test_each_window_that_closes_is_published_once_though_the_process_that_does_it_is_killed(
    pipeline: Pipeline,
) -> None:
    minutes = Minutes(pipeline)
    steps = ("windows.written", "windows.landed")
    points = Points(pipeline.folder / "points", *((step, "hold") for step in steps))
    for step in steps:
        minutes.feed(300)
        run = pipeline.run(failpoints=points.declaration)
        pipeline.wait_for_commit_of(minutes.closed, run)
        _strike(points, run, {step: minutes})
    minutes.feed(200)
    run = pipeline.run()
    pipeline.wait_for_commit_of(minutes.closed, run)
    run.stop()
    minutes.check()
    minutes.check_closed()


def _replace_by_second(pipeline: Pipeline, points: Points, tables: Sequence[Table], first: Run) -> None:
    """Freezes a process at a look-up until a second one has committed, which refuses the first and dies with its JVM."""
    with points["upsert.resolved", "hold"].armed():
        tables[0].feed(50)
        points["upsert.resolved", "hold"].wait(first)
        with first.frozen():
            points["upsert.resolved", "hold"].disarm()
            second = pipeline.run()
            for table in tables:
                table.feed(50)
                pipeline.wait_for_commit_of(table.table, second)
        assert first.wait() == _FENCED, first.tail()
    second.kill(second.jvm_pid)  # It has nothing to read, and ends nevertheless.
    assert second.wait(20) == 1
    assert "the JVM has ended" in second.result()["error"]["message"]


def _check_after_kills(pipeline: Pipeline, jvm: Jvm, *blows: Mapping[str, int], has_second: bool = True) -> None:
    """Kills a process for each blow, lets another run, has it replaced by a second one, and compares the tables. blows: by
    step the number of the table whose batch is there.
    """
    tables: tuple[Table, ...] = (
        Totals(pipeline),
        Groups(pipeline),
        Events(pipeline),
        Versions(pipeline),
        Minutes(pipeline),
    )
    points = Points(pipeline.folder / "points", *((step, "hold") for step in _STEPS))
    for blow in blows:
        for table in tables:
            table.feed(120)
        run = pipeline.run(failpoints=points.declaration)
        for table in tables:
            pipeline.wait_for_commit_of(table.table, run)
            table.check()
        _strike(points, run, {step: tables[struck] for step, struck in blow.items()})
    first = pipeline.run(failpoints=points.declaration)
    for table in tables:
        table.feed(20)  # A process that has committed nothing has no epoch that a second one could be behind.
    for table in tables:
        pipeline.wait_for_commit_of(table.table, first)
    if has_second:
        _replace_by_second(pipeline, points, tables, first)
    else:
        for table in tables:
            table.feed(50)
            pipeline.wait_for_commit_of(table.table, first)
        assert first.stop() == 0, first.tail()
    for table in tables:
        table.check()
        pipeline.check_readers(table.table)
    dropped = pipeline.summary(tables[2].table, "balance")
    assert dropped["dropped"]["duplicate"] > 0
    minutes = tables[4]
    assert isinstance(minutes, Minutes)
    minutes.check_closed()
    verified = pipeline.command_on(jvm, "verify")["tables"]
    assert all(report["equal"] for report in verified.values()), verified
    lineage = pipeline.command_on(jvm, "lineage")["tables"]
    assert {
        name: {column["name"]: column["fields"] for column in lineage[name]["columns"] if column["name"] in columns}
        for name, columns in ((minutes.table, ("begin", "n", "mean")), (tables[3].table, ("name", "valid_from")))
    } == {
        minutes.table: {"begin": ["ts"], "n": [], "mean": ["amount"]},
        tables[3].table: {"name": ["name"], "valid_from": ["at"]},
    }
