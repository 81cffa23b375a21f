"""A route from a real broker to real tables, by a process that dies where a table is named, and where it is made."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_published_offsets import coordinated

_KINDS = ("order", "refund", "page view", None)


def numbers(folder: Path, table: str) -> list[int]:
    """The numbers of the rows of a table `s.<table>`."""
    with closing(sqlite3.connect(folder / "frazil-data" / "catalog.db")) as catalog:
        query = "select metadata_location from iceberg_tables where table_name = ?"
        ((location,),) = catalog.execute(query, (table,))
    return sorted(StaticTable.from_metadata(str(location)).scan().to_arrow().column("n").to_pylist())


def produce(topic: Ledger, first: int, count: int, kinds: tuple[str | None, ...]) -> None:
    producer = Producer({"bootstrap.servers": topic.servers, "enable.idempotence": True})
    for n in range(first, first + count):
        value = {"type": kinds[n % len(kinds)], "n": n}
        producer.produce(topic.topic, json.dumps(value).encode(), partition=n % 2)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "steps",
    [
        ["commit.landed"],
        # In time: a death between the two leaves the same as one at the first.
        pytest.param(["commit.landed", "create.before"], marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_every_record_is_in_one_table_though_the_process_dies_as_tables_are_named_and_made(
    steps: list[str], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, name = Ledger(broker.bootstrap_servers, new_id()), f"routes-{new_id()[:8]}"
    document = {
        "pipeline": name,
        "kafka": {"bootstrap.servers": topic.servers},
        "publish_offsets": False,
        "routes": [{"topic": topic.topic, "by": "type", "to": "s.${type}", "rest": "s.rest"}],
    }
    produce(topic, 0, 400, _KINDS)
    # The first commit is that of the rest, which names the tables; the first table made after it is one of them.
    for step in steps:
        with Pipeline(tmp_path, document, {VARIABLE: f"{step}=kill"}).start("--until-caught-up") as running:
            running.wait_for_death()
    produce(topic, 400, 200, (*_KINDS, "late"))
    reported = Pipeline(tmp_path, document).run()["tables"]
    expected = {
        kind: [n for n in range(600) if (_KINDS[n % 4] if n < 400 else (*_KINDS, "late")[n % 5]) == kind]
        for kind in (*_KINDS, "late")
    }
    assert {table: numbers(tmp_path, table) for table in ("order", "refund", "late", "rest")} == {
        "order": expected["order"],
        "refund": expected["refund"],
        "late": expected["late"],
        "rest": sorted([*expected["page view"], *expected[None]]),
    }
    assert sorted(reported) == ["s.late", "s.order", "s.refund", "s.rest"]
    assert reported["s.rest"]["rest_records"] == {"no table name": 140, "no value": 140}
    group = coordinated(broker, f"frazil-{name}")
    assert group.offsets([(topic.topic, partition) for partition in (0, 1)]) == {}, "nothing is published"
