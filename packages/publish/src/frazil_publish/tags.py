"""Which tags a table gets by calendar. Pure, from its metadata: each at the first snapshot that is complete to its time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from frazil.catalog.maintenance_port import Tag
from frazil.catalog.progress import from_summary
from frazil.catalog.table_metadata import Snapshot, TableMetadata
from frazil.spec.publishing import DailyTime, TagSpec
from frazil.types import Progress
from frazil_publish.position import GENERATION, Position


def tags_of_publish(
    specs: Sequence[TagSpec], position: Position, after: Progress, snapshot_id: int, now_ms: int
) -> dict[str, Tag]:
    """Returns the tags of a snapshot that is published, by name: those of each day that the published rows become complete
    to. position: of the table before; after: the progress of the snapshot.
    """
    complete_ms = past(after.watermark.complete_to_ms, now_ms)
    last_ms = past(position.published.watermark.complete_to_ms, position.published_ms or now_ms)
    tags: dict[str, Tag] = {}
    for spec in specs if complete_ms is not None else ():
        assert complete_ms is not None
        days = _days(spec.at, complete_ms, now_ms - _milliseconds(spec))
        # Of a table that was never published only the last day: it is complete to all before.
        new = takewhile(lambda day: last_ms is None or day[1] > last_ms, days)
        for date, _ in list(new)[: None if last_ms is not None else 1]:
            tags[f"{spec.name}-{date}"] = Tag(snapshot_id, _milliseconds(spec))
    return tags


def tags_of_commits(
    specs: Sequence[TagSpec], metadata: TableMetadata, head: int | None, pipeline: str, now_ms: int
) -> dict[str, Tag]:
    """Returns the missing tags of a table without `publish`, by name: each at the first snapshot up to `head` that is
    complete to its time, as far as the snapshots show which one is the first.
    """
    tags: dict[str, Tag] = {}
    for spec in specs:
        for name, snapshot_id in _missing(spec, metadata, head, pipeline, now_ms):
            tags[name] = Tag(snapshot_id, _milliseconds(spec))
    return tags


def tags_of_group(position: Position, group: str) -> frozenset[str]:
    """Returns the tags that the table has of publishes of a group. Their numbers are times in milliseconds: a shorter one,
    such as that of a date, is in a tag of somebody else.
    """
    return frozenset(name for name in position.tags if re.fullmatch(rf"{re.escape(group)}-[0-9]{{13,}}", name))


def tags_of_left_group(position: Position, group: str) -> frozenset[str]:
    """Returns the tags of publishes of the table's last group, unless it is in that group still: its readers do not look at
    this table any more.
    """
    last = f"-{position.marks.get(GENERATION)}"
    groups = {name.removesuffix(last) for name in position.tags if name.endswith(last)} - {group}
    return frozenset(name for left in groups for name in tags_of_group(position, left))


def last_time_ms(at: DailyTime, complete_ms: int) -> int:
    """Returns the latest of the times at `at`, one of each day, up to which a table is complete; 0 before the first one."""
    return next((time_ms for _, time_ms in _days(at, complete_ms, 0)), 0)


def past(complete_ms: int | None, now_ms: int) -> int | None:
    """Returns the time up to which a table is complete, but no day that is yet to come: records may have any timestamp,
    such as microseconds that a producer has written for milliseconds.
    """
    return None if complete_ms is None else min(complete_ms, now_ms)


def _missing(
    spec: TagSpec, metadata: TableMetadata, head: int | None, pipeline: str, now_ms: int
) -> Iterator[tuple[str, int]]:
    """Yields the name of each tag that the table does not have, and its snapshot."""
    line = [
        (snapshot, ms)
        for snapshot in metadata.line(head)
        if (ms := past(_complete_ms(snapshot, pipeline), now_ms)) is not None
    ]
    if not line:
        return
    for date, time_ms in _days(spec.at, line[0][1], now_ms - _milliseconds(spec)):
        complete = [snapshot for snapshot, ms in takewhile(lambda entry: entry[1] >= time_ms, line)]  # noqa: B023
        is_known = len(complete) < len(line) or complete[-1].parent is None
        name = f"{spec.name}-{date}"
        if name in metadata.refs or not is_known:
            return
        yield name, complete[-1].id
        if len(complete) == len(line):  # The first snapshot of the table is complete to all days before.
            return


def _days(at: DailyTime, complete_ms: int, oldest_ms: int) -> Iterator[tuple[str, int]]:
    """Yields the days whose time at `at` is not later than `complete_ms` nor earlier than `oldest_ms`, the last one first:
    the date, and the time in milliseconds since 1970.
    """
    if complete_ms < oldest_ms:  # Producers write any timestamp, also one that has no date in the zone.
        return
    zone = ZoneInfo(at.zone)
    day = datetime.fromtimestamp(complete_ms / 1000, UTC).astimezone(zone).date() + timedelta(days=1)
    while True:
        time_ms = int(datetime(day.year, day.month, day.day, *divmod(at.minute, 60), tzinfo=zone).timestamp() * 1000)
        if time_ms < oldest_ms:
            return
        if time_ms <= complete_ms:
            yield day.isoformat(), time_ms
        day -= timedelta(days=1)


def _complete_ms(snapshot: Snapshot, pipeline: str) -> int | None:
    progress = from_summary(pipeline, snapshot.summary, snapshot.id)
    return None if progress is None else progress.watermark.complete_to_ms


def _milliseconds(spec: TagSpec) -> int:
    return int(spec.keep_s * 1000)
