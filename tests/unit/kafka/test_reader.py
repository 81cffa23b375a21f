"""Records of columns, as the driver has them; what it reads is in the contract of RecordReader."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka import reader
from frazil.kafka.fetch.columns import timestamps
from frazil.kafka.port import FARTHEST_MS, NO_TIMESTAMP_MS, ReadRecord
from frazil.kafka.reader import KafkaReader, read_sample, records_of
from frazil.types import OffsetRange

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_record_has_what_its_columns_have() -> None:
    columns = {
        "topic": ["t", "t"],
        "partition": pa.array([0, 1], pa.int32()),
        "offset": [7, 8],
        "value": pa.array([b"v", None], pa.binary()),
        "timestamp": timestamps(np.array([1000, NO_TIMESTAMP_MS])),
        "headers": pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b"2"}], None], _HEADERS),
        "key": pa.array([None, b""], pa.binary()),
    }
    assert records_of(pa.RecordBatch.from_pydict(columns)) == [
        ReadRecord("t", 0, 7, b"v", 1000, (("h", None), ("h", b"2"))),
        ReadRecord("t", 1, 8, None, None, (), b""),
    ]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (-FARTHEST_MS, -FARTHEST_MS),
        (-2, -2),
        (0, 0),
        (FARTHEST_MS, FARTHEST_MS),
        (FARTHEST_MS + 1, FARTHEST_MS),
        (2**63 - 1, FARTHEST_MS),
        (-(2**63), -FARTHEST_MS),
    ],
)
def test_a_timestamp_is_the_nearest_that_fits(sent: int, read: int) -> None:
    columns = {
        "topic": ["t"],
        "partition": [0],
        "offset": [0],
        "value": pa.nulls(1, pa.binary()),
        "timestamp": timestamps(np.array([sent])),
        "headers": pa.nulls(1, _HEADERS),
        "key": pa.nulls(1, pa.binary()),
    }
    assert [one.timestamp_ms for one in records_of(pa.RecordBatch.from_pydict(columns))] == [read]


def test_no_broker_is_asked_for_nothing() -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    none = OffsetRange("t", 0, 4, 4)
    reading = KafkaReader(nobody)
    assert reading.read([none], 1) == ([], {("t", 0): 4})
    assert list(reading.batches(none)) == []
    assert read_sample(nobody, [], SystemClock()) == []


def test_a_sample_that_no_broker_sends_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_SAMPLE_TIMEOUT_S", 1.0)
    with pytest.raises(UnavailableError, match="the broker cannot be connected to"):
        read_sample({"bootstrap.servers": "127.0.0.1:1"}, [OffsetRange("t", 0, 0, 4)], SystemClock())
