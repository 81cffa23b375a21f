"""The port Group on a cluster: a consumer group's offsets, read and committed by the group's name alone, as
`kafka-consumer-groups --reset-offsets` does. The broker accepts that while the group has no members.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.errors import ConflictError, UnavailableError
from frazil.kafka.port import GroupOffset, Partition
from frazil.kafka.properties import native_properties
from frazil.kafka.security import kafka_remedy

_TIMEOUT_S = 10.0
_OF_MEMBERS = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND}


class KafkaGroup:
    """Implements the port `Group` on a cluster. properties: the pipeline file's client properties. name: the group's."""

    def __init__(self, properties: Mapping[str, str], name: str, timeout_s: float = _TIMEOUT_S) -> None:
        self.name = name
        self._properties = properties
        self._timeout_s = timeout_s

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"log_level": 0, **native_properties(self._properties)})

    def offsets(self) -> dict[Partition, GroupOffset]:
        request = [ConsumerGroupTopicPartitions(self.name)]
        answer = self._answer(self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout_s))
        found = {}
        for one in answer.topic_partitions if answer is not None else ():
            self._raise(one.error)
            if one.offset >= 0:
                found[one.topic, one.partition] = GroupOffset(one.offset, one.metadata or "")
        return found

    def commit(self, offsets: Mapping[Partition, GroupOffset]) -> None:
        places = [TopicPartition(*place, one.offset, metadata=one.metadata) for place, one in offsets.items()]
        request = [ConsumerGroupTopicPartitions(self.name, places)]
        answer = self._answer(self._admin.alter_consumer_group_offsets(request, request_timeout=self._timeout_s))
        for one in answer.topic_partitions if answer is not None else ():
            self._raise(one.error)

    def is_live(self) -> bool:
        request = self._admin.describe_consumer_groups([self.name], request_timeout=self._timeout_s)
        described = self._answer(request)
        return described is not None and bool(described.members)

    def _answer(self, request: Mapping[str, Future[Any]]) -> Any:
        """Returns the answer; None for a group that does not exist."""
        try:
            return request[self.name].result(self._timeout_s + 5)
        except KafkaException as error:
            self._raise(error.args[0])
            return None
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:.0f} s") from None

    def _raise(self, error: KafkaError | None) -> None:
        if error is None or error.code() in _GONE:
            return
        if error.code() in _OF_MEMBERS:
            raise ConflictError(f"a consumer is a member of group {self.name}", where=f"group {self.name}")
        raise self._unavailable(error.str())

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"the offsets of group {self.name} cannot be used: {reason}",
            remedy=kafka_remedy(reason),
            where=f"group {self.name}",
        )
