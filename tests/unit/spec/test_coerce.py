"""Columns that are declared to take more than their type."""

from __future__ import annotations

import pytest

from frazil.spec.schema_json import json_schema
from tests.unit.spec.pipeline_file import Load, Refuse, with_table


def test_the_file_declares_it(load: Load) -> None:
    (spec,) = load(with_table("columns: {v: {type: string, coerce: true}, t: time(us), w: string}")).tables
    assert [(one.name, one.coerce, one.unit) for one in spec.shape.columns] == [
        ("v", True, None),
        ("t", False, "us"),
        ("w", False, None),
    ]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("{type: long, coerce: true}", "`columns.v.coerce` keeps values as text, and the column is a `long`"),
        (
            "{type: string, constant: a, coerce: true}",
            "`columns.v.coerce` keeps values as text, and the column is not read",
        ),
        ("{type: string, coerce: maybe}", "`columns.v.coerce` cannot be `maybe`"),
        ("time(h)", "`h` is not a unit of the time since midnight"),
    ],
)
def test_a_file_that_asks_for_what_makes_no_sense_is_refused(refuse: Refuse, column: str, message: str) -> None:
    assert message in str(refuse(with_table(f"columns: {{v: {column}}}")))


def test_the_schema_of_the_file_has_the_setting() -> None:
    assert json_schema()["$defs"]["column"]["properties"]["coerce"]["enum"] == [True, False]
