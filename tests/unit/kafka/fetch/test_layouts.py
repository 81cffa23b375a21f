"""Answers and batches as another client writes them: what is read is what was meant."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from frazil.errors import InvariantError
from frazil.kafka.fetch import cluster
from frazil.kafka.fetch.records import FetchedRecords, batches_in
from frazil.kafka.fetch.response import LEAST_VERSION, MOST_VERSION, WITH_IDS, FetchedPartition, read_response
from tests.fixtures.chance import Chance
from tests.fixtures.range_reads import ALL, rows_of

Topic = FetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData
VERSIONS = range(LEAST_VERSION, MOST_VERSION + 1)
_LEADER = Partition.LeaderIdAndEpoch
_LARGE = 2**40


def partition_of(chance: Chance, number: int, version: int) -> tuple[Any, dict[str, Any]]:
    """A partition of an answer, and what is to be read of it."""
    aborted = [(chance.below(_LARGE), chance.below(_LARGE)) for _ in range(chance.below(4))]
    records = chance.one_of([None, b"", chance.rng.bytes(chance.below(300))])
    fields: dict[str, Any] = {
        "partition_index": number,
        "error_code": chance.one_of([0, 0, 1, 100]),
        "high_watermark": chance.one_of([-1, chance.below(_LARGE)]),
        "last_stable_offset": chance.below(_LARGE),
        "log_start_offset": chance.below(_LARGE) if version >= 5 else -1,
        "aborted_transactions": [
            Partition.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
        ],
        "preferred_read_replica": chance.one_of([-1, 3]) if version >= 11 else -1,
        "records": records,
    }
    if not aborted and chance.happens(0.5):
        fields["aborted_transactions"] = None
    diverges_at = None
    if version >= 12 and chance.happens(0.3):
        diverges_at = chance.below(_LARGE)
        fields["diverging_epoch"] = Partition.EpochEndOffset(epoch=chance.below(9), end_offset=diverges_at)
    if version >= 12 and chance.happens(0.3):
        fields["current_leader"] = _LEADER(leader_id=chance.below(9), leader_epoch=chance.below(9))
    expected = {
        "partition": number,
        "error": fields["error_code"],
        "high_watermark": fields["high_watermark"],
        "last_stable": fields["last_stable_offset"],
        "log_start": fields["log_start_offset"],
        "aborted": tuple(aborted),
        "replica": fields["preferred_read_replica"],
        "diverges_at": diverges_at,
        "records": records or b"",
    }
    return Partition(**fields), expected


def answer_of(chance: Chance, version: int) -> tuple[Any, list[dict[str, Any]]]:
    topics, expected = [], []
    for number in range(chance.below(4)):
        name, topic_id = (
            f"topic-{number}-größe" * chance.one_of([1, 20]),
            uuid.UUID(int=int.from_bytes(chance.rng.bytes(16), "big")),
        )
        made = [partition_of(chance, n, version) for n in range(chance.one_of([0, 1, 3, 200]))]
        topics.append(Topic(topic=name, topic_id=topic_id, partitions=[one for one, _ in made]))
        called = topic_id if version >= WITH_IDS else name
        expected += [{"topic": called} | fields for _, fields in made]
    fields = {"throttle_time_ms": chance.below(1000), "error_code": chance.one_of([0, 71]) if version >= 7 else 0}
    answer = FetchResponse(session_id=chance.below(99), responses=topics, **fields)
    if version >= 16 and chance.happens(0.5):
        answer.node_endpoints = [FetchResponse.NodeEndpoint(node_id=1, host="localhost", port=9092, rack=None)]
    return answer, expected


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_read_as_another_client_writes_them(version: int) -> None:
    chance = Chance(version)
    for _ in range(20):
        made, expected = answer_of(chance, version)
        made.API_VERSION = version
        made.with_header(1)
        frame = memoryview(made.encode(header=True))[4:]
        found = read_response(frame, version)
        assert (found.throttle_ms, found.error) == (made.throttle_time_ms, made.error_code)
        assert [_fields(one, frame) for one in found.partitions] == expected
        for cut in {len(frame) - 1, len(frame) // 2, chance.below(len(frame)), 3}:
            with pytest.raises(InvariantError, match=f"a broker's answer to Fetch {version} cannot be read"):
                read_response(frame[:cut], version)


def _fields(one: FetchedPartition, frame: memoryview) -> dict[str, Any]:
    names = [name for name in FetchedPartition.__slots__ if name not in ("start", "end")]
    return {name: getattr(one, name) for name in names} | {"records": bytes(frame[one.start : one.end])}


def test_versions_are_those_whose_layout_is_known() -> None:
    assert (LEAST_VERSION, WITH_IDS, MOST_VERSION) == (4, 13, 17)
    assert MetadataRequest.valid_versions[1] >= cluster._METADATA_VERSION
    assert ListOffsetsRequest.valid_versions[1] >= cluster._MOST_OFFSETS_VERSION
    assert FetchRequest.valid_versions[1] >= MOST_VERSION


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_read_as_another_client_writes_them(seed: int) -> None:
    chance = Chance(seed)
    builder = DefaultRecordBatchBuilder(2, chance.one_of([0, 1]), seed % 2 == 0, 7, 1, 0, 1 << 30)
    expected = []
    for offset in range(chance.one_of([1, 2, 50])):
        ms = chance.below(2**41) - 2**40
        key, value = (chance.one_of([None, chance.rng.bytes(chance.below(200))]) for _ in range(2))
        headers = [(f"h{n}", chance.one_of([None, b"", b"x" * n])) for n in range(chance.one_of([0, 0, 1, 70]))]
        builder.append(offset, timestamp=ms, key=key, value=value, headers=headers)
        expected.append((offset, None if ms == -1 else ms * 1000, key, value, headers or None))
    frame = memoryview(bytes(builder.build()))
    records = FetchedRecords(ALL, {})
    table = batches_in(frame, 0, len(frame), 0, ("t", 0))
    found = [*records.add(("t", 0), (0, 100), table, frame, ()), *records.flush()]
    rows = [row for one in found for row in rows_of(one)]
    assert [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows] == expected
