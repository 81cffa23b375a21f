"""What a pipeline file may have for changes."""

from __future__ import annotations

import pytest

from frazil.spec.settings import EnvelopeSpec
from tests.unit.spec.pipeline_file import Load, Refuse, with_table

LOG = {"op": "_op", "image": "_image"}
DEBEZIUM_LOG = {**LOG, "source_ts": "_source_ts", "connector_ts": "_connector_ts", "unavailable": "_unavailable"}


@pytest.mark.parametrize(
    ("settings", "envelope"),
    [
        ("envelope: none", None),
        ("envelope: debezium", EnvelopeSpec(kind="debezium")),
        ("envelope: {type: debezium, unavailable_value: '?'}", EnvelopeSpec(kind="debezium", placeholder="?")),
        ("envelope: maxwell", EnvelopeSpec(kind="maxwell")),
        ("envelope: canal", EnvelopeSpec(kind="canal")),
        ("envelope: {operation: ops}", EnvelopeSpec(kind="operation", operation="ops")),
        (
            "envelope: {operation: ops, insert: [I, 1], update: U, delete: [D, d]}",
            EnvelopeSpec(kind="operation", operation="ops", insert=("I", "1"), update=("U",), delete=("D", "d")),
        ),
    ],
)
def test_an_envelope(load: Load, settings: str, envelope: EnvelopeSpec | None) -> None:
    assert load(with_table(settings)).tables[0].changes.envelope == envelope


@pytest.mark.parametrize("kind", ["debezium", "{operation: o}"])
def test_an_envelope_whose_schema_is_a_json_schema(load: Load, kind: str) -> None:
    text = with_table(f"envelope: {kind}, value: {{format: json_schema}}") + 'registry: {url: "http://r:8081"}\n'
    assert load(text).tables[0].changes.envelope is not None


@pytest.mark.parametrize(
    ("settings", "metadata"),
    [
        ("envelope: debezium, changelog: true", DEBEZIUM_LOG),
        ("envelope: debezium", {"unavailable": "_unavailable"}),
        ("envelope: debezium, metadata: {unavailable: gone}", {"unavailable": "gone"}),
        ("envelope: maxwell, changelog: true", {**LOG, "source_ts": "_source_ts"}),
        ("envelope: canal, changelog: true", DEBEZIUM_LOG),
        (
            "envelope: dms, changelog: true, metadata: [total_order]",
            {"total_order": "_total_order", **LOG, "source_ts": "_source_ts", "connector_ts": "_connector_ts"},
        ),
        ("envelope: canal", {"unavailable": "_unavailable"}),
        (
            "envelope: cloudevents, metadata: {ce_id: event}",
            {name: f"_{name}" for name in ("ce_source", "ce_type", "ce_time", "ce_subject")} | {"ce_id": "event"},
        ),
        (
            "envelope: outbox",
            {name: f"_{name}" for name in ("event_id", "event_type", "aggregate_type", "aggregate_id")},
        ),
        ("envelope: {operation: o}, changelog: true, metadata: [op]", LOG),
        ("envelope: {operation: o}", {}),
    ],
)
def test_the_columns_that_changes_bring_along(load: Load, settings: str, metadata: dict[str, str]) -> None:
    assert load(with_table(settings)).tables[0].metadata == metadata


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        (
            "changelog: true",
            "`changelog: true` is for records that wrap changes, and the table has no `envelope`",
            "write `envelope: debezium`, or remove it",
        ),
        (
            "deletes: soft",
            "`deletes: soft` keeps rows that are deleted, and a table with `mode: append` deletes none",
            "write `mode: upsert`, or remove it",
        ),
        ("envelope: debezum", "`envelope` cannot be `debezum`", "did you mean `debezium`?"),
        (
            "envelope: {insert: I}",
            "`envelope` names no field with the operation",
            "write `operation: FIELD`, or `envelope: debezium`",
        ),
        (
            "envelope: {operation: o, unavailable_value: x}",
            "`envelope.unavailable_value` is for Debezium's envelope",
            "remove it, or write `type: debezium`",
        ),
        (
            "envelope: {type: debezium, insert: I}",
            "`envelope.insert` is for rows with a field of their own that names the operation",
            "remove it, or remove `type`",
        ),
        (
            "envelope: {operation: o, insert: X, delete: X}",
            "`X` stands for two operations in `envelope`: insert and delete",
            "keep one of them",
        ),
        (
            "envelope: {operation: o, insert: []}",
            "`envelope.insert` is empty",
            "write the values of the field, or remove it",
        ),
        (
            "envelope: {operation: o, insert: true}",
            "`envelope.insert` is a boolean where text is expected",
            "put it in quotes: YAML reads a bare yes, no, on, off, true or false as a boolean",
        ),
        (
            "mode: upsert, deletes: soft, key: {format: json}, order_by: at",
            "a tombstone has no value for `order_by: at`, and `deletes: soft` makes a row of it",
            "name a column that `metadata` makes of one of: timestamp, offset, partition",
        ),
        (
            "mode: upsert, envelope: debezium, key: {format: text}",
            "`key: {format: text}` has no fields, and rows in an envelope are found by the fields of the record's key",
            "write the format that the keys have, or name the `key_columns`",
        ),
        (
            "mode: upsert, envelope: dms",
            "the record keys of `envelope: dms` do not have the fields that identify a row",
            "name the table's `key_columns`",
        ),
        (
            "metadata: [op]",
            "`op` in `metadata` needs an envelope, and the table has none",
            "write `envelope`, or take it out of `metadata`",
        ),
        (
            "metadata: [deleted]",
            "`deleted` in `metadata` is for deleted rows that are kept",
            "write `deletes: soft`, or take it out of `metadata`",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_line(refuse: Refuse, settings: str, message: str, remedy: str) -> None:
    error = refuse(with_table(settings))
    assert (error.message, error.remedy, error.where) == (message, remedy, "pipeline.yaml:4")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("value: {format: text}, envelope: debezium", "`envelope`: debezium is not read from the format text"),
        ("value: {format: raw}, envelope: maxwell", "`envelope`: maxwell is not read from the format raw"),
        (
            "value: {format: text}, envelope: {operation: o}",
            "`envelope`: a field for the operation is not read from the format text",
        ),
        ("value: {format: text}, envelope: canal", "`envelope`: canal is not read from the format text"),
        (
            "envelope: canal, metadata: [source_order]",
            "`source_order` in `metadata` is not contained in the envelope canal",
        ),
        (
            "envelope: debezium, metadata: [ce_id]",
            "`ce_id` in `metadata` is not contained in the envelope debezium",
        ),
        ("value: {format: text}, envelope: cloudevents", "`envelope`: cloudevents is not read from the format text"),
        (
            "envelope: maxwell, metadata: [position]",
            "`position` in `metadata` is not contained in the envelope maxwell",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(refuse: Refuse, settings: str, message: str) -> None:
    error = refuse(with_table(settings))
    assert (error.message, error.where) == (message, "pipeline.yaml:4")
