"""Light batches, which Spark ships without measuring them: what is not small is left out, wherever in the record it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from frazil.clock import new_id
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.tasks.task_job import OVERSIZED_BYTES, Job
from frazil.report import TaskReport
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from frazil.spec.settings import MetadataField
from frazil.types import Batch, OffsetRange
from tests.acceptance.ledger import Feed, Ledger
from tests.acceptance.topics import Topics
from tests.unit.ingest.targets import target_of

# PySpark leaves the socket of an answer to the garbage collector.
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HALF = OVERSIZED_BYTES // 2


@dataclass(frozen=True)
class Record:
    value: bytes | None = b'{"id": 1}'
    key: bytes | None = None
    headers: Mapping[str, bytes | None] | None = None


LARGEST = Record(b'{"id": 1}', bytes(HALF), {"h": bytes(HALF - 18)})
SMALL = (Record(), Record(key=b"", headers={"h": None}), LARGEST)
LARGE = {
    "value": Record(b'{"id": 1, "text": "%s"}' % (b"x" * OVERSIZED_BYTES)),
    "key": Record(key=bytes(OVERSIZED_BYTES)),
    "key of a tombstone": Record(None, bytes(OVERSIZED_BYTES + 1)),
    "header": Record(headers={"h": bytes(OVERSIZED_BYTES)}),
    "name of a header": Record(headers={"h" * (OVERSIZED_BYTES + 1): None}),
    "many headers": Record(headers={f"{n}": None for n in range(OVERSIZED_BYTES // 8)}),
    "key and headers": Record(key=bytes(HALF), headers={"h": bytes(HALF)}),
}


class Read:
    """Records in a topic of one partition, and light batches of them."""

    def __init__(self, jvm: Jvm, broker: EmbeddedBroker, folder: Path) -> None:
        self._folder = folder
        self._properties = {"bootstrap.servers": broker.bootstrap_servers}
        self._jobs = SparkJobs(jvm.session, self._properties, lambda _: 1)
        self._topic = Topics(broker.bootstrap_servers).create(f"light-{new_id()[:8]}", 1)
        feed = Feed(broker.bootstrap_servers, Ledger())
        for record in (*SMALL, *LARGE.values()):
            feed.send(self._topic, [record.value], 0, record.key, record.headers)
        feed.flush()

    def light(self, start: int, end: int, *metadata: MetadataField) -> TaskReport:
        """What becomes of these records in a table with these columns of metadata."""
        job = Job({self._topic: target_of(self._folder, {"id": "long"}, metadata=metadata)})
        batch = Batch("lake.t", (OffsetRange(self._topic, 0, start, end),), is_small=True)
        (report,) = self._jobs.run([batch], job, pool="default")
        return report


@pytest.fixture(scope="module")
def read(jvm: Jvm, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return Read(jvm, broker, tmp_path_factory.mktemp("light"))


def test_a_record_that_is_not_small_sends_the_batch_back_wherever_it_is_large(read: Read) -> None:
    first = len(SMALL)
    sent_back = {
        where: read.light(first + n, first + n + 1, "key", "headers").counts.has_oversized
        for n, where in enumerate(LARGE)
    }
    assert sent_back == dict.fromkeys(LARGE, True)


def test_small_records_come_whole(read: Read) -> None:
    report = read.light(0, len(SMALL), "key", "headers")
    assert (report.counts.has_oversized, report.counts.record_count) == (False, len(SMALL))
    rows = [row for file in report.written.data for row in pq.read_table(file.path).to_pylist()]
    assert [(row["id"], row["_key"], row["_headers"]) for row in rows] == [
        (1, None, None),
        (1, b"", [{"key": "h", "value": None}]),
        (1, LARGEST.key, [{"key": "h", "value": bytes(HALF - 18)}]),
    ]


def test_what_is_not_read_is_not_looked_at(read: Read) -> None:
    first, count = len(SMALL) + 1, len(LARGE) - 1
    report = read.light(first, first + count)
    assert (report.counts.has_oversized, report.counts.record_count) == (False, count)
