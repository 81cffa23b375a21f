"""Tables of other writers, whose columns are written in another case than the records' fields or than `column_case`: what
becomes of the first batch, which gives the columns their fields, is what becomes of every later one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from frazil.ingest.tables.state import RunState
from frazil.spec.models import TopicSelector
from frazil.spec.settings import FlattenSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only

Record = dict[str, Any]
_APART: list[Record] = [{"VBELN": "1", "x": 1}, {"vbeln": "2", "X": 2}, {"Vbeln": "3", "x": 3}]
_INSIDE: list[Record] = [{"O": {"VBELN": "1"}, "x": 1}, {"o": {"vbeln": "2"}, "x": 2}, {"o": {"Vbeln": "3"}, "X": 3}]
_NEW: list[Record] = [{"x": 1, "VBELN": "1", "N": {"A": 1}}, {"x": 2, "vbeln": "2", "n": {"a": 2}}]
_CASES: dict[str, tuple[Mapping[str, str], Sequence[Record], list[list[Any]]]] = {
    "upper": ({"VBELN": "string", "X": "long"}, _APART, [["1", 1], ["2", 2], ["3", 3]]),
    "lower": ({"vbeln": "string", "x": "long"}, _APART, [["1", 1], ["2", 2], ["3", 3]]),
    "mixed": ({"Vbeln": "string", "x": "long"}, _APART, [["1", 1], ["2", 2], ["3", 3]]),
    "inside": ({"O": "struct<VBELN: string>", "X": "long"}, _INSIDE, [["1", 1], ["2", 2], ["3", 3]]),
    "inside lower": ({"o": "struct<vbeln: string>", "x": "long"}, _INSIDE, [["1", 1], ["2", 2], ["3", 3]]),
    "with new ones": ({"X": "long", "VBELN": "string"}, _NEW, [[1, "1", 1], [2, "2", 2]]),
    "both": (
        {"VBELN": "string", "vbeln": "string", "x": "long"},
        [*_APART[:2], {"VBELN": "3", "vbeln": "4", "x": 3}],
        [["1", None, 1], [None, "2", 2], ["3", "4", 3]],
    ),
}


def _plain(value: Any) -> list[Any]:
    return [plain for inner in value.values() for plain in _plain(inner)] if isinstance(value, dict) else [value]


def _scene(folder: Path, columns: Mapping[str, str], **settings: Any) -> Scene:
    made = Scene(folder, "a", topics=(TopicSelector(literal="a"), TopicSelector(literal="b")), **settings)
    made.source.create("b")
    fields = (
        NestedField(n, name, parse_type(kind), required=False) for n, (name, kind) in enumerate(columns.items(), 1)
    )
    made.catalog.create("n.a", Schema(*fields), {}, 2)
    return made


@pytest.mark.parametrize(
    ("name", "case", "more", "is_one_task"),
    [
        (name, case, ("append", "upsert", "flatten")[(row + column) % 3], (row + column) % 2 == 0)
        for row, name in enumerate(_CASES)
        for column, case in enumerate(("lower", "snake", "camel", "keep"))
    ],
)
def test_the_first_batch_is_written_as_every_later_one(
    tmp_path: Path, name: str, case: str, more: str, is_one_task: bool
) -> None:
    columns, records, rows = _CASES[name]
    settings: dict[str, Any] = {"mode": "upsert", "key_columns": ("x",)} if more == "upsert" else {}
    if more == "flatten":
        settings["flatten"] = FlattenSpec(depth=3)
    made = _scene(tmp_path, columns, column_case=case, **settings)
    first, *others = records
    made.feed("a", first, *(others if is_one_task else ()))
    made.feed("b", *(() if is_one_task else others))
    status = only(made.catch_up()).status
    assert (status.run_state is RunState.STOPPED, status.reason) == (False, "")
    assert sorted(map(str, (_plain(row) for row in made.rows("n.a")))) == sorted(map(str, rows))
    made.feed("a", *records)
    only(made.catch_up())
    assert len(made.rows("n.a")) == (len(rows) if more == "upsert" else 2 * len(rows))


def test_a_field_that_a_column_of_another_case_cannot_take_is_a_bad_record_at_first_and_later(tmp_path: Path) -> None:
    made = _scene(tmp_path, {"VBELN": "string", "X": "long"}, column_case="lower")
    for _ in range(2):
        made.feed("a", *({"VBELN": str(n), "x": n} for n in range(9)), {"vbeln": {"a": 1}, "x": 9})
        assert only(made.catch_up()).status.reason == ""
    assert made.dead_letters("n.a") == [("a", 0, 9), ("a", 0, 19)]
    assert len(made.rows("n.a")) == 18
