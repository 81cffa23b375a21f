"""What the broker's answers about offsets mean."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.kafka.topics import KafkaTopics


class _Answer:
    def __init__(self, offset: int) -> None:
        self.offset = offset


def _answering(monkeypatch: pytest.MonkeyPatch, *rounds: dict[int, int]) -> KafkaTopics:
    """The offsets that the client says for each partition of topic `a`, question after question. A real broker gives the
    one that matters here only for a moment while it comes back.
    """
    left = list(rounds)

    def list_offsets(
        _: AdminClient, asked: dict[TopicPartition, Any], **__: Any
    ) -> dict[TopicPartition, Future[_Answer]]:
        offsets, futures = left.pop(0), {}
        for partition in asked:
            futures[partition] = Future[_Answer]()
            futures[partition].set_result(_Answer(offsets[partition.partition]))
        return futures

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    return KafkaTopics({"bootstrap.servers": "127.0.0.1:9"})


def test_a_partition_whose_offset_the_broker_does_not_know_yet_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = _answering(monkeypatch, {0: -1001, 1: 7}, {0: -1001, 1: 0})
    assert topics.ends([("a", 0), ("a", 1)]) == {("a", 1): 7}
    assert topics.beginnings([("a", 0), ("a", 1)]) == {("a", 1): 0}


def test_a_partition_without_a_record_so_young_begins_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = _answering(monkeypatch, {0: -1, 1: 5, 2: -1001}, {0: 9})
    assert topics.at_time({("a", 0): 1, ("a", 1): 1, ("a", 2): 1}) == {("a", 0): 9, ("a", 1): 5}
