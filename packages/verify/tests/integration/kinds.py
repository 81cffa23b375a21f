"""A pipeline with a table of every kind on real parts, and faults that another team's Spark plants in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.pipelines import Ledger, Pipeline, Running

FIRST = 60
"""The number of records of each topic before the first run; tables with `start: latest` have none of them."""
_PEOPLE = 10
_KINDS = ("order", "refund", None)
_EVENTS = (72, 75, 78, 84, 87)
"""Numbers of events that are sent once, are not damaged, and are in each table of events that has a row of an order."""
_PLACES = {"partition": "kafka_partition", "offset": "_offset"}
"""Spark cannot read a column called `_partition`."""


@dataclass(frozen=True)
class Kind:
    """A kind of table, and rows of it."""

    settings: Mapping[str, Any]
    #: Conditions that each one row meets, no two the same one.
    rows: Sequence[str]
    #: The column that names what a row was made of.
    place: str = "_offset"
    #: Whether the independent judge makes its rows, and whether a copy of it is compared.
    is_judged: bool = True
    is_copied: bool = True


def _each(column: str, *values: int) -> list[str]:
    return [f"{column} = {value}" for value in values]


def _kinds(events: str, people: str, changes: str) -> dict[str, Kind]:
    """Returns the tables of the pipeline file by their names. events, people, changes: the topics."""
    plain = {"topic": events, "metadata": _PLACES, "columns": {"at": "timestamptz"}}
    keyed = {"topic": people, "metadata": _PLACES, "key": {"format": "json"}, "mode": "upsert"}
    changed = {"topic": changes, "metadata": _PLACES, "envelope": "debezium"}
    current = {**changed, "key": {"format": "json"}, "mode": "upsert"}
    query = "select id, customer, upper(name) as name, amount, size, {} from records where customer <> 6"
    totals = "count(*) as orders, sum(amount) as amount, max(size) as size, max(name) as name"
    of_events, of_people, of_changes = (
        _each("id", *_EVENTS),
        _each("id", 4, 5, 6, 7, 8),
        _each("order_no", 3, 4, 5, 7, 8),
    )
    of_log = [f"order_no = {n % _PEOPLE} and size = {n * 3}" for n in (23, 24, 27, 28, 29)]
    of_customers = _each("customer", 3, 4, 0, 1, 2)
    return {
        "append": Kind(plain, of_events),
        "branch": Kind({**plain, "branch": "ingest"}, of_events),
        "latest": Kind({**plain, "start": "latest"}, of_events),
        "query": Kind({**plain, "select": query.format("at")}, of_events, is_judged=False),
        "spark": Kind({**plain, "select": query.format("xxhash64(name) as hash")}, of_events, is_judged=False),
        "once": Kind({**plain, "dedupe": {"by": ["id"]}}, of_events, is_judged=False),
        "upsert": Kind(keyed, of_people),
        "soft": Kind({**keyed, "deletes": "soft"}, (), is_judged=False),  # Spark cannot read a column `_deleted`.
        "versions": Kind({**keyed, "mode": "history"}, [f"{row} and is_current" for row in of_people], "id", False),
        "merged": Kind(
            {
                "topic": events, "mode": "upsert", "key_columns": ["customer"], "tombstones": "ignore",
                "include": ["customer", "amount", "size", "name"],
                "merge": {"amount": "sum", "orders": "count", "size": "max", "name": "max"},
            },
            of_customers, "customer", False,
        ),
        "grouped": Kind(
            {"topic": events, "select": f"select customer, {totals} from records group by customer"},
            of_customers, "customer", False,
        ),
        "log": Kind({**changed, "changelog": True}, of_log),
        "current": Kind(current, of_changes),
        "atomic": Kind({**current, "atomic": "transaction"}, of_changes, is_judged=False),
        "joined": Kind(
            {**plain, "lookup": {"person": {"table": "k.upsert", "on": "customer = id", "take": ["name"]}}},
            of_events, is_judged=False,
        ),
        "times": Kind({**plain, "columns": {"clock": "time"}}, ()),  # Spark compares no such rows: their sums are.
    }  # fmt: skip


ROUTED = {
    "of_order": Kind({}, _each("id", *_EVENTS), is_copied=False),
    "of_refund": Kind({}, _each("id", 73, 76, 79, 82, 85), is_copied=False),
    "rest": Kind({}, _each("id", 74, 77, 80, 83, 86), is_copied=False),
}
"""The tables of the route."""


def event(number: int, **more: Any) -> dict[str, Any]:
    """The value of a record of events."""
    return {
        "id": number,
        "customer": number % 7,
        "kind": _KINDS[number % 3],
        "name": f"name {number}",
        "amount": number + 0.25,
        "size": number * 3,
        "at": f"2026-01-{number % 27 + 1:02}T{number % 20:02}:30:00Z",
        "clock": f"{number % 24:02}:30:00",
        **more,
    }


def change(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The key and the value of a change: three of them are a transaction."""
    key = {"order_no": number % _PEOPLE}
    row = {**key, "name": f"name {number}", "amount": number + 0.25, "size": number * 3}
    source = {
        "connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "ts_ms": 1_790_000_000_000 + number,
        "txId": 500 + number // 3, "lsn": 1000 + number, "snapshot": "false",
        "sequence": json.dumps([str(1000 + number - 1), str(1000 + number)]),
    }  # fmt: skip
    transaction = {"id": f"{500 + number // 3}:{1000 + number}", "total_order": number % 3 + 1}
    is_delete = number % 13 == 12
    before, after = (row, None) if is_delete else (None, row)
    value = {"before": before, "after": after, "op": "d" if is_delete else "c", "source": source}
    return key, {**value, "ts_ms": source["ts_ms"], "transaction": transaction}


class Scene:
    """The topics and the pipeline."""

    def __init__(self, broker: EmbeddedBroker, spark: ForeignSpark, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.events, self.people, self.changes = (Ledger(servers, new_id(), n).topic for n in (2, 2, 1))
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self.kinds = _kinds(self.events, self.people, self.changes)
        route = {"topic": self.events, "by": "kind", "to": "k.of_${kind}", "rest": "k.rest"}
        tables = {f"k.{name}": {**kind.settings, "format_version": 2} for name, kind in self.kinds.items()}
        self.kinds |= ROUTED
        self.pipeline = Pipeline(
            folder,
            {
                "pipeline": "k",
                "kafka": {"bootstrap.servers": servers},
                "tables": tables,
                "routes": [{**route, "metadata": _PLACES, "columns": {"at": "timestamptz"}, "format_version": 2}],
            },
        )
        self.sent = 0
        self.spark, self._folder = spark, folder

    def send(self, count: int, **more: Any) -> None:
        """Sends records to each topic: some damaged, some twice, some deletes. more: further fields of events."""
        for number in range(self.sent, self.sent + count):
            text = b"{" if number % 41 == 7 else json.dumps(event(number, **more)).encode()
            for _ in range(2 if number % 10 == 1 else 1):
                self._producer.produce(self.events, text, partition=number % 2)
            key = json.dumps({"id": number % _PEOPLE}).encode()
            person = {"id": number % _PEOPLE, "name": f"name {number}", "amount": number + 0.25, "size": number * 3}
            value = None if number % 19 == 18 else json.dumps(person).encode()
            self._producer.produce(self.people, value, key, partition=number % 2)
            of_change, image = (json.dumps(part).encode() for part in change(number))
            self._producer.produce(self.changes, image, of_change)
        assert self._producer.flush(30) == 0
        self.sent += count

    def fill(self) -> None:
        """Records before a run and while it runs, with which `start: latest` begins, and Spark that knows the catalog."""
        self.fill_tables()
        self.spark.restart()
        self.spark.add_local_catalog("frazil", self._folder)

    def fill_tables(self) -> None:
        """The tables alone."""
        self.send(FIRST)
        with self.pipeline.start() as run:
            self._wait_for_commit(run, "k.append")
            self.send(FIRST)
            self._wait_for_commit(run, "k.latest")
            run.stop()
        self.pipeline.run()

    @staticmethod
    def _wait_for_commit(run: Running, table: str) -> None:
        count = 1
        while table not in {line["table"] for line in run.wait_for("batch_committed", count)}:
            count = len(run.events_named("batch_committed")) + 1

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what was found of each table, by its name in its namespace."""
        done, printed = self.pipeline.command("verify", *words)
        assert "tables" in printed, done.stderr
        return done.returncode, {name.partition(".")[2]: table for name, table in printed["tables"].items()}

    # ---- what the other team does

    def name(self, kind: str) -> str:
        """The table's name for Spark, that of its branch where it has one."""
        return f"frazil.k.{kind}" + (".branch_ingest" if kind == "branch" else "")

    def rows(self, kind: str, condition: str, column: str) -> list[Any]:
        """The values of a column of some rows."""
        return [row[column] for row in self.spark.sql(f"select * from {self.name(kind)} where {condition}")]

    def head(self, kind: str) -> int:
        """The newest snapshot."""
        ref = "ingest" if kind == "branch" else "main"
        (row,) = self.spark.sql(f"select snapshot_id from frazil.k.{kind}.refs where name = '{ref}'")
        return int(row["snapshot_id"])

    def roll_back(self, kind: str, snapshot: int) -> None:
        """Makes an older snapshot the newest one."""
        if kind == "branch":
            self.spark.sql(f"alter table frazil.k.branch replace branch ingest as of version {snapshot}")
        else:
            self.spark.sql(f"call frazil.system.rollback_to_snapshot('k.{kind}', {snapshot})")

    def plant(self, kind: str, fault: str, place: int) -> None:
        """Plants a fault in one of the rows of a table. place: of the row; a fault of two rows takes the next one too."""
        table, row = self.name(kind), self.kinds[kind].rows[place]
        if fault == "swapped rows":
            other = self.kinds[kind].rows[place + 1]
            first, second = (self.rows(kind, condition, "name")[0] for condition in (row, other))
            self.spark.sql(f"update {table} set name = '{second}' where {row}")
            self.spark.sql(f"update {table} set name = '{first}' where {other}")
            return
        if fault in _COPIED:
            columns = [of["col_name"] for of in self.spark.sql(f"show columns in frazil.k.{kind}")]
            chosen = ", ".join(f"{_COPIED[fault].get(name, name)} as {name}" for name in columns)
            self.spark.sql(f"insert into {table} select {chosen} from {table} where {row}")
            return
        self.spark.sql(_CHANGED[fault].format(table=table, row=row))

    def metadata(self, kind: str) -> Path:
        """The newest metadata file of a table."""
        with closing(sqlite3.connect(self._folder / "frazil-data" / "catalog.db")) as catalog:
            query = "select metadata_location from iceberg_tables where table_name = ?"
            (location,) = catalog.execute(query, (kind,)).fetchone()
        return Path(str(location).removeprefix("file://").removeprefix("file:"))


_COPIED: Mapping[str, Mapping[str, str]] = {
    "doubled row": {},
    "invented row": {"name": "'nobody'", "size": "size + 1000003"},
    "former row restored": {"name": "'former'", "size": "size - 3", "amount": "amount - 1"},
}
"""Faults that add a row, with the columns that it does not have of the first one."""
_CHANGED: Mapping[str, str] = {
    "missing row": "delete from {table} where {row}",
    "last digit": "update {table} set size = size + 1 where {row}",
    "last digit of a fraction": "update {table} set amount = amount + 0.01 where {row}",
    "cut text": "update {table} set name = substring(name, 1, length(name) - 1) where {row}",
    "value gone": "update {table} set name = null where {row}",
    "swapped columns": "update {table} set size = cast(amount as bigint), amount = size where {row}",
    "former value": "update {table} set name = 'former', size = size - 3 where {row}",
}
"""Faults that change or remove a row."""
FAULTS: Sequence[str] = (*_COPIED, *_CHANGED, "swapped rows")
AT_ONCE = 4
"""So many faults are planted in a table before it is compared: a comparison with a copy shows five rows of each side."""
