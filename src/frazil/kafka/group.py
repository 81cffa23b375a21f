"""The port Group on a cluster: a consumer group's offsets, fetched and committed by a consumer that never joins the group.
The broker accepts that while the group has no members.

An AdminClient has calls for the same, and librdkafka crashes the process in them when a coordinator is just moving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from frazil.clock import SystemClock
from frazil.errors import ConflictError, UnavailableError
from frazil.kafka.port import GroupOffset, Partition
from frazil.kafka.properties import native_properties
from frazil.refusals import kafka_remedy

_TIMEOUT_S = 10.0
_OF_MEMBERS = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
_NO_GROUP = {KafkaError.GROUP_ID_NOT_FOUND}
# The broker of a group is asked again while it is about to take over, as that of a cluster's first group is.
_MOVING = {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
_TRIES, _EVERY_S = 20, 0.5


class KafkaGroup:
    """Implements the port `Group` on a cluster. properties: the pipeline file's client properties. name: the group's.
    timeout_s: for one answer.
    """

    def __init__(self, properties: Mapping[str, str], name: str, timeout_s: float = _TIMEOUT_S) -> None:
        self.name = name
        self._native: dict[str, Any] = {"log_level": 0, **native_properties(properties)}
        self._timeout_s = timeout_s
        self._opened: Consumer | None = None

    @property
    def _consumer(self) -> Consumer:
        if self._opened is None:
            self._opened = Consumer({**self._native, "group.id": self.name, "enable.auto.commit": False})
        return self._opened

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, GroupOffset]:
        try:
            answer = self._consumer.committed([TopicPartition(*place) for place in partitions], self._timeout_s)
        except KafkaException as error:
            raise self._failure(self._heard() or error.args[0]) from None
        self._check(answer)
        return {
            (committed.topic, committed.partition): GroupOffset(committed.offset, committed.metadata or "")
            for committed in answer
            if committed.offset >= 0
        }

    def commit(self, offsets: Mapping[Partition, GroupOffset]) -> None:
        places = [
            TopicPartition(*place, group_offset.offset, metadata=group_offset.metadata)
            for place, group_offset in offsets.items()
        ]
        try:
            answer = self._consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                raise self._failure(self._heard() or error.args[0]) from None
            return
        self._check(answer)

    def is_live(self) -> bool:
        described = self._described()
        return described is not None and bool(described.members)

    def may_commit(self) -> bool:
        """Returns whether this client has the right to commit offsets, as far as the broker reports rights.

        Raises: UnavailableError where no broker answers, or the group may not be described.
        """
        rights = getattr(self._described(), "authorized_operations", None)
        return not rights or AclOperation.READ in rights

    def _described(self) -> Any:
        """Returns the group's members and this client's rights; None where the group does not exist."""
        for _ in range(_TRIES):
            request = self._admin.describe_consumer_groups(
                [self.name], include_authorized_operations=True, request_timeout=self._timeout_s
            )
            try:
                return request[self.name].result(self._timeout_s + 5)
            except KafkaException as error:
                if error.args[0].code() in _NO_GROUP:
                    return None
                if error.args[0].code() not in _MOVING:
                    raise self._failure(error.args[0]) from None
            except TimeoutError:
                break
            SystemClock().sleep(_EVERY_S)
        raise self._failure(KafkaError(KafkaError._TIMED_OUT))

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._native)

    def _heard(self) -> KafkaError | None:
        """Returns that the group may not be used, which a consumer reports once, beside its answers: they only time out.
        The next request is made by another consumer, as this one may not learn of a right that is granted.
        """
        if self._opened is None:
            return None
        reported, self._opened = self._opened.poll(0), None
        cause = None if reported is None else reported.error()
        return cause if cause is not None and cause.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else None

    def _check(self, answer: Iterable[TopicPartition]) -> None:
        for partition in answer:
            if partition.error is not None and partition.error.code() not in _GONE:
                raise self._failure(partition.error)

    def _failure(self, error: KafkaError) -> ConflictError | UnavailableError:
        where = f"group {self.name}"
        if error.code() in _OF_MEMBERS:
            return ConflictError(f"a consumer is a member of group {self.name}", where=where)
        reason = error.str()
        message = f"the offsets of group {self.name} cannot be used: {reason}"
        return UnavailableError(message, remedy=kafka_remedy(reason), where=where)
