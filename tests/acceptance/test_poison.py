"""Records that end the worker which reads them: each becomes a dead letter, and its table and all others flow on.

In time: one way to die here, all of them in unit/ingest/tasks/test_isolate.py; a replay of what still harms its reader in
packages/deadletters/tests/unit/test_crashing_records.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.verifier import read_newest
from tests.fixtures import planted

pytestmark = pytest.mark.timeout(600)

REASONS = {
    "segmentation": "the reader was ended by SIGSEGV",
    "abort": "the reader was ended by SIGABRT",
    "exception": "RuntimeError: no such code page",
    "loop": "the reader used more processor time than a record may take",
    "memory": "MemoryError",
}
GOOD = 30
WITHIN_S = 60.0
FOLDER = str(Path(planted.__path__[0]).resolve())


def test_a_record_that_ends_its_worker_becomes_a_dead_letter(pipeline: Pipeline) -> None:
    _read(pipeline, ["segmentation"])


@pytest.mark.slow
def test_records_that_end_their_workers_become_dead_letters_that_can_be_replayed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _read(pipeline, list(REASONS))
    monkeypatch.setenv("PYTHONPATH", FOLDER)  # The command lives, and reports it of what still harms its reader.
    name = tables["segmentation"][0]
    tried = pipeline.command("dead-letters", "replay", name)
    assert tried["tables"] == {name: {"replayed": 0, "remaining": 1}}


def _read(pipeline: Pipeline, harms: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Tables and topics, by harm, once all but the records that harm are rows."""
    tables = {name: pipeline.add_fed_table(name, 1) for name in (*harms, "neighbour")}
    for name, (_, topic) in tables.items():
        pipeline.feed.send(topic, events(GOOD))
        if name in harms:
            pipeline.feed.send(topic, [b'{"harm": "%s"}' % name.encode()])
            pipeline.feed.send(topic, events(GOOD, GOOD))
    pipeline.feed.flush()
    run = pipeline.run(environment={"PYTHONPATH": FOLDER})
    pipeline.wait_for_commit_of(tables["neighbour"][0], run)
    for name in harms:
        table, topic = tables[name]
        pipeline.wait_for_offsets(table, {topic: {0: 2 * GOOD + 1}}, run, within_s=WITHIN_S * len(harms))
        pipeline.wait_until_settled(table, run)
        metadata = pipeline.metadata(f"{table}__dead_letters")
        assert metadata is not None
        (dead_letter,) = read_newest(metadata)
        assert (dead_letter["topic"], dead_letter["offset"], dead_letter["value"]) == (
            topic,
            GOOD,
            b'{"harm": "%s"}' % name.encode(),
        )
        assert dead_letter["error_class"] == "crashes_decoder"
        assert REASONS[name] in dead_letter["message"]
    pipeline.feed.produce(tables["neighbour"][1], events(20, 10_000))
    pipeline.wait_for_commit_of(tables["neighbour"][0], run)
    pipeline.check(tables["neighbour"][0])
    run.stop()
    return tables
