"""Progress as entries of a snapshot summary, under `frazil.<pipeline>.…` (docs/reference/progress.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from frazil.types import (
    DataFile,
    LastDelete,
    PendingDeadLetters,
    Progress,
    Watermark,
    as_json,
    dump_offsets,
    load_offsets,
)

COMMITTED_AT = "committed-at"
"""Summary key of a snapshot that repeats progress: when that progress was first committed, in milliseconds."""


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
        "epoch": str(progress.epoch),
        "run-id": progress.run_id,
        "schemas": ",".join(progress.schemas),
        "watermarks": dump_offsets(progress.watermark.partitions),
    }
    if progress.skipped:
        parts["skipped"] = as_json(
            {topic: {str(p): list(r) for p, r in ps.items()} for topic, ps in progress.skipped.items()}
        )
    if progress.bad_skipped:
        parts["bad-skipped"] = str(progress.bad_skipped)
    if progress.places:
        places = {topic: {str(p): place for p, place in ps.items()} for topic, ps in progress.places.items()}
        parts["source-positions"] = as_json(places)
    if progress.ignored_records:
        parts["ignored-records"] = as_json(dict(progress.ignored_records))
    if progress.dead_letters is not None:
        parts["dead-letters"] = as_json(asdict(progress.dead_letters))
    if progress.watermark.complete_to_ms is not None:
        parts["watermark"] = str(progress.watermark.complete_to_ms)
    of_upserts = {"last-truncate": progress.emptied, "last-deletes": _dump_last_deletes(progress.last_deletes)}
    parts |= {name: text for name, text in of_upserts.items() if text}
    return {key(pipeline, name): value for name, value in parts.items()}


def from_summary(
    pipeline: str, summary: Mapping[str, str], snapshot_id: int | None = None, at_ms: int | None = None
) -> Progress | None:
    """Returns the progress in a summary; None for snapshots of maintenance and of other writers."""
    offsets = summary.get(key(pipeline, "offsets"))
    if offsets is None:
        return None
    mark, first_ms = summary.get(key(pipeline, "watermark")), summary.get(key(pipeline, COMMITTED_AT))
    return Progress(
        offsets=load_offsets(offsets),
        topic_ids=json.loads(summary.get(key(pipeline, "topic-ids"), "{}")),
        cluster_id=summary.get(key(pipeline, "cluster-id"), ""),
        commit_id=summary.get(key(pipeline, "commit-id"), ""),
        epoch=int(summary.get(key(pipeline, "epoch"), "0")),
        run_id=summary.get(key(pipeline, "run-id"), ""),
        watermark=Watermark(
            load_offsets(summary.get(key(pipeline, "watermarks"), "{}")), None if mark is None else int(mark)
        ),
        skipped=_load_skipped(summary.get(key(pipeline, "skipped"), "{}")),
        schemas=tuple(filter(None, summary.get(key(pipeline, "schemas"), "").split(","))),
        bad_skipped=int(summary.get(key(pipeline, "bad-skipped"), "0")),
        ignored_records=json.loads(summary.get(key(pipeline, "ignored-records"), "{}")),
        dead_letters=_load_dead_letters(summary.get(key(pipeline, "dead-letters"))),
        places=_load_places(summary.get(key(pipeline, "source-positions"), "{}")),
        emptied=summary.get(key(pipeline, "last-truncate"), ""),
        last_deletes=_load_last_deletes(summary.get(key(pipeline, "last-deletes"), "{}")),
        snapshot_id=snapshot_id,
        committed_at_ms=at_ms if first_ms is None else int(first_ms),
    )


def _load_dead_letters(text: str | None) -> PendingDeadLetters | None:
    if text is None:
        return None
    parsed = json.loads(text)
    since = {topic: {int(p): offset for p, offset in ps.items()} for topic, ps in parsed["since"].items()}
    files = tuple(DataFile(**file) for file in parsed["files"])
    return PendingDeadLetters(parsed["table"], files, since, parsed.get("topic", ""))


def _load_places(text: str) -> dict[str, dict[int, str]]:
    parsed: dict[str, dict[str, str]] = json.loads(text)
    return {topic: {int(p): place for p, place in ps.items()} for topic, ps in parsed.items()}


def _load_skipped(text: str) -> dict[str, dict[int, tuple[int, int]]]:
    parsed: dict[str, dict[str, list[int]]] = json.loads(text)
    return {topic: {int(p): (start, end) for p, (start, end) in ps.items()} for topic, ps in parsed.items()}


def _dump_last_deletes(last_deletes: Iterable[LastDelete]) -> str:
    topics: dict[str, dict[str, tuple[int, str]]] = {}
    for last in last_deletes:
        topics.setdefault(last.topic, {})[str(last.partition)] = (last.offset, last.key)
    return as_json(topics) if topics else ""


def _load_last_deletes(text: str) -> tuple[LastDelete, ...]:
    parsed: dict[str, dict[str, tuple[int, str]]] = json.loads(text)
    return tuple(LastDelete(topic, int(p), *last) for topic, ps in parsed.items() for p, last in ps.items())
