"""Types that the tasks of a new table's first batch find for a field: what fits the first one is a row, also where the
table stops at bad records.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import WriterSchema
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ValueSpec
from frazil_testing.twins import MemoryJobs
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.rows.test_writer_schemas import framed

_UPSERT = {"mode": "upsert", "key_columns": ("id",)}


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _read(root: Path, tasks: int, *values: tuple[Any, Any], **settings: Any) -> tuple[Scenario, Table]:
    """The table of one record for each type and value, of which every task reads the same number."""
    scenario = Scenario(root, value=ValueSpec(format="avro"), **settings)
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=tasks)
    for number, (kind, value) in enumerate(values):
        text = avro(id="int", v=kind)
        schema_id = scenario.registry.register("avro", text, subject="a-value")
        (record,) = framed(schema_id, WriterSchema("avro", text), {"id": number, "v": value})
        scenario.source.produce("a", 0, record)
    return scenario, scenario.catch_up()


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("on_bad_record", ["dead_letter", "stop"])
@pytest.mark.parametrize("mode", [{}, _UPSERT], ids=["append", "upsert"])
def test_decimals_of_another_scale_that_fit_the_first_one_are_rows(
    tmp_path: Path, mode: dict[str, Any], on_bad_record: str, tasks: int
) -> None:
    values = [(_decimal(10, 2), Decimal("1.25")), (_decimal(12, 4), Decimal("2.5000"))]
    scenario, _ = _read(tmp_path, tasks, *values, on_bad_record=on_bad_record, **mode)
    assert sorted((row["id"], str(row["v"])) for row in scenario.rows()) == [(0, "1.25"), (1, "2.50")]


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_decimal_with_more_digits_than_the_first_scale_has_stops_the_table_with_its_place(
    tmp_path: Path, tasks: int
) -> None:
    values = [(_decimal(10, 2), Decimal("1.25")), (_decimal(12, 4), Decimal("2.5001"))]
    _, table = _read(tmp_path, tasks, *values, on_bad_record="stop")
    assert table.status.run_state is RunState.STOPPED
    assert table.status.where == "topic a, partition 0, offset 1"
