"""Sizes of tables that something other than their batches has changed: they are current also without a new commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.catalog.port import TableSize
from frazil.ingest.loop.load import RELOAD_IDLE_EVERY_S
from frazil.ingest.loop.requests import UnknownTable
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from tests.unit.ingest.service_scene import Scene, only, turn_until

BEFORE, AFTER = TableSize(3, 3, 900, 3), TableSize(3, 1, 320, 5)


class Maintained:
    """A table with three commits of a running pipeline, whose files maintenance then compacts."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
        self.scene = Scene(root, "a")
        for number in range(3):
            self.scene.feed("a", {"x": number})
            self.scene.catch_up()
        self.service: Service = self.scene.start()
        self.table = only(self.service.tables)
        for _ in range(5):
            self.service.turn()
        self.size = BEFORE
        monkeypatch.setattr(self.scene.catalog, "size", lambda _: self.size)
        self.table.catalog.size = BEFORE
        match state:
            case "paused":
                self.table.schedule.is_paused = True
            case "stopped":
                self.table.status.set(RunState.STOPPED)

    def compact(self) -> None:
        """Changes the table as maintenance does: the files and not the rows."""
        self.size = AFTER
        found = self.scene.catalog._tables["n.a"]
        found.state = replace(found.state)

    def is_current(self) -> bool:
        return self.table.catalog.size == AFTER


@pytest.mark.parametrize("state", ["waiting", "paused", "stopped"])
def test_a_table_that_was_maintained_is_measured_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    maintained = Maintained(tmp_path, monkeypatch, state)
    maintained.compact()
    since_s = maintained.scene.clock.monotonic_s()
    maintained.service.requests.reload("n.a")
    assert turn_until(maintained.service, maintained.is_current)
    assert maintained.scene.clock.monotonic_s() - since_s < 2
    assert maintained.table.shown_status.run_state.value == state


@pytest.mark.parametrize("state", ["waiting", "paused", "stopped"])
def test_what_another_process_has_done_is_shown_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    maintained = Maintained(tmp_path, monkeypatch, state)
    maintained.compact()
    since_s = maintained.scene.clock.monotonic_s()
    assert turn_until(maintained.service, maintained.is_current, turns=5_000)
    assert maintained.scene.clock.monotonic_s() - since_s < 2 * RELOAD_IDLE_EVERY_S
    assert maintained.table.shown_status.run_state.value == state


def test_a_dead_letter_table_is_no_table_of_the_loop(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    service = scene.start()
    service.requests.reload("n.a__dead_letters")
    service.turn()
    with pytest.raises(UnknownTable):
        service.requests.find("n.a__dead_letters")
