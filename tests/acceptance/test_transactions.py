"""Transfers between accounts of a real PostgreSQL: at every snapshot of the upsert table the sum is what it always was,
whatever was killed meanwhile. In time: Debezium's worker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import StaticTable

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.fixtures.source import Source, running
from tests.fixtures.source_types import INTEGER
from tests.fixtures.waiting import PATIENCE_S, wait_until
from tests.fixtures.workload import SourceTable

pytestmark = pytest.mark.timeout(1800)

ACCOUNTS, EACH = 30, 100
_NAME = "bank.accounts"


@dataclass
class Bank:
    """The upsert table of one table of accounts."""

    pipeline: Pipeline
    source: Source
    seed: int

    @property
    def topic(self) -> str:
        return self.source.topic(self.source.tables[0])

    def open(self, atomic: Any) -> None:
        """Fills the accounts, in one transaction, and declares their upsert table."""
        with self.source.postgres.connected() as connection:
            connection.run(f"insert into accounts select n, {EACH} from generate_series(1, {ACCOUNTS}) n")
        settings: Mapping[str, Any] = {"envelope": "debezium", "mode": "upsert", "key": {"format": "json"}}
        self.pipeline.document["maintenance"] = False
        self.pipeline.document["tables"][_NAME] = {"topic": self.topic, **settings, "atomic": atomic}

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Two who transfer at a time while the block lasts."""
        failures: list[BaseException] = []
        over = threading.Event()

        def play(number: int) -> None:
            try:
                self._transfer(np.random.default_rng((self.seed, number)), over)
            except BaseException as error:  # noqa: BLE001  (raised again by who waits)
                failures.append(error)

        threads = [threading.Thread(target=play, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert failures == []

    def _transfer(self, rng: np.random.Generator, over: threading.Event) -> None:
        """Transactions, one after the other; each moves money between a few accounts, in an order that cannot end in a
        deadlock with others'.
        """
        with self.source.postgres.connected() as connection:
            while not over.wait(0.05):
                rows = sorted(rng.choice(ACCOUNTS, int(rng.integers(2, 7)), replace=False).tolist())
                left = rng.integers(-20, 20, len(rows) - 1).tolist()
                connection.run("begin")
                for row, amount in zip(rows, [*left, -sum(left)], strict=True):
                    connection.run(f"update accounts set balance = balance + {amount} where id = {row + 1}")
                connection.run("rollback" if rng.random() < 0.05 else "commit")

    def wait_for_commits(self, run: Run, count: int = 3) -> None:
        """Waits until the upsert table has continued so many times."""
        for _ in range(count):
            run.wait_while_running(partial(self._has_continued, self.pipeline.progress(_NAME)), "it has committed")

    def _has_continued(self, before: Mapping[str, Mapping[int, int]]) -> bool:
        return self.pipeline.progress(_NAME) != before

    def kill(self, run: Run) -> Run:
        """SIGKILL for driver and JVM; another run."""
        run.kill()
        run.close()
        wait_until(lambda: not run.is_running, "it is gone")
        return self.pipeline.run()

    def check(self) -> int:
        """Every snapshot has all accounts and their sum; the newest has what PostgreSQL has. How many there are."""
        metadata = self.pipeline.metadata(_NAME)
        assert metadata is not None
        table = StaticTable.from_metadata(f"file://{metadata}")
        snapshots = [one["snapshot-id"] for one in json.loads(metadata.read_text())["snapshots"]]
        for snapshot in snapshots:
            balances = table.scan(snapshot_id=snapshot).to_arrow().column("balance").to_pylist()
            assert (len(balances), sum(balances)) == (ACCOUNTS, ACCOUNTS * EACH)
        rows = {row["id"]: row["balance"] for row in table.scan().to_arrow().to_pylist()}
        assert rows == {row["id"]: row["balance"] for row in self.source.postgres.rows("select * from accounts")}
        self.pipeline.check_readers(_NAME)
        return len(snapshots)


@pytest.mark.parametrize(
    ("has_events", "is_killed"),
    [
        # In time: kills of the driver in simulation/test_transactions.py, and of a real one in test_upserts.py.
        pytest.param(True, False, id="counted by events"),
        pytest.param(True, True, id="counted by events, killed", marks=pytest.mark.slow),
        pytest.param(False, True, id="ended by the next, killed", marks=pytest.mark.soak),
    ],
)
def test_every_snapshot_has_the_same_sum(
    has_events: bool, is_killed: bool, pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    table = SourceTable("accounts", {"id": INTEGER}, {"balance": INTEGER}, can_be_truncated=not has_events)
    told = {"provide.transaction.metadata": str(has_events).lower()}
    made = Source(tmp_path / "connect", broker.bootstrap_servers, 3, told, [table])
    with running(made, transactions_before=0) as source:
        bank = Bank(pipeline, source, seed=3)
        bank.open({"transaction_topic": f"{source.prefix}.transaction"} if has_events else "transaction")
        run = pipeline.run()
        with bank.busy():
            bank.wait_for_commits(run)
            source.worker.kill()
        source.worker.start()
        with bank.busy():
            bank.wait_for_commits(run)
            if is_killed:
                run = bank.kill(run)
        run.wait_for("connected")  # Before that nobody would read what is transferred.
        with bank.busy():
            bank.wait_for_commits(run)
        goal = {bank.topic: source.pause()[bank.topic]}
        if not has_events:  # What the newest one is held back for.
            with source.postgres.connected() as connection:
                connection.run("update accounts set balance = balance where id = 1")
            source.pause()
        pipeline.wait_for_offsets(_NAME, goal, run)
        assert run.stop() == 0, run.tail()
        assert bank.check() >= 9
