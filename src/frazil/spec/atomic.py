"""Whether a table shows transactions of its source whole: `atomic`."""

from __future__ import annotations

from frazil.spec.document import Section
from frazil.spec.keys import keys_of
from frazil.spec.models import AtomicSpec, EnvelopeSpec, TopicSelector
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields
from frazil.spec.topics import parse_topic


def read_atomic(
    fields: Fields, topics: tuple[TopicSelector, ...], envelope: EnvelopeSpec | None, problems: Problems
) -> AtomicSpec | None:
    """None where a snapshot may show a part of a transaction. topics: none where the file does not say."""
    entry = fields.get("atomic")
    if entry is None:
        return None
    chosen = AtomicSpec()
    if isinstance(entry.value, Section):
        inner = Fields(entry.value, keys_of(AtomicSpec), "atomic", problems)
        topic = inner.text("transaction_topic")
        if inner.get("transaction_topic") is None:
            message = "`atomic` names no topic of transactions"
            problems.add(entry.line, message, "write `transaction_topic: TOPIC`, or `atomic: transaction`")
        if topic is not None:
            problems.attempt(entry.line, None, parse_topic, topic)
            chosen = AtomicSpec(transaction_topic=topic)
    elif fields.choice("atomic") != "transaction":
        return None
    if envelope is None or envelope.kind != "debezium":
        message = "`atomic` shows transactions whole that Debezium's envelope tells of, and the table has none"
        problems.add(entry.line, message, "write `envelope: debezium`, or remove it")
    if len(topics) > 1 or any(selector.pattern is not None for selector in topics):
        message = "`atomic` shows transactions whole in a table of one topic, and this one may read several"
        problems.add(entry.line, message, "give each topic its table, or remove it")
    return chosen
