"""Where too many records have values of another kind, the remedy is the declaration that takes them."""

from __future__ import annotations

import pytest

from frazil.ingest.batches.bad_records import TOO_MANY_REMEDY, remedy_for_many

_AS_TEXT = "to keep it as text, write `columns: {id: {type: string, coerce: true}}`"


@pytest.mark.parametrize(
    ("fault", "declaration"),
    [
        ("field id: integer 98 does not fit string (and 197 more in this batch)", _AS_TEXT),
        ("field id: integer 2 meets values of another kind under the same name; declare the column", _AS_TEXT),
        (
            'field id: string "n\nfield a: integer 1 does not fit long',
            "where the text is a number, `cast: {id: long}` converts it, with"
            " `columns: {id: {type: string, coerce: true}}` if other records have numbers",
        ),
        (
            "field user.id: integer 98 does not fit string",
            "to keep it as text, declare the column `user` with its type and `coerce: true`",
        ),
    ],
)
def test_the_remedy_names_the_declaration(fault: str, declaration: str) -> None:
    assert remedy_for_many(fault) == f"{declaration}; or {TOO_MANY_REMEDY}"


@pytest.mark.parametrize("fault", ["the value is not JSON", "field id: the value does not fit; it is not shown", ""])
def test_other_faults_have_the_usual_remedy(fault: str) -> None:
    assert remedy_for_many(fault) == TOO_MANY_REMEDY
