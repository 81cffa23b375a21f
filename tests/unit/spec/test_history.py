"""The settings of tables with `mode: history`."""

from __future__ import annotations

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.spec import json_schema
from frazil.spec.history import describe_history
from tests.unit.spec.pipeline_file import Load, Refuse, setting, with_table

_HISTORY = "mode: history, key_columns: [id]"


def test_a_history_is_an_upsert_table_with_three_more_columns(load: Load) -> None:
    text = with_table(f"{_HISTORY}, track: [name, city], metadata: {{valid_to: until}}")
    (table,) = load(text).tables
    assert (table.changes.mode, table.changes.keeps_history, table.layout.format_version) == ("upsert", True, 3)
    columns = {"valid_to": "until", "valid_from": "valid_from", "is_current": "is_current"}
    assert setting(table, "metadata") == columns
    assert list(describe_history(table)) == [
        "keeps each version of name, city by id, from the order of the records, in valid_from, until, is_current"
    ]
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ("track: [n]", "`track` chooses the columns whose changes make a version", "write `mode: history`"),
        (f"{_HISTORY}, merge: {{n: sum}}", "`merge` makes one row of all records of a key", "remove one of them"),
        (f"{_HISTORY}, dedupe: {{by: [n]}}", "`dedupe` drops records", "remove one of them"),
        (f"{_HISTORY}, deletes: soft", "`deletes: soft` marks a row", "remove it"),
        (f"{_HISTORY}, envelope: debezium, changelog: true", "`changelog: true` appends", "remove one of them"),
        (f"{_HISTORY}, envelope: debezium, atomic: transaction", "`atomic` shows", "remove one of them"),
        (f"{_HISTORY}, track: [ID]", "`track` has `ID`, which identifies a version", "take it out of `track`"),
        (f"{_HISTORY}, track: [valid_to]", "`track` has `valid_to`", "take it out of `track`"),
        (f"{_HISTORY}, columns: {{at: long}}, order_by: at", "`order_by: at` is no time", "name a column with a time"),
        (f"{_HISTORY}, metadata: [offset], order_by: _offset", "`order_by: _offset` is no time", "name a column"),
        (
            f"{_HISTORY}, envelope: debezium, order_by: at",
            "a delete has no value for `order_by: at`",
            "write `metadata: [source_ts]` and `order_by: _source_ts`, or remove it",
        ),
        ("metadata: [valid_from]", "`valid_from` in `metadata` is for versions of rows", "write `mode: history`"),
    ],
)
def test_what_contradicts_a_history_is_refused(refuse: Refuse, settings: str, message: str, remedy: str) -> None:
    error = refuse(with_table(settings))
    assert error.message.startswith(message)
    assert error.remedy is not None
    assert error.remedy.startswith(remedy)
