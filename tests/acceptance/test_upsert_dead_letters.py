"""Dead letters of upsert tables, on a real broker: retried while the pipeline runs, and SIGKILL at
every step.

In the end the table is what all records that can be read say, each in its place, as though none had ever been a dead
letter; in between no row is there twice, and nothing newer is lost.

In time: every step, with upsert tables, in packages/deadletters/tests/unit/test_replay_kills.py; a killed command beside
a run in test_dead_letters.py; a replay into a real upsert table in integration/test_query_tables.py, and its commits,
against other writers', in contracts/test_row_deltas.py.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import StaticTable

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.upsert_tables import KeyedFeed

pytestmark = pytest.mark.timeout(900)

LARGE = 3_000_000_000
KEYS, PARTITIONS = 40, 2
KILLS = ("replay.marked", "replay.replace-landed", "replay.replaced", "replay.rewrite-landed")
NARROW = [f"n{number}" for number in range(len(KILLS) + 1)]


class Struck:
    """An upsert table with columns that are too narrow for some records: another one after each retry, as the running
    process takes over what a retry has widened.
    """

    def __init__(self, pipeline: Pipeline, version: int) -> None:
        self.pipeline = pipeline
        self.feed = KeyedFeed(pipeline.servers, pipeline.ledger)
        settings: dict[str, Any] = {"mode": "upsert", "key_columns": ["id"], "key": {"format": "json"}}
        settings |= {
            "format_version": version,
            "columns": dict.fromkeys(NARROW, "int"),
            "dead_letters": {"stop_above": "90%"},
        }
        self.table, self.topic = pipeline.add_fed_table(f"upsert_table_{version}", PARTITIONS, **settings)
        self._rng = np.random.default_rng(version)
        self._told = self.round = 0

    def widened(self) -> dict[str, str]:
        """What the file of the next retry reports: the columns so far are wide, those of later rounds are not."""
        return {name: "long" if number <= self.round else "int" for number, name in enumerate(NARROW)}

    def change(self, count: int = 150) -> None:
        """Rows, large ones, deletes and broken records, of few keys; a key stays in its partition."""
        for _ in range(count):
            self._told += 1
            key, turn = int(self._rng.integers(0, KEYS)), self._rng.random()
            value: Any = {"id": key, NARROW[self.round]: self._told if turn < 0.6 else LARGE + self._told}
            if turn > 0.75:
                value = None if turn < 0.97 else b"{"
            self.feed.send(self.topic, [value], key % PARTITIONS, str(key).encode())
        self.feed.flush()

    def rows(self) -> list[dict[str, Any]]:
        """What PyIceberg reads; a row that is there twice is seen."""
        names = ("id", *NARROW)
        rows = [{name: row[name] for name in names if row[name] is not None} for row in self._read(self.table)]
        assert len({row["id"] for row in rows}) == len(rows)
        return sorted(rows, key=lambda row: int(row["id"]))

    def expected(self) -> list[dict[str, Any]]:
        """What every record reports that is no broken one."""
        state: dict[int, dict[str, Any]] = {}
        records = self.pipeline.ledger.of(self.topic)
        for place in sorted(records):
            value = records[place]
            if value is None:
                state.pop(self.feed.keys[place], None)
            elif value != b"{":
                state[self.feed.keys[place]] = json.loads(value)
        return sorted(state.values(), key=lambda row: int(row["id"]))

    def check_dead_letters(self) -> None:
        """No dead letter is there twice, and each has the bytes of its record."""
        dead_letters = self._read(f"{self.table}__dead_letters")
        places = [(row["topic"], row["partition"], row["offset"]) for row in dead_letters]
        assert len(set(places)) == len(places)
        records = self.pipeline.ledger.of(self.topic)
        assert [row["value"] for row in dead_letters] == [records[place] for place in places]

    def dead_letter_classes(self) -> Counter[str]:
        """How many dead letters there are of each class."""
        return Counter(row["error_class"] for row in self._read(f"{self.table}__dead_letters"))

    def _read(self, table: str) -> list[dict[str, Any]]:
        metadata = self.pipeline.metadata(table)
        assert metadata is not None
        rows: list[dict[str, Any]] = StaticTable.from_metadata(str(metadata)).scan().to_arrow().to_pylist()
        return rows


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.slow)])
def test_an_upsert_table_becomes_what_its_records_say_whatever_is_killed(pipeline: Pipeline, version: int) -> None:
    held = Struck(pipeline, version)
    held.change()
    with pipeline.running() as run:
        pipeline.wait_until_settled(held.table, run)
        assert held.rows() != held.expected()
        for step in KILLS:
            pipeline.document["tables"][held.table]["columns"] = held.widened()
            pipeline.command("dead-letters", "replay", failpoints=f"{step}=kill", expected=-signal.SIGKILL)
            held.rows()
            held.round += 1
            held.change()
            pipeline.wait_until_settled(held.table, run)
        held.change()
        pipeline.document["tables"][held.table]["columns"] = held.widened()
        # The changes may be on their way when the first of these looks: then the dead letters that are last come with
        # the second.
        done = [pipeline.command("dead-letters", "replay", held.table)["tables"][held.table]["replayed"]]
        pipeline.wait_for_commit_of(held.table, run)
        done += [one["replayed"] for one in pipeline.command("dead-letters", "replay")["tables"].values()]
        assert sum(done) > 0
        assert held.rows() == held.expected()
        held.check_dead_letters()
        assert run.stop() == 0, run.tail()
    for table in (held.table, f"{held.table}__dead_letters"):
        pipeline.check_readers(table)
    found = held.dead_letter_classes()
    assert found.keys() == {"malformed", "superseded"}
    dropped = pipeline.command("dead-letters", "drop", "--yes", "--error-class", "superseded")["tables"][held.table]
    assert dropped["dead_letters"] == found["superseded"]
    assert held.dead_letter_classes().keys() == {"malformed"}
