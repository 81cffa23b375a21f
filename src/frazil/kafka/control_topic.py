"""The compacted topic with the keys of topics, on brokers that refuse keys that they do not know.

A record's key is the name of a topic; its value is a JSON object with all keys of that topic, so that a reader never sees a
part of a change. A tombstone removes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.errors import UnavailableError
from frazil.kafka.port import Partition, ReadRecord
from frazil.kafka.properties import native_properties
from frazil.types import OffsetRange

log = structlog.get_logger("frazil")
_TIMEOUT_S = 30.0


class ControlTopic:
    """The control topic of a pipeline. properties: Kafka's client properties. ends: returns ends of partitions."""

    def __init__(
        self,
        properties: Mapping[str, str],
        name: str,
        ends: Callable[[Iterable[Partition]], Mapping[Partition, int]],
    ) -> None:
        self.name = name
        self._properties = properties
        self._ends = ends
        self._next_offset = 0
        self._keys: dict[str, dict[str, str]] = {}

    def read(self, *, is_there: bool) -> dict[str, dict[str, str]]:
        """Returns the keys of each topic; only new records are read. is_there: whether the control topic is known to exist;
        otherwise one that does not answer has no keys.

        Raises: UnavailableError where no broker answers.
        """
        end = self._ends([(self.name, 0)]).get((self.name, 0))
        if end is None and is_there:
            raise UnavailableError(
                f"partition 0 of topic {self.name} has no leader, or one that does not answer",
                where=f"topic {self.name}",
            )
        if end is None:
            return {}
        if end < self._next_offset:  # It was recreated.
            self._next_offset, self._keys = 0, {}
        if end > self._next_offset:
            # A tenth of a second that commands without a control topic need not pay.
            from frazil.kafka.reader import KafkaReader  # noqa: PLC0415

            reader = KafkaReader(self._properties)
            for batch in reader.batches(OffsetRange(self.name, 0, self._next_offset, end)):
                for record in batch:
                    self._apply(record)
            self._next_offset = end
        return dict(self._keys)

    def _apply(self, record: ReadRecord) -> None:
        topic = (record.key or b"").decode(errors="replace")
        self._keys.pop(topic, None)
        if record.value is None:
            return
        try:
            keys = json.loads(record.value)
        except (ValueError, RecursionError):
            keys = None
        if isinstance(keys, dict):
            self._keys[topic] = {str(name): str(value) for name, value in keys.items()}
        else:
            remedy = f"write it again: `frazil topic set {topic} KEY=VALUE`"
            where = f"topic {self.name}, partition 0, offset {record.offset}"
            log.warning("control_record_ignored", topic=topic, where=where, remedy=remedy)

    def write(self, topic: str, keys: Mapping[str, str]) -> None:
        """Stores the keys of a topic in place of earlier ones; creates the control topic where there is none.

        Raises: UnavailableError where they were not stored.
        """
        failures: list[KafkaError | None] = []
        try:
            self._create()
            producer = Producer({"log_level": 0, **native_properties(self._properties), "acks": "all"})
            value = json.dumps(dict(keys), sort_keys=True).encode() if keys else None
            producer.produce(
                self.name, value, topic.encode(), partition=0, on_delivery=lambda error, _: failures.append(error)
            )
            producer.flush(_TIMEOUT_S)
        except KafkaException as error:
            failures = [error.args[0]]
        if failures != [None]:
            silence = f"no answer within {_TIMEOUT_S:.0f} s"
            reason = failures[0].str() if failures and failures[0] is not None else silence
            raise UnavailableError(
                f"the control topic could not be written: {reason}",
                remedy=f"allow this client to create topics and to write to `{self.name}`, or create it with"
                " `kafka-topics --create --partitions 1 --config cleanup.policy=compact`",
                where=f"topic {self.name}",
            )

    def _create(self) -> None:
        admin = AdminClient({"log_level": 0, **native_properties(self._properties)})
        if self.name in admin.list_topics(timeout=_TIMEOUT_S).topics:
            return
        new = NewTopic(self.name, 1, replication_factor=-1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([new])[self.name].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
