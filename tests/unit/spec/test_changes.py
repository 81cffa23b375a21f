"""The settings of a table whose records replace rows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.spec import json_schema
from tests.unit.spec.pipeline_file import Load, with_table


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
    ],
)
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    text = with_table(settings)
    (table,) = load(text).tables
    assert {name: getattr(table, name) for name in read} == read
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))
