"""Producers that make up new names without end: what is reported of them comes to an end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.ingest.loop.service import Service
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import MAX_REMEMBERED_NAMES, MORE_NAMES
from tests.unit.ingest.service_scene import Scene, only, turn_until

X = ColumnSpec(name="x", type=parse_type("long"))


def is_read_to(service: Service, end: int) -> bool:
    return only(service.tables).progress.offsets == {"a": {0: end}}


def after_batches(scene: Scene) -> Table:
    """Thirty batches, each with ten names that none had before."""
    service = scene.start()
    for batch in range(30):
        scene.feed("a", {"x": 1, **{f"f{batch}_{number}": 1 for number in range(10)}})
        assert turn_until(service, partial(is_read_to, service, batch + 1))
    return only(service.tables)


@pytest.mark.parametrize(
    ("settings", "seen"), [({"unknown_fields": "drop"}, "dropped"), ({"schema_evolution": "freeze"}, "refusals")]
)
def test_a_hundred_names_are_kept_and_reported(tmp_path: Path, settings: dict[str, Any], seen: str) -> None:
    scene = Scene(tmp_path, "a", columns=(X,), on_bad_record="skip", **settings)
    with capture_logs() as logged:
        names = getattr(after_batches(scene).schema, seen)
    assert len(names) == MAX_REMEMBERED_NAMES + 1
    assert MORE_NAMES in names
    reported = [event["change"] for event in logged if event["event"] == "schema_change_refused"]
    assert sorted(reported) == (sorted(names) if seen == "refusals" else [])


def test_a_task_reports_a_hundred_names(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", columns=(X,), unknown_fields="drop")
    scene.feed("a", {"x": 1, **{f"f{number}": 1 for number in range(500)}})
    table = only(scene.catch_up())
    assert len(table.schema.dropped) == MAX_REMEMBERED_NAMES + 1
