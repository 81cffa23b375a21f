"""The brokers of a cluster: which one leads a partition, and a connection to each, kept for the next read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from frazil.errors import UnavailableError
from frazil.kafka.fetch.connection import Connection, connect, is_refusal
from frazil.kafka.fetch.response import LEAST_VERSION, MOST_VERSION, WITH_IDS
from frazil.kafka.port import Partition

_METADATA_VERSION = 12
_LEAST_METADATA_VERSION = 7  # The first with leaders' epochs (KIP-320); Kafka 2.1 has it.
_OFFSETS_VERSION = 6  # Kafka 2.1 has 4.
_EARLIEST = -2
_NO_ID = UUID(int=0)
_IDLE_S = 240.0
"""Below the time after which brokers and load balancers close a connection that nobody uses."""
_ANSWER_S = 10.0

Address = tuple[str, int]


@dataclass(frozen=True)
class Leader:
    """The broker that leads a partition."""

    broker: int
    #: The leader's epoch, by which a broker tells an outdated client (KIP-320); -1 for none.
    epoch: int = -1


class Cluster:
    """A client of one cluster. Used by one thread at a time; it starts none."""

    def __init__(self, settings: Mapping[str, str], open_connection: Callable[..., Connection] = connect) -> None:
        """settings: as `properties.task_properties` returns them."""
        self.settings = settings
        self._connect = open_connection
        self._bootstrap = [_address(one) for one in settings["bootstrap.servers"].split(",")]
        self._brokers: dict[int, Address] = {}
        self._connections: dict[int, Connection] = {}
        self._used_s: dict[int, float] = {}
        #: The leader of each partition that was asked for; absent where it has none now.
        self.leaders: dict[Partition, Leader] = {}
        #: The id of each topic; absent on brokers that know of none (before Kafka 3.1).
        self.ids: dict[str, UUID] = {}

    def refresh(self, topics: Collection[str], timeout_s: float = _ANSWER_S) -> dict[str, str]:
        """Asks a broker for the leaders of topics, and returns what is wrong with a topic, in words.

        Raises: UnavailableError where no broker answers, or where one refuses the login.
        """
        request = MetadataRequest.MetadataRequestTopic
        wrong: dict[str, str] = {}
        connection, broker = self._any(timeout_s)
        version = min(_METADATA_VERSION, connection.versions.get(MetadataRequest.API_KEY, (0, 0))[1])
        if version < _LEAST_METADATA_VERSION:
            raise UnavailableError(
                "the broker is too old to be read from", remedy="use Kafka 2.1 or newer", where=connection.where
            )
        asked = MetadataRequest(
            topics=[request(topic_id=_NO_ID, name=name) for name in sorted(topics)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
            version=version,
        )
        try:
            answer = connection.ask(asked, timeout_s)
        except UnavailableError:
            self.drop(broker, connection)
            raise
        finally:
            if broker is None:
                connection.close()
        self._brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
        for topic in answer.topics:
            self._learn(topic, wrong)
        return wrong

    def _learn(self, topic: MetadataRequest, wrong: dict[str, str]) -> None:
        self.leaders = {place: leader for place, leader in self.leaders.items() if place[0] != topic.name}
        if topic.error_code:
            wrong[topic.name] = words_of(topic.error_code)
            return
        topic_id = getattr(topic, "topic_id", None)
        if topic_id and topic_id != _NO_ID:
            self.ids[topic.name] = topic_id
        for one in topic.partitions:
            if one.leader_id >= 0:
                self.leaders[topic.name, one.partition_index] = Leader(one.leader_id, one.leader_epoch)

    def _any(self, timeout_s: float) -> tuple[Connection, int | None]:
        """Returns a connection to any broker, and the broker's number; None as the number where it is to be closed."""
        self._close_unusable()
        for broker, connection in self._connections.items():
            if connection.is_idle:
                return connection, broker
        failure: UnavailableError | None = None
        for broker in self._brokers:
            if broker not in self._connections:
                try:
                    return self.connection(broker, timeout_s), broker
                except UnavailableError as error:
                    if is_refusal(error):
                        raise
                    failure = error
        for host, port in self._bootstrap:
            try:
                return self._connect(host, port, self.settings, timeout_s), None
            except UnavailableError as error:
                if is_refusal(error):
                    raise
                failure = error
        assert failure is not None
        raise failure

    def connection(self, broker: int, timeout_s: float = _ANSWER_S) -> Connection:
        """Returns the connection to a broker, a new one where there is none.

        Raises: UnavailableError.
        """
        self._close_unusable()
        if broker not in self._connections:
            host, port = self._brokers[broker]
            self._connections[broker] = self._connect(host, port, self.settings, timeout_s)
        self._used_s[broker] = time.monotonic()
        return self._connections[broker]

    def _close_unusable(self) -> None:
        """Closes connections whose login or whose time is over, and those that the other side has closed meanwhile."""
        now_s = time.monotonic()
        for broker, connection in list(self._connections.items()):
            is_old = now_s - self._used_s.get(broker, now_s) > _IDLE_S
            if connection.is_idle and (is_old or connection.is_expired or connection.is_readable()):
                self.drop(broker)

    def drop(self, broker: int | None, of: Connection | None = None) -> None:
        """Closes the connection to a broker, unless it is another one than `of` by now."""
        if broker is None or (of is not None and self._connections.get(broker) is not of):
            return
        connection = self._connections.pop(broker, None)
        if connection is not None:
            connection.close()

    def fetch_version(self, broker: int, topics: Iterable[str]) -> int:
        """Returns the version of Fetch to be used: one without topics' ids where not all are known.

        Raises: UnavailableError for a broker that is too old.
        """
        connection = self._connections[broker]
        most = min(MOST_VERSION, connection.versions.get(FetchRequest.API_KEY, (0, 0))[1])
        if most >= WITH_IDS and not all(topic in self.ids for topic in topics):
            most = WITH_IDS - 1
        if most < LEAST_VERSION:
            raise UnavailableError(
                "the broker is too old to be read from", remedy="use Kafka 2.1 or newer", where=connection.where
            )
        return most

    def close(self) -> None:
        """Closes all connections."""
        for broker in list(self._connections):
            with suppress(OSError):
                self.drop(broker)


def first_offset(connection: Connection, place: Partition, timeout_s: float) -> int:
    """Returns the first offset of a partition that still exists; -1 where its leader does not say. No request of the
    connection may be waiting for an answer: an error of Fetch does not tell it.
    """
    topic, partition = place
    version = min(_OFFSETS_VERSION, connection.versions.get(ListOffsetsRequest.API_KEY, (0, 0))[1])
    asked = ListOffsetsRequest.ListOffsetsTopic
    number = asked.ListOffsetsPartition(partition_index=partition, timestamp=_EARLIEST, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[asked(name=topic, partitions=[number])], version=version
    )
    answer = connection.ask(request, timeout_s)
    (found,) = [one for topics in answer.topics for one in topics.partitions]
    return int(found.offset) if found.error_code == 0 else -1


def words_of(code: int) -> str:
    """Returns Kafka's error code in words, such as `topic authorization failed`."""
    kind = for_code(code)
    return f"{kind.message}".lower().replace("_", " ")


def _address(server: str) -> Address:
    host, _, port = server.strip().rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)
