"""Kills at every step of a commit and of a publish, lost answers and second processes: readers of a table see only what has
passed its audits, and those of a group no row that refers to one which is missing.

`make soak-publish` kills 200 times; FRAZIL_KILLS for another number, FRAZIL_FIRST_SEED for other moments.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import StaticTable

from frazil.clock import SystemClock
from frazil.errors import FencedError
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from packages.publish.tests.integration.chains import Chain, say
from packages.publish.tests.integration.shops import AUDITS, TABLE, Shop
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline, Running

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
POINTS = (
    "commit.before", "commit.landed", "commit.after", "publish.audited", "branch.copied", "branch.before", "branch.landed",
    "branch.between",
)  # fmt: skip
KILLS = int(os.environ.get("FRAZIL_KILLS", "200"))
SEED = int(os.environ.get("FRAZIL_FIRST_SEED", "1"))
_IN_TIME = ("publish.audited=kill", "branch.landed=reset;branch.between=kill")


class Killed(Shop):
    """A pipeline of an upsert table whose topic has wrong amounts that later records correct, and of two tables of a group.
    Readers must never see a wrong amount, or a row of the group that refers to none.
    """

    def __init__(self, broker: EmbeddedBroker, folder: Path, delete_mode: str, jvm: Jvm | None = None) -> None:
        """jvm: as of Shop."""
        publish = {"every": "200ms", "audits": {"no_negative": AUDITS["no_negative"]}}
        upsert = {"mode": "upsert", "key_columns": ["id"], "delete_mode": delete_mode}
        super().__init__(broker, folder, jvm, publish=publish, **upsert)
        self.chain = Chain(broker, folder, ("customers", "deliveries"), every="200ms")
        self.chance = np.random.default_rng(SEED)
        self._amounts: dict[int, float] = {}
        self.looked_at: set[int] = set()

    def pipeline(self, **environment: str) -> Pipeline:
        document: dict[str, Any] = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self._servers},
            "http": False,
            "commit": {"interval": "300ms"},
            "tables": {TABLE: self.table, **self.chain.settings()},
        }
        return Pipeline(self.folder, document, environment, self._jvm)

    def change(self) -> bool:
        """False. Corrects what is wrong, or sends some changes, now and then a wrong one."""
        wrong = [order for order, amount in self._amounts.items() if amount < 0]
        for order in wrong or self.chance.integers(0, 30, 5).tolist():
            is_wrong = not wrong and self.chance.random() < 0.1
            self._amounts[order] = -1.0 if is_wrong else float(self.chance.integers(1, 99))
            self.send((order, self._amounts[order]))
        self.chain.change()
        return False

    def failpoints(self) -> str:
        """A step at which a process dies, sometimes after an answer of the catalog was lost."""
        point, nth = self.chance.choice(POINTS), self.chance.integers(1, 4)
        is_lost = self.chance.random() < 0.2
        return f"branch.landed=reset;{point}=kill@{nth}" if is_lost else f"{point}=kill@{nth}"

    def live(self, failpoints: str, others: int = 0) -> bool:
        """One process, which dies at a step, beside others, which are killed at that moment; False where a later process
        has taken its part before.
        """
        with ExitStack() as started:
            runs = [started.enter_context(run.start()) for run in self._runs(failpoints, others)]
            wait_until(lambda: runs[0].has_ended or self.change(), f"it dies at {failpoints}", 300)
        self.look()
        return self._was_killed(runs[0])

    def _runs(self, failpoints: str, others: int) -> Iterator[Pipeline]:
        yield self.pipeline(**{VARIABLE: failpoints})
        for _ in range(others):
            yield self.pipeline(**{VARIABLE: self.failpoints()})

    def _was_killed(self, run: Running) -> bool:
        if run.exit_code == FencedError.exit_code:
            return False
        run.wait_for_death()
        return True

    def look(self) -> None:
        """Whatever was published ever, as far as its snapshot is kept, has passed."""
        self.chain.look()
        location = self.location()
        if location is None:
            return
        table = StaticTable.from_metadata(location)
        published = {entry.snapshot_id for entry in table.metadata.snapshot_log}
        for snapshot_id in published - self.looked_at:
            if table.metadata.snapshot_by_id(snapshot_id) is not None:
                rows = table.scan(snapshot_id=snapshot_id).to_arrow()
                assert all(amount >= 0 for amount in rows["amount"].to_pylist()), snapshot_id
                self.looked_at.add(snapshot_id)

    def settle(self) -> None:
        """Corrects what is wrong; in the end readers see every order as it was last sent, each once."""
        for order, amount in self._amounts.items():
            if amount < 0:
                self._amounts[order] = 1.0
                self.send((order, 1.0))
        self.chain.flush()
        self.pipeline().run()
        self.look()
        self.chain.check()
        rows = self.metadata().scan().to_arrow()
        assert len(rows) == len(self._amounts)
        assert dict(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True)) == self._amounts


def test_a_process_that_dies_while_it_publishes(broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path) -> None:
    killed = Killed(broker, tmp_path, "merge_on_read", jvm)
    for failpoints in _IN_TIME:
        assert killed.live(failpoints)
        if failpoints == _IN_TIME[0]:
            assert (killed.looked_at, killed.chain.seen) == (set(), set())
    killed.settle()


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_no_kill_publishes_what_has_not_passed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    killed, clock = Killed(broker, tmp_path, "copy_on_write"), SystemClock()
    begun_s, counts = clock.monotonic_s(), Counter[str]()
    while counts["kills"] < KILLS:
        failpoints, others = killed.failpoints(), int(killed.chance.random() < 0.1)
        counts["kills" if killed.live(failpoints, others) else "taken over"] += 1
        counts[failpoints.rpartition(";")[2].partition("=")[0]] += 1
        counts["beside another process"] += others
        counts["with a lost answer"] += ";" in failpoints
        read = f"{len(killed.looked_at)} published snapshots and {len(killed.chain.seen)} generations read"
        say(f"{clock.monotonic_s() - begun_s:.0f} s: {dict(counts)}, {read}")
    killed.settle()
