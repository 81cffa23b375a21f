"""What histories of tables that depend on earlier rows share: topics `a` and `b`, one table, others who meddle with it, and
the walk over its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec, load_spec
from frazil.types import Progress
from tests.simulation.scene import Place, Scene, pipeline_of
from tests.simulation.tables import Meddling, SharedTable


class StateHistory(Scene):
    """Topics `a` and `b` feed one table."""

    def __init__(self, seed: int, root: Path, name: str) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        fate.meddle = self._meddle
        self.name = name
        self.table = SharedTable(self.catalog, name, fate)

    def spec_of(self, settings: str) -> PipelineSpec:
        """Returns the pipeline whose table has these settings."""
        path = self.root / "pipeline.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"tables:\n  {self.name}: {{{settings}}}\n"
        path.write_text(f'pipeline: sim\nkafka: {{bootstrap.servers: "localhost:9092"}}\n{text}')
        return pipeline_of(self.root, load_spec(path, {}).tables[0])

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self._roll_back(self.name)
        if self.fate.maybe(0.01):
            self._drop(self.name)

    def _meddle(self) -> None:
        """What somebody else does to the table."""
        if not self.table.has_snapshots:
            return
        if self.fate.maybe(0.4):
            self.table.touch()
        elif self.fate.maybe(0.1):
            self.table.upgrade()
        else:
            self.table.compact()

    # The truth

    def _check_end(self, service: Service) -> None:
        [table] = service.tables
        assert table.status.run_state is not RunState.STOPPED, f"stopped: {table.status.reason} ({table.status.where})"
        if self.catalog.load(self.name) is None:
            assert not self.makes_rows()
            return
        progress = self.check()
        behind = [place for place in self.places() if offset_at(progress, *place[:2]) <= place[2]]
        assert not behind, f"not complete: {behind[:5]}"

    def check(self) -> Progress:
        """Checks every snapshot; returns the newest progress."""
        progress = Progress()
        order: list[Place] = []
        for snapshot in reversed(self.catalog.ancestors(self.name)):
            before, progress = progress, from_summary("sim", snapshot.summary) or progress
            new = sorted(
                place
                for place in self.places()
                if offset_at(before, *place[:2]) <= place[2] < offset_at(progress, *place[:2])
            )
            order += new
            self.check_snapshot(snapshot.id, order, new, progress if progress.commit_id != before.commit_id else None)
        return progress

    def places(self) -> Iterator[Place]:
        """Yields the places of the records that were produced."""
        raise NotImplementedError

    def makes_rows(self) -> bool:
        """Whether a record was produced that makes a row."""
        raise NotImplementedError

    def check_snapshot(self, snapshot_id: int, order: list[Place], new: list[Place], progress: Progress | None) -> None:
        """Compares the rows of a snapshot with all records before its offsets, in order. new: those since the snapshot
        before; progress: None where the snapshot is not a batch's.
        """
        raise NotImplementedError


def offset_at(progress: Progress, topic: str, partition: int) -> int:
    """Returns the offset up to which a partition has been read."""
    return progress.offsets.get(topic, {}).get(partition, 0)
