"""A seeded history of a route: one topic is divided among tables that appear with their values, while services come and
go. The truth: every record is in one table, that of its value or that of the rest, once, wherever a process died.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.routes.share import Division, Share, parse_source, parse_template
from frazil.spec import PipelineSpec
from frazil.spec.models import RouteSpec, TopicSelector
from frazil.spec.settings import CommitSpec
from frazil_testing.twins import live_rows
from tests.simulation.faults import Fate
from tests.simulation.scene import Place, Scene, pipeline_of

REST = "lake.rest"
LIMIT = 4
VALUES = ["a", "b", "B", "c", "d", "e", "f", None, "", "no name", "x" * 300]


class RouteHistory(Scene):
    """The topics `t` and `u` and a route by the field `kind`. In half of the histories the values compete: for places under
    the limit, and for a name.
    """

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(Fate(seed), root)
        self.limit = LIMIT if self.fate.maybe(0.5) else 200
        self.values = [value for value in VALUES if value != "B" or self.limit == LIMIT]
        self.spec = _spec(root, self.limit)
        self.produced: dict[Place, dict[str, Any]] = {}
        for topic in "tu":
            self.source.create(topic, self.fate.pick(1, 3))

    def _touch_tables(self) -> None:
        names = [REST, *(f"lake.{value}" for value in "abcdef")]
        for table in names:
            if self.catalog.load(table) is None:
                continue
            if self.fate.maybe(0.02):
                self.catalog.append_foreign(table)
            # A table of the rest that is rolled back may give a place or a name to another value than before.
            if self.fate.maybe(0.01) and (table != REST or self.limit > LIMIT):
                self._roll_back(table)
            if table != REST and self.fate.maybe(0.01):
                self._drop(table)

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            topic = str(self.fate.rng.choice(["t", "u"]))
            partition = self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
            number = len(self.produced)
            # Values appear one after another.
            known = min(len(self.values), 1 + number // 12)
            value = {"id": number, "kind": self.values[self.fate.pick(0, known - 1)]}
            if value["kind"] is None and self.fate.maybe(0.5):
                del value["kind"]
            now_ms = self.clock.now_ms() - self.fate.pick(0, 50)
            offset = self.source.produce(topic, partition, json.dumps(value).encode(), now_ms)
            self.produced[topic, partition, offset] = value

    def _check_end(self, service: Service) -> None:
        stopped = [(one.name, one.status.reason) for one in service.tables if one.status.run_state is RunState.STOPPED]
        assert not stopped, stopped
        seen: Counter[int] = Counter()
        for table in service.tables:
            for row in live_rows(self.catalog, table.name):
                if row["id"] is None:  # Of the other writer.
                    continue
                seen[row["id"]] += 1
                if table.name != REST:
                    assert f"lake.{row['kind']}" == table.name
        kinds = {value["id"]: value.get("kind") for value in self.produced.values()}
        wrong = {number: seen[number] for number in range(len(self.produced)) if seen[number] != 1}
        assert not wrong, {number: (count, kinds[number]) for number, count in wrong.items()}
        assert len(service.tables) <= 1 + self.limit


def _spec(root: Path, limit: int) -> PipelineSpec:
    route = RouteSpec(
        name=REST,
        topics=(TopicSelector(literal="t"), TopicSelector(literal="u")),
        by=parse_source("kind"),
        to=parse_template("lake.${kind}"),
        limit=limit,
        rest=REST,
        commit=CommitSpec(interval_s=1.0),
    )
    rest = route.as_table(
        share=Share(Division(REST, route.division.to, limit)),
        metadata={"topic": "_topic", "partition": "_partition", "offset": "_offset"},
    )
    return pipeline_of(root, rest).model_copy(update={"routes": (route,)})
