"""Exact ranges of offsets, read from the brokers that lead their partitions: one request to a broker for all of them.

While records are handed over, the next answer of each broker is on its way: as much of it as the sockets hold, and never
more than one. Nothing is asked for beyond what the ranges lack, but for the last batch of each and a quarter of its bytes.

A broker answers no records of a partition where others before it in the request have taken the room: that there are none
(compaction, ends of transactions) is only known of the first one in a request.
"""

from __future__ import annotations

import select
import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa
from kafka.protocol.consumer import FetchRequest

from frazil.clock import SystemClock
from frazil.errors import InvariantError, UnavailableError
from frazil.kafka.fetch.batches import BASE, BEGIN, END, EPOCH, FORMAT, I64, LAST
from frazil.kafka.fetch.cluster import EARLIEST, EARLIEST_LOCAL, LATEST, Cluster, Leader, is_final, words_of
from frazil.kafka.fetch.columns import Wanted
from frazil.kafka.fetch.connection import Connection
from frazil.kafka.fetch.records import Records, TooLargeBatch, batches_in, damaged
from frazil.kafka.fetch.response import WITH_IDS, Fetched, FetchedPartition, read_response
from frazil.kafka.port import Partition
from frazil.refusals import kafka_remedy
from frazil.types import OffsetRange

MOST_BYTES = 16 * 1024 * 1024
"""The bytes of one answer; a batch of records that is larger comes whole (KIP-74)."""
_PARTITION_BYTES = 4 * 1024 * 1024
_LEAST_BYTES = 64 * 1024
_SHRINK_BITS, _MOST_SHRINK_BITS = 3, 8
"""By how much less is asked for after an answer that did not arrive in time."""
_WAIT_MS = 500
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_CORRELATION_BYTES = 4
_BYTES_PER_OFFSET = 512.0
_EMPTY_ANSWERS = 3
"""How many answers without records in turn mean that there are none, where it is unknown what a broker has itself."""
_MOST_OUT_OF_RANGE = 3
"""How often in turn an offset may be out of range before it is taken for one behind the end of the log."""
_FORMAT = 2

_OUT_OF_RANGE, _CORRUPT = 1, 2
_TRANSIENT = {-1, 3, 5, 6, 7, 8, 9, 13, 56, 70, 71, 72, 74, 75, 78, 89, 100, 103, 106}
"""Another broker, or the same one a moment later, may answer: UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_OR_PARTITION,
LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE,
NETWORK_EXCEPTION, KAFKA_STORAGE_ERROR, two of sessions, LISTENER_NOT_FOUND, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
OFFSET_NOT_AVAILABLE, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR.
"""
_CLOCK = SystemClock()


@dataclass
class _Part:
    """A range, and how far it is read."""

    range: OffsetRange
    position: int
    #: The epoch of the last batch that was read; -1 before.
    fetched_epoch: int = -1
    #: A follower to read from (KIP-392).
    replica: int | None = None
    #: What one offset took so far.
    offset_bytes: float = _BYTES_PER_OFFSET
    #: Answers without records in turn.
    empty_answers: int = 0
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


@dataclass
class _Asked:
    """A request that a broker has not answered yet."""

    broker: int
    connection: Connection
    parts: dict[Partition, _Part]
    version: int
    sent_s: float
    #: The topics by what the answer calls them, and their ids.
    topics: dict[UUID | str, str] = field(default_factory=dict)
    ids: dict[str, UUID | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _LocatedBatches:
    """Batches of a partition that are to be read."""

    part: _Part
    start: int
    table: I64
    aborted: tuple[tuple[int, int], ...]


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

    reached: gets the offset per partition before which everything is handed over. is_lenient: reads what there is: records
    that no longer exist are left out, and a range ends where its log does.

    Raises: UnavailableError, which names the place: records that no longer exist, a topic that was deleted or recreated,
    damaged batches, a login or a right that is refused; where nothing has arrived for `request.timeout.ms`; and where
    there is no room on disk for a large batch.
    """
    reading = _Reading(cluster, ranges, wanted, {} if reached is None else reached, is_lenient)
    try:
        yield from reading.batches()
    except OSError as error:
        raise UnavailableError(
            f"a large batch of records has no room: {error.strerror or error}",
            remedy="free disk space; Frazil retries with back-off",
            where=tempfile.gettempdir(),
        ) from None
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
        self._reached = reached
        self._is_lenient = is_lenient
        settings = cluster.settings
        self._patience_s = int(settings.get("request.timeout.ms", "30000")) / 1000
        #: How long one broker may take before another one is asked who leads its partitions.
        self._answer_s = max(min(1.0, self._patience_s), self._patience_s / 3)
        self._level = 0 if settings.get("isolation.level") == "read_uncommitted" else 1
        self._rack = settings.get("client.rack", "")
        asked = {(r.topic, r.partition): r for r in ranges}
        reached.update({place: r.start for place, r in asked.items()})
        self._left = {place: _Part(r, r.start) for place, r in asked.items() if r.span > 0}
        self._asked: dict[int, _Asked] = {}
        self._records = Records(wanted, reached)
        #: The ids of topics that something was read of; None on brokers that know of none.
        self._ids: dict[str, UUID | None] = {}
        #: By how many bits answers are smaller than they might be, as those were slow.
        self._shrink_bits = 0
        #: Seconds that whoever takes the records has used: nobody is to be blamed for them.
        self._away_s = 0.0

    def _now_s(self) -> float:
        return _CLOCK.monotonic_s() - self._away_s

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._left:
            self._locate()
            self._ask()
            for batch in self._answers():
                before_s = _CLOCK.monotonic_s()
                yield batch
                self._away_s += _CLOCK.monotonic_s() - before_s
            now_s = self._now_s()
            for part in self._left.values():
                if part.problem and now_s - part.since_s > self._patience_s:
                    raise UnavailableError(
                        f"records have not arrived for {self._patience_s:g} s: {part.problem}", where=part.where
                    )
        yield from self._records.flush()

    def end(self) -> None:
        """Leaves no answer behind that a later read would take for its own."""
        for asked in self._asked.values():
            self._cluster.drop(asked.broker, asked.connection)
        self._asked = {}

    # ---- whom to ask

    def _locate(self) -> None:
        """Finds the leaders of partitions that have none that is known."""
        leaders, now_s = self._cluster.leaders, self._now_s()
        lost = [part for place, part in self._left.items() if place not in leaders and part.until_s <= now_s]
        if not lost:
            return
        try:
            wrong = self._cluster.refresh({part.range.topic for part in lost}, self._answer_s)
        except UnavailableError as error:
            if is_final(error):
                raise
            self._lost(lost, _words(error), now_s)
            return
        for part in lost:
            words = wrong.get(part.range.topic)
            if words is None and part.place in leaders:
                continue
            if words is not None:
                if "authorization" in words:
                    raise UnavailableError(words, remedy=kafka_remedy(words), where=f"topic {part.range.topic}")
                if part.range.topic in self._ids and self._ids[part.range.topic] is None:
                    raise UnavailableError(f"the topic was deleted while it was read: {words}", where=part.where)
            self._lost([part], words or "the partition has no leader", now_s)

    def _ask(self) -> None:
        """Sends a request to each broker that has answered and leads what is left."""
        now_s = self._now_s()
        parts: dict[int, list[_Part]] = {}
        for place, part in self._left.items():
            leader = self._cluster.leaders.get(place)
            if leader is not None and part.until_s <= now_s:
                broker = leader.broker if part.replica is None else part.replica
                if broker not in self._asked:
                    parts.setdefault(broker, []).append(part)
        for broker, some in parts.items():
            for part in some:
                self._check_id(part.range.topic, self._cluster.ids.get(part.range.topic), part)
            try:
                self._asked[broker] = self._send(broker, some)
            except UnavailableError as error:
                if is_final(error):
                    raise
                self._cluster.drop(broker)
                self._lost(some, _words(error), now_s)

    def _send(self, broker: int, parts: list[_Part]) -> _Asked:
        connection = self._cluster.connection(broker, self._answer_s)
        by_topic: dict[str, list[_Part]] = {}
        for part in parts:
            by_topic.setdefault(part.range.topic, []).append(part)
        version = self._cluster.fetch_version(broker, by_topic)
        ids = {topic: self._cluster.ids.get(topic) for topic in by_topic}
        topics = [
            FetchRequest.FetchTopic(
                topic=topic, topic_id=ids[topic], partitions=[self._partition(part) for part in some]
            )
            for topic, some in by_topic.items()
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=min(_WAIT_MS, int(500 * self._answer_s)),
            min_bytes=1,
            max_bytes=MOST_BYTES >> self._shrink_bits,
            isolation_level=self._level,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id=self._rack,
            version=version,
        )
        connection.send(request)
        asked = _Asked(broker, connection, {part.place: part for part in parts}, version, self._now_s(), ids=ids)
        asked.topics = {(ids[topic] or topic) if version >= WITH_IDS else topic: topic for topic in by_topic}
        return asked

    def _partition(self, part: _Part) -> Any:
        leader = self._cluster.leaders.get(part.place, Leader(-1))
        lacking = int((part.range.end - part.position) * part.offset_bytes * 1.25)
        return FetchRequest.FetchTopic.FetchPartition(
            partition=part.range.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=part.position,
            last_fetched_epoch=part.fetched_epoch,
            log_start_offset=-1,
            partition_max_bytes=min(_PARTITION_BYTES >> self._shrink_bits, max(_LEAST_BYTES, lacking)),
        )

    def _check_id(self, topic: str, topic_id: UUID | None, part: _Part) -> None:
        """Raises UnavailableError where this is not the topic any more that records were read of."""
        if topic in self._ids and self._ids[topic] != topic_id:
            raise UnavailableError("the topic was deleted and created again while it was read", where=part.where)

    # ---- what comes

    def _answers(self) -> Iterator[pa.RecordBatch]:
        """Waits until something has arrived, or may be tried again, and yields the records that came."""
        for broker in self._wait():
            asked = self._asked.get(broker)
            fetched = self._receive(asked) if asked is not None else None
            if asked is not None and fetched is not None:
                yield from self._take(asked, *fetched)
        # Brokers that have not answered in time are abandoned.
        limit_s = self._now_s() - self._answer_s
        for overdue in list(self._asked.values()):
            if overdue.sent_s < limit_s and not overdue.connection.is_readable():
                self._drop(overdue, f"{overdue.connection.where} has not answered")

    def _wait(self) -> list[int]:
        """Returns the brokers that have answered."""
        ready = [broker for broker, asked in self._asked.items() if asked.connection.is_readable()]
        if ready:
            return ready
        now_s = self._now_s()
        times = [part.until_s for part in self._left.values() if part.until_s > now_s]
        times += [asked.sent_s + self._answer_s for asked in self._asked.values()]
        poll = select.poll()
        brokers = {asked.connection.fileno(): asked.broker for asked in self._asked.values()}
        for number in brokers:
            poll.register(number, select.POLLIN)
        wait_s = max(0.0, min(times, default=now_s) - now_s)
        return [brokers[number] for number, _ in poll.poll(1000 * wait_s + 1)]

    def _receive(self, asked: _Asked) -> tuple[Fetched, memoryview] | None:
        before_s = self._now_s()
        try:
            answer = asked.connection.receive(self._answer_s)[_CORRELATION_BYTES:]
            fetched = read_response(answer, asked.version)
        except (UnavailableError, InvariantError) as error:
            if self._now_s() - before_s >= self._answer_s:
                self._shrink_bits = min(self._shrink_bits + _SHRINK_BITS, _MOST_SHRINK_BITS)
            self._drop(asked, _words(error))
            return None
        del self._asked[asked.broker]
        if fetched.error:
            words = words_of(fetched.error)
            if fetched.error not in _TRANSIENT:
                raise UnavailableError(words, remedy=kafka_remedy(words), where=asked.connection.where)
            self._lost(asked.parts.values(), words, asked.sent_s)
            return None
        if fetched.throttle_ms > 0:
            for part in asked.parts.values():
                part.until_s = max(part.until_s, self._now_s() + fetched.throttle_ms / 1000)
        return fetched, answer

    def _drop(self, asked: _Asked, words: str) -> None:
        del self._asked[asked.broker]
        self._cluster.drop(asked.broker, asked.connection)
        self._lost(asked.parts.values(), words, asked.sent_s)

    def _lost(self, parts: Collection[_Part], words: str, since_s: float) -> None:
        """Asks again for the leaders of partitions whose broker does not answer."""
        for part in parts:
            part.replica = None
            self._cluster.leaders.pop(part.place, None)
            self._note(part, words, since_s)

    def _note(self, part: _Part, words: str, since_s: float) -> None:
        """Notes why nothing has come, and waits before the next try."""
        if not part.problem:
            part.since_s = since_s
        part.problem = words
        pause_s = _PAUSES_S[min(part.failures, len(_PAUSES_S) - 1)]
        part.failures += 1
        part.until_s = max(part.until_s, self._now_s() + pause_s)

    # ---- what is in it

    def _take(self, asked: _Asked, fetched: Fetched, answer: memoryview) -> Iterator[pa.RecordBatch]:
        missing = dict(asked.parts)
        located: list[_LocatedBatches] = []
        has_room = True
        current = self._current(asked, fetched)
        for answered in fetched.partitions:
            part = missing.pop((asked.topics.get(answered.topic, ""), answered.partition), None)
            if part is not None and part.range.topic in current:
                located += self._taken(asked, part, answered, answer, has_room)
            has_room = has_room and answered.start == answered.end
        if not fetched.throttle_ms:
            for part in missing.values():
                self._note(part, f"{asked.connection.where} leaves the partition out of its answer", asked.sent_s)
        self._ask()  # The next answer comes while these records are used.
        for some in located:
            offsets = (some.start, some.part.range.end)
            try:
                yield from self._records.add(some.part.place, offsets, some.table, answer, some.aborted)
            except TooLargeBatch:
                self._end_range(some.part)

    def _current(self, asked: _Asked, fetched: Fetched) -> set[str]:
        """Returns the topics of which the answer is what was asked for: those of before Fetch 13 may have been
        recreated, and have another id now.
        """
        topics_with_ids = {topic for topic, topic_id in asked.ids.items() if topic_id is not None}
        if (
            asked.version >= WITH_IDS
            or not topics_with_ids
            or all(answered.start == answered.end for answered in fetched.partitions)
        ):
            return set(asked.ids)
        try:
            self._cluster.refresh(topics_with_ids, self._answer_s, asked.broker)
        except UnavailableError as error:
            self._lost(asked.parts.values(), _words(error), asked.sent_s)
            return set()
        changed = {topic for topic in topics_with_ids if self._cluster.ids.get(topic) != asked.ids[topic]}
        for part in asked.parts.values():
            if part.range.topic in changed:
                self._lost([part], "the topic was created again", asked.sent_s)
        return set(asked.ids) - changed

    def _taken(
        self, asked: _Asked, part: _Part, answered: FetchedPartition, answer: memoryview, has_room: bool
    ) -> list[_LocatedBatches]:
        """Moves the partition's position behind the batches that an answer has, and returns those. has_room: whether the
        broker had room for the first of them.
        """
        if answered.error:
            self._refused(asked, part, answered)
        elif answered.diverges_at is not None:
            raise UnavailableError(f"the log was truncated at offset {answered.diverges_at}", where=part.where)
        elif 0 <= part.position < answered.log_start:
            self._pass_gone(asked, part, answered.log_start)
        elif 0 <= answered.replica != asked.broker:
            part.replica = answered.replica
        else:
            return self._located(asked, part, answered, answer, has_room)
        return []

    def _located(
        self, asked: _Asked, part: _Part, answered: FetchedPartition, answer: memoryview, has_room: bool
    ) -> list[_LocatedBatches]:
        before, end = part.position, part.range.end
        table = batches_in(answer, answered.start, answered.end, before, part.place)
        if not len(table):
            if has_room:
                self._nothing(asked, part, answered)
            return []
        if table[0, FORMAT] == _FORMAT and 0 <= table[0, EPOCH] < part.fetched_epoch:
            raise UnavailableError("the log was replaced by another one while it was read", where=part.where)
        if 0 <= answered.high_watermark <= table[-1, BASE]:
            table = self._before_end(asked, part, table, answered.high_watermark)
            if not len(table):
                return []
        # One batch behind the range is proof that there is nothing else before it.
        table = table[: int((table[:, BASE] < end).sum()) + 1]
        after = min(end, int(table[-1, LAST]) + 1)
        if table[-1, FORMAT] == _FORMAT:
            part.fetched_epoch = int(table[-1, EPOCH])
        part.offset_bytes = max(1.0, float(table[-1, END] - table[0, BEGIN]) / (after - before))
        del self._left[part.place]
        if after < end:
            self._left[part.place] = part  # Others come first in the next request.
        self._move(asked, part, after)
        return [_LocatedBatches(part, before, table, answered.aborted if self._level else ())]

    def _before_end(self, asked: _Asked, part: _Part, table: I64, high_watermark: int) -> I64:
        """Returns the batches that are in the log. A broker notes the log's end before it reads: what is appended between
        the two is behind the noted end. A damaged offset, which no checksum covers, is behind the end of any moment.

        Raises: UnavailableError for a damaged one.
        """
        noted = table[: int((table[:, BASE] < high_watermark).sum())]
        if len(noted) and noted[-1, LAST] + 1 >= part.range.end:
            return noted
        words = "its offset is behind the end of the log"
        end = self._listed_offset(asked, part, LATEST) if part.replica is None else None
        if end is None:
            self._lost([part], words, asked.sent_s)
            return table[:0]
        if end <= table[-1, BASE]:
            raise damaged(part.place, part.position, words)
        return table

    def _move(self, asked: _Asked, part: _Part, position: int) -> None:
        topic = part.range.topic
        self._check_id(topic, asked.ids[topic], part)
        self._ids[topic] = asked.ids[topic]
        part.position = position
        part.problem, part.failures, part.empty_answers = "", 0, 0
        if position >= part.range.end:
            self._left.pop(part.place, None)

    def _pass_gone(self, asked: _Asked, part: _Part, first: int) -> None:
        """Continues behind records that no longer exist, where that is allowed. first: the first offset that does."""
        end = min(first, part.range.end)
        if not self._is_lenient:
            words = f"the records from offset {part.position} up to {end} no longer exist"
            raise UnavailableError(words, where=part.where)
        self._move(asked, part, end)
        self._reached[part.place] = end

    def _end_range(self, part: _Part) -> None:
        """Leaves out the rest of a range."""
        self._reached[part.place] = part.position = part.range.end
        self._left.pop(part.place, None)

    def _nothing(self, asked: _Asked, part: _Part, answered: FetchedPartition) -> None:
        """What it means that a broker has no records at the position, although the range does not end there."""
        readable = answered.last_stable if self._level and answered.last_stable >= 0 else answered.high_watermark
        if answered.end > answered.start:
            self._note(part, f"{asked.connection.where} does not send the next batch as a whole", asked.sent_s)
        elif readable <= part.position and self._is_lenient:
            # A follower may lag behind.
            if part.replica is None:
                self._end_range(part)
            part.replica = None
        elif readable <= part.position:
            kind = "the log ends" if answered.high_watermark <= part.position else "an open transaction begins"
            words = f"{kind} at offset {part.position}, before the end of the range at {part.range.end}"
            self._note(part, words, asked.sent_s)
        elif self._is_gap(asked, part):
            # All that was left there is gone, by compaction; the epoch before it is not that of what follows.
            part.fetched_epoch = -1
            self._move(asked, part, min(readable, part.range.end))
            self._reached[part.place] = part.position
        else:
            self._note(part, f"{asked.connection.where} sends none of the records that it has", asked.sent_s)

    def _is_gap(self, asked: _Asked, part: _Part) -> bool:
        """Whether a broker has nothing where it answers nothing: from tiered storage it may not come in time (KIP-405)."""
        part.empty_answers += 1
        local = self._listed_offset(asked, part, EARLIEST_LOCAL)
        return local <= part.position if local is not None else part.empty_answers >= _EMPTY_ANSWERS

    def _listed_offset(self, asked: _Asked, part: _Part, of: int) -> int | None:
        try:
            return self._cluster.listed_offset(asked.broker, part.place, of, self._answer_s)
        except UnavailableError:
            self._cluster.drop(asked.broker, asked.connection)
            return None

    def _refused(self, asked: _Asked, part: _Part, answered: FetchedPartition) -> None:
        words = words_of(answered.error)
        if answered.error == _OUT_OF_RANGE:
            # A follower may lag behind; and a broker may know nothing of an epoch.
            is_of_leader, part.fetched_epoch = part.replica is None, -1
            first = self._listed_offset(asked, part, EARLIEST) if is_of_leader else None
            if first is not None and part.position < first:
                self._pass_gone(asked, part, first)
            elif first is not None and self._is_lenient and part.failures >= _MOST_OUT_OF_RANGE:
                self._end_range(part)
            else:
                self._lost([part], f"{words}: the log has no offset {part.position}", asked.sent_s)
        elif answered.error == _CORRUPT:
            raise damaged(part.place, part.position, "its broker cannot read it")
        elif answered.error in _TRANSIENT:
            self._lost([part], words, asked.sent_s)
        else:
            raise UnavailableError(words, remedy=kafka_remedy(words), where=part.where)


def _words(error: UnavailableError | InvariantError) -> str:
    return f"{error.message} ({error.where})" if error.where else error.message
