"""The settings of a table whose records replace rows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.spec import json_schema
from tests.unit.spec.pipeline_file import Load, Refuse, setting, with_table


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ("mode: append", {"mode": "append", "format_version": 2, "key_columns": (), "metadata": {}}),
        ("mode: upsert", {"mode": "upsert", "format_version": 3, "key_columns": (), "metadata": {"key": "_key"}}),
        ("mode: upsert, format_version: 2", {"format_version": 2}),
        ("mode: upsert, key: {format: json}", {"metadata": {}, "order_by": None}),
        ("mode: upsert, key: {format: text}, metadata: {key: k}", {"metadata": {"key": "k"}}),
        ("mode: upsert, key_columns: [id, o.n], order_by: at", {"key_columns": ("id", "o.n"), "order_by": "at"}),
        ("mode: upsert, key_columns: [id], metadata: [offset]", {"metadata": {"offset": "_offset"}}),
        ("mode: upsert, deletes: soft, metadata: {timestamp: at}, order_by: at", {"order_by": "at"}),
        ("mode: upsert, deletes: soft, envelope: debezium, order_by: at", {"order_by": "at"}),
    ],
)
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    text = with_table(settings)
    (table,) = load(text).tables
    assert {name: setting(table, name) for name in read} == read
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


def test_the_place_of_a_change_among_all_of_its_source_may_order_changes(load: Load) -> None:
    settings = "mode: upsert, envelope: debezium, metadata: [source_order], order_by: _source_order"
    assert load(with_table(settings)).tables[0].changes.order_by == "_source_order"


@pytest.mark.parametrize(
    ("metadata", "order_by", "field", "reason"),
    [
        ("[total_order]", "_total_order", "total_order", "counts the changes of one transaction and restarts with"),
        ("{collection_order: n}", "n", "collection_order", "counts the changes of one transaction and restarts with"),
        (
            "[transaction_id]",
            "_transaction_id",
            "transaction_id",
            "names a transaction and does not order transactions",
        ),
    ],
)
def test_what_orders_changes_inside_a_transaction_alone_is_refused(
    refuse: Refuse, metadata: str, order_by: str, field: str, reason: str
) -> None:
    error = refuse(with_table(f"mode: upsert, envelope: debezium, metadata: {metadata}, order_by: {order_by}"))
    assert error.message.startswith(f"`order_by: {order_by}` would order changes by `{field}`, which {reason}")
    assert error.remedy == "write `metadata: [source_order]` and `order_by: _source_order`, or leave `order_by` out"
    assert error.where == "pipeline.yaml:4"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("mode: append", ""),
        ("tombstones: ignore", "ignore"),
        ("tombstones: dead_letter", "dead_letter"),
        ("tombstones: row", "row"),
        ("mode: upsert, tombstones: delete", "delete"),
        ("mode: upsert, tombstones: ignore", "ignore"),
        ("envelope: debezium, tombstones: dead_letter", "dead_letter"),
    ],
)
def test_what_becomes_of_tombstones_is_read_and_valid_for_editors(load: Load, settings: str, word: str) -> None:
    text = with_table(settings)
    assert load(text).tables[0].changes.tombstones == word
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        (
            "tombstones: delete",
            "`tombstones: delete` deletes the row of a key, and a table with `mode: append` deletes none",
            "write `tombstones: ignore`, `dead_letter` or `row`, or `mode: upsert`",
        ),
        (
            "mode: upsert, tombstones: row",
            "`tombstones: row` is for records that are appended as they are, and the table has `mode: upsert`",
            "write one of: `delete`, `ignore` or `dead_letter`",
        ),
        (
            "envelope: debezium, tombstones: row",
            "`tombstones: row` is for records that are appended as they are, and the table has an `envelope`",
            "write one of: `ignore` or `dead_letter`",
        ),
        ("tombstones: drop", "`tombstones` cannot be `drop`", "write one of: delete, ignore, dead_letter, row"),
    ],
)
def test_tombstones_that_a_table_has_no_use_for_are_refused(
    refuse: Refuse, settings: str, message: str, remedy: str
) -> None:
    error = refuse(with_table(settings))
    assert (error.message, error.remedy) == (message, remedy)
