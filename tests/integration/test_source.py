"""The load on PostgreSQL and Debezium themselves: what the topics say is what the tables hold, also over a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.source import Source, replayed, running

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

_TEXTUAL = {"decimal.handling.mode": "string"}


def test_the_topics_of_a_random_load_say_what_the_tables_hold(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with running(Source(tmp_path / "connect", broker.bootstrap_servers, 7, _TEXTUAL)) as source:
        source.play(200)
        _check(source)
        source.worker.kill()
        source.play(100)
        source.worker.start()
        source.play(100)
        seen = _check(source)
    assert {"r", "c", "u", "d", "t", None} <= seen.keys()
    assert seen["long text left out"]


def _check(source: Source) -> Counter[str | None]:
    """Compares every table; how often each operation was seen."""
    messages = list(source.messages(source.pause()))
    for table in source.tables:
        rows = replayed((key, value) for topic, key, value in messages if topic == source.topic(table))
        assert table.in_words(rows) == table.rows(source.postgres), table.name
    left_out = sum("__debezium_unavailable_value" in str(value) for _, _, value in messages)
    return Counter([value and value["op"] for _, _, value in messages]) + Counter({"long text left out": left_out})
