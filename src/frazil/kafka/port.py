"""The ports of Kafka besides the records of a batch: topics, their ids and offsets, samples, transactions.

A sample is a few records read in the driver; a transaction writes a batch of records once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from frazil.types import OffsetRange

Partition = tuple[str, int]
"""A topic and a partition number."""


@dataclass(frozen=True)
class TopicDescription:
    """A topic."""

    name: str
    #: Its id, which changes when it is deleted and recreated.
    id: str
    partition_count: int
    #: The keys of its configuration by which it asks for a table (see `spec.topic_keys`).
    keys: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """The port of topics and offsets. Every method raises UnavailableError where no broker answers."""

    def cluster_id(self) -> str:
        """Returns the id of the Kafka cluster."""

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """Returns the topics whose names are wanted, fresh from the brokers, without topics that do not exist."""

    def described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Returns the topics of these names, as `topics`, at a cost that does not grow with the topics of the cluster."""

    def topic_keys(self, control_topic: str) -> dict[str, dict[str, str]]:
        """Returns per topic the keys by which it asks for a table: those of its configuration, on brokers that take them,
        and those that the control topic has for it, which win.
        """

    def compacted(self, names: Collection[str]) -> frozenset[str]:
        """Returns the topics of these names in which Kafka keeps only the newest record of a key for good, without topics
        whose configuration this client may not describe.
        """

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns per partition the offset after the last record that a consumer of the configured isolation level may
        read, without partitions that do not exist or have no leader now.
        """

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns per partition the offset after its last record, records behind an open transaction included (Kafka's high
        watermark), without partitions as in `ends`.
        """

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns per partition the first offset that still exists, without partitions as in `ends`."""

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Returns per partition the first offset whose record is not older than the given time (ms), or its end;
        without partitions as in `ends`.
        """


OutFields = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Key, value and headers of a record to be written. A plain tuple is made in a tenth of the time of an OutRecord."""


class OutRecord(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


FARTHEST_MS = (2**63 - 1) // 1000
"""The latest time whose microseconds fit in 64 bits, in the year 294247."""
NO_TIMESTAMP_MS = -1
"""The timestamp of a record without one (Kafka's `RecordBatch.NO_TIMESTAMP`)."""


def timestamp_of(timestamp_ms: int) -> int | None:
    """Returns the timestamp of a record as Kafka has it: FARTHEST_MS for a later one, and its opposite for an earlier
    one; None for a record without a timestamp.
    """
    return None if timestamp_ms == NO_TIMESTAMP_MS else max(-FARTHEST_MS, min(FARTHEST_MS, timestamp_ms))


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that was read, with everything that Kafka has of it."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    #: Its timestamp, FARTHEST_MS for later ones; None without one.
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    key: bytes | None = None


class RecordReader(Protocol):
    """The port by which the driver reads records that a consumer of the configured isolation level may read. Every
    method raises UnavailableError where they do not arrive in time.
    """

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """Returns the records of `ranges`, in order per partition, and how far each partition is read: to the end of
        its range, unless there are more than about `enough_bytes`.

        Raises: UnavailableError also for records that no longer exist: the result must have no gap.
        """

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        """Yields the records of the range that still exist, in order, some at a time."""


@dataclass(frozen=True)
class TopicReaders:
    """Access to topics, to find out what came after a record: who names them, and who reads their records."""

    source: Source
    reader: RecordReader


class Outbox(Protocol):
    """The port of writing records once. `owner` names the writer of a topic; of two with one name the later one fences
    the earlier.
    """

    def last(self, owner: str, topic: str) -> str:
        """Returns the name of the owner's last batch in the topic; empty without one.

        Raises: UnavailableError where no broker answers.
        """

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutFields]) -> None:
        """Writes the records, unless the owner's last batch in the topic has this name.

        Raises: UnavailableError where the outcome is unknown (to be called again); ConflictError where another process
        has taken over.
        """


@dataclass(frozen=True)
class GroupOffset:
    """An offset that a consumer group has committed."""

    #: The next offset to read.
    offset: int
    #: The text that was committed with it.
    metadata: str


class Group(Protocol):
    """The port of the committed offsets of one consumer group, for a client that is not a member of it. Every method raises
    UnavailableError where no broker answers or a right is missing.
    """

    #: The group's id.
    name: str

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, GroupOffset]:
        """Returns the committed offsets of those of the partitions that have one."""

    def is_live(self) -> bool:
        """Returns whether a consumer is a member of the group."""

    def commit(self, offsets: Mapping[Partition, GroupOffset]) -> None:
        """Commits offsets, all in one request. Partitions that do not exist are left out.

        Raises: ConflictError when the group has members.
        """
