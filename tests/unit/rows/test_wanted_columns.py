"""Only records that become rows change the table, whatever is wrong with the others and wherever it is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType

from frazil.spec.settings import EnvelopeSpec
from tests.fixtures.slices import sliced
from tests.needs import needs
from tests.unit.ingest.tables.test_schemas import Scenario as AvroScenario
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import UpsertSource, made

Row = dict[str, Any]
_NEW: Row = {"id": 2, "v": "b", "extra": 1, "more": {"a": 1}}
_KEY = {"id": 2}


def _canal(**row: str) -> Row:
    kinds = {"id": "int(11)", "v": "varchar(20)"} | dict.fromkeys(row.keys() - {"id"}, "varchar(20)")
    return {
        "data": [row],
        "isDdl": False,
        "mysqlType": kinds,
        "old": None,
        "pkNames": ["id"],
        "type": "INSERT",
        "es": 5,
        "ts": 6,
    }


BAD: list[tuple[str, Any, Any]] = [
    ("unknown_operation", _KEY, {"op": "?", "before": None, "after": _NEW}),
    ("unknown_operation", _KEY, {"op": None, "before": None, "after": _NEW}),
    ("missing_image", _KEY, {"op": "d", "before": None, "after": _NEW}),
    ("missing_key", _KEY, {"op": "c", "before": None, "after": {**_NEW, "id": None}}),
    ("no_key", None, {"op": "c", "before": None, "after": _NEW}),
    ("key_mismatch", {"other": 2}, {"op": "c", "before": None, "after": _NEW}),
    ("type_mismatch", _KEY, {"op": "c", "before": None, "after": {**_NEW, "v": {"no": "text"}}}),
]


def _columns(scenario: Any) -> list[str]:
    state = scenario.catalog.load("n.t")
    return [] if state is None else [field.name for field in state.schema.fields]


@pytest.mark.parametrize(("kind", "key", "value"), BAD, ids=[f"{n}-{kind}" for n, (kind, *_) in enumerate(BAD)])
@pytest.mark.parametrize(
    ("form", "is_alone"), sliced([("plain", True), ("schema", False), ("plain", False), ("schema", True)], 2)
)
def test_a_bad_record_of_debezium_brings_no_column(
    tmp_path: Path, kind: str, key: Any, value: Any, form: str, is_alone: bool
) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(made({"id": 1, "v": "a"}))
    if form == "schema":
        value = {"schema": _schema_of(value), "payload": value}
    scenario.put(None if key is None else json.dumps(key), value)
    scenario.say(*([] if is_alone else [made({"id": 3, "v": "c", "fine": 1})]))
    assert [one for one, _ in scenario.dead_letters()] == [kind]
    assert _columns(scenario) == ["id", "v", *([] if is_alone else ["fine"])]
    assert [row["id"] for row in scenario.by_id()] == [1, *([] if is_alone else [3])]


def _schema_of(value: Any) -> Any:
    """The schema that Connect's converter would write with it."""

    def named(name: str, held: Any) -> Row:
        if isinstance(held, dict):
            return {"field": name, "type": "struct", "optional": True, "fields": [named(*one) for one in held.items()]}
        kinds = {int: "int64", str: "string", type(None): "string"}
        return {"field": name, "type": kinds[type(held)], "optional": True}

    found = named("", value)
    row = [named(*one) for one in _NEW.items()]
    for image in found["fields"]:
        if image["field"] in ("before", "after"):
            image |= {"type": "struct", "fields": row}
    return found


def test_bad_records_do_not_decide_the_type_of_a_new_column(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(made({"id": 1, "v": "a"}))
    scenario.say(
        ({"id": 2}, {"op": "?", "before": None, "after": {"id": 2, "x": "text"}}),
        made({"id": 3, "v": "c", "x": 5}),
        ({"id": 4}, {"op": "?", "before": None, "after": {"id": 4, "x": True}}),
    )
    assert [(row["id"], row["x"]) for row in scenario.by_id()] == [(1, None), (3, 5)]
    assert len(scenario.dead_letters()) == 2


def test_a_record_that_needs_a_wider_column_is_a_row_beside_a_bad_one(tmp_path: Path) -> None:
    scenario = AvroScenario(tmp_path, on_bad_record="dead_letter", dead_letters={"stop_above": 1.0}, columns=())
    narrow, wide = avro(id="int"), avro(id="long")
    scenario.produce(scenario.register(narrow), narrow, {"id": 1})
    scenario.settle()
    scenario.source.produce("a", 0, b"no frame")
    scenario.produce(scenario.register(wide), wide, {"id": 2**40})
    scenario.settle(scenario.start())
    assert [row["id"] for row in scenario.rows()] == [1, 2**40]


def test_a_schema_none_of_whose_records_is_a_row_changes_nothing(tmp_path: Path) -> None:
    scenario = AvroScenario(tmp_path, on_bad_record="dead_letter", dead_letters={"stop_above": 1.0})
    first, other = avro(id="int"), avro(id="string", extra="string")
    scenario.produce(scenario.register(first), first, {"id": 1})
    scenario.settle()
    number = scenario.register(other)
    scenario.produce(number, other, {"id": "no number", "extra": "x"})
    scenario.settle(scenario.start())
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert [(field.name, field.field_type) for field in state.schema.fields] == [("id", IntegerType())]


@pytest.mark.parametrize(
    ("envelope", "good", "bad"),
    [
        (
            EnvelopeSpec(kind="operation", operation="ops", insert=("I",), update=("U",), delete=("D",)),
            {"id": 1, "v": "a", "ops": "I"},
            {"id": 2, "v": "b", "ops": "?", "extra": 1},
        ),
        pytest.param(
            EnvelopeSpec(kind="maxwell"),
            {"database": "s", "table": "t", "type": "insert", "data": {"id": 1, "v": "a"}},
            {"database": "s", "table": "t", "type": "?", "data": {"id": 2, "v": "b", "extra": 1}},
            marks=needs("cdc"),
        ),
        pytest.param(
            EnvelopeSpec(kind="canal"), _canal(id="1", v="a"), _canal(v="b", extra="c"), marks=needs("cdc")
        ),
    ],
    ids=["operation", "maxwell", "canal"],
)  # fmt: skip
def test_a_bad_record_of_another_envelope_brings_no_column(
    tmp_path: Path, envelope: EnvelopeSpec, good: Row, bad: Row
) -> None:
    scenario = UpsertSource(tmp_path, envelope=envelope, key_columns=("id",))
    scenario.put('{"id": 1}', good)
    scenario.put('{"id": 2}', bad)
    scenario.catch_up()
    assert (len(scenario.dead_letters()), [name for name in _columns(scenario) if name not in ("id", "v")]) == (1, [])


def test_a_row_whose_key_reports_otherwise_brings_no_column(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, dead_letters={"stop_above": 1.0})
    scenario.tell(('{"id": 1}', {"id": 1, "v": "a"}))
    scenario.tell(('{"id": 2}', {"id": 3, "v": "b", "extra": 1}), ('{"id": 4}', {"id": 4, "v": "d", "fine": 1}))
    assert (_columns(scenario), len(scenario.dead_letters())) == (["id", "v", "fine"], 1)
