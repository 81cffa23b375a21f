"""Records of offset ranges, read by the driver from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaException

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.kafka.assigned import AssignedRanges, Silence, open_consumer
from frazil.kafka.port import Partition, ReadRecord
from frazil.types import OffsetRange

_AT_ONCE = 1000
_BATCH_RECORDS = 5000
_TIMEOUT_S = 30.0
# Records fetched in advance are discarded when enough has been read.
_FETCHED_AHEAD_KB = 16 * 1024


class KafkaReader:
    """Implements the port RecordReader. properties: Kafka's client properties. timeout_s: how long to wait for the next
    records. To be used by one thread at a time.
    """

    def __init__(self, properties: Mapping[str, str], clock: Clock, timeout_s: float = _TIMEOUT_S) -> None:
        self._properties = properties
        self._clock = clock
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """See the port. The consumer is kept for the next call."""
        asked = AssignedRanges(ranges, is_strict=True)
        found: list[ReadRecord] = []
        if asked.is_read:
            return found, asked.reached
        servers, read_bytes = self._properties["bootstrap.servers"], 0
        try:
            consumer = self._consumer = self._consumer or self._open_kept()
            for batch in asked.batches(consumer, self._clock, self._timeout_s, _AT_ONCE):
                found += batch
                read_bytes += sum(len(record.value or b"") for record in batch)
                if read_bytes >= enough_bytes:
                    break
            consumer.unassign()
        except KafkaException as error:
            self.close()
            raise UnavailableError(f"transactions cannot be looked for: {error.args[0].str()}", where=servers) from None
        except Silence:
            self.close()
            raise UnavailableError(f"no record has arrived for {self._timeout_s:.0f} s", where=servers) from None
        return found, asked.reached

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        """See the port."""
        asked = AssignedRanges([wanted])
        if asked.is_read:
            return
        where = f"topic {wanted.topic}, partition {wanted.partition}"
        try:
            with closing(open_consumer(self._properties, "frazil-dead-letters")) as consumer:
                yield from asked.batches(consumer, self._clock, self._timeout_s, _BATCH_RECORDS)
        except KafkaException as error:
            raise UnavailableError(f"records cannot be read again: {error.args[0].str()}", where=where) from None
        except Silence:
            raise UnavailableError(f"records did not arrive within {self._timeout_s:.0f} s", where=where) from None

    def close(self) -> None:
        """Closes the client; the next read opens another."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open_kept(self) -> Consumer:
        # Missing records must not be skipped: a part of a transaction would look complete.
        other = {"auto.offset.reset": "error", "queued.max.messages.kbytes": _FETCHED_AHEAD_KB}
        return open_consumer(self._properties, "frazil-look", other)
