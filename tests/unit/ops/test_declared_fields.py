"""Columns whose declared field no record has: what check, plan and the log report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.ops.check import check_records
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.ops.conftest import Scenario
from tests.unit.ops.test_plan import plan
from tests.unit.rows.test_shaped_service import Scenario as Shaped

_ROW = {"id": 1, "amount": 2.5}
_CHANGES: dict[str, dict[str, Any]] = {
    "debezium": {"op": "c", "after": _ROW, "before": None},
    "maxwell": {"database": "d", "table": "t", "type": "insert", "ts": 1, "xid": 1, "commit": True, "data": _ROW},
}


def _sample(scenario: Scenario, *records: dict[str, Any]) -> None:
    scenario.source.create("a")
    for record in records:
        scenario.source.produce("a", 0, json.dumps(record).encode())


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        ("debezium", "after"),
        ("debezium", "before"),
        pytest.param("maxwell", "data", marks=needs("cdc")),
        pytest.param("maxwell", "old", marks=needs("cdc")),
    ],
)
def test_plan_and_check_name_the_field_of_the_row_in_place_of_one_of_the_envelope(
    scenario: Scenario, kind: str, member: str
) -> None:
    _sample(scenario, _CHANGES[kind])
    columns = f"columns: {{total: {{type: double, field: {member}.amount}}}}"
    planned = plan(scenario, f"tables: {{s.a: {{topic: a, envelope: {kind}, {columns}}}}}\n")["s.a"]
    assert planned.warnings == (
        f"`columns: {{total: {{field: {member}.amount}}}}` names a member of the envelope, and fields are those of the row"
        f" in it: the column stays null unless rows have a field `{member}`. Write `field: amount`",
    )


@pytest.mark.parametrize(
    ("record", "settings", "field", "meant"),
    [
        ({"id": 1, "amount": 2}, "", "payload.amount", "amount"),
        (_CHANGES["debezium"], "envelope: debezium, ", "payload.after.amount", "amount"),
        (_CHANGES["debezium"], "envelope: debezium, ", "amuont", "amount"),
        ({"o": {"Total": 2}}, "", "o.totl", "o.Total"),
        ({"o": {"Total": 2}}, "", "x", ""),
    ],
)
def test_a_field_that_no_record_of_the_sample_has_is_a_warning_of_plan_and_check(
    scenario: Scenario, record: dict[str, Any], settings: str, field: str, meant: str
) -> None:
    _sample(scenario, record)
    columns = f"columns: {{c: {{type: double, field: {field}}}}}"
    planned = plan(scenario, f"tables: {{s.a: {{topic: a, {settings}{columns}}}}}\n")
    close = f"; did you mean `{meant}`?" if meant else ""
    wanted = f"`columns` names `{field}`, and none of 1 record in the sample has it{close}"
    assert planned["s.a"].warnings == (wanted,)
    assert [one.found for one in check_records(planned.values(), ())] == [f"warning: {wanted}"]


@pytest.mark.parametrize("field", ["amount", "AMOUNT", "o.total"])
def test_a_field_that_a_record_has_is_none(scenario: Scenario, field: str) -> None:
    _sample(scenario, {"amount": 1, "o": {"total": 2}}, {"id": 1})
    columns = f"columns: {{c: {{type: double, field: {field}}}}}"
    assert plan(scenario, f"tables: {{s.a: {{topic: a, {columns}}}}}\n")["s.a"].warnings == ()


def test_the_log_of_a_run_warns_once(tmp_path: Path) -> None:
    column = ColumnSpec(name="total", type=parse_type("double"), field=("after", "amount"))
    scenario = Shaped(tmp_path, envelope=EnvelopeSpec(kind="debezium"), columns=(column,))
    with capture_logs() as logs:
        scenario.run(_CHANGES["debezium"], _CHANGES["debezium"])
    warned = [log for log in logs if log["event"] == "column_without_field"]
    assert [(log["table"], log["log_level"], log["reason"][-21:]) for log in warned] == [
        ("n.t", "warning", "Write `field: amount`")
    ]
    assert [row["total"] for row in scenario.rows()] == [None, None]
