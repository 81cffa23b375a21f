"""What a table becomes does not depend on where batches end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.ingest import plan
from frazil.ingest.batches.schema_updates import sample_reads
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, FlattenSpec
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.types import parse_type
from frazil.types import OffsetRange
from tests.fixtures.slices import sliced
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.schema.test_name_case import columns_of, dead_letters_of

RECORDS: list[Any] = [
    {"late": None, "id": 1, "tags": [], "o": {}},
    b"not json",
    {"id": 2, "n": 1, "o": {"x": None}},
    {"id": 3, "f": 1.5, "o": {"y": 1}, "tags": [None]},
    {"id": 4, "n": 2, "tags": ["a"], "o": {"x": "s"}, "pairs": [{"k": 1}]},
    {"id": "five"},
    {"id": 6, "late": True, "o": {"z": {"deep": [1]}}},
    {"id": 7, "huge": 99999999999999999999, "new": 1},
    {"id": 8, "pairs": [{"v": "b"}, {"k": 2}], "after": {"q": []}},
    {"ID": 9, "o": {"X": "t"}, "m": {"a": {"b": 1}}},
    {"id": 10, "ID": 11, "never": 1},
    {"id": 12, "a.b": 1, "a": {"b": 2}},
    {"id": 13, "new": "text", "last": "2026-01-01"},
    {"id": 14, "after": {"q": ["w"], "r": 2}, "big": 2**40},
    {"id": 15, "big": 1, "new": "x", "a": {"c": 3}},
]
FRACTIONS: list[Any] = [
    {"id": 16, "n": 2.5, "pairs": [{"k": 0.5}], "o": {"y": 1e3, "z": {"deep": [0.25]}}},
    {"id": 17, "big": 1.5, "m": {"a": {"b": 0.125}}},
]


def outcome(scene: Scene, with_empty: bool = True) -> tuple[dict[str, str], list[Any], list[Any]]:
    """The columns in order, the rows as they read with the newest columns, and the dead letters."""
    columns = columns_of(scene)
    rows = [{name: _filled(row.get(name), with_empty) for name in columns} for row in scene.rows("n.a")]
    return columns, sorted(rows, key=str), [dead_letter[0] for dead_letter in dead_letters_of(scene)]


def _filled(value: Any, with_empty: bool) -> Any:
    """A value without members that are null, as files from before a member was there have none. with_empty: an empty list or
    record is no null, which it is where no column was there yet that tells them apart.
    """
    if isinstance(value, dict):
        filled = {name: _filled(one, with_empty) for name, one in sorted(value.items())}
        value = {name: one for name, one in filled.items() if one is not None}
    elif isinstance(value, list):
        value = [_filled(one, with_empty) for one in value]
    is_empty = isinstance(value, dict | list) and not any(value)
    return None if is_empty and not with_empty else value


def cut_into(root: Path, size: int, records: list[Any], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """The outcome of a topic that is there as a whole, read in batches of `size` records."""
    monkeypatch.setattr(plan, "FIRST_BATCH_RECORDS", size)
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", size)
    scene = Scene(root / str(size), "a", dead_letters={"stop_above": 1.0}, **settings)
    scene.feed("a", *records)
    assert only(scene.catch_up(turns=2000)).status.run_state is RunState.WAITING
    return outcome(scene)


@pytest.mark.parametrize("settings", [{}, {"numbers": parse_type("double")}, {"numbers": parse_type("decimal(28,4)")}])
@pytest.mark.parametrize("sizes", sliced([[1, 2, 9], [3, 4, 5, 6, 7, 11, 16]], 1))
def test_a_topic_that_is_there_becomes_the_same_table_wherever_batches_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], settings: dict[str, Any]
) -> None:
    records = RECORDS + ([] if "numbers" in settings and settings["numbers"] != parse_type("double") else FRACTIONS)
    whole = cut_into(tmp_path, 1000, records, monkeypatch, **settings)
    assert len(whole[1]) >= 9
    for size in sizes:
        assert cut_into(tmp_path, size, records, monkeypatch, **settings) == whole, size


@pytest.mark.parametrize("settings", [{}, {"column_case": "lower"}, {"numbers": parse_type("double")}])
@pytest.mark.parametrize("sizes", sliced([[1, 2, 9], [3, 4, 5, 6, 7, 11]], 1))
def test_a_topic_that_grows_becomes_the_same_table_wherever_batches_end(
    tmp_path: Path, sizes: list[int], settings: dict[str, Any]
) -> None:
    """Each lot is read before the next one is there, so that no sample can know of it."""
    records = RECORDS + (FRACTIONS if settings.get("numbers") else [])
    found = []
    for size in (1000, *sizes):
        scene = Scene(tmp_path / str(size), "a", dead_letters={"stop_above": 1.0}, **settings)
        for start in range(0, len(records), size):
            scene.feed("a", *records[start : start + size])
            only(scene.catch_up())
        found.append(outcome(scene, with_empty=False))
        assert found[-1] == found[0], size


def test_columns_of_nested_records_come_in_one_order_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cut_into(tmp_path, 1000, RECORDS, monkeypatch, flatten=FlattenSpec())
    for size in (1, 2, 5, 9):
        assert cut_into(tmp_path, size, RECORDS, monkeypatch, flatten=FlattenSpec()) == whole, size


def test_declared_columns_beside_inferred_ones_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"columns": (ColumnSpec(name="id", type=parse_type("long")),)}
    records = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 1.5, "z": None}, {"id": 4, "z": 1}]
    whole = cut_into(tmp_path, 1000, records, monkeypatch, **settings)
    assert whole[0] == {"id": "long", "n": "double", "z": "long"}
    assert cut_into(tmp_path, 1, records, monkeypatch, **settings) == whole


def test_avro_schemas_become_the_same_table_wherever_batches_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        avro(id="int", x=["null", "int"]),
        avro(z="string", id="long", x=["null", "double"]),
        avro(id="long", more={"type": "array", "items": "float"}),
        avro(id="long", more={"type": "array", "items": "double"}, aa="boolean"),
    ]
    # The schema that comes first has not the lowest id.
    order, found = [2, 0, 1, 3], []
    for size in (1000, 1, 2, 3):
        monkeypatch.setattr(plan, "FIRST_BATCH_RECORDS", size)
        monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", size)
        scenario = Scenario(tmp_path / str(size))
        ids = [scenario.register(text, f"s{n}") for n, text in enumerate(texts)]
        for n in order:
            record = {"id": n, "x": n, "z": "t", "more": [0.5], "aa": True}
            scenario.produce(ids[n], texts[n], record)
        scenario.settle()
        columns = columns_of(scenario, "n.t")
        found.append((columns, [{name: row.get(name) for name in columns} for row in scenario.rows()]))
        assert found[-1] == found[0]
    assert found[0][0] == {"id": "long", "more": "list<double>", "x": "double", "z": "string", "aa": "boolean"}


def test_the_sample_is_all_of_a_topic_or_its_middle_and_its_end() -> None:
    position, read = {"a": {0: 10, 1: 0}}, [OffsetRange("a", 0, 10, 20)]

    def reads(*ends: int) -> list[list[tuple[int, int, int]]]:
        reach = {("a", n): end for n, end in enumerate(ends)}
        return [[(r.partition, r.start, r.end) for r in one] for one in sample_reads(position, read, reach, 250.0)]

    assert reads(20, 0) == []
    assert reads(30, 5) == [[(0, 20, 30), (1, 0, 5)]]
    assert reads(80_020, 0) == [[(0, 20, 50_020)], [(0, 50_020, 80_020)]]
    assert reads(1_000_020, 10) == [[(0, 475_025, 525_015), (1, 0, 10)], [(0, 950_030, 1_000_020), (1, 0, 10)]]


def test_large_records_make_a_small_sample() -> None:
    reach = {("a", 0): 1_000_000}
    parts = sample_reads({"a": {0: 0}}, [OffsetRange("a", 0, 0, 10)], reach, 1024 * 1024.0)
    assert [r.span for part in parts for r in part] == [64, 64]


def test_a_fraction_beyond_the_sample_is_a_dead_letter_whose_remedies_work(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"a": 1, "o": {"n": 1}, "l": [1]})
    scene.catch_up()
    scene.feed("a", {"a": 1.5}, {"o": {"n": 2.5}}, {"l": [3.5]})
    scene.settings = {"dead_letters": {"stop_above": 1.0}}
    scene.catch_up("a")
    messages = [dead_letter[3] for dead_letter in dead_letters_of(scene)]
    assert messages[0] == (
        "number 1.5 is not a whole number, as long needs: a new table with `numbers: double`, or with double where the"
        " column is declared, takes it, and here another column, `columns: {NAME: {type: double, field: a}}`"
    )
    assert "field: o.n}}`" in messages[1]
    assert messages[2].endswith(
        "a new table with `numbers: double`, or with double where the column is declared, takes it"
    )

    doubles = (
        ColumnSpec(name="a_double", type=parse_type("double"), field=parse_path("a")),
        ColumnSpec(name="n_double", type=parse_type("double"), field=parse_path("o.n")),
    )
    scene.settings = {"columns": doubles}
    scene.feed("a", {"a": 4.5, "o": {"n": 5}})
    scene.catch_up("a")
    assert scene.rows("n.a")[-1]["a_double"] == 4.5
    assert scene.rows("n.a")[-1]["n_double"] == 5.0

    scene.settings = {"numbers": parse_type("double")}
    scene.feed("b", {"a": 1, "o": {"n": 1}, "l": [1]})
    scene.catch_up("b")
    scene.feed("b", {"a": 1.5, "o": {"n": 2.5}, "l": [3.5]})
    scene.catch_up("b")
    assert scene.rows("n.b")[-1] == {"a": 1.5, "o": {"n": 2.5}, "l": [3.5]}


def test_all_numbers_become_the_type_that_is_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", numbers=parse_type("decimal(20,2)"))
    scene.feed("a", {"a": 1, "o": {"n": 1.25}, "l": [[1]], "t": "1", "m": [{"x": 12345678901234567}]}, {"a": 1.005})
    scene.catch_up()
    assert columns_of(scene) == {
        "a": "decimal(20, 2)",
        "o": "struct<n: decimal(20, 2)>",
        "l": "list<list<decimal(20, 2)>>",
        "t": "string",
        "m": "list<struct<x: decimal(20, 2)>>",
    }
    assert [(dead_letter[0], dead_letter[2]) for dead_letter in dead_letters_of(scene)] == [(1, "a")]
