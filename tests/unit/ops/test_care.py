"""The tables of a running pipeline as table care sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from frazil.catalog.port import TableSize
from frazil.ingest.table import Table
from frazil.ops.care import charges, seen_by
from frazil.spec.models import MaintenanceSpec, TableSpec, TopicSelector


def table(name: str, maintenance: Mapping[str, Any] | None = None, **known: Any) -> Table:
    spec = {"name": name, "topics": (TopicSelector(literal="a"),), "maintenance": maintenance or {}}
    return Table(TableSpec.model_validate(spec), size=TableSize(1, 2, 3, 4), **known)


def test_the_oldest_batch_in_hand_is_told_of_a_table_and_of_its_dead_letters() -> None:
    idle = table("n.idle", last_batch_at_s=5.0, letter_count=1)
    busy = table("n.busy", last_batch_at_s=7.0, letter_count=1, in_flight=True)
    found = {seen.charge.name: seen.batch_s for seen in seen_by([idle, busy])}
    assert found == {
        "n.idle": None,
        "n.idle__dead_letters": None,
        "n.busy": 7.0,
        "n.busy__dead_letters": 7.0,
    }


@pytest.mark.parametrize("order", ["sort", "zorder"])
def test_dead_letters_have_their_own_columns_and_no_order_by_the_table_s(order: str) -> None:
    spec = {order: ("page_url",), "snapshot_count": 7, "cores": 2}
    own, box = charges([table("n.t", maintenance=spec)])
    assert (box.name, box.owners) == ("n.t__dead_letters", ("n.t",))
    assert own.care.spec == MaintenanceSpec.model_validate(spec)
    assert box.care.spec == MaintenanceSpec(snapshot_count=7, cores=2)
