"""The load on PostgreSQL and Debezium themselves: what the topics say is what the tables hold, also over a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.source import OLD_KEY, UNAVAILABLE, Source, replayed, running

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

_TEXTUAL = {"decimal.handling.mode": "string"}


@pytest.mark.slow
def test_the_topics_of_a_random_load_say_what_the_tables_hold(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The same load feeds tables in tests/acceptance/test_database.py, where they equal PostgreSQL's."""
    with running(Source(tmp_path / "connect", broker.bootstrap_servers, 7, _TEXTUAL, moves_alone=True)) as source:
        source.play(200)
        _check(source)
        source.worker.kill()
        source.play(100)
        source.worker.start()
        source.play(100)
        seen = _check(source)
    assert {"r", "c", "u", "d", "t", None} <= seen.keys()
    assert {"long text left out", "long text left out of a row with another key"} <= seen.keys()


def _check(source: Source) -> Counter[str | None]:
    """Compares every table; how often each operation was seen."""
    messages = list(source.messages(source.pause()))
    for table in source.tables:
        rows = replayed(message for message in messages if message.topic == source.topic(table))
        assert table.in_words(rows) == table.rows(source.postgres), table.name
    left_out = [message for message in messages if UNAVAILABLE in str(message.value)]
    moved = sum(OLD_KEY in message.headers for message in left_out)
    seen = Counter({"long text left out": len(left_out), "long text left out of a row with another key": moved})
    return seen + Counter(message.value and message.value["op"] for message in messages)
