"""Values in several records through Kafka: whole rows or named dead letters, also where runs end inside of values; and a
function of the query that makes vectors of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyiceberg.table import StaticTable

from frazil.runtime.jvm import Jvm
from frazil_blobs import read
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.scenes import FENCED
from tests.acceptance.verifier import read_newest

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
PIECE = 700_000
WITHIN = 20
FUNCTION = """
import frazil
import pyarrow as pa


@frazil.udf(returns="list<float>")
def beginning(values):
    return pa.array([[float(value[0]), float(value[1])] for value in values.to_pylist()], pa.list_(pa.float32()))
"""


def value_of(number: int, pieces: int) -> list[bytes]:
    """The parts of a value."""
    chance = np.random.default_rng(number)
    return [chance.bytes(PIECE) for _ in range(pieces)]


class Sender:
    """Sends parts of values, and says what the rows must be."""

    def __init__(self, pipeline: Pipeline, topic: str) -> None:
        self._feed = pipeline.feed
        self._topic = topic

    def send(self, number: int, pieces: list[bytes], *indexes: int) -> None:
        """Sends these parts of a value."""
        for index in indexes:
            headers = {"id": str(number), "index": str(index), "count": str(len(pieces))}
            named = {f"frazil-chunk-{name}": text.encode() for name, text in headers.items()}
            self._feed.send(self._topic, [pieces[index]], 0, f"k{number}".encode(), named)
        self._feed.flush()


def test_values_in_several_records_are_rows_wherever_runs_end(pipeline: Pipeline, jvm: Jvm) -> None:
    objects = pipeline.folder / "objects"
    (pipeline.folder / "looks.py").write_text(FUNCTION)
    table, topic = pipeline.add_fed_table(
        "raws",
        udf="looks.beginning",
        select="select *, beginning(value) as look from records",
        partitions=1,
        value={"format": "raw"},
        metadata=["offset", "key"],
        blobs={
            "columns": ["value"],
            "above": "1MiB",
            "store": objects.as_uri(),
            "chunks": {"within": WITHIN},
            "embeddings": {"look": {"dimension": 2}},
        },
    )
    first, second, third, gap, other = (value_of(number, 3) for number in range(5))
    sender = Sender(pipeline, topic)
    sender.send(0, first, 0, 1)
    pipeline.feed.produce(topic, [b"small"], 0)
    sender.send(1, second, 0)
    pipeline.command_on(jvm, "run", "--until-caught-up")  # Inside of two values.
    assert rows(pipeline, table) == [(2, None, b"small")]
    sender.send(0, first, 2)
    sender.send(1, second, 1)
    sender.send(3, gap, 0, 2)
    sender.send(1, second, 1, 2)
    sender.send(2, third, 0, 1, 2)
    sender.send(2, other, 1)
    pipeline.command_on(jvm, "run", "--until-caught-up")
    assert rows(pipeline, table) == [
        (2, None, b"small"),
        (4, b"k0", b"".join(first)),
        (9, b"k1", b"".join(second)),
        (12, b"k2", b"".join(third)),
    ]
    assert dead_letters(pipeline, table) == [
        (7, "chunk_missing", "part 2 of 3: part 1 is missing, or follows it"),
        (13, "chunk_conflict", "part 1 of 3: another part of the same id has this number"),
    ]
    verified = pipeline.command_on(jvm, "blobs", "verify", table, "--all")
    assert verified["snapshots"][-1]["objects"] == 4


def test_a_value_whose_last_part_never_comes_is_one_dead_letter_whatever_happens_in_between(
    pipeline: Pipeline, operator: Operator, jvm: Jvm
) -> None:
    table, topic = pipeline.add_fed_table(
        "raws",
        partitions=1,
        value={"format": "raw"},
        blobs={
            "columns": ["value"],
            "above": "1MiB",
            "store": (pipeline.folder / "objects").as_uri(),
            "chunks": {"within": WITHIN},
        },
    )
    sender = Sender(pipeline, topic)
    sender.send(0, value_of(0, 3), 0, 1)
    pipeline.feed.produce(topic, [b"small"] * (WITHIN - 1), 0)
    pipeline.command_on(jvm, "run", "--until-caught-up")
    assert pipeline.metadata(f"{table}__dead_letters") is None  # The last part may be the next record.
    pipeline.feed.produce(topic, [b"small"], 0)
    with pipeline.running(failpoints="dead_letters.before=kill@1") as run:
        assert run.wait() != 0
    abandoned = [(0, "chunk_missing", f"part 0 of 3: part 2 is not among the {WITHIN} offsets after it")]
    first, second = (pipeline.run("--until-caught-up") for _ in range(2))
    assert {first.wait(), second.wait()} <= {0, FENCED}
    assert dead_letters(pipeline, table) == abandoned
    by_hand = operator.open(pipeline.folder, table)
    by_hand.roll_back(by_hand.snapshot_ids[0])
    pipeline.command_on(jvm, "run", "--until-caught-up")
    assert dead_letters(pipeline, table) == abandoned
    for level in ("--rows", "--ledger"):
        [verified] = pipeline.command_on(jvm, "verify", table, level)["tables"].values()
        assert verified["equal"], verified


def dead_letters(pipeline: Pipeline, table: str) -> list[tuple[int, str, str]]:
    """Offset, class and message of each dead letter."""
    metadata = pipeline.metadata(f"{table}__dead_letters")
    assert metadata is not None
    return sorted((row["offset"], row["error_class"], row["message"]) for row in read_newest(metadata))


def rows(pipeline: Pipeline, table: str) -> list[tuple[int, bytes | None, bytes]]:
    """Offset, key and value of each row."""
    opened = StaticTable.from_metadata(str(Path(str(pipeline.metadata(table)).removeprefix("file://"))))
    arrow = opened.scan().to_arrow()
    values = read(arrow.column("value"), opened.io.properties).to_pylist()
    assert arrow.column("look").to_pylist() == [[float(value[0]), float(value[1])] for value in values]
    return sorted(zip(arrow.column("_offset").to_pylist(), arrow.column("_key").to_pylist(), values, strict=True))
