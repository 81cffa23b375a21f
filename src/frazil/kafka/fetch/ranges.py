"""Exact ranges of offsets, read from the brokers that lead their partitions: one request to a broker for all of them.

While records are handed over, the next answer of each broker is on its way: as much of it as the sockets hold, and never more
than one. Nothing is asked for beyond what the ranges lack, but for the last batch of each and a quarter of its bytes.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import google_crc32c
import numpy as np
import pyarrow as pa
from kafka.protocol.consumer import FetchRequest
from numpy.typing import NDArray

from frazil.errors import UnavailableError
from frazil.kafka.fetch import codecs
from frazil.kafka.fetch.batches import (
    ATTRIBUTES,
    BASE,
    BEGIN,
    CODEC,
    CONTROL,
    CRC,
    CRC_START,
    END,
    EPOCH,
    FIELDS,
    HEADER_BYTES,
    I64,
    LAST,
    MAGIC,
    PRODUCER,
    RAW,
    RAW_END,
    TRANSACTIONAL,
    find_batches,
)
from frazil.kafka.fetch.cluster import Cluster, Leader, first_offset, words_of
from frazil.kafka.fetch.columns import Columns, DamagedRecord, Wanted, batch_of
from frazil.kafka.fetch.connection import Connection, is_refusal, mapped
from frazil.kafka.fetch.legacy import DamagedMessage, messages_of
from frazil.kafka.fetch.response import WITH_IDS, Fetched, FetchedPartition, read_response
from frazil.kafka.port import Partition
from frazil.kafka.remedies import kafka_remedy
from frazil.types import OffsetRange

MOST_BYTES = 16 * 1024 * 1024
"""The bytes of one answer; a batch of records that is larger comes whole (KIP-74)."""
_PARTITION_BYTES = 4 * 1024 * 1024
_LEAST_BYTES = 64 * 1024
_SCRATCH_BYTES = 8 * 1024 * 1024
_MOST_SCRATCH_BYTES = 4 * 1024 * 1024 * 1024
_MOST_BATCHES = 16_384
_MAPPED_BYTES = 64 * 1024 * 1024
_CRC_PIECE = 16 * 1024 * 1024
_WAIT_MS = 500
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_TRIES_OUT_OF_RANGE = 3
_ABORT = 0
_MAGIC = 2
_CORRELATION_BYTES = 4
_BYTES_PER_OFFSET = 512.0

_OUT_OF_RANGE, _UNKNOWN_TOPIC = 1, 3
_UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID = 100, 103
# Another broker, or the same one a moment later, may answer: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT,
# REPLICA_NOT_AVAILABLE, NETWORK_EXCEPTION, KAFKA_STORAGE_ERROR, LISTENER_NOT_FOUND, FENCED_LEADER_EPOCH,
# UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, and the topic errors.
_TRANSIENT = {5, 6, 7, 9, 13, 56, 72, 74, 75, 78, _UNKNOWN_TOPIC, _UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID}


@dataclass
class _Part:
    """A range, and how far it is read."""

    range: OffsetRange
    position: int
    #: The epoch of the last batch that was read; -1 before.
    fetched_epoch: int = -1
    #: The topic's id while it is read.
    topic_id: UUID | None = None
    #: A follower to read from (KIP-392).
    replica: int | None = None
    #: What one offset took so far.
    offset_bytes: float = _BYTES_PER_OFFSET
    #: Why nothing comes, since when, how often in turn, and until when it is not asked for.
    problem: str = ""
    since_s: float = 0.0
    failures: int = 0
    until_s: float = 0.0

    @property
    def place(self) -> Partition:
        return self.range.topic, self.range.partition

    @property
    def where(self) -> str:
        return f"topic {self.range.topic}, partition {self.range.partition}, offset {self.position}"


class _TooLarge(Exception):
    """A batch has more bytes than are wanted, when it is decompressed."""


@dataclass
class _Asked:
    """A request that a broker has not answered yet."""

    connection: Connection
    parts: dict[Partition, _Part]
    version: int
    sent_s: float
    topics: dict[UUID | str, str] = field(default_factory=dict)


def read_ranges(
    cluster: Cluster,
    ranges: Iterable[OffsetRange],
    wanted: Wanted,
    reached: MutableMapping[Partition, int] | None = None,
    *,
    is_lenient: bool = False,
) -> Generator[pa.RecordBatch, None, None]:
    """Yields the records of the ranges, each of another partition: in order within one, those of one topic at a time.

    A range is read when its last record was handed over or its log has none there any more: compacted records, control
    records and those of aborted transactions leave gaps.

    reached: gets, before records are handed over, the offset per partition up to which they and those before go.
    is_lenient: reads what there is: records that no longer exist are left out, and a range ends where its log does.

    Raises: UnavailableError, which names the place: records that no longer exist, a topic that was deleted or created anew,
    damaged batches, a login or a right that is refused; and where nothing has arrived for `request.timeout.ms`.
    """
    reading = _Reading(cluster, ranges, wanted, {} if reached is None else reached, is_lenient)
    try:
        yield from reading.batches()
    finally:
        reading.end()


class _Reading:
    """One read."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Iterable[OffsetRange],
        wanted: Wanted,
        reached: MutableMapping[Partition, int],
        is_lenient: bool,
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._reached = reached
        self._is_lenient = is_lenient
        settings = cluster.settings
        self._patience_s = int(settings.get("request.timeout.ms", "30000")) / 1000
        self._level = 0 if settings.get("isolation.level") == "read_uncommitted" else 1
        self._rack = settings.get("client.rack", "")
        asked = {(r.topic, r.partition): r for r in ranges}
        reached.update({place: r.start for place, r in asked.items()})
        self._left = {place: _Part(r, r.start) for place, r in asked.items() if r.span > 0}
        self._asked: dict[int, _Asked] = {}
        self._columns: Columns | None = None
        self._scratch: NDArray[np.uint8] | None = None
        #: Seconds that whoever takes the records has used: nobody is to be blamed for them.
        self._away_s = 0.0
        self._refresh_after_s = 0.0
        self._refresh_failures = 0

    def _now_s(self) -> float:
        return time.monotonic() - self._away_s

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._left:
            self._locate()
            self._ask()
            for answered in self._wait():
                for batch in self._take(answered):
                    before_s = time.monotonic()
                    yield batch
                    self._away_s += time.monotonic() - before_s
            self._give_up()
        if self._columns is not None and self._columns.count:
            yield self._columns.batch()

    def end(self) -> None:
        """Leaves no answer behind that a later read would take for its own."""
        for broker, asked in self._asked.items():
            self._cluster.drop(broker, asked.connection)
        self._asked = {}

    # ---- whom to ask

    def _locate(self) -> None:
        """Finds the leaders of partitions that have none that is known."""
        leaders = self._cluster.leaders
        missing = {part.range.topic for place, part in self._left.items() if place not in leaders}
        now_s = self._now_s()
        if not missing or now_s < self._refresh_after_s:
            return
        try:
            wrong = self._cluster.refresh(missing, min(self._patience_s, _answer_s(self._patience_s)))
        except UnavailableError as error:
            if is_refusal(error):
                raise
            self._refresh_failures += 1
            self._refresh_after_s = self._now_s() + _pause_s(self._refresh_failures)
            for place, part in self._left.items():
                if place not in leaders:
                    self._note(part, f"{error.message} ({error.where})")
            return
        self._refresh_failures = 0
        for place, part in self._left.items():
            if part.range.topic not in missing:
                continue
            words = wrong.get(part.range.topic)
            if words is not None and "authorization" in words:
                raise UnavailableError(words, remedy=kafka_remedy(words), where=f"topic {part.range.topic}")
            if words is not None or place not in self._cluster.leaders:
                self._refresh_failures = max(self._refresh_failures, 1)
                self._note(part, words or "the partition has no leader")
            else:
                self._check_id(part)
        if self._refresh_failures:
            self._refresh_failures = max((part.failures for part in self._left.values()), default=1)
            self._refresh_after_s = self._now_s() + _pause_s(self._refresh_failures)

    def _check_id(self, part: _Part) -> None:
        found = self._cluster.ids.get(part.range.topic)
        if part.topic_id is not None and found != part.topic_id and part.position > part.range.start:
            raise UnavailableError("the topic was deleted and created again while it was read", where=part.where)
        part.topic_id = found

    def _ask(self) -> None:
        """Sends a request to each broker that owes no answer and leads what is left."""
        now_s = self._now_s()
        parts: dict[int, list[_Part]] = {}
        for place, part in self._left.items():
            leader = self._cluster.leaders.get(place)
            if leader is not None and part.until_s <= now_s:
                broker = leader.broker if part.replica is None else part.replica
                if broker not in self._asked:
                    parts.setdefault(broker, []).append(part)
        for broker, some in parts.items():
            try:
                connection = self._cluster.connection(broker, _answer_s(self._patience_s))
                self._asked[broker] = self._send(broker, connection, some)
            except UnavailableError as error:
                if is_refusal(error):
                    raise
                self._cluster.drop(broker)
                self._lost(some, f"{error.message} ({error.where})")

    def _send(self, broker: int, connection: Connection, parts: list[_Part]) -> _Asked:
        version = self._cluster.fetch_version(broker, {part.range.topic for part in parts})
        by_topic: dict[str, list[_Part]] = {}
        for part in parts:
            by_topic.setdefault(part.range.topic, []).append(part)
        ids = self._cluster.ids
        topics = [
            FetchRequest.FetchTopic(
                topic=topic,
                topic_id=ids.get(topic),
                partitions=[self._partition(part) for part in some],
            )
            for topic, some in by_topic.items()
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            isolation_level=self._level,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id=self._rack,
            version=version,
        )
        connection.send(request)
        named: dict[UUID | str, str] = {(ids[topic] if version >= WITH_IDS else topic): topic for topic in by_topic}
        return _Asked(connection, {part.place: part for part in parts}, version, self._now_s(), named)

    def _partition(self, part: _Part) -> Any:
        leader = self._cluster.leaders.get(part.place, Leader(-1))
        lacking = int((part.range.end - part.position) * part.offset_bytes * 1.25)
        return FetchRequest.FetchTopic.FetchPartition(
            partition=part.range.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=part.position,
            last_fetched_epoch=part.fetched_epoch,
            log_start_offset=-1,
            partition_max_bytes=min(_PARTITION_BYTES, max(_LEAST_BYTES, lacking)),
        )

    # ---- what comes

    def _wait(self) -> list[tuple[_Asked, Fetched, memoryview]]:
        """Returns an answer that has arrived, if there is one; the next request is on its way by then."""
        if not self._asked:
            self._pause()
            return []
        now_s = self._now_s()
        ready = [broker for broker, asked in self._asked.items() if asked.connection.is_readable()]
        if not ready:
            poll = select.poll()
            brokers = {asked.connection.fileno(): broker for broker, asked in self._asked.items()}
            for number in brokers:
                poll.register(number, select.POLLIN)
            until_s = min([asked.sent_s + _answer_s(self._patience_s) for asked in self._asked.values()])
            waiting = [part.until_s for part in self._left.values() if part.until_s > now_s]
            ready = [brokers[number] for number, _ in poll.poll(1000 * max(0.001, min([until_s, *waiting]) - now_s))]
        for broker in ready:
            found = self._receive(broker)
            if found is not None:
                return [found]  # The others stay asked: they are asked again once their answers are taken.
        return self._overdue()

    def _pause(self) -> None:
        now_s = self._now_s()
        times = [part.until_s for part in self._left.values() if part.until_s > now_s]
        if self._refresh_after_s > now_s:
            times.append(self._refresh_after_s)
        if times:
            time.sleep(max(0.0, min(times) - now_s))

    def _overdue(self) -> list[tuple[_Asked, Fetched, memoryview]]:
        """Gives brokers up that have not answered in time."""
        limit_s = self._now_s() - _answer_s(self._patience_s)
        for broker, asked in list(self._asked.items()):
            if asked.sent_s < limit_s:
                self._drop(broker, f"{asked.connection.where} has not answered")
        return []

    def _receive(self, broker: int) -> tuple[_Asked, Fetched, memoryview] | None:
        asked = self._asked[broker]
        try:
            frame = asked.connection.receive(_answer_s(self._patience_s))[_CORRELATION_BYTES:]
            fetched = read_response(frame, asked.version)
        except UnavailableError as error:
            self._drop(broker, f"{error.message} ({error.where})")
            return None
        del self._asked[broker]
        if fetched.error:
            self._lost(list(asked.parts.values()), words_of(fetched.error))
            return None
        if fetched.throttle_ms:
            for part in asked.parts.values():
                part.until_s = max(part.until_s, self._now_s() + fetched.throttle_ms / 1000)
        return asked, fetched, frame

    def _drop(self, broker: int, words: str) -> None:
        asked = self._asked.pop(broker)
        self._cluster.drop(broker, asked.connection)
        self._lost(list(asked.parts.values()), words)

    def _lost(self, parts: list[_Part], words: str) -> None:
        """Asks again for the leaders of partitions whose broker does not answer."""
        for part in parts:
            part.replica = None
            self._cluster.leaders.pop(part.place, None)
            self._note(part, words)

    def _note(self, part: _Part, words: str) -> None:
        """Notes why nothing has come, and waits before the next try."""
        now_s = self._now_s()
        if not part.problem:
            part.since_s = now_s
        part.problem = words
        part.failures += 1
        part.until_s = max(part.until_s, now_s + _pause_s(part.failures))

    def _give_up(self) -> None:
        now_s = self._now_s()
        for part in self._left.values():
            if part.problem and now_s - part.since_s > self._patience_s:
                raise UnavailableError(
                    f"records have not arrived for {self._patience_s:.0f} s: {part.problem}", where=part.where
                )

    # ---- records

    def _take(self, answer: tuple[_Asked, Fetched, memoryview]) -> Iterator[pa.RecordBatch]:
        asked, fetched, frame = answer
        found: list[tuple[_Part, FetchedPartition, I64, int]] = []
        for one in fetched.partitions:
            topic = asked.topics.get(one.topic)
            part = asked.parts.get((topic or "", one.partition))
            if part is None or part.place not in self._left:
                continue
            if one.error:
                self._refused(part, one, asked.connection)
            elif one.diverges_at is not None:
                raise UnavailableError(f"the log was truncated at offset {one.diverges_at}", where=part.where)
            else:
                found += self._located(part, one, frame)
        self._ask()  # The next answer comes while these records are used.
        for part, one, table, start in found:
            after = min(max(int(table[:, LAST].max()) + 1, start), part.range.end)
            yield from self._records(part, one, table, frame, start)
            self._reached[part.place] = max(self._reached[part.place], after)

    def _end_range(self, part: _Part) -> None:
        """Leaves out what its log does not have, or nobody can take."""
        self._reached[part.place] = part.position = part.range.end
        self._left.pop(part.place, None)

    def _located(
        self, part: _Part, one: FetchedPartition, frame: memoryview
    ) -> list[tuple[_Part, FetchedPartition, I64, int]]:
        """Finds the batches of an answer, and moves the partition's position behind them."""
        if one.replica >= 0:
            part.replica = one.replica
            return []
        base, start, tables = _address_of(frame), one.start, []
        while True:
            table = np.zeros((_MOST_BATCHES, FIELDS), np.int64)[: max(1, min(_MOST_BATCHES, (one.end - start) // 17))]
            count, start = find_batches(base, start, one.end, table)
            tables.append(table[:count])
            if count < len(table) or not count:
                break
        table = np.concatenate(tables) if len(tables) > 1 else tables[0]
        # A compressed message of an older format has the offset of its last record.
        is_due = (table[:, BASE] < part.range.end) & (table[:, LAST] >= part.position)
        table = table[is_due | (table[:, MAGIC] < _MAGIC)]
        before = part.position
        if len(table):
            after = max(int(table[:, LAST].max()) + 1, before)
            part.fetched_epoch = int(table[-1, EPOCH]) if table[-1, MAGIC] >= _MAGIC else -1
            span = max(1, min(after, part.range.end) - before)
            part.offset_bytes = max(1.0, float(table[-1, END] - table[0, BEGIN]) / span)
            part.position = min(after, part.range.end)
            part.problem, part.failures = "", 0
            self._left[part.place] = self._left.pop(part.place)  # Others come first in the next request.
        else:
            self._nothing(part, one)
            self._reached[part.place] = part.position
        if part.position >= part.range.end:
            self._left.pop(part.place, None)
        return [(part, one, table, before)] if len(table) else []

    def _nothing(self, part: _Part, one: FetchedPartition) -> None:
        """What it means that a broker has no records at the position, although the range does not end there."""
        readable = one.last_stable if self._level and one.last_stable >= 0 else one.high_watermark
        if one.end > one.start:
            return  # A part of a batch: it comes whole once its partition is first in a request.
        if readable >= part.range.end:
            # All that the range had is gone from the log, by compaction, or is of transactions that were aborted.
            part.position = part.range.end
        elif readable > part.position and one.high_watermark > part.position:
            part.position = readable
        elif self._is_lenient and part.replica is not None:
            part.replica = None  # A follower may lag behind.
        elif self._is_lenient:
            part.position = part.range.end
        else:
            kind = "the log ends" if one.high_watermark <= part.position else "an open transaction begins"
            self._note(part, f"{kind} at offset {part.position}, before the end of the range at {part.range.end}")

    def _refused(self, part: _Part, one: FetchedPartition, connection: Connection) -> None:
        words = words_of(one.error)
        if one.error == _OUT_OF_RANGE:
            if part.replica is not None:
                part.replica = None  # A follower may lag behind.
                return
            try:
                first = first_offset(connection, part.place, _answer_s(self._patience_s))
            except UnavailableError as error:
                self._cluster.drop(self._cluster.leaders[part.place].broker, connection)
                self._lost([part], f"{error.message} ({error.where})")
                return
            if first > part.position:
                self._gone(part, min(first, part.range.end))
            elif self._is_lenient and part.failures >= _TRIES_OUT_OF_RANGE:
                self._end_range(part)  # The log has been shorter for so long.
            else:
                self._note(part, f"{words}: the log begins at offset {first}")
        elif one.error in _TRANSIENT:
            self._lost([part], words)
        else:
            raise UnavailableError(words, remedy=kafka_remedy(words), where=part.where)

    def _gone(self, part: _Part, until: int) -> None:
        """Leaves records out that no longer exist."""
        if not self._is_lenient:
            words = f"the records from offset {part.position} up to {until} no longer exist"
            raise UnavailableError(words, where=part.where)
        self._reached[part.place] = part.position = until
        if until >= part.range.end:
            self._end_range(part)

    def _records(
        self, part: _Part, one: FetchedPartition, table: I64, frame: memoryview, start: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of an answer's batches, as many at a time as columns hold."""
        table = table[~self._aborted(one, table, frame)]
        row = 0
        while row < len(table):
            if table[row, MAGIC] != _MAGIC:
                yield from self._flush()
                yield from self._messages(part, table[row], frame, start)
                row += 1
                continue
            try:
                row, group = self._decompressed(part, table, row, frame)
            except _TooLarge:
                self._end_range(part)
                return
            yield from self._append(part, group, start)

    def _append(self, part: _Part, group: I64, start: int) -> Iterator[pa.RecordBatch]:
        topic, state, needs = part.range.topic, np.zeros(5, np.int64), 0
        if self._columns is not None and self._columns.topic != topic:
            yield from self._flush()
        while True:
            if self._columns is None:
                self._columns = Columns(topic, self._wanted, needs)
            try:
                needs = self._columns.take(part.range.partition, group, state, start, part.range.end)
            except DamagedRecord as error:
                raise _damaged(part, group[error.row], "a record cannot be read") from None
            if not needs:
                return
            last = self._columns.last_of(part.range.partition)
            if last is not None:
                self._reached[part.place] = last + 1
            yield from self._flush()

    def _messages(self, part: _Part, batch: I64, frame: memoryview, start: int) -> Iterator[pa.RecordBatch]:
        if batch[MAGIC] > _MAGIC:
            raise _damaged(part, batch, f"its format {int(batch[MAGIC])} is not known")
        r = part.range
        try:
            some = [m for m in messages_of(frame[batch[BEGIN] : batch[END]]) if start <= m.offset < r.end]
        except DamagedMessage as error:
            raise _damaged(part, batch, str(error)) from None
        if some:
            self._reached[part.place] = some[-1].offset + 1
            yield batch_of(r.topic, r.partition, some, self._wanted)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        columns, self._columns = self._columns, None
        if columns is not None and columns.count:
            yield columns.batch()

    def _aborted(self, one: FetchedPartition, table: I64, frame: memoryview) -> NDArray[np.bool_]:
        """Returns which batches have no records for a reader: control batches, and those of aborted transactions."""
        is_control = (table[:, ATTRIBUTES] & CONTROL) != 0
        if not one.aborted or not self._level:
            return is_control
        left_out = is_control.copy()
        coming = sorted(one.aborted, key=lambda pair: pair[1])
        now: set[int] = set()
        for row in range(len(table)):
            while coming and coming[0][1] <= table[row, LAST]:
                now.add(coming.pop(0)[0])
            producer = int(table[row, PRODUCER])
            if is_control[row]:
                if producer in now and _is_abort(table[row], frame):
                    now.discard(producer)
            elif table[row, ATTRIBUTES] & TRANSACTIONAL and producer in now:
                left_out[row] = True
        return left_out

    def _decompressed(self, part: _Part, table: I64, row: int, frame: memoryview) -> tuple[int, I64]:
        """Checks batches and decompresses them, as many as there is room for, and returns the next row and the group."""
        base, used, first = _address_of(frame), 0, row
        while row < len(table) and table[row, MAGIC] == _MAGIC:
            batch = table[row]
            begin, end = int(batch[BEGIN]), int(batch[END])
            _check(part, batch, frame)
            codec = int(batch[ATTRIBUTES]) & CODEC
            if codec == codecs.NONE:
                batch[RAW], batch[RAW_END] = base + begin + HEADER_BYTES, base + end
                row += 1
                continue
            try:
                size = self._into_scratch(part, batch, codec, frame[begin + HEADER_BYTES : end], used)
            except _TooLarge:
                if row == first:
                    raise
                break
            if size is None:
                break
            assert self._scratch is not None
            batch[RAW] = self._scratch.ctypes.data + used
            batch[RAW_END] = batch[RAW] + size
            used += size
            row += 1
        return row, table[first:row]

    def _into_scratch(self, part: _Part, batch: I64, codec: int, data: memoryview, used: int) -> int | None:
        """Decompresses a batch behind `used` bytes, and returns its size; None where it needs the room of those."""
        if self._scratch is None:
            self._scratch = np.empty(_SCRATCH_BYTES, np.uint8)
        while True:
            try:
                return codecs.decompress(codec, data, self._scratch[used:])
            except codecs.Damaged as error:
                raise _damaged(part, batch, f"{codecs.NAMES.get(codec, 'its codec')}: {error}") from None
            except codecs.NoRoom:
                if used:
                    return None
                size = 4 * self._scratch.size
                if self._scratch.size >= self._wanted.most_batch_bytes:
                    raise _TooLarge from None
                if size > _MOST_SCRATCH_BYTES:
                    words = f"it has more than {_MOST_SCRATCH_BYTES} bytes when it is decompressed"
                    raise _damaged(part, batch, words) from None
                self._scratch = None
                self._scratch = (
                    np.empty(size, np.uint8) if size <= _MAPPED_BYTES else np.frombuffer(mapped(size), np.uint8)
                )


def _answer_s(patience_s: float) -> float:
    """How long one broker may take before another one is asked who leads its partitions."""
    return max(1.0, patience_s / 3)


def _pause_s(failures: int) -> float:
    return _PAUSES_S[min(failures, len(_PAUSES_S)) - 1]


def _address_of(frame: memoryview) -> int:
    return int(np.frombuffer(frame, np.uint8).ctypes.data)


def _check(part: _Part, batch: I64, frame: memoryview) -> None:
    """Raises UnavailableError for a batch whose checksum is another one."""
    crc, at, end = 0, int(batch[BEGIN]) + CRC_START, int(batch[END])
    for start in range(at, end, _CRC_PIECE):
        crc = google_crc32c.extend(crc, bytes(frame[start : min(end, start + _CRC_PIECE)]))
    if crc != batch[CRC]:
        raise _damaged(part, batch, "its checksum is another one")


def _damaged(part: _Part, batch: I64, words: str) -> UnavailableError:
    place = f"topic {part.range.topic}, partition {part.range.partition}, offset {int(batch[BASE])}"
    return UnavailableError(
        f"a batch of records is damaged: {words}",
        remedy="replace the broker's copy by another replica's; or skip the batch: give the table a start after it",
        where=place,
    )


def _is_abort(batch: I64, frame: memoryview) -> bool:
    """Whether a control batch ends a transaction for nothing: its record's key is a version and a type, int16 each."""
    at = int(batch[BEGIN]) + HEADER_BYTES
    # Length, attributes, differences of time and offset, and the key's length are a byte each, as there is one record.
    key = bytes(frame[at + 5 : at + 9])
    return int.from_bytes(key[2:4], "big") == _ABORT
