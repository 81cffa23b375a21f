"""What Frazil asks of Kafka besides records: which topics there are, under which ids, and how far they reach; and to write
a lot of records once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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
        """Per partition the first offset that is still there."""

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Per partition the first offset whose record is not older than the given time (ms); its end when there is
        none.
        """


@dataclass(frozen=True)
class OutRecord:
    """One record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Outbox(Protocol):
    """The port. `owner` names the writer of a topic: of two with one name the later goes on."""

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutRecord]) -> None:
        """Writes the records, unless the owner's last lot in the topic has this name already.

        Raises UnavailableError when it cannot be found out whether they are there (to be called again), ConflictError when
        another process has taken over.
        """
