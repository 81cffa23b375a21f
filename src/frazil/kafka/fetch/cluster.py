"""The brokers of a cluster: which one leads a partition, and a connection to each, kept for the next read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka.fetch.connection import Connection, addresses, connect, is_refusal
from frazil.kafka.fetch.response import LEAST_VERSION, MOST_VERSION, WITH_IDS
from frazil.kafka.port import Partition

_METADATA_VERSION = 12
_LEAST_METADATA_VERSION = 7  # The first with leaders' epochs (KIP-320); Kafka 2.1 has it.
_NO_ID = UUID(int=0)
_IDLE_S = 240.0
"""Below the time after which brokers and load balancers close a connection that nobody uses."""
_ANSWER_S = 10.0
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
"""What stands for a time in a request for offsets: the first one that exists, and the first that the broker has itself and
not in tiered storage (KIP-405).
"""
_LEAST_OFFSETS_VERSION, _MOST_OFFSETS_VERSION = 4, 9
_LOCAL_OFFSETS_VERSION = 8  # The first that knows of EARLIEST_LOCAL.
_LEAST_CONNECT_S = 0.5
_CLOCK = SystemClock()

Address = tuple[str, int]


@dataclass(frozen=True)
class Leader:
    """The broker that leads a partition."""

    broker: int
    #: The leader's epoch, by which a broker knows an outdated client (KIP-320); -1 for none.
    epoch: int = -1


class _Outdated(UnavailableError):
    """A broker that cannot be read from before somebody has updated it."""


def is_final(error: UnavailableError) -> bool:
    """Whether there is no sense in asking again, or another broker."""
    return is_refusal(error) or isinstance(error, _Outdated)


class KafkaCluster:
    """A client of one cluster. Used by one thread at a time; it starts none."""

    def __init__(self, settings: Mapping[str, str], open_connection: Callable[..., Connection] = connect) -> None:
        """settings: as `properties.task_properties` returns them."""
        self.settings = settings
        self._connect = open_connection
        self._bootstrap = addresses(settings["bootstrap.servers"])
        self._brokers: dict[int, Address] = {}
        self._connections: dict[int, Connection] = {}
        self._used_s: dict[int, float] = {}
        self._failing: set[Address] = set()
        #: The leader of each partition that was asked for; absent where it has none now.
        self.leaders: dict[Partition, Leader] = {}
        #: The id of each topic; absent on brokers that know of none (before Kafka 3.1).
        self.ids: dict[str, UUID] = {}

    def refresh(
        self, topics: Collection[str], timeout_s: float = _ANSWER_S, broker: int | None = None
    ) -> dict[str, str]:
        """Asks a broker for the leaders of topics, and returns what is wrong with a topic, in words. broker: the one that is
        asked if it has answered all requests; any other one otherwise.

        Raises: UnavailableError where no broker answers, or where one refuses the login.
        """
        kept = self._connections.get(-1 if broker is None else broker)
        connection, is_kept = (kept, True) if kept is not None and kept.is_idle else self._any(timeout_s)
        try:
            answer = connection.ask(_metadata_request(connection, topics), timeout_s)
        except UnavailableError:
            for broker, kept in list(self._connections.items()):
                if kept is connection:
                    self.drop(broker)
            raise
        finally:
            if not is_kept:
                connection.close()
        self._brokers = {
            answered_broker.node_id: (answered_broker.host, answered_broker.port) for answered_broker in answer.brokers
        }
        wrong: dict[str, str] = {}
        for place in [place for place in self.leaders if place[0] in topics]:
            del self.leaders[place]
        for topic in answer.topics:
            self._learn(topic, wrong)
        return wrong

    def _learn(self, topic: MetadataRequest, wrong: dict[str, str]) -> None:
        if topic.error_code:
            wrong[topic.name] = words_of(topic.error_code)
            return
        topic_id = getattr(topic, "topic_id", None)
        if topic_id and topic_id != _NO_ID:
            self.ids[topic.name] = topic_id
        else:
            self.ids.pop(topic.name, None)
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                self.leaders[topic.name, partition.partition_index] = Leader(
                    partition.leader_id, partition.leader_epoch
                )

    def _any(self, timeout_s: float) -> tuple[Connection, bool]:
        """Returns a connection to any broker, and whether it is kept: it is to be closed otherwise."""
        self._close_unusable()
        for connection in self._connections.values():
            if connection.is_idle:
                return connection, True
        brokers = sorted(self._brokers, key=lambda broker: broker in self._connections)
        candidates = dict.fromkeys([*(self._brokers[broker] for broker in brokers), *self._bootstrap])
        deadline_s = _CLOCK.monotonic_s() + timeout_s
        failure: UnavailableError | None = None
        for address in sorted(candidates, key=self._failing.__contains__):  # Those that failed last come last.
            left_s = deadline_s - _CLOCK.monotonic_s()
            if failure is not None and left_s <= 0:
                break
            try:
                new_connection = self._connect(*address, self.settings, max(left_s / 2, _LEAST_CONNECT_S))
            except UnavailableError as error:
                if is_final(error):
                    raise
                self._failing.add(address)
                failure = error
            else:
                self._failing.discard(address)
                return new_connection, False
        assert failure is not None
        raise failure

    def connection(self, broker: int, timeout_s: float = _ANSWER_S) -> Connection:
        """Returns the connection to a broker, a new one where there is none.

        Raises: UnavailableError.
        """
        self._close_unusable()
        if broker not in self._connections:
            if broker not in self._brokers:
                raise UnavailableError("the broker is not of the cluster now", where=f"broker {broker}")
            self._connections[broker] = self._connect(*self._brokers[broker], self.settings, timeout_s)
        self._used_s[broker] = _CLOCK.monotonic_s()
        return self._connections[broker]

    def _close_unusable(self) -> None:
        """Closes connections whose login or whose time is over, and those that the other side has closed meanwhile."""
        now_s = _CLOCK.monotonic_s()
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
            raise _too_old(connection)
        return most

    def listed_offset(self, broker: int, place: Partition, of: int, timeout_s: float = _ANSWER_S) -> int | None:
        """Returns an offset of a partition; None where the broker does not know. It has answered all requests.

        of: EARLIEST or EARLIEST_LOCAL for the first one, LATEST for the end. Raises: UnavailableError.
        """
        connection = self._connections[broker]
        version = min(_MOST_OFFSETS_VERSION, connection.versions.get(ListOffsetsRequest.API_KEY, (0, 0))[1])
        if version < (_LOCAL_OFFSETS_VERSION if of == EARLIEST_LOCAL else _LEAST_OFFSETS_VERSION):
            return None
        kind = ListOffsetsRequest.ListOffsetsTopic
        partition = kind.ListOffsetsPartition(partition_index=place[1], current_leader_epoch=-1, timestamp=of)
        topics = [kind(name=place[0], partitions=[partition])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, version=version)
        answer = connection.ask(request, timeout_s).topics[0].partitions[0]
        return None if answer.error_code or answer.offset < 0 else int(answer.offset)

    def close(self) -> None:
        """Closes all connections."""
        for broker in list(self._connections):
            with suppress(OSError):
                self.drop(broker)


def _metadata_request(connection: Connection, topics: Collection[str]) -> MetadataRequest:
    version = min(_METADATA_VERSION, connection.versions.get(MetadataRequest.API_KEY, (0, 0))[1])
    if version < _LEAST_METADATA_VERSION:
        raise _too_old(connection)
    kind = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[kind(topic_id=_NO_ID, name=name) for name in sorted(topics)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
        version=version,
    )


def _too_old(connection: Connection) -> UnavailableError:
    words = "the broker is too old to be read from"
    return _Outdated(words, remedy="use Kafka 2.1 or newer", where=connection.where)


def words_of(code: int) -> str:
    """Returns Kafka's error code in words, such as `topic authorization failed`."""
    kind = for_code(code)
    return f"{kind.message}".lower().replace("_", " ")


_MOST = 2
_clusters: dict[tuple[tuple[str, str], ...], KafkaCluster] = {}


def cluster_of(settings: Mapping[str, str]) -> KafkaCluster:
    """Returns the client with these settings; those with others, such as a secret that was renewed, are closed in time."""
    key = tuple(sorted(settings.items()))
    cluster = _clusters.pop(key, None) or KafkaCluster(settings)
    _clusters[key] = cluster  # Now the newest.
    while len(_clusters) > _MOST:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster


@contextmanager
def second_cluster() -> Iterator[KafkaCluster]:
    """Gives its block a client with the settings of the newest one, which may be in the middle of a read."""
    cluster = KafkaCluster(dict(next(reversed(_clusters))))
    try:
        yield cluster
    finally:
        cluster.close()
