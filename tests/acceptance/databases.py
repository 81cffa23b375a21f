"""Mirrors of a real PostgreSQL: one pipeline for all of its tables, a load that goes on while things are killed, and the
comparison.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyiceberg.table import StaticTable

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.fixtures.source import Ends, Source
from tests.fixtures.waiting import PATIENCE_S, wait_until
from tests.fixtures.workload import SourceTable

TRANSACTIONS, AT_ONCE = 300, 5


class Mirrors:
    """A pipeline that mirrors all tables of a source by one regular expression."""

    def __init__(self, pipeline: Pipeline, source: Source, settings: Mapping[str, Any]) -> None:
        """settings: of every table."""
        self.pipeline = pipeline
        self.source = source
        names = "|".join(table.name for table in source.tables)
        del pipeline.document["tables"]
        pipeline.document |= {
            "namespace": "mirror",
            "topics": [rf"/^{source.prefix}\.public\.({names})$/"],
            "defaults": {"mode": "upsert", "key": {"format": "json"}, **settings},
        }

    def name(self, table: SourceTable) -> str:
        """The mirror's name."""
        return f"mirror.{self.source.topic(table)}"

    def wait_for(self, ends: Ends, run: Run) -> None:
        """Waits until every mirror has all that was in Kafka."""
        for table in self.source.tables:
            topic = self.source.topic(table)
            self.pipeline.wait_for_offsets(self.name(table), {topic: ends[topic]}, run)

    def check(self) -> None:
        """Every mirror equals `SELECT *` of its table; all readers say so; nothing was put aside."""
        for table in self.source.tables:
            metadata = self.pipeline.metadata(self.name(table))
            assert metadata is not None, f"{table.name} has no mirror"
            rows = StaticTable.from_metadata(f"file://{metadata}").scan().to_arrow().to_pylist()
            assert table.in_words(rows) == table.rows(self.source.postgres), table.name
            self.pipeline.check_readers(self.name(table))
            letters = self.pipeline.metadata(f"{self.name(table)}__dead_letters")
            if letters is not None:  # It is made when a record needs its headers read; that is no letter yet.
                assert StaticTable.from_metadata(f"file://{letters}").scan().to_arrow().to_pylist() == []

    def live_through(self, rounds: int, connector_killed_at: int, chance: int) -> None:
        """Rounds of load in which the pipeline is killed, in one of them the connector too; after each a pause in which all
        must be equal.
        """
        run = self.pipeline.run()
        for number in range(rounds):
            with _load(self.source):
                run = self._kill_meanwhile(run, chance + number)
                if number == connector_killed_at:
                    self.source.worker.kill()
                    self.source.worker.start()
            self.wait_for(self.source.pause(), run)
            self.check()
        assert run.stop() == 0, run.tail()

    def _kill_meanwhile(self, run: Run, chance: int) -> Run:
        """SIGKILL for driver and JVM once some of the mirrors have moved; another run."""
        watched = self.source.tables[: 1 + chance % len(self.source.tables)]
        before = {table.name: self.pipeline.metadata(self.name(table)) for table in watched}

        def has_moved() -> bool:
            return any(self.pipeline.metadata(self.name(table)) != before[table.name] for table in watched)

        run.wait_while_running(has_moved, "it has committed something")
        run.kill()
        run.close()
        wait_until(lambda: not run.is_running, "it is gone")
        return self.pipeline.run()


@contextmanager
def _load(source: Source) -> Iterator[None]:
    """Transactions while the block lasts, and until all of them are done."""
    failures: list[BaseException] = []
    breath = threading.Event()

    def play() -> None:
        try:
            for _ in range(0, TRANSACTIONS, AT_ONCE):
                source.play(AT_ONCE)
                breath.wait(0.1)
        except BaseException as error:  # noqa: BLE001  (raised again by who waits)
            failures.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the load has not ended"
    assert failures == []
