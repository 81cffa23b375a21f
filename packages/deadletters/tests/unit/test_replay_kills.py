"""Retries of dead letters in tables whose records replace rows: what a death in the middle leaves, and what others do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil import failpoints
from frazil.catalog.port import Replacement, Rewrite
from frazil.dead_letters.files import ReplayResult, Selection
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.failures import TableStopped
from frazil_deadletters import replay
from frazil_testing.twins import MemoryCatalog
from packages.deadletters.tests.unit.scene import DEAD_LETTERS, TABLE
from packages.deadletters.tests.unit.upsert_scene import ALL, KNOWERS, LARGE, Upserted

STEPS = ("replay.written", "replay.marked", "replay.replaced", "replay.done")
LANDED = STEPS[2:]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm({})


def _die_at(step: str, scene: Upserted) -> None:
    failpoints.arm({failpoints.VARIABLE: f"{step}=error"})
    with pytest.raises(RuntimeError, match=step):
        scene.replay()
    failpoints.arm({})


def _struck(root: Path) -> Upserted:
    """Dead letters of offsets 1 (counts), 2 (superseded), 4 (no JSON)."""
    scene = Upserted(root).tell((1, 10), (1, LARGE), (2, LARGE), (2, 20))
    scene.source.produce("a", 0, b"{", 1000, key=b"3")
    scene.catch_up()
    return scene.cure()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["retry", "drop", "run"])
def test_a_retry_that_dies_at_any_step_is_finished_or_undone_by_whoever_comes_next(
    tmp_path: Path, step: str, who: str
) -> None:
    scene = _struck(tmp_path)
    _die_at(step, scene)
    assert scene.upsert_table() == {1: LARGE if step in LANDED else 10, 2: 20}
    if who == "run":
        scene.catch_up()
    elif who == "drop":
        assert scene.replayer.drop(scene.table, Selection(offset=4)) == 1
    else:
        scene.replay()
    is_in = who == "retry" or step in LANDED
    assert scene.upsert_table() == {1: LARGE if is_in else 10, 2: 20}
    left = [*([] if is_in else [1]), 2, *([] if who == "drop" else [4])]
    assert sorted(dead_letter["offset"] for dead_letter in scene.dead_letters()) == left
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    assert [name for name in state.marks if name.startswith("replaying")] == []
    if step in LANDED:
        scene.check_files()
    assert (scene.replay().replayed, scene.upsert_table()) == (0 if is_in else 1, {1: LARGE, 2: 20})


@pytest.mark.parametrize("loss", ["question", "answer", "outcome"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_question_or_answer_changes_nothing_in_the_end(tmp_path: Path, loss: str, which: int) -> None:
    scene = _struck(tmp_path)
    scene.catalog.losses += [""] * which + [loss]
    if loss == "answer":
        assert scene.replay() == ReplayResult(1, 2)
    else:
        with pytest.raises(UnavailableError):
            scene.replay()
    scene.replay()
    assert (scene.upsert_table(), sorted(dead_letter["offset"] for dead_letter in scene.dead_letters())) == (
        {1: LARGE, 2: 20},
        [2, 4],
    )


class Between(MemoryCatalog):
    """Others get their turn right before a commit of a retry."""

    turns: list[Callable[[], Any]]
    rewrites: list[Callable[[], Any]]

    @staticmethod
    def of(scene: Upserted, *turns: Callable[[], Any], rewrites: tuple[Callable[[], Any], ...] = ()) -> Between:
        found = Between(scene.root, "p")
        vars(found).update(_tables=scene.catalog._tables, turns=list(turns), rewrites=list(rewrites))
        return found

    def replace_once(self, replacement: Replacement) -> None:
        if self.turns:
            self.turns.pop(0)()
        super().replace_once(replacement)

    def rewrite(self, rewrite: Rewrite) -> None:
        if self.rewrites:
            self.rewrites.pop(0)()
        super().rewrite(rewrite)


@pytest.mark.parametrize("knows", KNOWERS)
def test_what_is_ingested_between_the_look_and_the_commit_is_newer(tmp_path: Path, knows: str) -> None:
    scene = Upserted(tmp_path, knows).tell((1, 10), (1, LARGE), (2, 20), (2, LARGE)).cure()
    catalog = Between.of(scene, lambda: scene.tell((1, 11)), lambda: scene.tell((8, 80)))
    assert scene.replayer_on(catalog).replay(scene.table, ALL) == ReplayResult(1, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({1: 11, 2: LARGE, 8: 80}, ["superseded"])
    scene.check_files()


def test_a_delete_that_leaves_no_trace_between_the_look_and_the_commit_is_newer(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE)).cure()
    catalog = Between.of(scene, lambda: scene.tell((1, None)))
    assert scene.replayer_on(catalog).replay(scene.table, ALL) == ReplayResult(0, 1)
    assert (scene.upsert_table(), scene.reasons()) == ({9: 90}, ["superseded"])
    scene.check_files()


def test_a_retry_that_a_quicker_one_overtakes_starts_over(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((9, 90), (1, LARGE), (2, LARGE)).cure()
    catalog = Between.of(scene, lambda: scene.replay(Selection(offset=1)))
    assert scene.replayer_on(catalog).replay(scene.table, ALL) == ReplayResult(1, 0)
    assert (scene.upsert_table(), scene.dead_letters()) == ({9: 90, 1: LARGE, 2: LARGE}, [])
    scene.check_files()


def test_dead_letters_that_were_dropped_or_compacted_before_they_are_taken_out(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    catalog = Between.of(scene, rewrites=(lambda: _compact_dead_letters(scene),))
    assert scene.replayer_on(catalog).replay(scene.table, ALL) == ReplayResult(1, 2)
    assert (scene.upsert_table(), sorted(dead_letter["offset"] for dead_letter in scene.dead_letters())) == (
        {1: LARGE, 2: 20},
        [2, 4],
    )


def _compact_dead_letters(scene: Upserted) -> None:
    """Each file of the dead-letter table is replaced by a copy, as a compaction does."""
    copies = []
    for file in scene.catalog.data_files(DEAD_LETTERS):
        path = file.path.replace(".parquet", "-copy.parquet")
        pq.write_table(pq.read_table(file.path), path)
        copies.append(replace(file, path=path))
    scene.catalog.append_foreign(
        DEAD_LETTERS, tuple(copies), frozenset(file.path for file in scene.catalog.data_files(DEAD_LETTERS))
    )


def test_files_removed_before_their_dead_letters_were_stop_the_replay(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    _die_at("replay.replaced", scene)
    gone = [file.path for file in scene.catalog.data_files(DEAD_LETTERS)]
    _compact_dead_letters(scene)
    for path in gone:
        Path(path).unlink()
    with pytest.raises(
        TableStopped, match="snapshots that show whether replayed dead letters are in the table were expired"
    ):
        scene.replayer.settled(scene.table)


def test_where_nobody_can_tell_whether_rows_were_committed_everything_stops(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    _die_at("replay.replaced", scene)
    scene.catalog.append_foreign(TABLE)
    _, *older = scene.catalog.ancestors(TABLE)
    for snapshot in older:
        scene.catalog.expire(TABLE, snapshot.id)
    with pytest.raises(
        TableStopped, match="snapshots that show whether replayed dead letters are in the table were expired"
    ):
        scene.replayer.settled(scene.table)


def test_a_table_that_was_dropped_leaves_its_dead_letters_dead_letters(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    _die_at("replay.replaced", scene)
    scene.catalog.drop(TABLE)
    scene.replayer.settled(scene.table)
    assert sorted(dead_letter["offset"] for dead_letter in scene.dead_letters()) == [1, 2, 4]


def test_a_slow_retry_that_was_given_up_is_refused_and_starts_over(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    catalog = Between.of(scene, lambda: scene.replayer.settled(scene.table))
    assert scene.replayer_on(catalog).replay(scene.table, ALL) == ReplayResult(1, 2)
    assert scene.upsert_table() == {1: LARGE, 2: 20}
    scene.check_files()


def test_retries_that_are_refused_for_ever_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_TRIES", 3)
    scene = _struck(tmp_path)

    class Busy(MemoryCatalog):
        def replace_once(self, replacement: Replacement) -> None:
            raise ConflictError("somebody was quicker", where=replacement.table)

    busy = Busy(tmp_path, "p")
    vars(busy).update(_tables=scene.catalog._tables)
    with pytest.raises(ConflictError, match="other replays of dead letters are running"):
        scene.replayer_on(busy).replay(scene.table, ALL)
    assert scene.upsert_table() == {1: 10, 2: 20}
    scene.check_files()


def test_a_table_of_format_version_1_takes_no_dead_letters(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    found = scene.catalog._tables[TABLE]
    vars(found.state)["format_version"] = 1
    with pytest.raises(SpecError, match="format version 1"):
        scene.replay()
    assert len(scene.dead_letters()) == 3


def test_dead_letters_are_listed_and_dropped_as_everywhere(tmp_path: Path) -> None:
    scene = _struck(tmp_path)
    assert scene.replayer.drop(scene.table, Selection(offset=1)) == 1
    assert sorted(dead_letter["offset"] for dead_letter in scene.dead_letters()) == [2, 4]
    assert scene.upsert_table() == {1: 10, 2: 20}
