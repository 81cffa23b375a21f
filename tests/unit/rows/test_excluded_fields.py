"""Columns of which `exclude`, or a narrower `include`, takes nothing any more: what can be no value of them.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from frazil.clock import new_id
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.schema.projection import Shaping, make_projection
from frazil.spec import ColumnSpec
from frazil.spec.settings import DeadLettersSpec, FlattenSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro

_CASES: list[tuple[str, tuple[str, ...], Any, Any, str]] = [
    ("struct<p: int>", ("v", "p"), {"p": 1}, "x", "v"),
    ("list<struct<p: int>>", ("v", "element", "p"), [{"p": 1}, None], [1, 2], "v.element"),
    ("list<struct<p: int>>", ("v", "element", "p"), [], 5, "v"),
    ("list<list<struct<p: int>>>", ("v", "element", "element", "p"), [[{"p": 1}]], [[1]], "v.element.element"),
    ("map<string, struct<p: int>>", ("v", "value", "p"), {"a": {"p": 1}}, {"a": 1}, "v.value"),
    ("struct<s: struct<p: int>, q: int>", ("v", "s", "p"), {"s": {"p": 1}, "q": 1}, {"s": 5, "q": 1}, "v.s"),
    ("struct<s: struct<p: int>>", ("v", "s", "p"), {"s": {"p": 1}}, {"s": [5]}, "v.s"),
    ("list<struct<s: struct<p: int>, q: int>>", ("v", "element", "s", "p"), [{"q": 1}], [{"s": 5}], "v.element.s"),
    ("struct<l: list<struct<p: int>>, q: int>", ("v", "l", "element", "p"), {"l": [{}]}, {"l": [5]}, "v.l.element"),
]
"""A column's type, what is left out of it, a value of it, what is none, and the place that is told of it."""
_EACH = pytest.mark.parametrize(("kind", "out", "good", "bad", "path"), _CASES, ids=[f"{c[0]}-{c[4]}" for c in _CASES])


def _scene(root: Path, kind: str, out: tuple[str, ...], **settings: Any) -> Scene:
    columns = (ColumnSpec(name="id", type=parse_type("int")), ColumnSpec(name="v", type=parse_type(kind)))
    return Scene(root, "a", columns=columns, exclude=(out,), **settings)


def _run(scene: Scene, *values: Any) -> Table:
    scene.feed("a", *({"id": n, "v": value} for n, value in enumerate(values, 1)))
    return only(scene.catch_up())


def _has_nothing(held: Any) -> bool:
    """Whether it is null but for what `q` has, which is not left out."""
    if isinstance(held, dict):
        return all(_has_nothing(value) for name, value in held.items() if name != "q")
    return held is None or (isinstance(held, list) and all(map(_has_nothing, held)))


@pytest.mark.parametrize("case", _CASES, ids=[f"{c[0]}-{c[4]}" for c in _CASES])
@pytest.mark.parametrize(("flatten", "is_first"), [(None, False), (FlattenSpec(), True)])
def test_what_is_no_value_of_the_column_is_a_bad_record_and_its_neighbours_are_rows(
    tmp_path: Path, case: tuple[str, tuple[str, ...], Any, Any, str], flatten: FlattenSpec | None, is_first: bool
) -> None:
    kind, out, good, bad, _ = case
    scene = _scene(tmp_path, kind, out, flatten=flatten)
    for batch in ([bad, good, good] if is_first else [good, bad, good], [good], [bad, good]):
        table = _run(scene, *batch)
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [offset for *_, offset in scene.dead_letters("n.a")] == [0 if is_first else 1, 4]
    rows = scene.rows("n.a")
    assert len(rows) == 4
    assert all(row.keys() == {"id", "v"} and _has_nothing(row["v"]) for row in rows)


@_EACH
def test_an_excluded_value_is_rescued_where_the_table_rescues(
    tmp_path: Path, kind: str, out: tuple[str, ...], good: Any, bad: Any, path: str
) -> None:
    scene = _scene(tmp_path, kind, out, rescue=True)
    assert _run(scene, bad, good).status.run_state is RunState.WAITING
    first, second = scene.rows("n.a")
    assert second["_rescued"] is None
    for name, held in json.loads(first["_rescued"]).items():
        assert (name.partition("#")[0], "does not fit" in held["reason"]) == (path, True)


@_EACH
def test_the_table_stops_at_it_where_that_is_asked_for(
    tmp_path: Path, kind: str, out: tuple[str, ...], good: Any, bad: Any, path: str
) -> None:
    scene = _scene(tmp_path, kind, out, on_bad_record="stop")
    _run(scene, good)
    table = _run(scene, bad)
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "topic a, partition 0, offset 1")
    assert table.status.reason.startswith(f"field {path}: ")


@pytest.mark.parametrize(
    ("kind", "out", "value", "after"),
    [
        ("struct<p: int>", ("v", "p"), {"p": 1, "q": 2}, {"p": None, "q": 2}),
        ("list<struct<p: int>>", ("v", "element", "p"), [{"q": 2}, {}], [{"p": None, "q": 2}, {"p": None, "q": None}]),
        ("struct<s: struct<p: int>>", ("v", "s", "p"), {"s": {"p": 1, "q": 2}}, {"s": {"p": None, "q": 2}}),
    ],
)
def test_a_new_member_comes_in_beside_what_is_left_out(
    tmp_path: Path, kind: str, out: tuple[str, ...], value: Any, after: Any
) -> None:
    scene = _scene(tmp_path, kind, out)
    assert _run(scene, value).status.run_state is RunState.WAITING
    assert [row["v"] for row in scene.rows("n.a")] == [after]


def test_an_include_of_a_member_that_the_column_cannot_have_makes_bad_records(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"v": {"s": 1}})
    scene.catch_up()
    scene.settings["include"] = (("id",), ("v", "s", "x"))
    scene.feed("a", {"id": 2, "v": {"s": {"x": 1}}}, {"id": 3})
    table = only(scene.catch_up())
    assert (table.status.run_state, scene.dead_letters("n.a")) == (RunState.WAITING, [("a", 0, 1)])
    assert [(row.get("id"), row["v"]) for row in scene.rows("n.a")] == [(None, {"s": 1}), (3, None)]


_P = {"type": "record", "name": "P", "fields": [{"name": "p", "type": "int"}]}


@pytest.mark.parametrize(
    ("kind", "out", "good", "bad"),
    [
        ("struct<p: int>", ("v", "p"), (_P, {"p": 1}), ("int", 5)),
        ("list<struct<p: int>>", ("v", "element", "p"), ({"type": "array", "items": _P}, [{"p": 1}]),
         ({"type": "array", "items": "int"}, [5])),
        ("map<string, struct<p: int>>", ("v", "value", "p"), ({"type": "map", "values": _P}, {"a": {"p": 1}}),
         ({"type": "map", "values": "int"}, {"a": 5})),
    ],
)  # fmt: skip
def test_records_of_the_registry_with_excluded_values_are_bad_records(
    tmp_path: Path, kind: str, out: tuple[str, ...], good: tuple[Any, Any], bad: tuple[Any, Any]
) -> None:
    columns = (ColumnSpec(name="v", type=parse_type(kind)),)
    scenario = Scenario(tmp_path, columns=columns, exclude=(out,), dead_letters={"stop_above": 1.0})
    for number, (written, value) in enumerate((bad, good, bad, good)):
        text = avro(id="int", v=written)
        scenario.produce(scenario.register(text), text, {"id": number, "v": value})
        service = scenario.start()
        scenario.settle(service)
        assert [table.status.reason for table in service.tables] == [""]
    assert scenario.rows() == [{"id": 1, "v": None}, {"id": 3, "v": None}]
    dead_letters = [
        (dead_letter["offset"], dead_letter["error_class"]) for dead_letter in scenario.rows("n.t__dead_letters")
    ]
    assert dead_letters == [(0, "type_mismatch"), (2, "type_mismatch")]


def test_what_is_required_of_a_struct_of_which_nothing_is_taken_is_asked_of_no_record() -> None:
    kind = parse_type("struct<v: struct<s: struct<p: int>>, l: list<struct<p: int>>>")
    assert isinstance(kind, StructType)
    whole = [member.model_copy(update={"required": True}) for member in kind.fields]
    layout = make_projection(whole, Shaping(exclude=(("v", "s", "p"), ("l", "element", "p"))))
    assert (layout.paths, [member.required for member in layout.fields]) == ({}, [False, False])


_TYPES = st.recursive(
    st.sampled_from(["int", "string"]),
    lambda inner: (
        inner.map(lambda kind: f"list<{kind}>")
        | inner.map(lambda kind: f"map<string, {kind}>")
        | st.dictionaries(st.sampled_from("pqs"), inner, min_size=1, max_size=2).map(
            lambda members: f"struct<{', '.join(f'{name}: {kind}' for name, kind in members.items())}>"
        )
    ),
    max_leaves=4,
)
_VALUES = st.recursive(
    st.sampled_from([None, 1, 2, 1.5, "x", True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pqs"), inner, max_size=2),
    max_leaves=5,
)
_RECORDS = st.fixed_dictionaries({"v": _VALUES}, optional={"w": _VALUES})


def _paths(kind: IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All paths into a field."""
    yield path
    if isinstance(kind, StructType):
        for member in kind.fields:
            yield from _paths(member.field_type, (*path, member.name))
    elif isinstance(kind, ListType):
        yield from _paths(kind.element_type, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from _paths(kind.value_type, (*path, "value"))


@given(st.data())
@settings(
    max_examples=10 * int(os.environ.get("FRAZIL_EXAMPLES", "1")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_left_out_each_record_is_a_row_or_a_dead_letter_and_the_table_continues(
    tmp_path: Path, data: st.DataObject
) -> None:
    kind = parse_type(data.draw(_TYPES))
    some = st.sampled_from([*_paths(kind, ("v",)), ("w",), ("w", "p"), ("w", "element", "q")])
    paths = tuple(data.draw(st.lists(some, min_size=1, max_size=3, unique=True)))
    taken = data.draw(st.sampled_from([{"exclude": paths}, {"include": (("id",), *paths)}]))
    scene = Scene(
        tmp_path / new_id(),
        "a",
        columns=(ColumnSpec(name="id", type=parse_type("int")), ColumnSpec(name="v", type=kind)),
        dead_letters=DeadLettersSpec(stop_above=1.0),
        flatten=data.draw(st.sampled_from([None, FlattenSpec(), FlattenSpec(depth=1)])),
        rescue=data.draw(st.booleans()),
        unknown_fields=data.draw(st.sampled_from(["add", "drop"])),
        **taken,
    )
    count = 0
    for batch in data.draw(st.lists(st.lists(_RECORDS, min_size=1, max_size=3), min_size=1, max_size=3)):
        scene.feed("a", *({"id": count + n, **record} for n, record in enumerate(batch)))
        count += len(batch)
        table = only(scene.catch_up())
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    has_dead_letters = scene.catalog.load("n.a__dead_letters") is not None
    places = [row["id"] for row in scene.rows("n.a")]
    places += [offset for *_, offset in scene.dead_letters("n.a")] if has_dead_letters else []
    assert sorted(places) == list(range(count))
