"""Records that contradict each other, and commits that are refused: no table is tried again and again without a pause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.errors import ConflictError
from frazil.ingest.loop.table_updates import CONFLICTS_AT_ONCE
from frazil.ingest.tables.state import RunState
from frazil.types import Commit, Progress
from tests.unit.ingest.service_scene import Scene, only, turn_until


def test_a_field_of_two_kinds_is_rescued_where_a_bad_record_would_stop_the_table(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="stop", rescue=True)
    scene.source.create("a", 2)  # Each range is read by itself, and infers a type of its own.
    scene.feed("a", {"x": 1}, partition=0)
    scene.feed("a", {"x": "a"}, partition=1)
    table = only(scene.catch_up(turns=60))
    assert table.status.run_state is RunState.WAITING
    assert len(scene.catalog.ancestors("n.a")) == 1
    by_value = {row["x"]: row["_rescued"] for row in scene.rows("n.a")}
    assert by_value[1] is None
    assert json.loads(by_value[None]) == {"x": {"reason": 'string "a" does not fit long', "value": "a"}}


def test_a_table_whose_commits_are_refused_without_end_is_tried_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "a")
    tried_at_s: list[float] = []

    def refuse(commit: Commit) -> Progress:
        tried_at_s.append(scene.clock.monotonic_s())
        raise ConflictError("refused", where=commit.table)

    scene.feed("a", {"x": 1})
    with monkeypatch.context() as patch:
        patch.setattr(scene.catalog, "commit", refuse)
        service = scene.start()
        began_s = scene.clock.monotonic_s()
        assert turn_until(service, lambda: scene.clock.monotonic_s() > began_s + 60, 5000)
        assert CONFLICTS_AT_ONCE < len(tried_at_s) < 20
        assert only(service.tables).status.run_state is RunState.BACKING_OFF
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.WAITING, 5000)
    assert scene.rows("n.a") == [{"x": 1}]
