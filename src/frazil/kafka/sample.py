"""Reads a few records in the driver, for `frazil plan` and `frazil check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

from confluent_kafka import KafkaException

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.kafka.assigned import AssignedRanges, Silence, open_consumer
from frazil.kafka.port import ReadRecord
from frazil.types import OffsetRange

_AT_ONCE = 1000
_TIMEOUT_S = 30.0
_ENOUGH_BYTES = 64 * 1024 * 1024


def read_sample(properties: Mapping[str, str], ranges: Iterable[OffsetRange], clock: Clock) -> list[ReadRecord]:
    """Returns the records of `ranges`, fewer where they are large.

    Raises: UnavailableError where they do not arrive in time.
    """
    asked = AssignedRanges(ranges)
    found: list[ReadRecord] = []
    if asked.is_read:
        return found
    servers, read_bytes = properties["bootstrap.servers"], 0
    try:
        with closing(open_consumer(properties, "frazil-plan")) as consumer:
            for batch in asked.batches(consumer, clock, _TIMEOUT_S, _AT_ONCE, is_for_all=True):
                found += batch
                read_bytes += sum(len(record.value or b"") for record in batch)
                if read_bytes >= _ENOUGH_BYTES:
                    break
    except KafkaException as error:
        raise UnavailableError(f"the sample cannot be read: {error.args[0].str()}", where=servers) from None
    except Silence:
        raise UnavailableError(f"the sample did not arrive within {_TIMEOUT_S:.0f} s", where=servers) from None
    return found
