"""Tables that are their own state, compared with batch queries in Spark over the records of their topics: `make soak-state`
plays 200 histories of kills, late and doubled records, two processes and maintenance, the suite a few.

FRAZIL_FIRST_SEED and FRAZIL_HISTORIES choose others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from frazil.ingest.tables.queries import SparkQueries
from frazil.runtime.jvm import Jvm
from frazil.types import Progress
from packages.state.tests.simulation.groups import GroupHistory
from packages.state.tests.simulation.merges import CHANGES, ORDERED, PLAIN, MergeHistory
from tests.simulation.scene import Place

_SCHEMA = (
    "seq long, op string, k long, n long, at long, low long, high string, last long, first long, filled long, began long,"
    " every boolean, some boolean, tags array<string>, all_tags array<string>, state long, changed long"
)
_OF_PLAIN = (
    "k, sum(n) as n, count(*) as records, min(low) as low, max(high) as high, max_by(last, seq) as last,"
    " min_by(first, seq) as first, max_by(filled, if(filled is null, null, seq)) as filled,"
    " min_by(began, if(began is null, null, seq)) as began, bool_and(every) as every, bool_or(some) as some,"
    " if(count(tags) = 0, null, array_sort(array_distinct(flatten(collect_list(tags))))) as tags,"
    " if(count(all_tags) = 0, null, flatten(transform(array_sort(collect_list(if(all_tags is null, null,"
    " struct(seq, all_tags)))), x -> x.all_tags))) as all_tags,"
    " max_by(state, if(changed is null, null, struct(changed, seq))) as state, max(changed) as changed"
)
_OF_ORDERED = (
    "k, sum(n) as n, count(*) as records, min(low) as low, max(high) as high, max_by(last, struct(at, seq)) as last,"
    " max(at) as at, if(count(tags) = 0, null, array_sort(array_distinct(flatten(collect_list(tags))))) as tags"
)
_OF_CHANGES = (
    "k, sum(if(op = 'take', -1, 1) * coalesce(n, 0)) as n, sum(if(op = 'take', -1, 1)) as records,"
    " max_by(last, if(op = 'take', null, seq)) as last"
)
_AGGREGATES = {PLAIN: _OF_PLAIN, ORDERED: _OF_ORDERED, CHANGES: _OF_CHANGES}
_QUERY = "select {} from records where op <> 'clear' and seq > coalesce(cleared, -1) group by k having records <> 0"
_CLEARED = "select *, max(if(op = 'clear', seq, null)) over (partition by k) as cleared from every"


class SparkMerges(MergeHistory):
    """The last snapshot is what Spark makes of its records."""

    def __init__(self, seed: int, root: Path, session: SparkSession) -> None:
        super().__init__(seed, root)
        self.session, self.last = session, (0, list[Place]())

    def check_snapshot(self, snapshot_id: int, order: list[Place], new: list[Place], progress: Progress | None) -> None:
        super().check_snapshot(snapshot_id, order, new, progress)
        self.last = snapshot_id, order

    def check(self) -> Progress:
        progress = super().check()
        snapshot_id, order = self.last
        puts = [put for place in order for put in self.asked[place]]
        rows = [{"seq": seq, "op": put.op, **put.row, "k": put.key} for seq, put in enumerate(puts)]
        _show(self.session, self.root, rows, _SCHEMA, "every")
        self.session.sql(_CLEARED).createOrReplaceTempView("records")
        wanted = {row["k"]: _shown(row) for row in _rows(self.session, _QUERY.format(_AGGREGATES[self.kind]))}
        rows_of_table = self.table.rows_at(snapshot_id) if snapshot_id else []
        table = {row["k"]: _shown({name: row.get(name) for name in self._names(row)}) for row in rows_of_table}
        assert table == wanted
        return progress


class SparkGroups(GroupHistory):
    """The last snapshot is what Spark makes of the records that are not late."""

    def __init__(self, seed: int, root: Path, session: SparkSession) -> None:
        gateway: Any = session.sparkContext._gateway
        super().__init__(seed, root, SparkQueries(lambda: gateway.jvm))
        self.session = session

    def check(self) -> Progress:
        progress = super().check()
        rows = [{"user": one.user, "us": one.time_us, "amount": one.amount} for one in self.counted]
        _show(self.session, self.root, rows, "user string, us long, amount long", "counted")
        self.session.sql("select *, timestamp_micros(us) as ts from counted").createOrReplaceTempView("records")
        query = f"select * except (until), unix_micros(begin) as us, unix_micros(until) as until from ({self.query})"
        wanted = {(row["user"], row["us"]): row for row in _rows(self.session, query)}
        names = ("n", "total", "mean", "high", "until")
        rows_of_table = self.table.rows_at(self.last_snapshot) if self.last_snapshot else []
        table = {
            (row["user"], _micros(row["begin"])): {
                **{name: row[name] for name in names},
                "until": _micros(row["until"]),
            }
            for row in rows_of_table
        }
        assert table == {key: {name: row.get(name) for name in names} for key, row in wanted.items()}
        return progress


def _micros(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000


def _show(session: SparkSession, folder: Path, rows: list[dict[str, Any]], schema: str, view: str) -> None:
    """Makes a view of rows."""
    file = folder / f"{view}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    session.read.schema(schema).json(str(file)).createOrReplaceTempView(view)


def _rows(session: SparkSession, query: str) -> Iterator[dict[str, Any]]:
    """Yields what a query gives, without nulls; PySpark's own `collect` leaves a socket open."""
    frame: Any = session.sql(query)
    return (json.loads(text) for text in frame._jdf.toJSON().collectAsList())


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without nulls, and with the elements of sets in order."""
    shown = {name: sorted(value) if name == "tags" and value else value for name, value in row.items()}
    return {name: value for name, value in shown.items() if value is not None}


def _play(seed: int, root: Path, session: SparkSession) -> None:
    session.conf.set("spark.sql.session.timeZone", "UTC")
    history = (SparkMerges if seed % 2 else SparkGroups)(seed, root, session)
    with capture_logs():
        history.play(rounds=50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_table_is_what_a_batch_query_in_spark_gives(seed: int, tmp_path: Path, jvm: Jvm) -> None:
    _play(seed, tmp_path, jvm.session())


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_200_tables_are_what_batch_queries_in_spark_give(tmp_path: Path, jvm: Jvm) -> None:
    first, count = (
        int(os.environ.get(f"FRAZIL_{name}", usual)) for name, usual in (("FIRST_SEED", 0), ("HISTORIES", 200))
    )
    for seed in range(first, first + count):
        try:
            _play(seed, tmp_path / str(seed), jvm.session())
        except BaseException as error:
            error.add_note(f"FRAZIL_FIRST_SEED={seed} FRAZIL_HISTORIES=1 plays it again")
            raise
        sys.stdout.write(f"{seed + 1 - first} of {count} histories are equal\n")
