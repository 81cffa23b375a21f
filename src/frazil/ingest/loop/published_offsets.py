"""The offsets of a pipeline's tables, published as those of a consumer group for tools that measure lag.

Nothing reads them as progress, and the loop that commits never waits for them: a thread of their own publishes them.

Each offset carries the id of the run that published it as its metadata. So a run recognises what another run of the
pipeline has published meanwhile, and what a stranger has committed in the group.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from frazil.clock import Clock
from frazil.errors import ConflictError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Group, GroupOffset, Partition

log = structlog.get_logger("frazil")

_EVERY_S = 1.0
_RETRY_S = 10.0
_TRIES = 2
#: Kafka forgets an offset of a group without members after a time, a week by default, also one that is still true.
_REPEAT_S = 600.0
#: For so long after its start a run lowers no offset of an earlier run, which may still commit.
_SETTLED_S = 10.0
_MARK = "frazil "
_REMEDY = "end that consumer, or write `publish_offsets: false`; then start the pipeline again"


def group_of(pipeline: str) -> str:
    """Returns the name of the consumer group of a pipeline."""
    return f"frazil-{pipeline}"


def next_offsets(tables: Iterable[Table]) -> dict[Partition, int]:
    """Returns the next offset of each partition that feeds a table of this process: the least of all tables that it feeds. A
    partition is missing while that is not known of one of them.
    """
    offsets: dict[Partition, int] = {}
    unknown: set[Partition] = set()
    own: set[Partition] = set()
    for table in tables:
        is_loaded, position = table.catalog.is_loaded or table.state is not None, table.awaited_from()
        for topic, partition in table.partitions():
            place, offset = (topic, partition), position.get(topic, {}).get(partition)
            if table.schedule.is_owned and table.catalog.loaded_at_s > 0:  # It is 0 since a takeover, until the load.
                own.add(place)
            is_other = table.progress.topic_ids.get(topic, "") not in ("", table.offsets.topics[topic].id)
            if offset is None or is_other or not is_loaded:
                unknown.add(place)
            else:
                offsets[place] = min(offset, offsets.get(place, offset))
    own -= unknown
    return {place: offset for place, offset in offsets.items() if place in own}


@dataclass(frozen=True)
class Published:
    """What tools that measure lag see of this run, for `status`."""

    #: The consumer group.
    group: str
    #: When the group last had the offsets of the tables, in milliseconds since 1970; None while it had not.
    last_ms: int | None = None
    #: Why the last attempt failed; empty where it did not.
    failure: str = ""


class OffsetPublisher:
    """Publishes offsets, about once a second and all together. `start` starts the thread, `stop` ends it after it has
    published the last ones. run_id: the id of this run.
    """

    def __init__(self, group: Group, run_id: str, clock: Clock) -> None:
        self._group = group
        self._mark = f"{_MARK}{run_id}"
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._wanted: dict[Partition, int] = {}
        self._noted_s = float("-inf")
        #: The offsets that are published.
        self._published: dict[Partition, int] = {}
        #: When all of them were last committed, changed or not.
        self._repeated_s = float("-inf")
        #: What this run found of each partition when it first looked: offsets of earlier runs.
        self._inherited: dict[Partition, GroupOffset | None] = {}
        #: Consecutive failures.
        self._failures = 0
        #: What is shown.
        self.status = Published(group.name)
        #: Whether something happened after which this run publishes nothing more.
        self._is_over = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="offsets", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, tables: Iterable[Table], timeout_s: float) -> None:
        """Publishes the offsets of the tables as they are now, and ends the thread, within the time."""
        self._wanted = next_offsets(tables)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def note(self, tables: Iterable[Table]) -> None:
        """Takes the offsets of the tables, to be published; looks at them at most once a second, and returns at once."""
        now_s = self._clock.monotonic_s()
        if now_s - self._noted_s >= _EVERY_S:
            self._wanted, self._noted_s = next_offsets(tables), now_s

    def publish(self) -> float:
        """Publishes what has changed; returns how long to pause, in seconds."""
        wanted, now_s = self._wanted, self._clock.monotonic_s()
        is_repeat = now_s - self._repeated_s >= _REPEAT_S
        if self._is_over or not wanted:
            return _EVERY_S
        if wanted == self._published and not is_repeat:
            self._note_published()
            return _EVERY_S
        try:
            is_whole = self._publish(wanted, now_s - self._began_s >= _SETTLED_S, is_repeat)
        except ConflictError as error:
            self._is_over, self.status = True, replace(self.status, failure=error.message)
            log.warning("offsets_refused", reason=error.message, where=error.where, remedy=_REMEDY)
        except UnavailableError as error:
            # The second failure in a row is logged: the first may be a broker that is just starting to coordinate
            # groups.
            self._failures += 1
            self.status = replace(self.status, failure=error.message)
            if self._failures == _TRIES or (self._failures < _TRIES and self._stopping.is_set()):
                log.warning("offsets_not_published", reason=error.message, where=error.where, remedy=error.remedy)
            return _EVERY_S if self._failures < _TRIES else _RETRY_S
        except Exception as error:  # noqa: BLE001  (whatever is wrong here, records are ingested)
            self._is_over, self.status = True, replace(self.status, failure=f"{type(error).__name__}: {error}")
            log.error("unexpected_error", error=self.status.failure)
        else:
            self._note_published()
            self._failures, self._published = 0, wanted if is_whole else {}
            self._repeated_s = now_s if is_repeat else self._repeated_s
        return _EVERY_S

    def _publish(self, wanted: Mapping[Partition, int], is_settled: bool, is_repeat: bool) -> bool:
        """Commits the offsets that are due; returns False where another run has published greater ones.

        Raises: ConflictError for a group of others; UnavailableError.
        """
        published = self._group.offsets(wanted)
        for (topic, partition), held in published.items():
            if not held.metadata.startswith(_MARK):
                message = "another client commits offsets in the group of this pipeline"
                raise ConflictError(message, where=f"topic {topic}, partition {partition}")
        self._inherited = {place: published.get(place) for place in wanted} | self._inherited
        due = {
            place: GroupOffset(offset, self._mark)
            for place, offset in wanted.items()
            if self._is_due(place, offset, published.get(place), is_settled)
            or (is_repeat and offset == published[place].offset)
        }
        if due:
            self._group.commit(due)
        return all(place in due or published[place].offset == offset for place, offset in wanted.items())

    def _is_due(self, place: Partition, offset: int, held: GroupOffset | None, is_settled: bool) -> bool:
        """Whether the offset is to take the place of `held`: an offset of this run is replaced by any other, one of an
        earlier run by a lesser one only after a while, one of another run that publishes too by a greater one alone.
        """
        if held is None:
            return True
        if held.metadata == self._mark:
            return offset != held.offset
        if held == self._inherited[place]:
            return offset >= held.offset or is_settled
        return offset > held.offset

    def _note_published(self) -> None:
        self.status = replace(self.status, last_ms=self._clock.now_ms(), failure="")

    def _loop(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = self.publish()
        self.publish()
