"""The Source port on a real cluster: one long-lived admin client of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from frazil.errors import UnavailableError
from frazil.kafka.port import Partition, TopicDescription
from frazil.kafka.properties import native_properties, refused_setting

_TIMEOUT_S = 10.0
_NO_RECORD = -1
_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


class KafkaTopics:
    """See the port. properties: the pipeline file's client properties. timeout_s: for one answer."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._servers = properties["bootstrap.servers"]
        level = properties.get("isolation.level", "read_committed")
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if level == "read_uncommitted" else IsolationLevel.READ_COMMITTED
        )
        native = native_properties(properties)
        try:
            self._admin = AdminClient({"log_level": 0, "socket.timeout.ms": 10000, **native}, logger=_Silent())
        except (KafkaException, ValueError) as error:
            raise refused_setting(error, properties) from None

    def cluster_id(self) -> str:
        """See the port."""
        with_cluster = self._ask(
            lambda: self._admin.describe_cluster(request_timeout=self._timeout_s).result(self._timeout_s)
        )
        return str(with_cluster.cluster_id)

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """See the port."""
        everything = self._ask(lambda: self._admin.list_topics(timeout=self._timeout_s)).topics
        names = sorted(name for name in everything if wanted(name))
        if not names:
            return {}
        futures = self._ask(
            lambda: self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        )
        found = {}
        for name, future in futures.items():
            described = self._result(future)
            if described is not None:
                found[name] = TopicDescription(name, str(described.topic_id), len(described.partitions))
        return found

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See the port."""
        return self._offsets({partition: OffsetSpec.latest() for partition in partitions})  # type: ignore[no-untyped-call]

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See the port."""
        return self._offsets({partition: OffsetSpec.earliest() for partition in partitions})  # type: ignore[no-untyped-call]

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """See the port."""
        found = self._offsets({partition: OffsetSpec.for_timestamp(ms) for partition, ms in times.items()})
        missing = [partition for partition, offset in found.items() if offset < 0]
        known = {partition: offset for partition, offset in found.items() if offset >= 0}
        return known | self.ends(missing)

    def _offsets(self, specs: Mapping[Partition, OffsetSpec]) -> dict[Partition, int]:
        if not specs:
            return {}
        request = {TopicPartition(topic, number): spec for (topic, number), spec in specs.items()}
        futures = self._ask(
            lambda: self._admin.list_offsets(request, isolation_level=self._isolation, request_timeout=self._timeout_s)
        )
        offsets = {}
        for partition, future in futures.items():
            answer = self._result(future)
            # A broker that has just come back answers with -1001 for a partition it does not lead yet; -1 alone means
            # something: no record is as young as the time asked for.
            if answer is not None and answer.offset >= _NO_RECORD:
                offsets[partition.topic, partition.partition] = int(answer.offset)
        return offsets

    def _result(self, future: Any) -> Any:
        """The answer, None for what is gone, UnavailableError for anything else."""
        try:
            return future.result(self._timeout_s + 5)
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return None
            raise self._unavailable(error.args[0]) from None
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:.0f} s") from None

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None
        except TimeoutError:
            raise self._unavailable(f"no answer within {self._timeout_s:.0f} s") from None

    def _unavailable(self, reason: object) -> UnavailableError:
        words = reason.str() if isinstance(reason, KafkaError) else reason
        return UnavailableError(
            f"Kafka is not reachable: {words}",
            remedy="see whether a broker runs at bootstrap.servers and lets this client in",
            where=self._servers,
        )


class _Silent:
    """librdkafka's own log lines repeat what the errors say."""

    def log(self, *_: object, **__: object) -> None:
        """Says nothing."""
