"""What can go wrong between any two steps, drawn from a seed: the ports of the memory twins with a fate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from pyiceberg.schema import Schema

from frazil.catalog.layout import UNARRANGED, Layout
from frazil.catalog.port import Catalog, NamedAppend, Replacement, Rewrite, TableSize, TableState
from frazil.catalog.progress import LoggedSnapshot
from frazil.catalog.scans import Scan
from frazil.clock import seed_randomness
from frazil.errors import ConflictError, UnavailableError
from frazil.ingest.plan import read_once
from frazil.ingest.tasks.isolate import CrashingRecords
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import OutFields, Partition, ReadRecord, TopicDescription
from frazil.report import TaskReport
from frazil.types import Batch, Commit, OffsetRange, Progress
from frazil_testing.memory_kafka import MemoryOutbox
from frazil_testing.twins import MemoryCatalog, MemoryJobs, MemorySource


class CrashError(BaseException):
    """The process is gone: nothing after this point happens."""


class Fate:
    """Decides at every step whether it goes well. Probabilities per step; `calm` ends all trouble."""

    def __init__(self, seed: int) -> None:
        seed_randomness(seed)
        self.rng = np.random.default_rng(seed)
        self.crash = float(self.rng.choice([0.0, 0.005, 0.02, 0.05]))
        self.outage = float(self.rng.choice([0.0, 0.01, 0.05, 0.2]))
        self.is_arranged = bool(self.rng.random() < 0.5)
        self.is_fault_free = False
        self.steps: list[str] = []

    def maybe(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return not self.is_fault_free and bool(self.rng.random() < probability)

    def pick(self, least: int, most: int) -> int:
        """A number from `least` to `most`."""
        return int(self.rng.integers(least, most + 1))

    def step(self, name: str) -> None:
        """A point between two steps."""
        self.steps.append(name)
        if self.maybe(self.crash):
            self.steps.append("CRASH")
            raise CrashError(name)
        if self.maybe(self.outage):
            self.steps.append("OUTAGE")
            raise UnavailableError(f"no answer at {name}")


class UnsureSource:
    """A source that may not answer, or not in time."""

    def __init__(self, source: MemorySource, fate: Fate) -> None:
        self._source = source
        self._fate = fate

    def cluster_id(self) -> str:
        self._fate.step("source.cluster_id")
        return self._source.cluster_id()

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        self._fate.step("source.topics")
        return self._source.topics(wanted)

    def described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        return self.topics(names.__contains__)

    def topic_keys(self, control_topic: str) -> dict[str, dict[str, str]]:
        self._fate.step("source.topic_keys")
        return self._source.topic_keys(control_topic)

    def compacted(self, names: Collection[str]) -> frozenset[str]:
        self._fate.step("source.compacted")
        return self._source.compacted(names)

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._fate.step("source.ends")
        return self._some(self._source.ends(partitions))

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._fate.step("source.log_ends")
        return self._some(self._source.log_ends(partitions))

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._fate.step("source.beginnings")
        return self._some(self._source.beginnings(partitions))

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        self._fate.step("source.at_time")
        return self._some(self._source.at_time(times))

    def _some(self, found: dict[Partition, int]) -> dict[Partition, int]:
        """A partition without a leader just now is absent."""
        in_order = sorted(found.items())
        return {partition: offset for partition, offset in in_order if not self._fate.maybe(self._fate.outage / 4)}

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        self._fate.step("reader.read")
        return self._source.read(ranges, self._fate.pick(1, enough_bytes) if self._fate.maybe(0.1) else enough_bytes)

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        for batch in self._source.batches(wanted):
            self._fate.step("reader.lots")
            yield batch


class UnsureCatalog:
    """A catalog whose questions and answers may be lost; a commit may land all the same. others: get their turn while it
    is not known that one has landed. As a client of Iceberg's does, it commits to no other table than the one it has loaded.
    """

    def __init__(self, catalog: MemoryCatalog, fate: Fate, others: Callable[[], None] = lambda: None) -> None:
        self._catalog = catalog
        self._fate = fate
        self._others = others
        self._known: dict[str, str] = {}

    def load(self, table: str) -> TableState | None:
        self._fate.step("catalog.load")
        found = self._catalog.load(table)
        if found is not None:
            self._known[table] = found.uuid
        return found

    def on_main(self, table: str) -> Catalog:
        return self._catalog.on_main(table)

    def size(self, table: str) -> TableSize:
        return self._catalog.size(table)

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
        location: str | None = None,
    ) -> TableState:
        self._fate.step("catalog.create")
        made = self._catalog.create(table, schema, properties, format_version, layout, location)
        self._known[table] = made.uuid
        self._fate.step("catalog.created")
        return made

    def arrange(self, table: str, layout: Layout) -> TableState:
        self._fate.step("catalog.arrange")
        arranged = self._catalog.arrange(table, layout)
        self._known[table] = arranged.uuid
        self._fate.step("catalog.arranged")
        return arranged

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        self._fate.step("catalog.evolve")
        evolved = self._catalog.evolve(table, change)
        self._known[table] = evolved.uuid
        self._fate.step("catalog.evolved")
        return evolved

    def commit(self, commit: Commit) -> Progress:
        self._fate.step("catalog.commit")
        if self._fate.maybe(self._fate.outage / 2):
            raise ConflictError("refused by another writer's commit", where=commit.table)
        committed = self._commit(commit)
        if self._fate.maybe(self._fate.outage / 2):
            self._others()
            committed = self._commit(commit)  # The client sends again what it has no answer to.
        self._fate.step("catalog.committed")
        return committed

    def _commit(self, commit: Commit) -> Progress:
        self._refuse_another(commit.table)
        return self._catalog.commit(commit)

    def lock(self, table: str) -> AbstractContextManager[object]:
        return self._catalog.lock(table)

    def store_properties(self, location: str) -> Mapping[str, str]:
        return self._catalog.store_properties(location)

    def scan(self, table: str) -> Scan:
        self._fate.step("catalog.scan")
        return self._catalog.scan(table)

    def mark(self, table: str, name: str, value: str | None) -> None:
        self._fate.step("catalog.mark")
        self._catalog.mark(table, name, value)
        self._fate.step("catalog.marked")

    def history(self, table: str, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        self._fate.step("catalog.history")
        return self._catalog.history(table, names)

    def summaries(self, table: str) -> Iterable[Mapping[str, str]]:
        self._fate.step("catalog.summaries")
        return self._catalog.summaries(table)

    def rewrite(self, rewrite: Rewrite) -> None:
        self._fate.step("catalog.rewrite")
        self._refuse_another(rewrite.table)
        self._catalog.rewrite(rewrite)
        self._fate.step("catalog.rewritten")

    def append_once(self, append: NamedAppend) -> None:
        self._fate.step("catalog.append_once")
        self._refuse_another(append.table)
        self._catalog.append_once(append)
        self._fate.step("catalog.appended")

    def replace_once(self, replacement: Replacement) -> None:
        self._fate.step("catalog.replace_once")
        self._refuse_another(replacement.table)
        self._catalog.replace_once(replacement)
        self._fate.step("catalog.replaced")

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        self._fate.step("catalog.delete_files")
        self._catalog.delete_files(table, paths)

    def _refuse_another(self, table: str) -> None:
        now = self._catalog.load(table)
        if now is None or now.uuid != self._known.get(table):
            raise UnavailableError("the table no longer exists", where=table)


class UnsureOutbox:
    """An outbox whose questions and answers may be lost."""

    def __init__(self, outbox: MemoryOutbox, fate: Fate) -> None:
        self._outbox = outbox
        self._fate = fate

    def last(self, owner: str, topic: str) -> str:
        return self._outbox.last(owner, topic)

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutFields]) -> None:
        self._fate.step("outbox.write")
        self._outbox.write(owner, topic, name, records)
        self._fate.step("outbox.written")


class UnsureJobs:
    """Jobs that may fail before, between and after their tasks; a failed one leaves files behind. divided: how often two
    tasks share what is read of one partition, 0 to 1.
    """

    parallelism = 1

    def __init__(self, source: MemorySource, fate: Fate, *, divided: float = 0.5) -> None:
        self._source = source
        self._fate = fate
        self._divided = divided

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        self._fate.step("job.begin")
        jobs = MemoryJobs(self._source, batch_size=self._fate.pick(5, 100))
        reports: list[TaskReport] = []
        ranges = read_once(batches)
        for share in [tuple(ranges)] if job.is_scattered else self._tasks(ranges):
            reports += jobs.run([Batch("", share)], job, pool=pool)
            self._fate.step("job.task")
        return reports

    def isolate(self, batch: Batch, job: Job) -> CrashingRecords:
        """No record here ends a task."""
        raise NotImplementedError

    def _tasks(self, ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
        """The ranges, shared out to one task or to several."""
        count = self._fate.pick(1, 3)
        if count > 1 and self._divided and self._fate.maybe(self._divided):
            ranges = [piece for one in ranges for piece in self._pieces(one)]
        shares = [tuple(ranges[n::count]) for n in range(count)]
        return [share for share in shares if share]

    def _pieces(self, whole: OffsetRange) -> list[OffsetRange]:
        """Two, cut anywhere, and half of the time where a delete may be in the one and its tombstone in the other."""
        records = self._source.by_name[whole.topic].partitions[whole.partition]
        tombstones = [one.offset for one in records if one.value is None and whole.start < one.offset < whole.end]
        cut = self._fate.pick(whole.start, whole.end)
        if tombstones and self._fate.pick(0, 1):
            cut = tombstones[self._fate.pick(0, len(tombstones) - 1)]
        pieces = (replace(whole, end=cut), replace(whole, start=cut))
        return [piece for piece in pieces if piece.span]
