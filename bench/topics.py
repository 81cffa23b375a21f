"""Topics: making them, filling them at full speed, and feeding them at a steady rate from a process of its own."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.machine import CLOCK
from bench.records import timed_value

_SLOT_S = 0.01
_WARNING = 4


def _client(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": bootstrap, "log_level": _WARNING}


def make_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    """Makes the topics and waits until the broker leads all their partitions."""
    admin = AdminClient(_client(bootstrap))
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(30)
    while True:
        known = admin.list_topics(timeout=10).topics
        ready = [name for name in names if name in known and len(known[name].partitions) == partitions]
        if len(ready) == len(names):
            return
        CLOCK.sleep(0.1)


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Deletes the topics, so that the next benchmark finds an empty broker."""
    admin = AdminClient(_client(bootstrap))
    for future in admin.delete_topics(list(names)).values():
        future.result(30)


def fill(bootstrap: str, topic: str, partitions: int, value: Callable[[int], bytes], count: int) -> None:
    """Writes the records 0 to `count` (exclusive), in turn to each partition."""
    producer = Producer(
        {
            **_client(bootstrap),
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 500_000,
        }
    )
    for number in range(count):
        record = value(number)
        while True:
            try:
                producer.produce(topic, record, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"the broker did not take all records of topic={topic}")


@dataclasses.dataclass(frozen=True)
class Feed:
    """What to produce: `rate` records per second over all topics and partitions in turn.

    value: a record of a number and of the moment it is produced at, in microseconds.
    """

    bootstrap: str
    topics: Sequence[str]
    partitions: int
    rate: int
    warm_seconds: float
    seconds: float
    value: Callable[[int, int], bytes] = timed_value


@dataclasses.dataclass(frozen=True)
class Fed:
    """What was produced: measured records have the ids from 1, warm-up records negative ids."""

    warm: int
    measured: int
    start_ms: int
    end_ms: int
    worst_late_ms: int


class Feeder:
    """Runs a feed in a process of its own, so that the producer's pace does not hang on ours."""

    def __init__(self, feed: Feed) -> None:
        context = multiprocessing.get_context("spawn")
        self._receive, send = context.Pipe(duplex=False)
        self._measuring: Event = context.Event()
        self._stop: Event = context.Event()
        self._process: BaseProcess = context.Process(target=_feed, args=(feed, send, self._measuring, self._stop))
        self._process.start()
        send.close()

    def wait_until_measuring(self) -> None:
        """Returns when the warm-up records are out."""
        while not self._measuring.wait(1.0):
            if not self._process.is_alive():
                raise RuntimeError("the producer died during the warm-up")

    def is_done(self, wait_s: float) -> bool:
        """Whether the feed has ended, after waiting for it for at most `wait_s`."""
        return self._receive.poll(wait_s)

    def finish(self) -> Fed:
        """What was produced, once the feed has ended by itself."""
        fed: Fed = self._receive.recv()
        self._process.join()
        return fed

    def stop(self) -> Fed:
        """Ends the feed now."""
        self._stop.set()
        return self.finish()

    def kill(self) -> None:
        """Ends the process when something else has failed."""
        self._process.kill()
        self._process.join()


def _feed(feed: Feed, send: object, measuring: Event, stop: Event) -> None:
    settings = {**_client(feed.bootstrap), "linger.ms": 5, "compression.type": "lz4", "acks": "1"}
    producer = Producer(settings)
    warm, _, late_warm = _pace(producer, feed, -1, feed.warm_seconds, stop)
    measuring.set()
    measured, times, late = _pace(producer, feed, 1, feed.seconds, stop)
    producer.flush(30)
    send.send(Fed(warm, measured, *times, round(1000 * max(late, 0.0 if measured else late_warm))))  # type: ignore[attr-defined]


def _pace(producer: Producer, feed: Feed, sign: int, seconds: float, stop: Event) -> tuple[int, tuple[int, int], float]:
    """Records in slots of 10 ms; how many, when from and to, and how late the latest slot was."""
    per_slot = max(1, round(feed.rate * _SLOT_S))
    slot_s = per_slot / feed.rate
    start, start_ms, count, late = CLOCK.monotonic_s(), CLOCK.now_ms(), 0, 0.0
    while count < feed.rate * seconds and not stop.is_set():
        wait = start + count // per_slot * slot_s - CLOCK.monotonic_s()
        if wait > 0:
            CLOCK.sleep(wait)
        late = max(late, -wait)
        for _ in range(per_slot):
            topic = feed.topics[count % len(feed.topics)]
            partition = count // len(feed.topics) % feed.partitions
            count += 1
            producer.produce(topic, feed.value(sign * count, CLOCK.now_ms() * 1000), partition=partition)
        producer.poll(0)
    return count, (start_ms, CLOCK.now_ms()), late
