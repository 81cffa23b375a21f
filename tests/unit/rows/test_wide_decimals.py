"""Decimals of more than 38 digits, which no decimal column has, in columns of text and of bytes."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.spec import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene
from tests.unit.ingest.tables.test_schemas import Scenario, avro

_WIDE = {"logicalType": "decimal", "precision": 60, "scale": 2}
_BYTES, _FIXED = {"type": "bytes", **_WIDE}, {"type": "fixed", "name": "F", "size": 26, **_WIDE}
_OF_CONNECT = {
    **_BYTES,
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2"},
}
_NUMBERS = [("0.65", "0.65"), ("-0.05", "-0.05"), ("1E+45", "1" + "0" * 45 + ".00"), ("12.30", "12.30")]


def _text(is_coerced: bool) -> tuple[ColumnSpec, ...]:
    return (ColumnSpec(name="v", type=parse_type("string"), coerce=is_coerced),)


@pytest.mark.parametrize("kind", [_BYTES, _FIXED, _OF_CONNECT], ids=["bytes", "fixed", "connect"])
@pytest.mark.parametrize("is_coerced", [False, True])
def test_a_decimal_that_no_column_has_is_its_digits_in_a_column_of_text(
    tmp_path: Path, kind: Any, is_coerced: bool
) -> None:
    scenario = Scenario(tmp_path, columns=_text(is_coerced))
    text = avro(v=kind)
    scenario.produce(scenario.register(text), text, *({"v": Decimal(number)} for number, _ in _NUMBERS))
    scenario.settle(scenario.start())
    assert [row["v"] for row in scenario.rows()] == [digits for _, digits in _NUMBERS]


def test_a_decimal_that_no_column_has_is_its_bytes_without_a_declaration(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    text = avro(v=_BYTES)
    scenario.produce(scenario.register(text), text, {"v": Decimal("0.65")})
    scenario.settle()
    assert scenario.rows() == [{"v": b"A"}]


@pytest.mark.parametrize("is_coerced", [False, True])
def test_a_decimal_of_connect_is_its_digits_in_a_column_of_text(tmp_path: Path, is_coerced: bool) -> None:
    scene = Scene(tmp_path, "a", columns=_text(is_coerced))
    schema = {
        "type": "struct",
        "fields": [
            {"field": "v", "type": "bytes", "name": _OF_CONNECT["connect.name"], "parameters": {"scale": "2"}},
        ],
    }
    for number, _ in _NUMBERS:
        unscaled = int(Decimal(number).scaleb(2)).to_bytes(26, "big", signed=True)
        payload = {"v": base64.b64encode(unscaled).decode()}
        scene.feed("a", json.dumps({"schema": schema, "payload": payload}).encode())
    scene.catch_up()
    assert [row["v"] for row in scene.rows("n.a")] == [digits for _, digits in _NUMBERS]
