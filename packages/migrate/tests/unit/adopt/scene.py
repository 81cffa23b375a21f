"""A pipeline, the topic of its table, and the consumer groups of other tools, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.types import LongType

from frazil.dead_letters.tables import DeadLetterTables
from frazil.ingest.loop.discovery import Discovery
from frazil.kafka.port import GroupOffset
from frazil.schema.evolve import new_schema
from frazil_migrate.adopt.adopt import Handover, Origin, Tool, chosen, commit, handed_over, plan_adoptions
from frazil_migrate.adopt.offsets import Services
from frazil_migrate.adopt.release import plan_release, release
from frazil_testing.memory_kafka import MemoryGroup
from tests.unit.ingest.service_scene import Scene as Running

TABLE, TOPIC, SINK, CONTROL = "n.a", "a", "connect-sink", "control.a"
POSITION = f"kafka.connect.offsets.{CONTROL}.{SINK}"


class Scene(Running):
    """A table `n.a` that another tool has made, of a topic with six records."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, TOPIC, **settings)
        self.source.create(CONTROL)
        self.feed(TOPIC, *({"id": n} for n in range(6)))
        self.groups: dict[str, MemoryGroup] = {}
        self.services = Services(self.catalog, self.source, self.source, self.group)

    def make_table(self, **summary: str) -> None:
        """The table with one snapshot of another tool, whose summary has this."""
        self.catalog.create(TABLE, new_schema([("id", LongType())]), {}, 2)
        self.catalog.append_foreign(TABLE, summary=summary)

    def group(self, name: str) -> MemoryGroup:
        return self.groups.setdefault(name, MemoryGroup(name))

    def has_read(self, group: str, offset: int) -> None:
        """A tool's group commits an offset of the topic."""
        self.group(group).committed[TOPIC, 0] = GroupOffset(offset, "")

    def plan(self, tool: Tool, name: str | None = TABLE, **options: Any) -> Handover:
        """What adopting would do with the table."""
        discovery = self.discovery()
        (found,) = plan_adoptions(discovery, self.services, name, Origin(tool, **options), self.source.cluster_id())
        return found

    def adopt(self, tool: Tool, **options: Any) -> Handover:
        """What adopting has done with the table."""
        return commit(self.services, self.plan(tool, **options))

    def release(self, tool: Tool, *, is_dry: bool = False, **options: Any) -> Handover:
        """What releasing has done with the table."""
        (table,) = chosen(self.discovery(), TABLE)
        parts = (self.services, table, Origin(tool, **options))
        if is_dry:
            return handed_over(TABLE, lambda: plan_release(*parts))
        return handed_over(TABLE, lambda: release(*parts, (), DeadLetterTables(self.catalog)))

    def discovery(self) -> Discovery:
        discovery = Discovery(self.spec(TOPIC), self.source, self.catalog)
        discovery.refresh_topics()
        return discovery
