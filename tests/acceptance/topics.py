"""What an operator does to topics: makes and deletes them, adds partitions, lets records go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.fixtures.waiting import wait_until


class Topics:
    """An admin client. Each call returns when every client can see what it did."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def create(self, name: str, partitions: int = 2, properties: Mapping[str, str] | None = None) -> str:
        """A new topic; its name."""
        made = self._admin.create_topics([NewTopic(name, partitions, config=dict(properties or {}))])
        made[name].result(30)
        wait_until(lambda: self._id(name), f"topic {name} is there")
        return name

    def delete(self, name: str) -> None:
        """Deletes it, with all of its records."""
        self._admin.delete_topics([name])[name].result(30)
        wait_until(lambda: self._id(name) is None, f"topic {name} is gone")

    def recreate(self, name: str, partitions: int = 2) -> None:
        """Deletes it and makes another of the same name."""
        self.delete(name)

        def made() -> bool:
            try:
                self.create(name, partitions)
            except KafkaException:
                return False  # The broker is still deleting.
            return True

        wait_until(made, f"topic {name} is made again")

    def add_partitions(self, name: str, total: int) -> None:
        """Gives it more partitions."""
        self._admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        wait_until(lambda: self._partition_count(name) == total, f"topic {name} has {total} partitions")

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """What retention does: per partition, the records before an offset go."""
        request = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        for deleted in self._admin.delete_records(request).values():
            deleted.result(30)

    def _describe(self, name: str) -> Any:
        try:
            return self._admin.describe_topics(TopicCollection([name]))[name].result(30)
        except KafkaException:
            return None

    def _id(self, name: str) -> str | None:
        found = self._describe(name)
        return None if found is None else str(found.topic_id)

    def _partition_count(self, name: str) -> int:
        found = self._describe(name)
        return 0 if found is None else len(found.partitions)
