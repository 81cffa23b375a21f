"""How `frazil dead-letters` counts and sorts."""

from __future__ import annotations

from pathlib import Path

from frazil.dead_letters.files import Selection
from frazil_deadletters.documents import classes_of, count_dead_letters, newest_dead_letters
from packages.deadletters.tests.unit.scene import DEAD_LETTERS, Scene


def test_dead_letters_of_many_files_are_counted_and_sorted_together(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "long"})
    for number in range(5):
        scene.feed({"id": number}, b"{", None, partition=number % 2)
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    assert len(scene.catalog.scan(DEAD_LETTERS).files) == 5
    assert [(one.error_class, one.count) for one in classes_of(scene.catalog, state)] == [
        ("malformed", 5), ("tombstone", 5),
    ]  # fmt: skip
    assert count_dead_letters(scene.catalog, state, Selection(error_class="malformed", partition=1)) == 2
    newest = newest_dead_letters(scene.catalog, state, Selection(), 3)
    assert [(row["partition"], row["offset"]) for row in newest] == [(0, 8), (0, 5), (0, 2)]
    assert len(newest_dead_letters(scene.catalog, state, Selection(), 100)) == 10
