"""Records read in the driver: offset ranges, and a few records for `frazil plan` and `frazil check`.

No group is joined, and no offsets are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.kafka.fetch.cluster import KafkaCluster
from frazil.kafka.fetch.columns import LEFT_OUT, Wanted
from frazil.kafka.fetch.ranges import read_ranges
from frazil.kafka.port import Partition, ReadRecord
from frazil.kafka.properties import task_properties
from frazil.types import OffsetRange

_COLUMNS = ("topic", "partition", "offset", "value", "timestamp", "headers", "key")
_WANTED = Wanted(_COLUMNS, most_records=1000)
_SAMPLE_TIMEOUT_S = 30.0
_ENOUGH_BYTES = 64 * 1024 * 1024
_SAMPLE = Wanted(_COLUMNS, most_value_bytes=32 * 1024 * 1024, most_records=1000, most_batch_bytes=128 * 1024 * 1024)


class KafkaReader:
    """Implements the port `RecordReader`. properties: Kafka's client properties. timeout_s: how long to wait for the next
    records; None for as long as the properties say. To be used by one thread at a time.
    """

    def __init__(self, properties: Mapping[str, str], timeout_s: float | None = None) -> None:
        self._properties = properties
        self._timeout_s = timeout_s
        self._cluster: KafkaCluster | None = None

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """See the port. Connections are kept for the next call."""
        records: list[ReadRecord] = []
        reached: dict[Partition, int] = {}
        read_bytes = 0
        self._cluster = self._cluster or _cluster(self._properties, self._timeout_s)
        with closing(read_ranges(self._cluster, ranges, _WANTED, reached)) as batches:
            for batch in batches:
                records += records_of(batch)
                read_bytes += _value_bytes(batch)
                if read_bytes >= enough_bytes:
                    break
        return records, reached

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        with (
            closing(_cluster(self._properties, self._timeout_s)) as cluster,
            closing(read_ranges(cluster, [wanted], _WANTED, is_lenient=True)) as batches,
        ):
            for batch in batches:
                yield records_of(batch)

    def close(self) -> None:
        """Closes the connections; the next read opens others."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


def read_sample(properties: Mapping[str, str], ranges: Iterable[OffsetRange], clock: Clock) -> list[ReadRecord]:
    """Returns the records of `ranges`, fewer where they are large, and none that would take much memory.

    Raises: UnavailableError where they do not arrive in time.
    """
    records: list[ReadRecord] = []
    read_bytes, until_s = 0, clock.monotonic_s() + _SAMPLE_TIMEOUT_S
    with (
        closing(_cluster(properties, _SAMPLE_TIMEOUT_S)) as cluster,
        closing(read_ranges(cluster, ranges, _SAMPLE, is_lenient=True)) as batches,
    ):
        for batch in batches:
            whole = batch.filter(pc.equal(batch[LEFT_OUT], 0)) if LEFT_OUT in batch.schema.names else batch
            records += records_of(whole)
            read_bytes += _value_bytes(whole)
            if read_bytes >= _ENOUGH_BYTES:
                break
            if clock.monotonic_s() > until_s:
                words = f"the sample did not arrive within {_SAMPLE_TIMEOUT_S:.0f} s"
                raise UnavailableError(words, where=properties["bootstrap.servers"])
    return records


def records_of(batch: pa.RecordBatch) -> list[ReadRecord]:
    """Returns the records of a batch with the columns of a record, in their order."""
    micros = pc.cast(batch["timestamp"], pa.int64()).to_pylist()
    times = (None if moment is None else moment // 1000 for moment in micros)
    headers = (
        tuple((header["key"], header["value"]) for header in some or ()) for some in batch["headers"].to_pylist()
    )
    columns = (batch[name].to_pylist() for name in ("topic", "partition", "offset", "value"))
    return [ReadRecord(*values) for values in zip(*columns, times, headers, batch["key"].to_pylist(), strict=True)]


def _cluster(properties: Mapping[str, str], timeout_s: float | None) -> KafkaCluster:
    settings = task_properties(properties)
    if timeout_s is not None:
        settings["request.timeout.ms"] = str(round(1000 * timeout_s))
    return KafkaCluster(settings)


def _value_bytes(batch: pa.RecordBatch) -> int:
    return pc.sum(pc.binary_length(batch["value"])).as_py() or 0
