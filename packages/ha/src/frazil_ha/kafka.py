"""Elections by Kafka: claims are records of a control topic, life is shown by membership in a consumer group.

A claim is written in a transaction of the transactional id `frazil-<pipeline>`: `initTransactions` ends every other claim
that is under way (KIP-98), then the topic is read to its end, and a new claim is written if the newest is the expected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import structlog
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from frazil.clock import Clock, SystemClock
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.kafka.group import KafkaGroup
from frazil.kafka.properties import native_properties
from frazil.kafka.topics import SilentLog
from frazil.refusals import kafka_remedy
from frazil_ha.elector import Claim, read_claim

log = structlog.get_logger("frazil")

_LOOK_EVERY_S = 1.0
SESSION_S = 6
"""The shortest session that brokers accept (`group.min.session.timeout.ms`)."""
_TIMEOUT_S = 5.0
_QUIET = {"log_level": 0}
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_SOON = (
    *_NOT_THERE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._NOENT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._STATE)


def control_topic(pipeline: str) -> str:
    """Returns the topic, and the group, by which the processes of a pipeline elect a leader."""
    return f"frazil-{pipeline}-ha"


def claims_id(pipeline: str) -> str:
    """Returns the transactional id with which claims are written."""
    return f"frazil-{pipeline}"


class KafkaElector:
    """Implements the port `Elector`. properties: the pipeline file's client properties. name: this process's."""

    kind = "kafka"
    poll_s = 0.1

    def __init__(self, properties: Mapping[str, str], pipeline: str, name: str) -> None:
        self._properties: dict[str, Any] = {**native_properties(properties), **_QUIET, "client.id": name}
        self._owner = claims_id(pipeline)
        self._topic = control_topic(pipeline)
        self._group = KafkaGroup(properties, self._topic)
        self._clock: Clock = SystemClock()
        self._admin: AdminClient | None = None
        self._reader: Consumer | None = None
        self._membership: Consumer | None = None
        #: Connected before it is needed. A producer that is not loses half a second to a retry of its first request.
        self._claimant: Producer | None = None
        self._newest: Claim | None = None
        #: Up to where the topic is read, what is not a record included.
        self._read_up_to = 0
        #: The id of the topic that is read, and the question for the present one, with the time of the last question.
        self._topic_id = ""
        self._asked: Future[Any] | None = None
        self._asked_s = 0.0

    def check(self) -> str:
        """As the port has it. Only a claim shows whether this client may write with the transactional id."""
        with self._failures():
            admin = self._new_admin()
            described = admin.describe_topics(
                TopicCollection([self._topic]), include_authorized_operations=True, request_timeout=_TIMEOUT_S
            )
            try:
                description: Any = described[self._topic].result()
            except KafkaException as error:
                if error.args[0].code() not in _NOT_THERE:
                    raise
                self._create_topic(admin, is_trial=True)
                return f"topic {self._topic} does not exist; this client may create it"
            self._refuse_partitions(len(description.partitions))
            rights = {right.name for right in description.authorized_operations or ()} or {"READ", "WRITE"}
            if not (rights >= {"READ", "WRITE"} and self._group.may_commit()):
                raise denied(self._topic)
        return f"topic {self._topic}, which this client may read and write, and the group of its name"

    def prepare(self) -> None:
        if self._reader is None:
            self._open()
        if self._claimant is None:
            with self._failures():
                self._claimant = self._new_claimant()

    def _open(self) -> None:
        with self._failures():
            self._admin = self._admin or self._new_admin()
            topic = self._admin.list_topics(self._topic, timeout=_TIMEOUT_S).topics[self._topic]
            if topic.error is None:
                self._refuse_partitions(len(topic.partitions))
            elif topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise denied(self._topic)
            else:
                self._create_topic(self._admin)
            # Joined before anything is claimed: a leader is looked for among the members.
            self._membership = self._membership or self._join()
            reader = Consumer(
                {
                    **self._properties,
                    "group.id": self._topic,  # A name is demanded, and not used.
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 100,  # The end of the topic is reported after each fetch.
                }
            )
            self._read_up_to = 0
            reader.assign([TopicPartition(self._topic, 0, 0)])
            self._read_to_end(reader)
            self._topic_id, self._asked = str(self._described(self._admin).result(_TIMEOUT_S).topic_id), None
            self._reader = reader

    def _described(self, admin: AdminClient) -> Future[Any]:
        future: Future[Any] = admin.describe_topics(TopicCollection([self._topic]), request_timeout=_TIMEOUT_S)[
            self._topic
        ]
        return future

    def _is_replaced(self) -> bool:
        """Whether the topic was deleted, or created again since it was opened. A client hears of neither for half a
        minute, and then continues at the offset that it had in the former topic. The answer is that of a second ago.
        """
        assert self._admin is not None
        if self._asked is None and self._clock.monotonic_s() - self._asked_s >= _LOOK_EVERY_S:
            self._asked, self._asked_s = self._described(self._admin), self._clock.monotonic_s()
        if self._asked is None or not self._asked.done():
            return False
        asked, self._asked = self._asked, None
        try:
            return str(asked.result().topic_id) != self._topic_id
        except KafkaException as error:
            return error.args[0].code() in _NOT_THERE

    def _new_admin(self) -> AdminClient:
        """Returns a client whose questions do not make a broker create the topic, with as many partitions as it likes."""
        return AdminClient({**self._properties, "allow.auto.create.topics": False})

    def _refuse_partitions(self, count: int) -> None:
        if count != 1:
            remedy = f"delete it while no process runs, and create it with one partition: {_creating(self._topic)}"
            raise SpecError("the control topic must have one partition", remedy=remedy, where=f"topic {self._topic}")

    def _create_topic(self, admin: AdminClient, *, is_trial: bool = False) -> None:
        """is_trial: the broker answers as if it created the topic."""
        new = NewTopic(self._topic, 1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([new], validate_only=is_trial)[self._topic].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _DENIED:
                remedy = f"create it: {_creating(self._topic)}, or write `ha: {{elect: none}}`"
                message = "the control topic does not exist, and this client may not create it"
                raise SpecError(message, remedy=remedy, where=f"topic {self._topic}") from None
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _join(self) -> Consumer:
        membership = Consumer(
            {
                **self._properties,
                "group.id": self._topic,
                "session.timeout.ms": SESSION_S * 1000,
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
            }
        )
        membership.subscribe([self._topic])
        membership.poll(0)
        return membership

    def _new_claimant(self) -> Producer:
        """Returns a connected producer; it has no part in the election before a claim."""
        settings = {"transactional.id": self._owner, "transaction.timeout.ms": 10_000, "linger.ms": 0}
        producer = Producer({**self._properties, **settings}, logger=SilentLog())
        producer.list_topics(self._topic, timeout=_TIMEOUT_S)
        return producer

    def newest(self) -> Claim | None:
        assert self._reader is not None
        assert self._membership is not None
        with self._failures():
            if self._is_replaced():
                self._close_reader()
                self._open()
            while self._membership.poll(0) is not None:
                pass  # Polling keeps the membership; the records are those that the reader has too.
            while (message := self._reader.poll(0)) is not None:
                self._take(message)
        return self._newest

    def _take(self, message: Message) -> None:
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._read_up_to = message.offset() or 0
            if error.code() in (*_NOT_THERE, *_DENIED):
                self._close_reader()
                raise KafkaException(error)
            return
        try:
            self._newest = read_claim(message.value() or b"", message.offset() or 0)
        except ValueError:  # Whoever wrote it: an error would keep every later process from the election.
            log.warning("invalid_election_record", topic=self._topic, offset=message.offset())

    def _close_reader(self) -> None:
        """Makes the next `prepare` look for the topic, and make it where it does not exist."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read_to_end(self, reader: Consumer) -> None:
        end = self._end()
        self._read_until(reader, lambda: self._read_up_to >= end)

    def _end(self) -> int:
        assert self._admin is not None
        place, latest = TopicPartition(self._topic, 0), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        until_s = self._clock.monotonic_s() + _TIMEOUT_S
        while True:
            asked = self._admin.list_offsets(
                {place: latest}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
            )
            try:
                return int(asked[place].result(_TIMEOUT_S).offset)
            except KafkaException as error:
                # A topic that was just created has no leader for a moment. A client that knows an earlier leader does not
                # ask for the present one again.
                if error.args[0].code() not in _SOON or self._clock.monotonic_s() > until_s:
                    raise
                self._admin = self._new_admin()
                self._clock.sleep(0.1)

    def _read_until(self, reader: Consumer, is_there: Callable[[], bool]) -> None:
        until_s = self._clock.monotonic_s() + _TIMEOUT_S
        while not is_there():
            message = reader.poll(0.05)
            if message is not None:
                self._take(message)
            elif self._clock.monotonic_s() > until_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def claim(self, mine: Claim, after: Claim | None) -> bool:
        assert self._reader is not None
        with self._failures():
            producer, self._claimant = self._claimant or self._new_claimant(), None
            try:
                producer.init_transactions(_TIMEOUT_S)  # From here on an earlier claim that is under way fails.
                self._read_to_end(self._reader)
                if self._newest != after:
                    return False
                producer.begin_transaction()
                producer.produce(self._topic, mine.text(), self._owner, partition=0)
                producer.commit_transaction(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() in _FENCED:
                    return False
                if error.args[0].code() in _SOON:  # The topic was deleted, of which the reader hears much later.
                    self._close_reader()
                raise
            self._read_until(self._reader, lambda: self._newest != after)
        return True

    def is_present(self, claim: Claim) -> bool:
        assert self._admin is not None
        with self._failures():
            described = self._admin.describe_consumer_groups([self._topic], request_timeout=_TIMEOUT_S)
            group: Any = described[self._topic].result(_TIMEOUT_S)
        return any(member.client_id == claim.name for member in group.members)

    def close(self) -> None:
        for consumer in filter(None, (self._membership, self._reader)):
            consumer.close()
        self._reader = self._membership = self._claimant = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except FrazilError:
            raise
        except (KafkaException, RuntimeError, TimeoutError) as error:
            cause = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else None
            if cause is not None and cause.code() in _DENIED:
                raise denied(self._topic) from None
            words = cause.str() if cause is not None else str(error) or "no answer"
            remedy = kafka_remedy(words) or "Frazil retries; look at the brokers, and at the rights of this client"
            raise UnavailableError(
                f"Kafka cannot elect a leader: {words}", remedy=remedy, where=f"topic {self._topic}"
            ) from None


def _creating(topic: str) -> str:
    return f"`kafka-topics --create --topic {topic} --partitions 1 --config cleanup.policy=compact`"


def denied(topic: str) -> SpecError:
    """Returns the error of a client that lacks a right on the control topic, its group or the transactional id of claims."""
    owner = topic.removesuffix("-ha")
    remedy = (
        f"allow Read, Write and Describe on topic {topic}, Read on group {topic}, Write on transactional id {owner}"
    )
    return SpecError("this client may not use the control topic", remedy=remedy, where=f"topic {topic}")
