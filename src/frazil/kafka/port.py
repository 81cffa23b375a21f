"""What Frazil asks of Kafka besides a batch's records: which topics there are, under which ids, and how far they reach; to
read a few records in the driver; and to write a lot of records once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from frazil.types import OffsetRange

Partition = tuple[str, int]
"""A topic and a partition number."""


@dataclass(frozen=True)
class TopicDescription:
    """A topic's id, which changes when it is deleted and created again, and its number of partitions."""

    name: str
    id: str
    partition_count: int


class Source(Protocol):
    """The port. Every method raises UnavailableError when no broker answers."""

    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """The topics whose names are wanted, fresh from the brokers; what does not exist is absent."""

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Per partition the offset after the last record that a consumer of our isolation level may read.

        A partition that is gone or has no leader just now is absent.
        """

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Per partition the first offset that is still there; absent as in `ends`."""

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Per partition the first offset whose record is not older than the given time (ms); its end when there is
        none; absent as in `ends`.
        """


@dataclass(frozen=True)
class OutRecord:
    """One record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record that was read, with all that Kafka has of it. timestamp_ms: None where it has none."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    key: bytes | None = None


class RecordReader(Protocol):
    """The port by which the driver reads records itself: those that a consumer of our isolation level may read. Every method
    raises UnavailableError when they do not come in time.
    """

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """The records of `ranges`, those of a partition in their order, and how far it is read: to its range's end, unless
        there is more than about `enough_bytes`. For what must not have a hole: records that are not there any more are
        UnavailableError too.
        """

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        """The records of the range that are still there, in their order, some at a time."""


class Outbox(Protocol):
    """The port. `owner` names the writer of a topic: of two with one name the later goes on."""

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutRecord]) -> None:
        """Writes the records, unless the owner's last lot in the topic has this name already.

        Raises UnavailableError when it cannot be found out whether they are there (to be called again), ConflictError when
        another process has taken over.
        """
