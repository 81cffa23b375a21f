"""Tables that keep the metadata file of every commit, or remove files that their catalog needs: a run reports it, once of
each table.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.types import LongType
from structlog.testing import capture_logs

from frazil.catalog.port import TableState
from frazil.dead_letters.tables import DELETES_OLD
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.schema.evolve import new_schema
from tests.unit.ingest.service_scene import Scene, turn_until

_KEPT, _REMOVED = "old_metadata_kept", "old_metadata_removed"


@pytest.mark.parametrize(
    ("properties", "must_keep", "event", "value"),
    [
        ({}, False, _KEPT, "true"),
        ({DELETES_OLD: "true"}, False, None, None),
        ({DELETES_OLD: "false"}, False, None, None),
        (None, False, None, None),
        ({}, True, None, None),
        ({DELETES_OLD: "True"}, True, _REMOVED, "false"),
        ({DELETES_OLD: "false"}, True, None, None),
    ],
)
def test_a_table_whose_metadata_files_pile_up_or_are_removed_too_early_is_reported_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str] | None,
    must_keep: bool,
    event: str | None,
    value: str | None,
) -> None:
    scene = Scene(tmp_path, "a")
    load = scene.catalog.load

    def of_this_catalog(table: str) -> TableState | None:
        state = load(table)
        return state and replace(state, must_keep_metadata=must_keep)

    monkeypatch.setattr(scene.catalog, "load", of_this_catalog)
    if properties is not None:
        scene.catalog.create("n.a", new_schema([("id", LongType())]), properties, 2)
    scene.feed("a", {"id": 1})
    with capture_logs() as logs:
        service = scene.start()
        assert turn_until(service, lambda: scene.catalog.load("n.a") and scene.rows("n.a"))
        scene.clock.sleep(RELOAD_IDLE_EVERY_S)
        scene.feed("a", {"id": 2})
        assert turn_until(service, lambda: len(scene.rows("n.a")) == 2)
    reported = [one for one in logs if one["event"] in (_KEPT, _REMOVED)]
    wanted = [(event, "n.a", "warning")] if event else []
    assert [(one["event"], one["table"], one["log_level"]) for one in reported] == wanted
    remedy = f"`ALTER TABLE n.a SET TBLPROPERTIES ('{DELETES_OLD}' = '{value}')`"
    assert all(remedy in one["reason"] for one in reported)
