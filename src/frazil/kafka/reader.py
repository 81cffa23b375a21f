"""Records of exact ranges, read by the driver itself from a real cluster."""

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
_LOT_RECORDS = 5000
_TIMEOUT_S = 30.0
# What is fetched ahead is thrown away when enough has been read.
_FETCHED_AHEAD_KB = 16 * 1024


class KafkaReader:
    """See the port RecordReader. properties: Kafka's client properties. timeout_s: for the next records. Used by one thread
    at a time.
    """

    def __init__(self, properties: Mapping[str, str], clock: Clock, timeout_s: float = _TIMEOUT_S) -> None:
        self._properties = properties
        self._clock = clock
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """See the port. It is asked again and again: the consumer is kept."""
        asked = AssignedRanges(ranges, is_strict=True)
        found: list[ReadRecord] = []
        if asked.is_read:
            return found, asked.reached
        servers, read_bytes = self._properties["bootstrap.servers"], 0
        try:
            consumer = self._consumer = self._consumer or self._open_kept()
            for lot in asked.lots(consumer, self._clock, self._timeout_s, _AT_ONCE):
                found += lot
                read_bytes += sum(len(record.value or b"") for record in lot)
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

    def lots(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        """See the port."""
        asked = AssignedRanges([wanted])
        if asked.is_read:
            return
        where = f"topic {wanted.topic}, partition {wanted.partition}"
        try:
            with closing(open_consumer(self._properties, "frazil-dead-letters")) as consumer:
                yield from asked.lots(consumer, self._clock, self._timeout_s, _LOT_RECORDS)
        except KafkaException as error:
            raise UnavailableError(f"records cannot be read again: {error.args[0].str()}", where=where) from None
        except Silence:
            raise UnavailableError(f"records did not arrive within {self._timeout_s:.0f} s", where=where) from None

    def close(self) -> None:
        """Ends the client; the next read makes another."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open_kept(self) -> Consumer:
        # What is gone must not be passed over: a part of a transaction would look whole.
        other = {"auto.offset.reset": "error", "queued.max.messages.kbytes": _FETCHED_AHEAD_KB}
        return open_consumer(self._properties, "frazil-look", other)
