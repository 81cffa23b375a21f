"""Progress and the other entries of Frazil in the snapshot summaries of a table, and its properties of the table.

Both are under `frazil.<pipeline>.…` (docs/reference/progress.md). Snapshots are those of the branch that is written to:
main, or the one that the key `branch` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from frazil.ledger import dump_ledger, load_ledger
from frazil.types import (
    Balance,
    CommittedBatch,
    DerivedTable,
    LastDelete,
    OrderProgress,
    PendingDeadLetters,
    Progress,
    RestProgress,
    Totals,
    Watermark,
    Writer,
    as_json,
    dump_offsets,
    load_offsets,
)

CARRIED = (
    "offsets", "topic-ids", "cluster-id", "commit-id", "epoch", "run-id", "schemas", "watermarks", "watermark",
    "bad-skipped", "ignored-records", "dead-letters", "source-positions", "last-truncate", "last-deletes", "expectations",
    "event-times", "event-time", "windows-complete-to",
    "routed-tables", "rest-records", "released-to", "ledger",
)  # fmt: skip
"""The parts of a progress that a snapshot which repeats it has."""
COMMITTED_AT = "committed-at"
"""Summary key of a snapshot that repeats progress: when that progress was first committed, in milliseconds."""


_SKIPPED = TypeAdapter(dict[str, dict[int, tuple[int, int]]])
_PLACES = TypeAdapter(dict[str, dict[int, str]])
_LAST_DELETES = TypeAdapter(dict[str, dict[int, tuple[int, str]]])
_DEAD_LETTERS = TypeAdapter(PendingDeadLetters)
_BALANCE = TypeAdapter(Balance)
REPLAY = "replay"
"""Summary key of a dead-letter table: the pending rows of the replay that made this snapshot."""
REPLAY_ID = "replay-id"
"""Summary key of a table: the replay whose rows this snapshot added."""
REMOVED = "replayed-dead-letters"
"""Summary key of an upsert table: the dead letters to be removed, whose rows this snapshot added."""
COMMIT_ID = "commit-id"
"""Summary key of a table: the commit that advanced its progress."""
LOOKUPS = "lookups"
"""Summary key of a table: the version of each reference table that this snapshot's rows were joined with."""
OPEN_REPLAY = "replaying."
"""Prefix of the table property of an unfinished replay; its value begins with the snapshot that the replay has read."""
DEAD_LETTERS_MARK = "dead-letters"
"""Property of a table that has a dead-letter table: the name of that table."""
SENT_MARK = "dead-letters-published"
"""Property of a dead-letter table whose dead letters are also sent to a Kafka topic: the commit whose dead letters are
known to be there.
"""
REWRITE_ID = "rewrite-id"
"""Summary key of a dead-letter table: the replay or the drop that made this snapshot."""
CREATED_AT = "created-at"
"""Table property: when this pipeline created the table, in milliseconds since 1970."""
MAINTENANCE_ID = "maintenance-id"
"""Summary key of a table: the commit of table maintenance that made this snapshot."""


def key(pipeline: str, name: str) -> str:
    """Returns the summary key of one part of a pipeline's progress."""
    return f"frazil.{pipeline}.{name}"


def to_summary(pipeline: str, progress: Progress) -> dict[str, str]:
    """Returns the summary entries of the progress."""
    parts = {
        "offsets": dump_offsets(progress.offsets),
        "topic-ids": as_json(dict(progress.topic_ids)),
        "cluster-id": progress.cluster_id,
        "commit-id": progress.commit_id,
        "epoch": str(progress.writer.epoch),
        "run-id": progress.writer.run_id,
        "schemas": ",".join(progress.batch.schemas),
        "watermarks": dump_offsets(progress.watermark.partitions),
    }
    if progress.batch.skipped:
        parts["skipped"] = as_json(
            {topic: {str(p): list(r) for p, r in ps.items()} for topic, ps in progress.batch.skipped.items()}
        )
    if progress.totals.bad_skipped:
        parts["bad-skipped"] = str(progress.totals.bad_skipped)
    if progress.order.places:
        places = {topic: {str(p): place for p, place in ps.items()} for topic, ps in progress.order.places.items()}
        parts["source-positions"] = as_json(places)
    if progress.totals.ignored_records:
        parts["ignored-records"] = as_json(dict(progress.totals.ignored_records))
    if progress.dead_letters is not None:
        parts["dead-letters"] = as_json(asdict(progress.dead_letters))
    if progress.watermark.complete_to_ms is not None:
        parts["watermark"] = str(progress.watermark.complete_to_ms)
    of_some_tables = {
        "last-truncate": progress.order.emptied,
        "last-deletes": _dump_last_deletes(progress.order.last_deletes),
        "routed-tables": _dump_derived(progress.rest.derived),
        "rest-records": as_json(dict(progress.rest.records)) if progress.rest.records else "",
        "balance": as_json(asdict(progress.batch.balance)) if progress.batch.balance is not None else "",
        "ledger": dump_ledger(progress.ledger) if progress.ledger is not None else "",
        "expectations": as_json(dict(progress.totals.findings)) if progress.totals.findings else "",
        LOOKUPS: dump_lookups(progress.batch.lookups),
        "released-to": progress.released_to,
        "event-times": dump_offsets(progress.order.event_times.partitions)
        if progress.order.event_times.partitions
        else "",
        "event-time": _number_text(progress.order.event_times.complete_to_ms),
        "windows-complete-to": _number_text(progress.order.windows_complete_to_us),
    }
    parts |= {name: text for name, text in of_some_tables.items() if text}
    return {key(pipeline, name): value for name, value in parts.items()}


def dump_lookups(versions: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the summary entry for the versions of reference tables, by lookup; empty where there are none."""
    return as_json({name: dict(version) for name, version in versions.items()}) if versions else ""


def from_summary(
    pipeline: str, summary: Mapping[str, str], snapshot_id: int | None = None, at_ms: int | None = None
) -> Progress | None:
    """Returns the progress in a summary; None for snapshots of maintenance and of other writers."""
    offsets = summary.get(key(pipeline, "offsets"))
    if offsets is None:
        return None
    dead_letters = summary.get(key(pipeline, "dead-letters"))
    balance = summary.get(key(pipeline, "balance"))
    mark, first_ms = summary.get(key(pipeline, "watermark")), summary.get(key(pipeline, COMMITTED_AT))
    return Progress(
        offsets=load_offsets(offsets),
        topic_ids=json.loads(summary.get(key(pipeline, "topic-ids"), "{}")),
        cluster_id=summary.get(key(pipeline, "cluster-id"), ""),
        commit_id=summary.get(key(pipeline, "commit-id"), ""),
        writer=Writer(int(summary.get(key(pipeline, "epoch"), "0")), summary.get(key(pipeline, "run-id"), "")),
        watermark=Watermark(load_offsets(summary.get(key(pipeline, "watermarks"), "{}")), _number_of(mark)),
        batch=CommittedBatch(
            skipped=_SKIPPED.validate_json(summary.get(key(pipeline, "skipped"), "{}")),
            schemas=tuple(filter(None, summary.get(key(pipeline, "schemas"), "").split(","))),
            lookups=json.loads(summary.get(key(pipeline, LOOKUPS), "{}")),
            balance=None if balance is None else _BALANCE.validate_json(balance),
        ),
        dead_letters=None if dead_letters is None else _DEAD_LETTERS.validate_json(dead_letters),
        totals=Totals(
            bad_skipped=int(summary.get(key(pipeline, "bad-skipped"), "0")),
            ignored_records=json.loads(summary.get(key(pipeline, "ignored-records"), "{}")),
            findings=json.loads(summary.get(key(pipeline, "expectations"), "{}")),
        ),
        order=OrderProgress(
            places=_PLACES.validate_json(summary.get(key(pipeline, "source-positions"), "{}")),
            emptied=summary.get(key(pipeline, "last-truncate"), ""),
            last_deletes=_load_last_deletes(summary.get(key(pipeline, "last-deletes"), "{}")),
            event_times=Watermark(
                load_offsets(summary.get(key(pipeline, "event-times"), "{}")),
                _number_of(summary.get(key(pipeline, "event-time"))),
            ),
            windows_complete_to_us=_number_of(summary.get(key(pipeline, "windows-complete-to"))),
        ),
        rest=RestProgress(
            derived=_load_derived(summary.get(key(pipeline, "routed-tables"), "[]")),
            records=json.loads(summary.get(key(pipeline, "rest-records"), "{}")),
        ),
        released_to=summary.get(key(pipeline, "released-to"), ""),
        ledger=load_ledger(summary.get(key(pipeline, "ledger"), "")),
        snapshot_id=snapshot_id,
        committed_at_ms=at_ms if first_ms is None else int(first_ms),
    )


def _number_text(number: int | None) -> str:
    return "" if number is None else str(number)


def _number_of(text: str | None) -> int | None:
    return None if text is None else int(text)


def _dump_last_deletes(last_deletes: Iterable[LastDelete]) -> str:
    topics: dict[str, dict[str, tuple[int, str]]] = {}
    for last in last_deletes:
        topics.setdefault(last.topic, {})[str(last.partition)] = (last.offset, last.key)
    return as_json(topics) if topics else ""


def _load_last_deletes(text: str) -> tuple[LastDelete, ...]:
    topics = _LAST_DELETES.validate_json(text)
    return tuple(LastDelete(topic, p, *last) for topic, partitions in topics.items() for p, last in partitions.items())


def _dump_derived(tables: Iterable[DerivedTable]) -> str:
    """Returns the tables as JSON, those that begin at the same offsets together: the offsets are the longest part."""
    by_start: dict[str, dict[str, tuple[str, ...]]] = {}
    for table in tables:
        by_start.setdefault(dump_offsets(table.start), {})[table.name] = table.values
    derived = [{"from": json.loads(start), "tables": values} for start, values in by_start.items()]
    return as_json(derived) if derived else ""


def _load_derived(text: str) -> tuple[DerivedTable, ...]:
    return tuple(
        DerivedTable(name, tuple(values), load_offsets(as_json(together["from"])))
        for together in json.loads(text)
        for name, values in together["tables"].items()
    )


@dataclass(frozen=True)
class LoggedSnapshot:
    """One snapshot of the branch that is written to."""

    snapshot_id: int
    #: The values of the requested summary keys of this pipeline, by key without the prefix.
    summary: Mapping[str, str]
    #: Whether the snapshot before it has been expired.
    is_cut: bool = False


def is_recorded(history: Iterable[LoggedSnapshot], name: str, value: str, since: int | None) -> bool | None:
    """Returns whether a snapshot after `since` has this value under `name`; None where the remaining history does not
    reach back so far. since: None for the creation of the table.
    """
    for snapshot in history:
        if snapshot.summary.get(name) == value:
            return True
        if snapshot.snapshot_id == since:
            return False
        if snapshot.is_cut:
            return None
    return False


def is_undisturbed(history: Iterable[LoggedSnapshot], since: int) -> bool:
    """Returns whether the snapshot `since` of a dead-letter table exists and no replay or drop has committed after it."""
    for snapshot in history:
        if snapshot.snapshot_id == since:
            return True
        if REWRITE_ID in snapshot.summary:
            return False
    return False


def read_by_replay(name: str, value: str) -> int | None:
    """Returns the snapshot of the dead-letter table that an unfinished replay has read; None for another property."""
    return int(value.split(" ", 1)[0]) if name.startswith(OPEN_REPLAY) else None


def is_unmoved(history: Iterable[LoggedSnapshot], since: int | None, commit_id: str) -> bool:
    """Returns whether the newest progress is that of `commit_id` (empty: none), and no snapshot after `since` has rows
    of a replay. since: None for the creation of the table.
    """
    newest: str | None = None
    is_after = True
    for snapshot in history:
        is_after = is_after and snapshot.snapshot_id != since
        newest = snapshot.summary.get(COMMIT_ID) if newest is None else newest
        if is_after and (REPLAY_ID in snapshot.summary or snapshot.is_cut):
            return False
        if not is_after and newest is not None:
            break
    return (newest or "") == commit_id and (not is_after or since is None)


def has_uncommitted_dead_letters(mark: str) -> bool:
    """Returns whether an unfinished replay, by the value of its property, has files of the dead-letter table that no
    snapshot of that table names yet: they are in the upsert table's summary, under REMOVED.
    """
    return " " in mark
