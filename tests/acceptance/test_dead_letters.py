"""Bad records on a real broker: set aside with all that Kafka had of them, retried while the pipeline runs, and SIGKILL at
every step of both. Every record is a row or a dead letter, once.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from frazil.runtime.light_jvm import LightJvm
from tests.acceptance.ledger import Place, events
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.jvms import light_jvm

pytestmark = pytest.mark.timeout(900)

LARGE = 3_000_000_000
BROKEN: tuple[bytes | None, ...] = (b"{", None, b'{"text": "\xff"}')
KILLS_OF_A_RUN = ("dead_letters.before",)
KILLS_OF_A_RETRY = ("replay.marked", "replay.pending", "replay.append-landed", "replay.appended")
IN_TIME = ("replay.append-landed",)
"""Where rows are committed and their dead letters are left. In time: the other steps of a retry in
packages/deadletters/tests/unit/test_replay_kills.py, that of a run in simulation/test_histories.py.
"""
NARROW = [f"n{number}" for number in range(len(KILLS_OF_A_RETRY) + 1)]


class PendingDeadLetters:
    """A pipeline with columns that are too narrow for some records: another one after each retry, as the running process
    takes over what a retry has widened.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("struck", columns=dict.fromkeys(NARROW, "int"))
        self.dead_letters = f"{self.table}__dead_letters"
        self.produced = self.round = 0

    def widened(self) -> dict[str, str]:
        """What the file of the next retry reports: the columns so far are wide, those of later rounds are not."""
        return {name: "long" if number <= self.round else "int" for number, name in enumerate(NARROW)}

    def produce(self, count: int = 400) -> None:
        """Records of which one in a hundred is bad, half of those for ever."""
        self.pipeline.feed.produce(self.topic, self._values(count))
        self.produced += count

    def _values(self, count: int) -> Iterator[Any]:
        for number, event in enumerate(events(count, self.produced)):
            if number % 200 == 7:
                yield {**event, NARROW[self.round]: LARGE + self.produced + number}
            elif number % 200 == 107:
                yield BROKEN[(self.produced + number) // 200 % len(BROKEN)]
            else:
                yield event

    def check(self, is_cured: bool) -> None:
        """Rows and dead letters together are the ledger; each dead letter has the bytes of its record."""
        records = self.pipeline.ledger.of(self.topic)
        bad = {place for place, value in records.items() if value in BROKEN or (not is_cured and _is_large(value))}
        rows = {(row["_topic"], row["_kafka_partition"], row["_offset"]): row for row in self._unique(self.table, "_")}
        dead_letters = {
            (row["topic"], row["partition"], row["offset"]): row["value"] for row in self._unique(self.dead_letters, "")
        }
        assert dead_letters == {place: records[place] for place in bad}
        assert rows.keys() == records.keys() - bad
        for place, row in rows.items():
            value = json.loads(records[place] or b"")
            assert {name: row[name] for name in value} == value

    def check_nothing_is_twice(self) -> None:
        """At any moment, also when a retry has just been killed."""
        rows = [_place(row, "_") for row in self._read(self.table)]
        dead_letters = [_place(row, "") for row in self._read(self.dead_letters)]
        assert len({*rows, *dead_letters}) == len(rows) + len(dead_letters)

    def _unique(self, table: str, prefix: str) -> list[dict[str, Any]]:
        rows = self._read(table)
        assert len({_place(row, prefix) for row in rows}) == len(rows)
        return rows

    def _read(self, table: str) -> list[dict[str, Any]]:
        metadata = self.pipeline.metadata(table)
        assert metadata is not None
        rows: list[dict[str, Any]] = StaticTable.from_metadata(str(metadata)).scan().to_arrow().to_pylist()
        return rows


def _place(row: dict[str, Any], prefix: str) -> Place:
    partition = row["_kafka_partition"] if prefix else row["partition"]
    return (row[f"{prefix}topic"], partition, row[f"{prefix}offset"])


def _is_large(value: bytes | None) -> bool:
    return value is not None and str(LARGE // 10**4).encode() in value


@pytest.fixture
def jvm() -> Iterator[LightJvm]:
    """For commands that nobody kills."""
    with light_jvm() as running:
        running.listen()
        yield running


@pytest.mark.parametrize(
    ("of_runs", "of_retries"),
    [((), IN_TIME), pytest.param(KILLS_OF_A_RUN, KILLS_OF_A_RETRY, marks=pytest.mark.slow)],
    ids=["one", "every"],
)
def test_every_record_is_a_row_or_a_dead_letter_whatever_is_killed(
    pipeline: Pipeline, jvm: LightJvm, of_runs: Sequence[str], of_retries: Sequence[str]
) -> None:
    held = PendingDeadLetters(pipeline)
    held.produce()
    for step in of_runs:
        with pipeline.running("--until-caught-up", failpoints=f"{step}=kill") as run:
            assert run.wait() == -signal.SIGKILL, run.tail()
    with pipeline.running() as run:
        pipeline.wait_until_settled(held.table, run)
        held.check(is_cured=False)
        for step in of_retries:
            pipeline.document["tables"][held.table]["columns"] = held.widened()
            pipeline.command("dead-letters", "replay", failpoints=f"{step}=kill", expected=-signal.SIGKILL)
            held.check_nothing_is_twice()
            held.round += 1
            held.produce()
            pipeline.wait_until_settled(held.table, run)
        pipeline.document["tables"][held.table]["columns"] = held.widened()
        done = pipeline.command_on(jvm, "dead-letters", "replay", held.table)["tables"][held.table]
        assert done["replayed"] >= 2
        held.check(is_cured=True)
        assert run.stop() == 0, run.tail()
    for table in (held.table, held.dead_letters):
        pipeline.check_readers(table)
    found = pipeline.command_on(jvm, "dead-letters", "list")["tables"][held.table]
    assert (found["dead_letters"], found["dead_letter_table"]) == (done["remaining"], held.dead_letters)
    assert {one["error_class"] for one in found["classes"]} == {"malformed", "tombstone", "invalid_text"}
    dropped = pipeline.command_on(jvm, "dead-letters", "drop", "--yes")["tables"][held.table]
    assert dropped["dead_letters"] == done["remaining"]
