"""Numbers that arrive as text in a column of numbers: the remedies of their dead letters, followed."""

from __future__ import annotations

from typing import Any

from pyiceberg.types import DoubleType

from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import only
from tests.unit.schema.test_name_case import dead_letters_of

_CAST: dict[str, Any] = {"cast": ((("amount",), DoubleType()),)}
_TEXT = ColumnSpec(name="amount", type=parse_type("string"), coerce=True)


def _refused(scene: Any) -> Any:
    """A table of numbers, and the dead letter of a text."""
    made = scene(dead_letters={"stop_above": 1.0})
    made.feed("a", {"id": 1, "amount": 2.5})
    only(made.catch_up())
    made.feed("a", {"id": 2, "amount": "4.5"})
    only(made.catch_up())
    ((_, kind, path, reason),) = dead_letters_of(made)
    assert (kind, path) == ("type_mismatch", "amount")
    assert reason == (
        'string "4.5" does not fit double: where the text is a number, `cast: {amount: double}` converts it, with'
        " `columns: {amount: {type: string, coerce: true}}` if other records have numbers"
    )
    return made


def test_the_step_converts_texts(scene: Any) -> None:
    made = _refused(scene)
    made.settings |= _CAST
    made.feed("a", {"id": 3, "amount": "5.5"}, {"id": 4, "amount": " 6 "})
    only(made.catch_up())
    assert [row["amount"] for row in made.rows("n.a")] == [2.5, 5.5, 6.0]


def test_the_step_converts_texts_and_numbers_of_one_column(scene: Any) -> None:
    made = _refused(scene)
    made.settings |= {**_CAST, "columns": (_TEXT,)}
    for values in ((5.5, "6.5"), ("7.5", 8)):
        made.feed("a", *({"id": 3, "amount": value} for value in values))
        only(made.catch_up())
    assert [row["amount"] for row in made.rows("n.a")] == [2.5, 5.5, 6.5, 7.5, 8.0]
    assert len(dead_letters_of(made)) == 1
