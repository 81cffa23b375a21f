"""What the driver sends with a task: the tables that it writes, and the columns of the source that it needs for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from frazil.dead_letters.record import SOURCE_COLUMNS
from frazil.errors import SpecError
from frazil.kafka.fetch.columns import Wanted
from frazil.queries.program import SparkPart
from frazil.queries.references import Reference, Sent
from frazil.stages.record_key import unquoted
from frazil.types import OffsetRange, Offsets
from frazil.write.target import TableTarget

REPORT_SCHEMA = "report string"
MOST_VALUE_BYTES = 512 * 1024 * 1024
"""A larger value is not read, whatever `limits.record_size` allows."""
FLOOR_BYTES = 32 * 1024 * 1024
"""A smaller value is read, whatever `limits.record_size` allows: its dead letter has it."""


@dataclass(frozen=True)
class Job:
    """The tables that a task writes, by topic."""

    #: The first table of each topic.
    targets: Mapping[str, TableTarget]
    #: Tables for which nothing is written: the task only finds the columns that the records need.
    trials: frozenset[str] = frozenset()
    #: Whether one task must read all: several would each write small files of many partitions.
    is_scattered: bool = False
    #: Further tables of each topic.
    beside: Mapping[str, tuple[TableTarget, ...]] = field(default_factory=dict)
    #: The offsets at which the records of a table begin, for tables that do not use all records of their topics.
    starts: Mapping[str, Offsets] = field(default_factory=dict)
    #: The rows of reference tables that lookups join, by key.
    references: Mapping[str, Reference | Sent] = field(default_factory=dict)
    #: Whether Spark evaluates its part of a query; otherwise all of that fails.
    asks_spark: bool = True

    def targets_of(self, topic: str) -> tuple[TableTarget, ...]:
        """Returns the tables that a topic feeds."""
        return (self.targets[topic], *self.beside.get(topic, ()))

    @property
    def all_targets(self) -> list[TableTarget]:
        """Every table, once for each topic."""
        return [target for topic in self.targets for target in self.targets_of(topic)]

    def topics_of(self, table: str) -> tuple[str, ...]:
        """Returns the topics that feed a table, by name."""
        return tuple(
            sorted(topic for topic in self.targets if table in {target.name for target in self.targets_of(topic)})
        )

    def own_range(self, table: str, offset_range: OffsetRange) -> OffsetRange:
        """Returns the part of a range that a table uses; an empty one where only other tables use it."""
        if table not in self.starts:
            return offset_range
        start = self.starts[table].get(offset_range.topic, {}).get(offset_range.partition, offset_range.end)
        return replace(offset_range, start=min(max(start, offset_range.start), offset_range.end))

    @property
    def spark_part(self) -> SparkPart | None:
        """What Spark evaluates before the task, of a job with one table; None where it has no part."""
        if not self.asks_spark:
            return None
        return next((target.spark_part for target in self.all_targets if target.spark_part is not None), None)

    @property
    def only_topic(self) -> str | None:
        """The topic, when there is only one: the source then need not send its name with every record."""
        return next(iter(self.targets)) if len(self.targets) == 1 else None


def source_columns(job: Job) -> list[str]:
    """Returns the source's columns that the job needs; other columns are not read."""
    targets = job.all_targets
    metadata = {field for target in targets for field in target.metadata_fields}
    wanted = {"value", "partition", "offset", "timestamp"} | metadata
    if any(target.needs_headers or _envelope_headers(target) for target in targets):
        wanted.add("headers")
    if any(target.dead_letters for target in targets):
        wanted.update(SOURCE_COLUMNS[1:])
    if job.only_topic is None:
        wanted.add("topic")
    return [name for name in ("topic", "partition", "offset", "timestamp", "key", "headers", "value") if name in wanted]


def wanted_of(job: Job) -> Wanted:
    """Returns what the job needs of records."""
    targets, columns = job.all_targets, source_columns(job)
    needs_all = any(
        target.needs_headers or target.dead_letters or "headers" in target.metadata_fields for target in targets
    )
    return Wanted(
        tuple(columns),
        () if needs_all else _named_headers(targets),  # A connector may write several other headers to every record.
        most_value_bytes(job),
    )


def most_value_bytes(job: Job) -> int:
    """Returns the bytes of the largest value that the job reads."""
    return min(MOST_VALUE_BYTES, max([FLOOR_BYTES, *map(limit_of, job.all_targets)]))


def limit_of(target: TableTarget) -> int:
    """Returns the bytes of the largest value that a table allows."""
    return (target.source or target).reading.max_record_bytes


def _envelope_headers(target: TableTarget) -> tuple[str, ...]:
    return target.envelope.headers if target.envelope is not None else ()


def _named_headers(targets: Iterable[TableTarget]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for target in targets for name in _envelope_headers(target)))


@contextmanager
def quoting_no_record(job: Job) -> Iterator[None]:
    """Raises, for an exception in its block that may quote a record which is kept private, one that does not."""
    try:
        yield
    except (OSError, SpecError):
        raise
    except Exception as error:
        if all(target.record_key is None for target in job.all_targets):
            raise
        raise unquoted(error) from None


def by_topic(job: Job, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the batch in slices of one topic: records of a range are neighbours, so that there are few slices."""
    if batch.num_rows == 0:
        return
    if job.only_topic is not None:
        yield job.only_topic, batch
        return
    codes = batch.column("topic").dictionary_encode()
    indices = np.asarray(codes.indices)
    starts = np.flatnonzero(np.r_[True, indices[1:] != indices[:-1]])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), batch.num_rows], strict=True):
        yield codes.dictionary[int(indices[start])].as_py(), batch.slice(start, end - start)
