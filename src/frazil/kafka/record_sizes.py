"""The sizes of records, read by a process that may die of them: it has little memory, and nothing else to do.

A record of hundreds of megabytes fits into a compressed batch of some kilobytes, so that only who decompresses it knows.
The process reads ranges one after another and reports what is large; where it dies, it is asked where the batch of which it
dies begins, and others find the batch's end. Run as a module it is that process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.errors import UnavailableError
from frazil.kafka.port import timestamp_of
from frazil.kafka.properties import kafka_remedy, native_properties
from frazil.types import OffsetRange

MEMORY_BYTES = 2 * 1024**3
"""The most memory of the process that reads; less where the machine or the container has less to spare."""
_LEAST_MEMORY_BYTES = 256 * 1024**2
_QUICK: Mapping[str, Any] = {
    "receive.message.max.bytes": 2**31 - 1,
    "fetch.max.bytes": 1_000_000,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 8 * 1024,
    "fetch.queue.backoff.ms": 5,
}
# One batch of records with each request, and the next request only once all of its records are taken: the process dies of
# the very batch that it has asked for.
_CAREFUL = {**_QUICK, "fetch.message.max.bytes": 1, "queued.min.messages": 1}
_AT_ONCE, _BYTES_AT_ONCE = 1000, 8 * 1024 * 1024
_POLL_S, _PATIENCE_S = 0.05, 30.0
# The share of what is left that the process may take.
_SPARED = 0.8
_LARGEST_KEPT = 1024 * 1024


@dataclass(frozen=True)
class LargeRecord:
    """A record that is large, without its value; or a batch of which the process has died."""

    topic: str
    partition: int
    offset: int
    #: The offset after it, or after the last record of the batch.
    end: int
    #: The bytes of its value; None of a batch of which the process has died.
    value_bytes: int | None = None
    timestamp_ms: int | None = None
    #: Its key and headers; none where they are large too.
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class _Answer:
    """What a process has reported before its end."""

    found: list[LargeRecord]
    #: The number of ranges that it has read, and how far the next one.
    ranges_read: int = 0
    reached: int = -1
    #: Whether it has read all, or the first record where only that was asked for.
    is_complete: bool = False


def find_large(
    properties: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    floor_bytes: int,
    memory_bytes: int | None = None,
    patience_s: float = _PATIENCE_S,
) -> list[LargeRecord]:
    """Returns the records whose values have more than `floor_bytes`, and the batches that no process of so much memory
    can read. memory_bytes: the memory of that process; None for as much as can be spared. patience_s: how long it waits
    for the next record.

    Raises: UnavailableError where the records do not arrive.
    """
    found: dict[tuple[str, int, int], LargeRecord] = {}
    left = [r for r in ranges if r.span > 0]
    memory = spare_bytes() if memory_bytes is None else memory_bytes
    limits = {"floor_bytes": floor_bytes, "memory_bytes": memory, "patience_s": patience_s}

    def ask(asked: Sequence[OffsetRange], *, is_careful: bool, first_only: bool = False) -> _Answer:
        how = {"is_careful": is_careful, "first_only": first_only}
        answer = _ask({"properties": dict(properties), "ranges": [asdict(r) for r in asked], **limits, **how})
        found.update({(one.topic, one.partition, one.offset): one for one in answer.found})
        return answer

    while left:
        answer = ask(left, is_careful=False)
        if answer.is_complete:
            break
        left = left[answer.ranges_read :]
        # Many large batches were perhaps too much together.
        answer = ask([replace(left[0], start=max(left[0].start, answer.reached))], is_careful=True)
        if answer.is_complete:
            left = left[1:]
            continue
        r = replace(left[0], start=max(left[0].start, answer.reached))
        end = _end_of_batch(r, lambda rest: ask([rest], is_careful=True, first_only=True).is_complete)
        found[r.topic, r.partition, r.start] = LargeRecord(r.topic, r.partition, r.start, end)
        left[0] = replace(r, start=end)
    return list(found.values())


def spare_bytes(system: Path = Path("/")) -> int:
    """Returns the memory that a process may take: where a container has no more, the kernel ends all of its processes."""
    group, left = system / "sys/fs/cgroup", [MEMORY_BYTES]
    with suppress(OSError, ValueError):  # Without a container, or with an older kind of groups.
        most, taken = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        left.append(most - taken + int(cached.get("inactive_file", 0)))
    with suppress(OSError, ValueError, StopIteration):
        lines = (system / "proc/meminfo").read_text().splitlines()
        left.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    return max(_LEAST_MEMORY_BYTES, int(_SPARED * min(left)) if min(left) < MEMORY_BYTES else MEMORY_BYTES)


def _end_of_batch(r: OffsetRange, can_begin: Callable[[OffsetRange], bool]) -> int:
    """Returns the offset after the batch that a range begins with. can_begin: whether the first record of a range can be
    read.
    """
    inside, step = r.start, 1
    while (outside := min(r.end, inside + step)) < r.end and not can_begin(replace(r, start=outside)):
        inside, step = outside, 2 * step
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if can_begin(replace(r, start=middle)):
            outside = middle
        else:
            inside = middle
    return outside


def _ask(question: Mapping[str, Any]) -> _Answer:
    # -P: Python must not import modules from the working directory. It ends soon after this process, as it has nowhere to
    # write then.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "frazil.kafka.record_sizes"],
        input=json.dumps(question).encode(),
        capture_output=True,
        check=False,
        start_new_session=True,  # Ctrl-C in the terminal does not reach it.
    )
    servers = question["properties"]["bootstrap.servers"]
    if done.returncode > 0:  # What it dies of is a signal.
        reported = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnavailableError(f"the sizes of records cannot be read: {reported}", where=servers)
    answer = _Answer([])
    for line in done.stdout.splitlines():
        kind, reported = json.loads(line)
        if kind == "unavailable":
            message = f"the sizes of records cannot be read: {reported}"
            raise UnavailableError(message, remedy=kafka_remedy(reported), where=servers)
        if kind == "large":
            answer.found.append(_load(reported))
        elif kind == "reached":
            answer.ranges_read, answer.reached = reported
        else:
            answer.is_complete = True
    return answer


def _dump(one: LargeRecord) -> dict[str, Any]:
    headers = [(name, _text(value)) for name, value in one.headers]
    return {**asdict(one), "key": _text(one.key), "headers": headers}


def _load(reported: Mapping[str, Any]) -> LargeRecord:
    headers = tuple((name, _bytes(value)) for name, value in reported["headers"])
    return LargeRecord(**{**reported, "key": _bytes(reported["key"]), "headers": headers})


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


# ---- the process that reads


class _Undone(Exception):
    """A batch cannot be decompressed in the memory that there is."""


def main() -> None:
    """Reads a question from standard input, and writes what it finds as lines of JSON."""
    question = json.load(sys.stdin)
    most = question["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with suppress(OSError):  # Where memory is short on the machine, this process goes first.
        Path("/proc/self/oom_score_adj").write_text("1000")
    settings, most_at_once = (_CAREFUL, 1) if question["is_careful"] else (_QUICK, _AT_ONCE)
    ranges = [OffsetRange(**one) for one in question["ranges"]]
    try:
        consumer = open_consumer(question["properties"], "frazil-sizes", settings)
        for number, r in enumerate(ranges):
            reading = _Reading(consumer, r, question["patience_s"], most_at_once)
            for message in reading.messages(partial(_write_reached, number)):
                if len(message) > question["floor_bytes"]:
                    _write("large", _dump(_large(r, message)))
                if question["first_only"]:
                    break
        _write("done", None)
    except KafkaException as error:
        _write("unavailable", error.args[0].str())
    except (_Undone, MemoryError, SystemError):  # The last is how the client reports that it has none for its answer.
        pass
    os._exit(0)  # At once: a client that is closed waits for its threads, which may lack memory.


def open_consumer(properties: Mapping[str, str], group: str, other: Mapping[str, Any] | None = None) -> Consumer:
    """Returns a consumer that reports the end of a partition. other: settings of librdkafka, overridden by the common
    ones.

    Raises: KafkaException where librdkafka refuses the settings.
    """
    level = {"isolation.level": properties.get("isolation.level", "read_committed")}
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    # Where the first records are gone, the remaining ones are read.
    begin = {"auto.offset.reset": "earliest"}
    return Consumer({**native_properties(properties), **level, **own, **begin, **(other or {})})


def _write(kind: str, reported: Any) -> None:
    sys.stdout.write(json.dumps([kind, reported]) + "\n")
    sys.stdout.flush()


def _write_reached(number: int, offset: int) -> None:
    _write("reached", [number, offset])


@dataclass(frozen=True)
class _Reading:
    """One range that is read."""

    consumer: Consumer
    range: OffsetRange
    #: How long to wait for the next record.
    patience_s: float
    #: The largest number of records that are taken at a time.
    most_at_once: int

    def messages(self, reach: Callable[[int], None]) -> Iterator[Message]:
        """Yields the records. reach: is called with how far they are read.

        Raises: KafkaException; _Undone.
        """
        r = self.range
        self.consumer.assign([TopicPartition(r.topic, r.partition, r.start)])
        position, waited_s, at_once = r.start, 0.0, 1
        while position < r.end:
            reach(position)
            messages = self.consumer.consume(at_once, timeout=_POLL_S)
            waited_s = 0.0 if messages else waited_s + _POLL_S
            if waited_s > self.patience_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no record has arrived"))
            for message in messages:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    position = offset + 1
                    if offset < r.end:
                        yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif error.code() in (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG):
                    raise _Undone
                else:
                    raise KafkaException(error)
            size = sum(map(len, messages)) // max(1, len(messages))
            at_once = max(1, min(self.most_at_once, _BYTES_AT_ONCE // (size + 1)))


def _large(r: OffsetRange, message: Message) -> LargeRecord:
    kind, at_ms = message.timestamp()
    offset, key = message.offset() or 0, message.key()
    held = [(str(pair[0]), pair[1]) for pair in message.headers() or []]
    headers = tuple((name, value if isinstance(value, bytes) else None) for name, value in held)
    is_large = sum(len(name) + len(value or b"") for name, value in headers) > _LARGEST_KEPT
    return LargeRecord(
        r.topic,
        r.partition,
        offset,
        offset + 1,
        len(message),
        timestamp_of(int(at_ms)) if kind != TIMESTAMP_NOT_AVAILABLE else None,
        key if isinstance(key, bytes) and len(key) <= _LARGEST_KEPT else None,
        () if is_large else headers,
    )


if __name__ == "__main__":
    main()
