"""Topics by chance, read in ranges by chance: what is read is what librdkafka's consumer reads. A slice in the suite, an
hour as soak (`make soak-reader`). FRAZIL_SOAK_SECONDS for another time, FRAZIL_SEED for other topics.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from frazil.kafka.fetch.cluster import KafkaCluster
from frazil.kafka.fetch.columns import Wanted
from frazil.runtime.broker import EmbeddedBroker
from frazil.types import OffsetRange
from tests.fixtures.chance import Chance
from tests.fixtures.range_reads import COLUMNS, client_of, read
from tests.integration.kafka_fetch.logs import COMPACTED, Read, Written

LEVELS = ("read_committed", "read_uncommitted")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
_SECONDS = float(os.environ.get("FRAZIL_SOAK_SECONDS", "3600"))
_SEED = int(os.environ.get("FRAZIL_SEED", "1"))


class History:
    """What chance writes to a topic: several producers, some of them by transactions."""

    def __init__(self, broker: EmbeddedBroker, chance: Chance) -> None:
        self.chance = chance
        self.is_compacted = chance.happens(0.5)
        config = {} if chance.happens(0.8) else {"message.timestamp.type": "LogAppendTime"}
        self.log = Written(broker, PARTITIONS, COMPACTED | config if self.is_compacted else config)
        plain = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": "5", "log_level": 0}
        self._plain = [Producer({**plain, "compression.type": chance.one_of(CODECS)}) for _ in range(2)]
        self._open: dict[str, bool] = {}
        self._codecs = {name: chance.one_of(CODECS) for name in "ab"}

    def write(self, steps: int) -> None:
        acts: tuple[Callable[[], object], ...] = (
            self._some,
            self._some,
            self._transact,
            self._transact,
            self._transact,
            self._end_one,
        )
        for _ in range(steps):
            self.chance.one_of(acts)()
        for name in list(self._open):
            self._end(name)
        for producer in self._plain:
            producer.flush(30)

    def _records(self, producer: Producer, most: int) -> None:
        below = self.chance.below
        for _ in range(1 + below(most)):
            headers = [(f"h{below(3)}", self.chance.one_of((None, b"", b"x" * below(9)))) for _ in range(below(4))]
            producer.produce(
                self.log.name,
                None if below(9) == 0 else bytes([below(256)]) * below(self.chance.one_of((3, 100, 3000))),
                b"k%d" % below(6) if self.is_compacted or below(2) else None,
                partition=below(PARTITIONS),
                timestamp=1_790_000_000_000 + below(10**9),
                headers=headers if below(2) else [],
            )
        producer.flush(30)

    def _some(self) -> None:
        self._records(self.chance.one_of(self._plain), 30)

    def _transact(self) -> None:
        name = self.chance.one_of("ab")
        producer = self.log.transactional(name, self._codecs[name])
        if name not in self._open:
            producer.begin_transaction()
            self._open[name] = True
        self._records(producer, 10)

    def _end_one(self) -> None:
        if self._open:
            self._end(self.chance.one_of(sorted(self._open)))

    def _end(self, name: str) -> None:
        del self._open[name]
        producer = self.log.transactional(name)
        producer.commit_transaction(30) if self.chance.happens(0.5) else producer.abort_transaction(30)


def fields_of(client: KafkaCluster, ranges: list[OffsetRange], wanted: Wanted) -> dict[int, list[Read]]:
    """What is read, as a consumer tells it, by partition."""
    found: dict[int, list[Read]] = {one.partition: [] for one in ranges}
    for row in read(client, ranges, wanted):
        ms = None if row.timestamp is None else row.timestamp // 1000
        found[row.partition].append((row.offset, row.key, row.value, ms, row.headers))
    return found


def compare(broker: EmbeddedBroker, seed: int, steps: int, tries: int) -> int:
    """Writes a topic and reads it in many ways; the records that were compared."""
    chance = Chance(seed)
    history = History(broker, chance)
    history.write(steps)
    log, compared = history.log, 0
    bounds = [log.bounds(partition) for partition in range(PARTITIONS)]
    for level in LEVELS:
        whole = log.consumed_of(PARTITIONS, level)
        with client_of(log.servers, isolation_level=level, request_timeout_ms="20000") as client:
            left = tries
            while left:
                # A compacted log may lose more at any time: it is to be the same before and after, or is read again.
                ranges = list(_ranges(log.name, bounds, chance))
                found = fields_of(client, ranges, Wanted(COLUMNS, most_records=chance.one_of((1, 7, 1000, 20_000))))
                before, whole = whole, log.consumed_of(PARTITIONS, level) if history.is_compacted else whole
                if before != whole:
                    continue
                expected = {
                    r.partition: [one for one in whole[r.partition] if r.start <= one[0] < r.end] for r in ranges
                }
                assert found == expected, (seed, level, ranges)
                left -= 1
                compared += sum(len(some) for some in found.values())
    log.topics.delete(log.name)
    return compared


def _ranges(topic: str, bounds: list[tuple[int, int]], chance: Chance) -> Iterator[OffsetRange]:
    for partition, (first, end) in enumerate(bounds):
        places = sorted((first + chance.below(end - first + 1), first + chance.below(end - first + 1)))
        start, stop = chance.one_of(((first, end), (first, places[1]), (places[0], end), (places[0], places[1])))
        yield OffsetRange(topic, partition, start, stop)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_ranges_by_chance_are_what_a_consumer_reads(broker: EmbeddedBroker, seed: int) -> None:
    assert compare(broker, seed, 40, 6) > 50


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_topics_by_chance_are_read_as_by_librdkafka_for_an_hour(broker: EmbeddedBroker) -> None:
    until_s, seed, compared = time.monotonic() + _SECONDS, _SEED * 1_000_000, 0
    while time.monotonic() < until_s:
        seed += 1
        compared += compare(broker, seed, 20 + seed % 100, 15)
    logging.getLogger(__name__).warning("%d topics, %d records, 0 differences", seed - _SEED * 1_000_000, compared)
    assert compared > 0
