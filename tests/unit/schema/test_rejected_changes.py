"""What is reported of refused changes: each once, with every schema that asks for it and what to do."""

from __future__ import annotations

import pytest

from frazil.schema.conflicts import RefusedChange, refused_changes, remedy_of
from frazil.types import MORE_NAMES


def test_a_change_that_many_schemas_ask_for_is_one() -> None:
    reported = {f"schema {n}: column id: int is not widened to long" for n in (9, 12, 100)}
    reported |= {"schema 9: column a: b: string does not fit int", "column coupon: odd", MORE_NAMES}
    assert refused_changes(reported) == [
        RefusedChange("column coupon: odd", (), ""),
        RefusedChange("column id: int is not widened to long", ("9", "12", "100"), remedy_of(" is not widened to ")),
        RefusedChange("column a: b: string does not fit int", ("9",), remedy_of(" does not fit ")),
        RefusedChange(MORE_NAMES, (), ""),
    ]


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("column price: float is not added: `schema_evolution` is `freeze`", "write `schema_evolution: add_only`"),
        ("column coupon: the field is not added: `schema_evolution` is `freeze`", "write `schema_evolution: add_only`"),
        ("column id: int is not widened to long", "write `schema_evolution: evolve`"),
        ("column address.zip: string does not fit int", "where the text is a number, `cast: {address.zip: int}`"),
        ("column v: string does not fit decimal(9, 2)", 'where the text is a number, `cast: {v: "decimal(9, 2)"}`'),
        ("column l.element: string does not fit int", "correct the schema, or give the field another name"),
        ("column address.zip: struct does not fit int", "correct the schema, or give the field another name"),
        ("column user_id: the fields user.id and user_id would share the column user_id", "leave one of them out"),
        ("column _key: field _key: the table has a column _key that is not for fields of records", "leave it out"),
        ("column _file: field _file: _file is one of Iceberg's metadata columns", "leave it out"),
    ],
)
def test_every_kind_of_refusal_has_a_remedy(change: str, remedy: str) -> None:
    assert remedy_of(change).startswith(remedy)
