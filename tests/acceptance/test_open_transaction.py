"""Records behind a transaction that stays open: every command counts them, and they become rows once it ends."""

from __future__ import annotations

import pytest

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline

pytestmark = pytest.mark.timeout(900)

READ, OPEN, PLAIN = 200, 10, 1000
HELD = OPEN + PLAIN


def test_records_behind_an_open_transaction_are_lag_until_it_ends(pipeline: Pipeline, jvm: Jvm) -> None:
    table, topic = pipeline.add_fed_table("held", partitions=1)
    unread, other = pipeline.add_fed_table("unread", partitions=1)
    pipeline.feed.produce(topic, events(READ))
    transactional = pipeline.transactional_feed()
    transactional.begin()
    for name in (topic, other):
        transactional.produce(name, events(OPEN, READ))
        pipeline.feed.produce(name, events(PLAIN, READ + OPEN))
    waits = {table: range_of(topic, READ), unread: range_of(other, 0)}
    ended = pipeline.command_on(jvm, "run", "--until-caught-up")["tables"]
    reported = pipeline.command_on(jvm, "status", expected=4)["tables"]
    planned = pipeline.command_on(jvm, "plan", expected=4)["tables"]
    for name, waiting in waits.items():
        assert (ended[name]["lag_records"], ended[name]["open_transactions"]) == (HELD, [waiting])
        assert (reported[name]["lag_records"], reported[name]["open_transactions"]) == (HELD, [waiting])
        assert (planned[name]["unread"], planned[name]["open_transactions"]) == (HELD, [waiting])
    assert (reported[table]["ok"], reported[table]["rows"], reported[unread]["ok"]) == (True, READ, False)
    assert (planned[table]["action"], planned[unread]["action"]) == ("none", "wait")
    assert planned[unread]["reason"] == "1,010 records wait behind an open transaction since offset 0"
    with pipeline.running() as run:
        for name, waiting in waits.items():
            run.wait_while_running(
                lambda name=name, waiting=waiting: pipeline.state(name).get("open_transactions") == [waiting],  # type: ignore[misc]
                f"{name} waits",
            )
        transactional.commit()
        for name in waits:
            pipeline.wait_until_settled(name, run)
            run.wait_while_running(lambda name=name: pipeline.state(name)["lag_records"] == 0, f"{name} is read")  # type: ignore[misc]
        assert run.stop() == 0, run.tail()
    for name in waits:
        pipeline.check(name)
    assert pipeline.command_on(jvm, "status")["tables"][unread]["open_transactions"] == []


def range_of(topic: str, start: int) -> dict[str, str | int]:
    """The offsets that wait, as a document has them."""
    return {"topic": topic, "partition": 0, "start": start, "end": start + HELD}
