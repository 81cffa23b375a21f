"""Tables that owe table maintenance: each of them one action of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

from tests.acceptance.ledger import events
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.upsert_tables import UpsertTable

PARTITIONS = 110
"""So many files, each in a manifest of its own, are more than are left alone."""
ORPHANS = 150
"""More than are removed at once."""
KEYS = 20_000
"""So many rows that those which are deleted are no reason to rewrite their file."""
ROUND_S = 600.0
"""As long as a round of maintain all tables may take on a busy machine."""
LEFT_ALONE = {"small_file_share": "100%"}
MAINTENANCE: Mapping[str, Mapping[str, Any]] = {
    "compact": {},
    "deletes": {},
    "manifests": {},
    "expire": {**LEFT_ALONE, "snapshots": {"count": 2}},
    "carry": {**LEFT_ALONE, "snapshots": {"count": 2}},
    "orphans": {**LEFT_ALONE, "orphans": {"age": "1ms"}},
    "statistics": {**LEFT_ALONE, "statistics": True},
}


class MaintenanceBacklog:
    """A pipeline with a table for each step."""

    def __init__(self, pipeline: Pipeline, operator: Operator, steps: Mapping[str, str]) -> None:
        """steps: what the tables are for, and the action that each owes."""
        self.pipeline = pipeline
        self.steps = steps
        self._operator = operator
        self.topics: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.upsert_tables: dict[str, UpsertTable] = {}
        for step, action in self.steps.items():
            name = step.replace(".", "_")
            if action == "deletes":
                self.upsert_tables[step] = UpsertTable(pipeline, name, partitions=1, format_version=2)
                self.tables[step] = self.upsert_tables[step].table
            else:
                layout = {"partition_by": ["id"]} if action == "manifests" else {}
                self.tables[step], self.topics[step] = pipeline.add_fed_table(name, 1, **layout)

    def borrow(self) -> None:
        """Every table comes to owe what its step is about."""
        self.pipeline.document["maintenance"] = False
        for topic in self.topics.values():
            self.pipeline.feed.send(topic, events(PARTITIONS))
        for upsert_table in self.upsert_tables.values():
            upsert_table.put(range(KEYS))
        self.pipeline.feed.flush()
        with self.pipeline.running() as run:
            self._wait(run)
            for number in range(1, 5):
                self.change(number)
                self._wait(run)
            assert run.stop() == 0, run.tail()
        for step, action in self.steps.items():
            self._change_by_hand(step, action)
            self._set_maintenance(step, MAINTENANCE[action])

    @contextmanager
    def part(self, steps: Collection[str]) -> Iterator[MaintenanceBacklog]:
        """The tables of these steps, which alone are in the pipeline file while the block lasts."""
        found, every = copy(self), self.pipeline.document["tables"]
        found.steps = {step: self.steps[step] for step in steps}
        found.tables = {step: self.tables[step] for step in steps}
        found.topics = {step: self.topics[step] for step in steps if step in self.topics}
        found.upsert_tables = {step: self.upsert_tables[step] for step in steps if step in self.upsert_tables}
        self.pipeline.document["tables"] = {table: every[table] for table in found.tables.values()}
        try:
            yield found
        finally:
            self.pipeline.document["tables"] = every

    def change(self, number: int) -> None:
        """Some records more for nearly every table."""
        for step, topic in self.topics.items():
            if self.steps[step] != "manifests":
                self.pipeline.feed.send(topic, events(20, number * 1000))
        for upsert_table in self.upsert_tables.values():
            upsert_table.drop([number])
        self.pipeline.feed.flush()

    def _change_by_hand(self, step: str, action: str) -> None:
        table = self._operator.open(self.pipeline.folder, self.tables[step])
        if action == "manifests":
            table.scatter_manifests()
        if action == "deletes":
            table.repeat_deletes(3)
        for _ in range(3 if action == "carry" else 0):
            table.append_nothing()
        if action == "orphans":
            self.strew(step)

    def strew(self, step: str) -> None:
        """Files come into the folder of the step's table that no snapshot names."""
        metadata = self.pipeline.metadata(self.tables[step])
        assert metadata is not None
        data = metadata.parent.parent / "data"
        some = next(data.rglob("*.parquet"))
        for number in range(ORPHANS):
            shutil.copy(some, data / f"orphan-{number}.parquet")

    def _set_maintenance(self, step: str, settings: Mapping[str, Any]) -> None:
        """From now on the table is maintained."""
        declared = self.pipeline.document["tables"][self.tables[step]]
        declared["maintenance"] = {**settings, "snapshots": settings.get("snapshots", {"count": 50})}

    def _wait(self, run: Run) -> None:
        for table in self.tables.values():
            self.pipeline.wait_for_commit_of(table, run)

    def wrong(self, step: str) -> str:
        """What is wrong with the rows of the step's table."""
        if step in self.upsert_tables:
            try:
                self.upsert_tables[step].check()
            except AssertionError as error:
                return str(error)
            return ""
        return "; ".join(self.pipeline.verify(self.tables[step]).problems)

    def due(self) -> Mapping[str, list[str]]:
        """What maintenance would do for each step's table."""
        planned = self.pipeline.command("maintain", "--dry-run")["tables"]
        return {step: [action["action"] for action in planned[table]["actions"]] for step, table in self.tables.items()}

    def spare_orphans(self, age: str) -> None:
        """From now on files that no snapshot names are removed when they are as old, unless a table owes just that."""
        for step, action in self.steps.items():
            self._set_maintenance(step, {"orphans": {"age": age}, **MAINTENANCE[action]})

    def remove_orphans(self, step: str, age: str) -> Mapping[str, Mapping[str, Any]]:
        """A round for the step's table that rewrites nothing, and removes orphans that are as old; how its actions ended, by
        their kinds.
        """
        table = self.tables[step]
        before = self.pipeline.document["tables"][table]["maintenance"]
        self._set_maintenance(step, {**LEFT_ALONE, "orphans": {"age": age}})
        done = self.pipeline.command("maintain", "--table", table, within_s=ROUND_S)["tables"][table]
        self.pipeline.document["tables"][table]["maintenance"] = before
        return {end["action"]: end for end in done["actions"]}

    def make_up(self) -> Mapping[str, tuple[str, ...]]:
        """One round for all tables, which removes every orphan too; what failed, by step."""
        self.spare_orphans("1ms")
        done = self.pipeline.command("maintain", within_s=ROUND_S)["tables"]
        return {
            step: tuple(action["failure"] for action in done[table]["actions"] if action["failure"])
            for step, table in self.tables.items()
        }
