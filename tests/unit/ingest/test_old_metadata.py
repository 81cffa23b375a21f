"""Tables that keep the metadata file of every commit: a run reports it, once of each table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import LongType
from structlog.testing import capture_logs

from frazil.dead_letters.tables import DELETES_OLD
from frazil.ingest.load import RELOAD_IDLE_EVERY_S
from frazil.schema.evolve import new_schema
from tests.unit.ingest.service_scene import Scene, turn_until


@pytest.mark.parametrize(
    ("properties", "is_told"),
    [({}, True), ({DELETES_OLD: "true"}, False), ({DELETES_OLD: "false"}, False), (None, False)],
)
def test_a_table_that_does_not_say_what_becomes_of_them_is_told_once(
    tmp_path: Path, properties: dict[str, str] | None, is_told: bool
) -> None:
    scene = Scene(tmp_path, "a")
    if properties is not None:
        scene.catalog.create("n.a", new_schema([("id", LongType())]), properties, 2)
    scene.feed("a", {"id": 1})
    with capture_logs() as logs:
        service = scene.start()
        assert turn_until(service, lambda: scene.catalog.load("n.a") and scene.rows("n.a"))
        scene.clock.sleep(RELOAD_IDLE_EVERY_S)
        scene.feed("a", {"id": 2})
        assert turn_until(service, lambda: len(scene.rows("n.a")) == 2)
    told = [one for one in logs if one["event"] == "old_metadata_kept"]
    assert [(one["table"], one["log_level"]) for one in told] == [("n.a", "warning")] * is_told
    remedy = f"`ALTER TABLE n.a SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`"
    assert all(remedy in one["reason"] for one in told)
