"""The port Source on a cluster: one long-lived admin client of the driver.

Each broker is asked for the offsets of its own partitions, so that a silent broker is waited for once, and briefly:
afterwards its partitions are absent from results until it answers again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka.control_topic import ControlTopic
from frazil.kafka.port import Partition, TopicDescription
from frazil.kafka.properties import native_properties, refused_setting
from frazil.refusals import certificate_fault, kafka_remedy
from frazil.spec.topic_keys import ENABLE, PREFIX

_TIMEOUT_S = 10.0
# A broker that has not answered within this time is not waited for once another one has. A question that any broker may
# answer is repeated after this time, perhaps to another broker, and again after twice this time.
_PROMPT_S = 1.0
# How often the brokers are asked for another controller in place of one that does not answer.
_CONTROLLERS = 20
_CONTROLLER_EVERY_S = 0.02
_NO_RECORD = -1
# In place of a time, in milliseconds since the epoch (KIP-79).
_LATEST, _EARLIEST = -1, -2
_MOVED = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}
"""A partition has another leader, or another epoch of the same one, than the client knows (KIP-320)."""
_GONE = {
    *_MOVED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,
    KafkaError.LEADER_NOT_AVAILABLE,
}
_SILENCE = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT}
_REFUSALS = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}
"""What a client reports beside its answers, which then only time out; and any error that names TLS."""
_BROKER = re.compile(r"//(?:\[?)([^/]+?)\]?:(\d+)/")
_T = TypeVar("_T")
_Times = dict[Partition, int]
_Asked = Future[Mapping[TopicPartition, Any]]


class _Away(UnavailableError):
    """A broker does not answer; another one may."""


class _Refusals:
    """What a client reports beside its answers. The client knows this by its callback, and not its owner: the two would be a
    cycle, which Python may collect in the client's own thread, where librdkafka aborts the process.
    """

    #: Why a broker was refused, or has refused the client, since the last answer.
    newest: str | None = None
    #: Why a broker could not be connected to, which counts where there is no refusal: others may answer.
    unconnected: str | None = None

    def hear(self, error: KafkaError) -> None:
        """Notes a refusal, or a connection that was not made."""
        if error.code() in _REFUSALS or "SSL" in error.str():
            self.newest = error.str()
        elif error.code() == KafkaError._TRANSPORT and " failed: " in error.str():
            self.unconnected = error.str()

    def forget(self) -> None:
        """Forgets both, as a broker has answered."""
        self.newest = self.unconnected = None


class KafkaTopics:
    """Implements the port `Source`. properties: the pipeline file's client properties. timeout_s: for one answer."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._clock = SystemClock()
        #: The broker that leads each partition, as last described; None where it has no leader.
        self._leaders: dict[Partition, int | None] = {}
        #: Brokers that have not answered in time, each with the question for ends that it is expected to answer.
        self._silent: dict[int | None, _Asked | None] = {}
        self._addresses: dict[int, str] = {}
        self._refusals = _Refusals()
        self._properties = properties
        self._control_topic: ControlTopic | None = None
        self._servers = properties["bootstrap.servers"]
        level = properties.get("isolation.level", "read_committed")
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if level == "read_uncommitted" else IsolationLevel.READ_COMMITTED
        )
        self._native = native_properties(properties)
        try:
            self._admin = self._any = self._client(self._servers)
        except (KafkaException, ValueError) as error:
            raise refused_setting(error, properties) from None

    def _client(self, servers: str) -> OffsetClient:
        client_settings: dict[str, Any] = {
            "log_level": 0,
            "error_cb": self._refusals.hear,
            "socket.timeout.ms": 10000,
            **self._native,
            "bootstrap.servers": servers,
        }
        return OffsetClient(client_settings, logger=SilentLog())

    def cluster_id(self) -> str:
        return self._of_any(
            lambda patience_s: str(self._any.describe_cluster(request_timeout=patience_s).result(patience_s).cluster_id)
        )

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        return self._of_any(
            lambda patience_s: self._described_by_name(filter(wanted, self._listed(patience_s).topics), patience_s)
        )

    def described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        def describe(patience_s: float) -> dict[str, TopicDescription]:
            # The list of all topics is of use only where a broker is silent, so that another one is asked.
            if self._silent or self._any is not self._admin:
                self._listed(patience_s)
            return self._described_by_name(names, patience_s)

        return self._of_any(describe)

    def _of_any(self, question: Callable[[float], _T]) -> _T:
        """Returns the answer to a question that any broker may answer, given how long one may take."""
        for patience_s in (_PROMPT_S, 2 * _PROMPT_S):
            try:
                answer = self._ask(partial(question, patience_s))
            except _Away:
                if self._refusals.newest is not None:
                    raise
            else:
                self._any.poll(0)  # Empties the queue of refusals of other brokers.
                self._refusals.forget()
                return answer
            # A client keeps asking the broker that it is connected to; a new client begins with another.
            self._any = self._client(self.answering())
        return self._ask(partial(question, max(_PROMPT_S, self._timeout_s - 3 * _PROMPT_S)))

    def _described_by_name(self, wanted: Iterable[str], patience_s: float) -> dict[str, TopicDescription]:
        names = sorted(wanted)
        if not names:
            return {}
        descriptions: dict[str, TopicDescription] = {}
        leaders: dict[Partition, int | None] = {}
        answers = self._result(self._any.ask_topics(names, patience_s)) or ()
        for name, described in zip(names, answers, strict=False):
            if isinstance(described, KafkaError):
                if described.code() not in _GONE:
                    raise self._unavailable(described)
            else:
                descriptions[name] = TopicDescription(name, str(described.topic_id), len(described.partitions))
                leaders |= {
                    (name, partition.id): partition.leader.id if partition.leader else None
                    for partition in described.partitions
                }
        self._leaders = self._leaders | leaders
        return descriptions

    def topic_keys(self, control_topic: str) -> dict[str, dict[str, str]]:
        names = sorted(name for name in self._of_any(self._listed).topics if not name.startswith("__"))
        keys_by_topic = self._described_keys(names)
        if control_topic in names:
            if self._control_topic is None or self._control_topic.name != control_topic:
                self._control_topic = ControlTopic(self._properties, control_topic, self.ends)
            for topic, keys in self._control_topic.read(is_there=True).items():
                keys_by_topic[topic] = keys_by_topic.get(topic, {}) | keys
        return keys_by_topic

    def compacted(self, names: Collection[str]) -> frozenset[str]:
        configurations = self._of_any(lambda patience_s: self._configurations(sorted(names), patience_s))
        return frozenset(
            topic for topic, entries in configurations.items() if "compact" in entries["cleanup.policy"].value
        )

    def _described_keys(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Returns the keys that the configurations of topics have, without topics that this client may not describe. A
        broker that knows the keys shows them for every topic, so that one topic is enough.
        """
        first = self._of_any(lambda patience_s: self._configurations(names[:1], patience_s))
        if not any(ENABLE in entries for entries in first.values()):
            return {}
        everything = self._of_any(lambda patience_s: self._configurations(names, patience_s))
        return {
            topic: {
                name: entry.value
                for name, entry in entries.items()
                if name.startswith(PREFIX) and entry.value and not entry.is_default
            }
            for topic, entries in everything.items()
        }

    def _configurations(self, names: Sequence[str], patience_s: float) -> dict[str, Any]:
        if not names:
            return {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        configurations = {}
        for resource, future in self._any.describe_configs(asked, request_timeout=patience_s).items():
            try:
                configurations[resource.name] = future.result(patience_s + 1)
            except KafkaException as error:
                if error.args[0].code() not in {*_GONE, KafkaError.TOPIC_AUTHORIZATION_FAILED}:
                    raise
        return configurations

    def _listed(self, patience_s: float) -> Any:
        """Returns all topics and brokers. With KRaft every answer names a random broker as the controller, which is
        then asked for topic ids: one that is not silent is chosen.
        """
        for _ in range(_CONTROLLERS):
            everything = self._any.list_topics(timeout=patience_s)
            if everything.controller_id not in self._silent:
                break
            self._clock.sleep(_CONTROLLER_EVERY_S)
        if self._any is not self._admin:  # This client learns of leaders in no other way.
            self._describe_leaders()
        # A broker that its cluster has lost is no longer listed, and may still be a bootstrap server.
        self._addresses |= {number: f"{broker.host}:{broker.port}" for number, broker in everything.brokers.items()}
        return everything

    def answering(self) -> str:
        """Returns `bootstrap.servers` without those that do not answer now, unless none would be left."""
        away = {self._addresses.get(broker) for broker in self._silent if broker is not None}
        return ",".join(server for server in self._servers.split(",") if server.strip() not in away) or self._servers

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._offsets(dict.fromkeys(partitions, _LATEST), is_ends=True)

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._offsets(dict.fromkeys(partitions, _LATEST), isolation=IsolationLevel.READ_UNCOMMITTED)

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._offsets(dict.fromkeys(partitions, _EARLIEST))

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        offsets = self._offsets(times)
        missing = [partition for partition, offset in offsets.items() if offset < 0]
        dated = {partition: offset for partition, offset in offsets.items() if offset >= 0}
        return dated | self.ends(missing)

    def _offsets(
        self, times: Mapping[Partition, int], *, is_ends: bool = False, isolation: IsolationLevel | None = None
    ) -> dict[Partition, int]:
        """Returns the offsets that brokers answer. is_ends: silent brokers are asked as well, and may answer the next
        call. isolation: None for the configured level.
        """
        groups: dict[int | None, _Times] = defaultdict(dict)
        for partition, time in times.items():
            groups[self._leaders.get(partition)][partition] = time
        # Where no other broker can answer, the silent ones are waited for.
        heard = {leader: group for leader, group in groups.items() if leader not in self._silent} or groups
        asked = {leader: self._asked(group, isolation) for leader, group in heard.items()}
        _wait(asked.values(), self._timeout_s)
        offsets: dict[Partition, int] = {}
        away: dict[int | None, _Away] = {}
        for leader, future in asked.items():
            try:
                answered, moved = self._answers(future)
                offsets |= answered
                if moved:  # The client does not ask for present leaders by itself.
                    self._describe_leaders()
                    again = self._asked({partition: times[partition] for partition in moved}, isolation)
                    offsets |= self._answers(again, self._timeout_s)[0]
                self._silent.pop(leader, None)
            except _Away as error:
                away[leader] = error
        if away and len(away) == len(asked):
            raise next(iter(away.values()))
        self._silent |= {leader: asked[leader] if is_ends else None for leader in away}
        return offsets | self._answers_of_silent(
            {} if not is_ends else {n: g for n, g in groups.items() if n not in heard}
        )

    def _answers_of_silent(self, groups: Mapping[int | None, _Times]) -> dict[Partition, int]:
        """Returns the ends that silent brokers have answered meanwhile; those that answered with an error are asked
        again.
        """
        offsets: dict[Partition, int] = {}
        for leader, group in groups.items():
            asked = self._silent[leader]
            if asked is not None and not asked.done():
                continue
            answered: dict[Partition, int] = {}
            with suppress(_Away):
                answered, _ = self._answers(asked) if asked is not None else ({}, [])
            if answered:
                del self._silent[leader]
            else:
                self._silent[leader] = self._asked(group)
            offsets |= {partition: offset for partition, offset in answered.items() if partition in group}
        return offsets

    def _asked(self, times: _Times, isolation: IsolationLevel | None = None) -> _Asked:
        """Sends the question for offsets; returns its future."""
        return self._ask(lambda: self._admin.ask_offsets(times, isolation or self._isolation, self._timeout_s))

    def _answers(self, asked: _Asked, patience_s: float = 0) -> tuple[dict[Partition, int], list[Partition]]:
        """Returns the offsets answered, and the partitions that the broker no longer leads as the client believes.

        Raises: _Away where the broker has not answered.
        """
        offsets: dict[Partition, int] = {}
        moved: list[Partition] = []
        for partition, answer in (self._result(asked, patience_s) or {}).items():
            if isinstance(answer, KafkaError):
                if answer.code() in _MOVED:
                    moved.append((partition.topic, partition.partition))
                elif answer.code() not in _GONE:
                    raise self._unavailable(answer)
            # A broker that has just restarted answers -1001 for a partition that it does not lead yet; only -1 has a
            # meaning: no record is as young as the requested time.
            elif answer.offset >= _NO_RECORD:
                offsets[partition.topic, partition.partition] = int(answer.offset)
        return offsets, moved

    def _describe_leaders(self) -> None:
        """Has the client ask which brokers lead its partitions now."""
        with suppress(KafkaException):
            self._admin.list_topics(timeout=_PROMPT_S)

    def _result(self, future: Future[Any], patience_s: float | None = None) -> Any:
        """Returns the answer; None for what does not exist.

        Raises: UnavailableError for any other error; _Away without an answer.
        """
        try:
            return future.result(self._timeout_s + 5 if patience_s is None else patience_s)
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return None
            raise self._unavailable(error.args[0]) from None
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:.0f} s") from None

    def _ask(self, question: Callable[[], _T]) -> _T:
        try:
            return question()
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:.0f} s") from None

    def _unavailable(self, reason: KafkaError | str) -> UnavailableError:
        is_away = isinstance(reason, str) or reason.code() in _SILENCE
        if is_away:
            reason = self._heard() or self._refusals.unconnected or reason
        words = reason if isinstance(reason, str) else reason.str()
        return (_Away if is_away else UnavailableError)(
            f"Kafka is not reachable: {words}",
            remedy=kafka_remedy(words)
            or (
                "check that a broker listens at `bootstrap.servers`, that `security.protocol` is that of this listener, and"
                " that the broker accepts this client"
            ),
            where=self._servers,
        )

    def _heard(self) -> str | None:
        """Returns what has been reported beside the answers, with the fault of the broker's certificate, which librdkafka
        does not name.
        """
        for client in (self._any, self._admin):
            client.poll(0)  # Calls `hear`.
        broker = _BROKER.search(self._refusals.newest or "")
        if self._refusals.newest is None or broker is None or "certificate verify failed" not in self._refusals.newest:
            return self._refusals.newest
        authorities, texts = self._native.get("ssl.ca.location"), self._native.get("ssl.ca.pem")
        fault = certificate_fault(broker[1], int(broker[2]), authorities, texts, _PROMPT_S)
        return f"the certificate of {broker[1]}:{broker[2]}: {fault}" if fault else self._refusals.newest


def _wait(asked: Collection[_Asked], timeout_s: float) -> None:
    """Waits until every broker has answered, or one of them has and the others are late."""
    if not wait(asked, _PROMPT_S).done:
        wait(asked, timeout_s + 5, return_when=FIRST_COMPLETED)
        wait(asked, _PROMPT_S)


class OffsetClient(AdminClient):
    """An admin client with one future for all offsets, or all topics, of a question. Its own methods make one for each,
    which is most of what a question costs, and idle topics are asked for their ends all the time.
    """

    def ask_offsets(self, times: Mapping[Partition, int], isolation: IsolationLevel, timeout_s: float) -> _Asked:
        """Asks for the offsets of these times; the answer for a partition is an offset's description or a KafkaError."""
        request = [TopicPartition(topic, number, time) for (topic, number), time in times.items()]
        future = _Asked()
        future.set_running_or_notify_cancel()
        super(AdminClient, self).list_offsets(
            request, future, isolation_level_value=isolation.value, request_timeout=timeout_s
        )
        return future

    def ask_topics(self, names: Sequence[str], timeout_s: float) -> Future[Sequence[Any]]:
        """Asks for the descriptions of topics; the answer has, in their order, a description or a KafkaError for each."""
        future = Future[Sequence[Any]]()
        future.set_running_or_notify_cancel()
        asked: Any = future  # As its own method passes it; its annotation is another.
        super(AdminClient, self).describe_topics([*names], asked, request_timeout=timeout_s)
        return future


class SilentLog:
    """Discards librdkafka's log lines, which repeat the errors."""

    def log(self, *_: object, **__: object) -> None:
        """Discards the line."""


def denied_topics(properties: Mapping[str, str], topics: Iterable[str], right: str) -> set[str]:
    """Returns the existing topics on which this client lacks a right, READ or WRITE; none where the broker does not
    report rights.
    """
    names = sorted(topics)
    if not names:
        return set()
    admin = AdminClient({"log_level": 0, **native_properties(properties)})
    request = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=_TIMEOUT_S
    )
    denied = set()
    for name, future in request.items():
        try:
            allowed = future.result(_TIMEOUT_S).authorized_operations
        except (KafkaException, TimeoutError):
            continue
        if allowed and right not in {operation.name for operation in allowed}:
            denied.add(name)
    return denied
