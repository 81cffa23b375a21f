"""Half an hour of everything at once: records with ever new fields into partitioned tables, changes into an upsert
table, ingestion and table maintenance that are killed at random, a foreign compactor in the same tables. A slice of it
is part of `make test-all`; in time: test_upsert_maintenance.py.

`make soak-maintenance` runs it, for FRAZIL_SOAK_SECONDS.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from frazil.clock import SystemClock
from tests.acceptance.ledger import Feed, events
from tests.acceptance.operator import Operator
from tests.acceptance.operator import Table as JavaTable
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.soaking import die, live_on, rng, soak_s
from tests.acceptance.upsert_tables import UpsertTable
from tests.acceptance.verifier import unnamed, unnamed_metadata, untidy
from tests.fixtures.background import repeated

pytestmark = pytest.mark.timeout(7200)

SOAK_S = 1800.0
SAFETY_AGE_S = 180
MAINTENANCE = {"min_input_files": 4, "snapshots": {"count": 12}, "orphans": {"age": f"{SAFETY_AGE_S}s"}}
LAYOUTS = (["bucket(id, 4)"], ["even", "bucket(id, 2)"])
STEPS = (
    "maintenance.planned",
    "maintenance.compact.begins",
    "maintenance.compact.written",
    "maintenance.compact.landed",
    "maintenance.expire.begins",
    "maintenance.expire.landed",
    "maintenance.orphans.found",
)
LIVES_MS = 12_000
LOOKED_AFTER_S = 15.0
"""After so long a run has looked after some table, and dies of it where it is to."""
ROUND_MS = 20_000
"""As long as a round of maintenance may take before it is killed."""
TIDY_WITHIN_S = 300.0
FIELD_EVERY = 3000
"""Records of one topic between two new fields."""
SHOWING = (
    "compact",
    "expire",
    "orphans removed",
    "foreign compaction",
    "death in maintenance of run",
    "death in maintain",
)
"""Without any of these half an hour has shown nothing."""


class Soak:
    """A pipeline of tables that differ in their partitions, and of an upsert table. seen: what has happened, and how
    often.
    """

    def __init__(self, pipeline: Pipeline, operator: Operator, seed: int) -> None:
        self.pipeline = pipeline
        self._operator = operator
        self._seed = seed
        pipeline.document["maintenance"] = MAINTENANCE
        pairs = [
            pipeline.add_fed_table(f"soaked{number}", 2, partition_by=layout) for number, layout in enumerate(LAYOUTS)
        ]
        self._fed = [table for table, _ in pairs]
        self._topics = [topic for _, topic in pairs]
        self._upsert_table = UpsertTable(pipeline, "upserted", partition_by=["bucket(id, 2)"])
        self.tables = [*self._fed, self._upsert_table.table]
        self._feed = Feed(pipeline.servers, pipeline.ledger)
        self._told = 0
        self.seen = Counter[str]()
        self._changed_by_others: dict[str, JavaTable] = {}

    def produce(self) -> None:
        """Some records for every table; now and then they get a new field, at the top and inside."""
        field = self._told // FIELD_EVERY
        for topic in self._topics:
            rows = list(events(10, self._told))
            for row in rows:
                row[f"extra{field}"] = row["id"]
                row["where"][f"extra{field}"] = f"e{field}"
            self._feed.send(topic, rows)
        self._feed.flush()
        self._told += 10
        self._upsert_table.change(10)

    def compact(self) -> None:
        """What other writers do, which know nothing of deletes."""
        for table in self._fed:
            if table not in self._changed_by_others:
                self._changed_by_others[table] = self._operator.open(self.pipeline.folder, table)
            self.seen["foreign compaction"] += self._changed_by_others[table].compact_two()

    def live_and_die(self, number: int) -> None:
        """One run, every third of which dies in its maintenance, and beside every other one a round of maintenance that
        dies too.
        """
        step, is_armed = STEPS[rng(self._seed, number, len(STEPS))], number % 3 == 0
        run = self.pipeline.run(failpoints=f"{step}=kill@2" if is_armed else "")
        with suppress(AssertionError):  # It may have died of its failpoint before that.
            run.wait_for("batch_committed")
        if number % 2:
            within_s = rng(self._seed, number + 2000, ROUND_MS) / 1000
            failpoints = f"{STEPS[number // 4 % len(STEPS)]}=kill" if number % 4 == 1 else ""
            code = self.pipeline.attempt("maintain", failpoints=failpoints, within_s=180 if failpoints else within_s)
            assert code in (0, -signal.SIGKILL), (self.pipeline.folder / "attempts.log").read_text()[-3000:]
            self.seen["death in maintain"] += bool(failpoints) and code != 0
        # At the first there is nothing to maintain yet.
        at_least_s = LOOKED_AFTER_S if is_armed and number else 0.0
        live_on(run, at_least_s + rng(self._seed, number + 1000, LIVES_MS) / 1000)
        self.seen["death in maintenance of run"] += is_armed and not run.is_running and run.wait() == -signal.SIGKILL
        self.note(run)
        die(run, number)

    def note(self, run: Run) -> None:
        """Counts what table maintenance has done in a run, which had no trouble."""
        assert troubles(run) == []
        for done in run.seen("maintenance_done"):
            self.seen[done["action"]] += 1
            self.seen["orphans removed"] += done["removed"] if done["action"] == "orphans" else 0

    def check(self) -> None:
        """Lost 0, doubled 0."""
        for table in self._fed:
            self.pipeline.check(table)
        self._upsert_table.check_all()
        self.pipeline.check_readers(self._upsert_table.table)

    def untidy(self) -> dict[str, tuple[str, ...]]:
        """Tables whose files are not as they should be, and where."""
        found = {table: self.pipeline.metadata(table) for table in self.tables}
        return {table: words for table, metadata in found.items() if metadata and (words := untidy(metadata))}

    def unnamed(self) -> set[str]:
        """Files of all tables that neither a snapshot names nor the metadata."""
        return set().union(*map(self._unnamed, self.tables))

    def _unnamed(self, table: str) -> frozenset[str]:
        while True:
            metadata = self.pipeline.metadata(table)
            try:
                return unnamed(metadata) | unnamed_metadata(metadata)
            except FileNotFoundError:  # Of a snapshot that was expired while all that are named were read.
                if self.pipeline.metadata(table) == metadata:
                    raise


def troubles(run: Run) -> list[Any]:
    """What a run may not say whatever others do."""
    words = ("unexpected_error", "table_stopped", "maintenance_failed", "maintenance_skipped")
    return [event for word in words for event in run.seen(word)]


@contextmanager
def in_bad_company(soak: Soak) -> Iterator[None]:
    """Records keep coming, and others compact."""
    with repeated(lambda _: soak.produce(), 0.2), repeated(lambda _: soak.compact(), 3.0):
        yield


def lead_lives(soak: Soak, is_over: Callable[[int], bool], number: int = 0) -> None:
    """A life after the other until it is over, and then all that is there is committed. number: of the first."""
    soak.produce()
    soak.pipeline.catch_up()
    with in_bad_company(soak):
        while not is_over(number):
            soak.live_and_die(number)
            number += 1


@pytest.mark.soak
def test_half_an_hour_of_everything(pipeline: Pipeline, operator: Operator) -> None:
    soak, clock, lasting_s = Soak(pipeline, operator, 0), SystemClock(), soak_s(SOAK_S)
    end_s = clock.monotonic_s() + lasting_s
    lead_lives(soak, lambda _: clock.monotonic_s() > end_s)
    with pipeline.running() as run:
        for table in soak.tables:
            pipeline.wait_for_commit_of(table, run)
        run.wait_while_running(lambda: not soak.untidy(), "files are as they should be", TIDY_WITHIN_S)
        run.wait_while_running(lambda: not soak.unnamed(), "orphans are gone", SAFETY_AGE_S + TIDY_WITHIN_S)
        assert run.stop() == 0, run.tail()
        soak.note(run)
    soak.check()
    assert lasting_s < SOAK_S or [what for what in SHOWING if not soak.seen[what]] == [], soak.seen


@pytest.mark.slow
def test_a_minute_of_everything(pipeline: Pipeline, operator: Operator) -> None:
    soak = Soak(pipeline, operator, 7)
    lead_lives(soak, lambda number: number == 2, number=1)  # One that has a round of maintenance beside it.
    pipeline.catch_up()
    pipeline.document["maintenance"] = {**MAINTENANCE, "orphans": {"age": "1ms"}}
    pipeline.command("maintain")
    assert (soak.untidy(), soak.unnamed()) == ({}, set())
    soak.check()
