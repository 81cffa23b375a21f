"""Progress as strings in a snapshot summary, under `frazil.<pipeline>.…` (docs/reference/progress.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from frazil.types import Progress, Watermark, as_json, dump_offsets, load_offsets


def key(pipeline: str, name: str) -> str:
    """The summary key of one part of a pipeline's progress."""
    return f"frazil.{pipeline}.{name}"


def to_summary(pipeline: str, progress: Progress) -> dict[str, str]:
    """What the snapshot's summary will carry."""
    parts = {
        "offsets": dump_offsets(progress.offsets),
        "topic-ids": as_json(dict(progress.topic_ids)),
        "cluster-id": progress.cluster_id,
        "commit-id": progress.commit_id,
        "epoch": str(progress.epoch),
        "run-id": progress.run_id,
        "schemas": "json",
        "watermarks": dump_offsets(progress.watermark.partitions),
    }
    if progress.skipped:
        parts["skipped"] = as_json(
            {topic: {str(p): list(r) for p, r in ps.items()} for topic, ps in progress.skipped.items()}
        )
    if progress.watermark.complete_to_ms is not None:
        parts["watermark"] = str(progress.watermark.complete_to_ms)
    return {key(pipeline, name): value for name, value in parts.items()}


def from_summary(
    pipeline: str, summary: Mapping[str, str], snapshot_id: int | None = None, at_ms: int | None = None
) -> Progress | None:
    """The progress that a summary carries, or None: compactions and other writers have none."""
    offsets = summary.get(key(pipeline, "offsets"))
    if offsets is None:
        return None
    mark = summary.get(key(pipeline, "watermark"))
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
        snapshot_id=snapshot_id,
        committed_at_ms=at_ms,
    )


def _load_skipped(text: str) -> dict[str, dict[int, tuple[int, int]]]:
    parsed: dict[str, dict[str, list[int]]] = json.loads(text)
    return {topic: {int(p): (start, end) for p, (start, end) in ps.items()} for topic, ps in parsed.items()}
