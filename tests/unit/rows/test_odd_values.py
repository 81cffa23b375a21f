"""Values that nobody should have produced: as the first record of a table, and where unknown fields are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.tables.state import RunState
from frazil.spec import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.fixtures.odd_values import BAD, BAD_AT_FIRST, DECLARED, ODD, VALUES
from tests.unit.ingest.service_scene import Scene, only, turn_until

RECORDS = [{"id": number, "text": "a", "amount": number / 8} for number in range(300)]


@pytest.mark.parametrize("name", BAD_AT_FIRST)
def test_a_bad_first_record_stops_a_table_that_has_no_columns_yet(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="stop")
    scene.feed("a", VALUES[name], *RECORDS[:10])
    service = scene.start()
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.STOPPED)
    table = only(service.tables)
    assert BAD[name][1] in table.status.reason
    assert (table.status.where, table.state) == ("topic a, partition 0, offset 0", None)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_first_record_is_a_row_like_any_other(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="stop")
    scene.feed("a", VALUES[name], *RECORDS[:10])
    scene.catch_up()
    assert len(scene.rows("n.a")) == 11


def test_where_fields_are_dropped_bad_values_are_dead_letters_and_odd_ones_rows(tmp_path: Path) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in DECLARED.items())
    scene = Scene(tmp_path, "a", columns=columns, unknown_fields="drop")
    scene.feed("a", *VALUES.values(), *RECORDS)
    scene.catch_up()
    bad = [("a", 0, offset) for offset, name in enumerate(VALUES) if name in BAD]
    assert scene.dead_letters("n.a") == bad
    assert len(scene.rows("n.a")) == len(VALUES) + len(RECORDS) - len(bad)
