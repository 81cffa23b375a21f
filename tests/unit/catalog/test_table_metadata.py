"""Iceberg's own JSON of a table as table maintenance reads it, and which files in a folder are the table's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from frazil.catalog import table_metadata
from frazil.catalog.progress import from_summary, to_summary
from frazil.catalog.table_metadata import (
    Ref,
    Snapshot,
    StoredData,
    StoredDeletes,
    carried_progress,
    read_table_metadata,
)
from frazil.ledger import Ledger
from frazil.types import (
    Balance,
    CommittedBatch,
    DataFile,
    DerivedTable,
    LastDelete,
    OrderProgress,
    PendingDeadLetters,
    Progress,
    RestProgress,
    Totals,
    Watermark,
    Writer,
)


def snapshot(number: int, parent: int | None = None, summary: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "timestamp-ms": number * 1000,
        "summary": {"operation": "append", **(summary or {})},
    }


def metadata(*snapshots: dict[str, Any], **more: Any) -> str:
    head = snapshots[-1]["snapshot-id"] if snapshots else -1
    document = {"table-uuid": "u", "location": "/t", "format-version": 3, "current-snapshot-id": head}
    return json.dumps({**document, "snapshots": snapshots, **more})


def progress(pipeline: str, commit: str, **more: str) -> dict[str, str]:
    parts = {"offsets": "{}", "commit-id": commit, "epoch": "1", "skipped": "{}", **more}
    return {f"frazil.{pipeline}.{name}": text for name, text in parts.items()}


def test_snapshots_references_and_promises_are_read() -> None:
    dead_letters = json.dumps({"files": [{"path": "/x/1.parquet"}]})
    look = read_table_metadata(
        "t.a",
        metadata(
            snapshot(
                1, None, progress("p", "old", **{"dead-letters": json.dumps({"files": [{"path": "/x/0.parquet"}]})})
            ),
            snapshot(2, 1, progress("p", "c2", **{"dead-letters": dead_letters})),
            snapshot(3, 2, {"operation": "replace", "deleted-data-files": "2"}),
            refs={"main": {"snapshot-id": 3, "type": "branch"}, "tag": {"snapshot-id": 1, "type": "tag"}},
            statistics=[{"snapshot-id": 2}],
            **{
                "default-sort-order-id": 1,
                "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [{}]}],
            },
        ),
    )
    second, third = (replace(look.snapshots[number], summary={}) for number in (2, 3))
    assert second == Snapshot(2, 1, 2000, "append", {"p": "c2"})
    assert third == Snapshot(3, 2, 3000, "replace", {}, removes_files=True)
    assert [one.id for one in look.ancestors()] == [3, 2, 1]
    assert (look.head, look.refs, look.statistics) == (3, {"tag": Ref(1)}, (2,))
    assert look.pending_files == {"/x/1.parquet"}
    assert not look.branch.has_own_retention
    assert look.shape.is_sorted


def test_a_retention_of_the_main_branch_is_noticed() -> None:
    main = {"snapshot-id": 1, "type": "branch", "max-snapshot-age-ms": 1000}
    assert read_table_metadata("t.a", metadata(snapshot(1), refs={"main": main})).branch.has_own_retention


def test_what_branches_and_tags_keep_is_their_own_or_the_tables() -> None:
    refs = {
        "audit": {"snapshot-id": 1, "type": "branch", "max-snapshot-age-ms": 5, "min-snapshots-to-keep": 3},
        "tag": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 9},
        "usual": {"snapshot-id": 1, "type": "tag"},
    }
    properties = {"history.expire.max-ref-age-ms": "7"}
    found = read_table_metadata("t.a", metadata(snapshot(1), refs=refs, properties=properties))
    assert found.refs == {"audit": Ref(1, True, 7, 5, 3), "tag": Ref(1, False, 9), "usual": Ref(1, False, 7)}
    wrong = read_table_metadata("t.a", metadata(snapshot(1), refs=refs, properties=dict.fromkeys(properties, "7d")))
    assert wrong.refs["usual"] == Ref(1)


def test_an_empty_table_has_no_head() -> None:
    look = read_table_metadata("t.a", metadata(**{"sort-orders": [{"order-id": 0, "fields": []}]}))
    assert (look.head, look.shape.is_sorted) == (None, False)


def test_files_come_with_the_deletes_that_count_for_them() -> None:
    file = {"spec-id": 1, "partition": ["x"], "file-size-in-bytes": 10, "record-count": 5}
    vector = {"content": "position-deletes", "file-format": "puffin", "content-size-in-bytes": 3, "record-count": 2}
    vector |= {"file-path": "/t/1.puffin", "content-offset": 4}
    equal = {"content": "equality-deletes", "file-format": "parquet", "file-size-in-bytes": 4, "record-count": 1}
    equal |= {"file-path": "/t/2.parquet"}
    tasks = [{"data-file": file, "delete-file-references": [0]}, {"data-file": file, "delete-file-references": [1]}]
    found = json.dumps({"file-scan-tasks": tasks, "delete-files": [{**vector, "file-size-in-bytes": 100}, equal]})
    look = read_table_metadata("t.a", metadata(snapshot(1)), [found], [(7, 0), (8, 1)])
    assert look.deletes == (StoredDeletes("vector", 3, 2, True), StoredDeletes("equality", 4, 1))
    assert look.files == (StoredData(10, 5, '[1,["x"]]', 2, True), StoredData(10, 5, '[1,["x"]]', 0, True))
    assert (look.sizes.manifests, look.sizes.rewritable_manifests) == ((7, 8), (7,))


def test_files_come_in_lots_and_deletes_that_are_in_several_count_once() -> None:
    file = {"spec-id": 0, "file-size-in-bytes": 10, "record-count": 5}
    equal = {"content": "equality-deletes", "file-format": "parquet", "file-size-in-bytes": 4, "record-count": 1}
    vectors = [
        {"content": "position-deletes", "file-format": "puffin", "file-path": "/t/v", "content-offset": offset}
        | {"content-size-in-bytes": 3, "record-count": offset}
        for offset in (1, 2)
    ]
    lots = [
        {"file-scan-tasks": [{"data-file": file, "delete-file-references": [0]}], "delete-files": [vector, shared]}
        for vector, shared in zip(vectors, [{**equal, "file-path": "/t/e"}] * 2, strict=True)
    ]
    look = read_table_metadata(
        "t.a", metadata(snapshot(1)), [json.dumps(lot) for lot in [*lots, {"file-scan-tasks": []}]]
    )
    assert [file.deleted for file in look.files] == [1, 2]
    assert [(one.kind, one.record_count) for one in look.deletes] == [("vector", 1), ("equality", 1), ("vector", 2)]


def test_deletes_that_name_no_file_are_dealt_out_to_all_that_they_count_for() -> None:
    sizes = [{"spec-id": 0, "file-size-in-bytes": 10, "record-count": rows} for rows in (30, 10)]
    loose = {"content": "position-deletes", "file-format": "parquet", "file-size-in-bytes": 4, "record-count": 20}
    lots = [
        {
            "file-scan-tasks": [{"data-file": file, "delete-file-references": [0]}],
            "delete-files": [{**loose, "file-path": "/t/p"}],
        }
        for file in sizes
    ]
    look = read_table_metadata("t.a", metadata(snapshot(1)), [json.dumps(lot) for lot in lots])
    assert [(file.deleted, file.loosely_deleted) for file in look.files] == [(0, 15), (0, 5)]


def test_progress_is_carried_word_for_word_but_for_what_happened_once() -> None:
    text = metadata(snapshot(1, None, progress("q", "c1")), snapshot(2, 1, progress("p", "c2")), snapshot(3, 2))
    kept = ("offsets", "commit-id", "epoch", "committed-at")
    expected = {
        name: value
        for pipeline, commit, at_ms in (("p", "c2", "2000"), ("q", "c1", "1000"))
        for name, value in progress(pipeline, commit, **{"committed-at": at_ms}).items()
        if name.rpartition(".")[2] in kept
    }
    assert carried_progress(text) == expected


_GROUPS = ("batch", "totals", "order", "rest")
"""Records inside of progress, all of whose fields are carried too."""


def test_all_progress_is_carried_but_what_its_commit_alone_has_skipped() -> None:
    whole = Progress(
        {"a": {0: 5}}, {"a": "id"}, "cluster", "commit", Writer(3, "run"), Watermark({"a": {0: 7}}, 6),
        CommittedBatch({"a": {0: (1, 2)}}, ("7",), {"country": {"table": "r.c", "snapshot-id": 7}}, Balance(1, 1)),
        PendingDeadLetters("t.x", (DataFile("/x/1.parquet", 1, 2, "{}"),)), Totals(4, {"heartbeat": 1}, {"positive": 1}),
        OrderProgress({"a": {0: "0001"}}, "0002", (LastDelete("a", 0, 4, "k"),), Watermark({"a": {0: 8}}, 7), 2),
        RestProgress((DerivedTable("t.b", ("b",), {"a": {0: 2}}),), {"limit": 1}), "spark", Ledger(1, "", 1, 1, 5, 1),
    )  # fmt: skip
    usual = Progress()
    for record, default in ((whole, usual), *((getattr(whole, name), getattr(usual, name)) for name in _GROUPS)):
        names = {f.name for f in fields(record)} - {"snapshot_id", "committed_at_ms"}
        assert [name for name in names if getattr(record, name) == getattr(default, name)] == []
    first, second = snapshot(1, None, to_summary("p", whole)), snapshot(2, 1)
    carried = snapshot(3, 2, carried_progress(metadata(first, second)))
    batch = CommittedBatch(schemas=("7",))
    expected = replace(whole, batch=batch, snapshot_id=3, committed_at_ms=1000)
    assert from_summary("p", carried["summary"], 3, 3000) == expected
    assert from_summary("p", carried_progress(metadata(first, second, carried, snapshot(4, 3))), 3, 9) == expected


def test_nothing_is_carried_where_the_newest_snapshot_reports_it_all() -> None:
    both = progress("p", "c2") | progress("q", "c3")
    assert carried_progress(metadata(snapshot(1, None, progress("p", "c1")), snapshot(2, 1, both))) == {}
    assert carried_progress(metadata(snapshot(1))) == {}
    assert carried_progress(metadata()) == {}


def test_what_was_counted_since_the_table_began_is_carried() -> None:
    counts = {"bad-skipped": "3", "ignored-records": '{"delete":1}'}
    text = metadata(snapshot(1, None, progress("p", "c1", **counts)), snapshot(2, 1))
    found = carried_progress(text)
    assert {name: found[f"frazil.p.{name}"] for name in counts} == counts


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/lake/a/b/data/x.parquet", True),
        ("file:/lake/a/b/data/day=1/x.parquet", True),
        ("file:///lake/a/b/metadata/x.avro", True),
        ("/lake/a/b/c/data/x.parquet", False),
        ("/lake/a/b/metadata/deep/x.avro", False),
        ("/lake/a/bb/data/x.parquet", False),
        ("/elsewhere/lake/a/b/data/x.parquet", False),
    ],
)
def test_only_what_lies_where_the_table_writes_is_its_own(path: str, is_own: bool) -> None:
    assert table_metadata.is_own(path, "file:///lake/a/b") == is_own
    assert table_metadata.is_own(path, "/lake/a/b/") == is_own
