"""A planned batch, and the Spark job that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema

from frazil.ingest.plan import own_starts
from frazil.ingest.table import Table
from frazil.ingest.task import Job
from frazil.ingest.transactions.runs import Cut
from frazil.kafka.port import Partition
from frazil.schema.inference import Hints
from frazil.types import Batch
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class Identity:
    """The writer of a commit: the pipeline, its cluster, and this run of it."""

    #: The pipeline's name.
    pipeline: str
    #: The id of the Kafka cluster.
    cluster_id: str
    #: The number of the run; a later run has a greater one.
    epoch: int
    #: The id of the run.
    run_id: str


@dataclass(frozen=True)
class Planned:
    """A batch with the facts that it was planned from."""

    #: The table that the batch is for.
    table: Table
    #: The offsets to read.
    batch: Batch
    #: The table's offsets, by topic and partition.
    position: Mapping[str, Mapping[int, int]]
    #: The ends of all partitions, as last requested.
    ends: Mapping[Partition, int]
    #: How far the batch may read: to the ends, or to the goal of a run with `--until-caught-up`.
    reach: Mapping[Partition, int]
    #: When the batch was planned, on the monotonic clock in seconds.
    planned_at_s: float
    #: Partitions without a leader.
    silent: frozenset[Partition] = frozenset()
    #: The places in the progress after the batch, of a batch that ends at the end of a transaction; None while that end
    #: is not known.
    places: Mapping[str, Mapping[int, str]] | None = None

    def with_cut(self, cut: Cut | None) -> Planned:
        """Returns the batch with the ranges of `cut`, or the batch itself where the cut is for another position."""
        if cut is None or cut.position != self.position:
            return self
        return replace(self, batch=replace(self.batch, ranges=cut.ranges, is_apart=True), places=cut.places)


def job_of(planned: Sequence[Planned], is_trial: bool = False, schema: Schema | None = None) -> Job:
    """Returns the Spark job that reads the batches. schema: replaces the schema of the tables."""
    trials = frozenset(p.table.name for p in planned if is_trial or p.table.state is None)
    fed: dict[str, list[TableTarget]] = {}
    for p in planned:
        for topic in p.batch.topics:
            fed.setdefault(topic, []).append(p.table.target(schema))
    return Job(
        targets={topic: targets[0] for topic, targets in fed.items()},
        trials=trials,
        # Columns of a new table are found in the order of its records, so that one task must read them.
        is_scattered=bool(trials) or any(p.table.needs_one_task for p in planned),
        beside={topic: tuple(targets[1:]) for topic, targets in fed.items() if targets[1:]},
        starts=own_starts([p.batch for p in planned]),
    )


def with_hints(job: Job, hints: Hints) -> Job:
    """Returns the job with the hints that earlier records of the table have left, to be read by one task."""
    targets = {
        topic: replace(target, reading=replace(target.reading, hints=hints)) for topic, target in job.targets.items()
    }
    return replace(job, targets=targets, is_scattered=True)
