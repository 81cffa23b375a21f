"""Progress in a snapshot's summary."""

from __future__ import annotations

from dataclasses import replace

from frazil.catalog.progress import from_summary, to_summary
from frazil.types import CommittedBatch, LastDelete, OrderProgress, Progress, Totals, Watermark, Writer

_PROGRESS = Progress(
    offsets={"a": {0: 5, 10: 7}, "b": {0: 2**62}},
    topic_ids={"a": "id-a", "b": "id-b"},
    cluster_id="cluster",
    commit_id="commit",
    writer=Writer(3, "run"),
    watermark=Watermark({"a": {0: 1790000000000}}, 1780000000000),
    batch=CommittedBatch(skipped={"a": {0: (2, 4)}}),
    totals=Totals(ignored_records={"heartbeat": 4, "delete": 1}),
    order=OrderProgress(last_deletes=(LastDelete("a", 0, 4, "k"), LastDelete("b", 0, 7, "l"))),
)


def test_progress_survives_the_summary() -> None:
    summary = to_summary("p", _PROGRESS)
    assert from_summary("p", summary, snapshot_id=8, at_ms=9) == replace(_PROGRESS, snapshot_id=8, committed_at_ms=9)


def test_the_keys_of_progress_are_the_documented_ones() -> None:
    assert to_summary("p", _PROGRESS) == {
        "frazil.p.offsets": '{"a":{"0":5,"10":7},"b":{"0":4611686018427387904}}',
        "frazil.p.topic-ids": '{"a":"id-a","b":"id-b"}',
        "frazil.p.cluster-id": "cluster",
        "frazil.p.commit-id": "commit",
        "frazil.p.epoch": "3",
        "frazil.p.run-id": "run",
        "frazil.p.schemas": "json",
        "frazil.p.watermarks": '{"a":{"0":1790000000000}}',
        "frazil.p.watermark": "1780000000000",
        "frazil.p.skipped": '{"a":{"0":[2,4]}}',
        "frazil.p.ignored-records": '{"delete":1,"heartbeat":4}',
        "frazil.p.last-deletes": '{"a":{"0":[4,"k"]},"b":{"0":[7,"l"]}}',
    }


def test_a_compaction_and_another_pipeline_have_no_progress_of_ours() -> None:
    assert from_summary("p", {"operation": "replace"}) is None
    assert from_summary("p", to_summary("q", _PROGRESS)) is None
    assert from_summary("p", to_summary("p.x", _PROGRESS)) is None


def test_a_table_without_a_watermark_has_none_afterwards() -> None:
    bare = replace(_PROGRESS, watermark=Watermark(), batch=replace(_PROGRESS.batch, skipped={}))
    assert from_summary("p", to_summary("p", bare)) == bare
    assert "frazil.p.watermark" not in to_summary("p", bare)


def test_a_later_run_is_the_greater_writer() -> None:
    assert replace(_PROGRESS, writer=Writer(4, "a")).writer > _PROGRESS.writer
