"""Writes records to a Kafka topic exactly once per name: each batch in one transaction, together with its name.

The name is the metadata of a committed offset of a consumer group that nobody consumes with; Kafka commits it in the
transaction of the records (KIP-98, transactional `sendOffsetsToTransaction`). After a crash or a lost response the
group's offset shows whether a batch was written. Of two writers with one name, the later one fences the earlier one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from frazil.errors import ConflictError, UnavailableError
from frazil.failpoints import hit
from frazil.kafka.port import OutFields
from frazil.kafka.properties import native_properties
from frazil.refusals import kafka_remedy

_TIMEOUT_S = 30.0
_REPORTS_S = 5.0
_LARGEST_RECORD = 1_000_000_000
_HIGH = 0
_TRIES, _PAUSE_S = 50, 0.2
_NOT_READY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


class KafkaOutbox:
    """Implements the port `Outbox` on a cluster; `properties` are Kafka's client properties. One producer is kept per
    owner and topic.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = native_properties(properties)
        self._writers: dict[tuple[str, str], _Writer] = {}
        self._lock = threading.Lock()

    @staticmethod
    def group_of(owner: str) -> str:
        """Returns the consumer group that keeps the name of the owner's last batch."""
        return f"{owner}-outbox"

    def last(self, owner: str, topic: str) -> str:
        """See the port. An earlier writer is fenced by it."""
        with self._writer(owner, topic) as writer:
            return writer.last

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutFields]) -> None:
        with self._writer(owner, topic) as writer:
            writer.write(name, records)

    @contextmanager
    def _writer(self, owner: str, topic: str) -> Iterator[_Writer]:
        """Takes the writer out while it is used; one that failed does not return."""
        with self._lock:
            writer = self._writers.pop((owner, topic), None)
        try:
            writer = writer or _Writer(self._properties, owner, topic)
            yield writer
        except KafkaException as error:
            raise _failure(error, topic) from None
        with self._lock:
            self._writers[owner, topic] = writer


class _Writer:
    """One transactional producer; after an error it is discarded."""

    def __init__(self, properties: Mapping[str, str], owner: str, topic: str) -> None:
        self._topic = topic
        #: Why the broker has not taken records: the transaction's own errors do not name it.
        self._denials: list[KafkaError] = []
        settings = {
            **properties,
            "transactional.id": owner,
            "message.max.bytes": _LARGEST_RECORD,
            "delivery.report.only.error": True,  # Half of the time that a record takes.
            # Not a method: the producer would keep the writer, and both would stay until garbage is collected.
            "on_delivery": partial(_note, self._denials),
            "log_level": _HIGH,
        }
        self._producer = Producer(settings)
        self._consumer = Consumer({**properties, "group.id": KafkaOutbox.group_of(owner), "log_level": _HIGH})
        self._producer.init_transactions(_TIMEOUT_S)  # From here on an earlier writer is fenced.
        #: The name of the last batch; empty without one.
        self.last = self._asked_name()

    def write(self, name: str, records: Sequence[OutFields]) -> None:
        if self.last == name:
            return
        producer = self._producer
        producer.begin_transaction()
        for key, value, headers in records:
            # Also an empty list of headers costs as much as half of a record.
            more: Any = {"headers": [*headers]} if headers else {}
            while True:
                try:
                    producer.produce(self._topic, value, key, **more)
                    break
                except BufferError:
                    producer.poll(0.1)
        try:
            self._send_name(TopicPartition(self._topic, 0, len(records), metadata=name))
            hit("outbox.before")
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            self._give_up(error.args[0])
            if self._denials:
                raise KafkaException(self._denials[-1]) from None
            raise
        hit("outbox.after")
        self.last = name

    def _send_name(self, mark: TopicPartition) -> None:
        try:
            self._producer.send_offsets_to_transaction([mark], self._consumer.consumer_group_metadata(), _TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # The transaction failed while this was on its way: only a further call is answered with what made it fail.
            self._producer.send_offsets_to_transaction([mark], self._consumer.consumer_group_metadata(), _TIMEOUT_S)

    def _give_up(self, error: KafkaError) -> None:
        if not error.fatal():  # A fenced producer has nothing to report.
            self._producer.flush(_REPORTS_S)  # Calls `_note`; the reports may come after the transaction's own error.
        if error.txn_requires_abort():
            with suppress(KafkaException):  # Else readers of the topic wait for the transaction until it times out.
                self._producer.abort_transaction(_REPORTS_S)

    def _asked_name(self) -> str:
        """Returns the committed name; retries while the broker is only starting to coordinate groups."""
        left = _TRIES
        while True:
            try:
                [mark] = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=_TIMEOUT_S)
            except KafkaException as error:
                left -= 1
                reported = self._consumer.poll(0)  # A group that it may not use only makes the request time out.
                cause = None if reported is None else reported.error()
                if cause is not None and cause.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise KafkaException(cause) from None
                if error.args[0].code() not in _NOT_READY or not left:
                    raise
                self._producer.poll(_PAUSE_S)
                continue
            if mark.error is not None:
                raise KafkaException(mark.error)
            return mark.metadata or ""


def _note(denials: list[KafkaError], error: KafkaError | None, _: object) -> None:
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        denials[:] = [error]


def _failure(error: KafkaException, topic: str) -> UnavailableError | ConflictError:
    cause = error.args[0]
    if cause.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
        return ConflictError(f"another process writes topic {topic}", remedy="let one of the two end", where=topic)
    too_large = "raise the topic's max.message.bytes" if "too large" in cause.str().lower() else ""
    remedy = too_large or kafka_remedy(cause.str())
    if cause.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
        remedy = "create the topic, or correct its name; Frazil retries with back-off"
    return UnavailableError(f"topic {topic} cannot be written: {cause.str()}", remedy=remedy, where=topic)
