"""Upsert tables of a real PostgreSQL: one pipeline for all of its tables, a load that continues while things are
killed, and the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table import StaticTable

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.soaking import die, live_on, rng
from tests.fixtures.source import Ends, Source
from tests.fixtures.workload import SourceTable

TRANSACTIONS = 300
LONGEST_LIFE_MS = 6000
_LOG = {"mode": "append", "envelope": "debezium", "changelog": True, "metadata": ["partition", "offset"]}
Row = dict[str, Any]


class UpsertTables:
    """A pipeline that makes upsert tables of all tables of a source, by one regular expression."""

    def __init__(
        self, pipeline: Pipeline, source: Source, settings: Mapping[str, Any], others: Mapping[str, Any] | None = None
    ) -> None:
        """settings: of every upsert table. others: of a second upsert table of those tables whose changes tell all of a
        row. Then the expression selects these, the first ones are named one by one, and of the same tables there is a
        log of every change.
        """
        self.pipeline = pipeline
        self.source = source
        self._twice = [table for table in source.tables if table.tells_all] if others is not None else []
        upsert_table = {"mode": "upsert", "key": {"format": "json"}, **settings}
        del pipeline.document["tables"]
        if others is None:
            self._select("upsert_table", source.tables, upsert_table)
            return
        log = {**_LOG, **{name: held for name, held in settings.items() if name == "value"}}
        self._select("other", self._twice, {"mode": "upsert", "key": {"format": "json"}, **others})
        pipeline.document["tables"] = {
            **{self.name(table): {"topic": source.topic(table), **upsert_table} for table in source.tables},
            **{self.name(table, "log"): {"topic": source.topic(table), **log} for table in self._twice},
        }

    def name(self, table: SourceTable, namespace: str = "upsert_table") -> str:
        """Where the table is upserted."""
        return f"{namespace}.{self.source.topic(table)}"

    def wait_for(self, ends: Ends, run: Run) -> None:
        """Waits until every upsert table, and every log, has all that was in Kafka."""
        names = [(self.name(table), table) for table in self.source.tables]
        names += [(self.name(table, namespace), table) for table in self._twice for namespace in ("other", "log")]
        for name, table in names:
            topic = self.source.topic(table)
            self.pipeline.wait_for_offsets(name, {topic: ends[topic]}, run)

    def check(self) -> None:
        """Every upsert table equals `SELECT *` of its table; all readers say so; nothing was stored."""
        for table in self.source.tables:
            self._check_upsert_table(self.name(table), table)
            self.pipeline.check_readers(self.name(table))
        for table in self._twice:
            self._check_upsert_table(self.name(table, "other"), table)

    def check_logs(self, ends: Ends) -> None:
        """Every log has each change of the topic once, and the last ones are what is in the table."""
        for table in self._twice:
            rows = self._rows(self.name(table, "log"))
            images = [(row["_kafka_partition"], row["_offset"], row["_image"]) for row in rows]
            assert len(images) == len(set(images)), table.name
            of_partition = ends[
                self.source.topic(table)
            ]  # A connector that was killed may say more, again, after a pause.
            told = {(partition, offset) for partition, offset, _ in images if offset < of_partition.get(partition, 0)}
            assert len(told) == self.source.count_changes(table, ends), table.name
            assert table.in_words(_newest(rows, list(table.keys))) == table.rows(self.source.postgres), table.name

    def rows(self, table: SourceTable) -> list[Row]:
        """What the upsert table has."""
        return self._rows(self.name(table))

    def dead_letters(self, table: SourceTable) -> list[Row]:
        """What was stored of its changes."""
        name = f"{self.name(table)}__dead_letters"
        return self._rows(name) if self.pipeline.metadata(name) is not None else []

    def live_through(self, rounds: int, connector_killed_at: int, seed: int) -> None:
        """Rounds of load, with tables that are read again beside it, in which the pipeline is killed, in one of them the
        connector too; after each a pause in which all must be equal.
        """
        run = self.pipeline.run()
        for number in range(rounds):
            with self.source.busy(TRANSACTIONS):
                self.source.read_again()
                run = self._kill_meanwhile(run, seed, number)
                if number == connector_killed_at:
                    self.source.read_again()
                    self.source.wait_for_chunks(2)
                    self.source.worker.kill()
                    self.source.worker.start()
            self.source.wait_for_chunks(6)
            ends = self.source.pause()
            self.wait_for(ends, run)
            self.check()
        self.check_logs(ends)
        assert run.stop() == 0, run.tail()

    def _kill_meanwhile(self, run: Run, seed: int, number: int) -> Run:
        """SIGKILL for driver, JVM or both, at a moment that the seed tells and no step does; another run."""
        run.wait_for("batch_committed")
        live_on(run, rng(seed, number, LONGEST_LIFE_MS) / 1000)
        die(run, number)
        return self.pipeline.run()

    def _select(self, namespace: str, tables: Sequence[SourceTable], settings: Mapping[str, Any]) -> None:
        names = "|".join(table.name for table in tables)
        self.pipeline.document |= {
            "namespace": namespace,
            "topics": [rf"/^{self.source.prefix}\.public\.({names})$/"],
            "defaults": settings,
        }

    def _check_upsert_table(self, name: str, table: SourceTable) -> None:
        assert self.pipeline.metadata(name) is not None, f"there is no {name}"
        assert table.in_words(self._rows(name)) == table.rows(self.source.postgres), name
        dead_letters = (
            f"{name}__dead_letters"  # It is made when a record needs its headers read; that is no dead letter yet.
        )
        assert self.pipeline.metadata(dead_letters) is None or self._rows(dead_letters) == []

    def _rows(self, name: str) -> list[Row]:
        table = StaticTable.from_metadata(f"file://{self.pipeline.metadata(name)}")
        rows: list[Row] = table.scan().to_arrow().to_pylist()
        return rows


def _newest(log: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """The rows that are left after all changes of a log, each row's in one partition."""
    rows: dict[str, Row] = {}
    for change in sorted(log, key=lambda row: row["_offset"]):
        key = str([change[name] for name in keys])
        if change["_image"] == "after":
            rows[key] = change
        elif change["_op"] == "d":
            rows.pop(key, None)  # A connector that begins again may repeat what came behind it alone.
    return list(rows.values())
