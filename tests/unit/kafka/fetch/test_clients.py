"""The client of a worker: small batches connect and ask for nothing again, and a renewed secret makes another one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from frazil.kafka.fetch import cluster
from frazil.kafka.fetch.cluster import cluster_of
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.source import reading
from tests.fixtures.made_brokers import MadeCluster
from tests.fixtures.range_reads import settings
from tests.fixtures.record_batches import Record, batch

_FETCH, _METADATA, _VERSIONS = 1, 3, 18


@pytest.fixture(autouse=True)
def _others() -> Iterator[None]:
    yield
    while cluster._clusters:
        cluster._clusters.popitem()[1].close()


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"report": [str(sum(one.num_rows for one in batches))]})


def _run(known: dict[str, str], start: int, end: int) -> str:
    """What a task returns that reads a range, in this process."""
    asked = json.dumps({"settings": known, "ranges": [["t", 0, start, end]]})
    (found,) = reading(Wanted(("offset", "value")), _count)([pa.RecordBatch.from_pydict({"read": [asked]})])
    return str(found.column("report")[0])


def test_a_small_batch_costs_one_request() -> None:
    with MadeCluster() as cluster:
        cluster.add("t", 0, [batch([Record(offset, b"v")]) for offset in range(10)])
        known = settings(cluster.servers)
        assert _run(known, 0, 1) == "1"
        before = Counter(request.API_KEY for _, request in cluster.requests)
        for offset in range(1, 10):
            assert _run(known, offset, offset + 1) == "1"
        after = Counter(request.API_KEY for _, request in cluster.requests)
        assert after[_METADATA] == before[_METADATA]
        assert after[_VERSIONS] == before[_VERSIONS]
        assert after[_FETCH] - before[_FETCH] == 9


def test_a_renewed_secret_is_used_and_former_clients_are_closed() -> None:
    known = [{"bootstrap.servers": "127.0.0.1:1", "sasl.password": secret} for secret in ("old", "new", "newest")]
    old, new = cluster_of(known[0]), cluster_of(known[1])
    assert cluster_of(known[0]) is old
    newest = cluster_of(known[2])
    assert list(cluster._clusters.values()) == [old, newest]
    assert cluster_of(known[1]) is not new
    assert newest.settings["sasl.password"] == "newest"
