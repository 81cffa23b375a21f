"""What this client may do with topics, for `frazil check`: brokers without an authorizer allow everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from frazil.kafka.properties import native_properties

_TIMEOUT_S = 10.0


def unreadable_topics(properties: Mapping[str, str], topics: Iterable[str]) -> set[str]:
    """Returns the topics that this client may not read; none where the broker does not report rights."""
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
        if allowed and "READ" not in {operation.name for operation in allowed}:
            denied.add(name)
    return denied
