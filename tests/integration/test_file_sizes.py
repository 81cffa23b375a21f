"""How large files are: those of a table in catch-up, and those of one that need not wait for its interval."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = pytest.mark.timeout(900)

MIB = 1024 * 1024
_PARTITIONS = 3
_FIRST, _ALL = 30_000, 210_000
_ROW_BYTES = 68


def produce(ledger: Ledger, numbers: range) -> None:
    """Records of which a file keeps _ROW_BYTES: the text is as good as random."""
    producer = Producer(
        {"bootstrap.servers": ledger.servers, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    )
    for number in numbers:
        value = {"number": number, "text": hashlib.sha512(number.to_bytes(8)).hexdigest()}
        producer.produce(ledger.topic, json.dumps(value).encode(), partition=number % _PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def table(folder: Path) -> StaticTable:
    with closing(sqlite3.connect(folder / "frazil-data" / "catalog.db")) as catalog:
        ((location,),) = catalog.execute("select metadata_location from iceberg_tables where table_name = 't'")
    return StaticTable.from_metadata(location)


def sizes(folder: Path) -> list[int]:
    """Of every data file, in bytes."""
    return sorted(int(size) for size in table(folder).inspect.data_files()["file_size_in_bytes"].to_pylist())


@pytest.mark.slow  # In time: unit/ingest/test_plan.py, and unit/write/test_write.py, which splits files.
def test_files_reach_their_size_in_catch_up_and_before_the_interval_has_passed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), _PARTITIONS)
    produce(ledger, range(_FIRST))
    document = {
        "pipeline": "sizes",
        "kafka": {"bootstrap.servers": ledger.servers},
        "spark": {"master": "local[2]"},
        "commit": {"interval": "1h", "min_file_size": "2MiB", "target_file_size": "4MiB"},
        "tables": {"s.t": {"topic": ledger.topic}},
    }
    pipeline = Pipeline(tmp_path, document)
    pipeline.run()
    first = sizes(tmp_path)
    produce(ledger, range(_FIRST, _ALL))
    with pipeline.start() as running:
        # No hour passes: all but the last of it comes because there is enough for files.
        running.wait_until_committed(_ALL - _FIRST - 2 * MIB // _ROW_BYTES)
        running.stop()
    later = sizes(tmp_path)
    for size in first:
        later.remove(size)
    assert min(later) >= 0.9 * 2 * MIB
    assert max(later) <= 1.2 * 4 * MIB
    assert later[len(later) // 2] >= 0.85 * 4 * MIB
    numbers = np.sort(table(tmp_path).scan(selected_fields=("number",)).to_arrow()["number"].to_numpy())
    for partition in range(_PARTITIONS):
        own = numbers[numbers % _PARTITIONS == partition]
        assert np.array_equal(own, np.arange(partition, own[-1] + 1, _PARTITIONS))
