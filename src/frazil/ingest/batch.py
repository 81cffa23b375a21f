"""A planned batch, and the Spark job that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema

from frazil.ingest.shared_reads import own_starts
from frazil.ingest.table import Table
from frazil.ingest.task import Job
from frazil.ingest.transactions.runs import Cut
from frazil.kafka.port import Partition
from frazil.schema.inference_hints import Hints
from frazil.types import Batch
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class Identity:
    """Who writes: the pipeline, its cluster, and this run of it. A later run has a greater epoch."""

    pipeline: str
    cluster_id: str
    epoch: int
    run_id: str


@dataclass(frozen=True)
class Planned:
    """A batch with what was known when it was planned: the table, its vector, the ends, and partitions without a leader.
    places: of a batch that ends where transactions do, those in the progress after it; None while that is not looked for.
    reach: how far it may read: to the ends, or to the goal of a run that is to end.
    """

    table: Table
    batch: Batch
    position: Mapping[str, Mapping[int, int]]
    ends: Mapping[Partition, int]
    reach: Mapping[Partition, int]
    planned_at_s: float
    silent: frozenset[Partition] = frozenset()
    places: Mapping[str, Mapping[int, str]] | None = None

    def with_cut(self, cut: Cut | None) -> Planned:
        """The same up to where nothing is divided that belongs together, if that is known for this position."""
        if cut is None or cut.position != self.position:
            return self
        return replace(self, batch=replace(self.batch, ranges=cut.ranges, is_apart=True), places=cut.places)


def job_of(planned: Sequence[Planned], is_trial: bool = False, schema: Schema | None = None) -> Job:
    trials = frozenset(p.table.name for p in planned if is_trial or p.table.state is None)
    fed: dict[str, list[TableTarget]] = {}
    for p in planned:
        for topic in p.batch.topics:
            fed.setdefault(topic, []).append(p.table.target(schema))
    return Job(
        targets={topic: targets[0] for topic, targets in fed.items()},
        trials=trials,
        # What the first records of a table tell is told in their order.
        is_scattered=bool(trials) or any(p.table.needs_one_task for p in planned),
        beside={topic: tuple(targets[1:]) for topic, targets in fed.items() if targets[1:]},
        starts=own_starts([p.batch for p in planned]),
    )


def with_hints(job: Job, hints: Hints) -> Job:
    """A look at one table's records with what those before them have told, all of them in one task."""
    targets = {
        topic: replace(target, reading=replace(target.reading, hints=hints)) for topic, target in job.targets.items()
    }
    return replace(job, targets=targets, is_scattered=True)
