"""Changes applied to versions, compared with a model in plain Python, however they are divided into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frazil_state.history.apply import OPEN, KeyChanges, Rules, StoredVersions, apply_changes
from packages.state.tests.unit.history.versions import Model

Stored = list[tuple[int, int, int, int, int]]
"""Per version: key, start, end, time of its last record, tracked value."""
Change = tuple[int, int, int | None]
"""Key, time, tracked value; None deletes."""
_VALUES = (0, 1, 2, None)


def _applied(stored: Stored, changes: list[Change], keys: int, *, is_ordered: bool, is_placed: bool) -> Stored:
    changes = sorted(changes, key=lambda change: change[0])
    starts, ends, lasts = (np.array([version[n] for version in stored], np.int64) for n in (1, 2, 3))
    values = [version[4] for version in stored] + [-1 if value is None else value for _, _, value in changes]
    every = np.arange(keys + 1)
    versions, _ = apply_changes(
        StoredVersions(
            np.searchsorted([version[0] for version in stored], every), starts, ends, lasts if is_ordered else starts
        ),
        KeyChanges(
            np.searchsorted([change[0] for change in changes], every),
            np.array([time for _, time, _ in changes], np.int64),
            np.array([value is None for _, _, value in changes], np.bool_),
            np.full(len(changes), is_placed, np.bool_),
        ),
        np.array(values, np.int64),
        Rules(is_ordered, has_untracked=True),
    )
    rows = zip(versions.keys, versions.starts, versions.ends, versions.lasts, versions.values, strict=True)
    return [(int(k), int(s), int(e), int(last), values[v]) for k, s, e, last, v in rows]


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("is_placed", [True, False])
def test_changes_in_batches_make_the_versions_of_the_model(is_ordered: bool, is_placed: bool) -> None:
    chance = np.random.default_rng(7)
    for _ in range(300):
        keys = int(chance.integers(1, 4))
        models = [Model(is_ordered, lambda row: row) for _ in range(keys)]
        stored: Stored = []
        for _ in range(int(chance.integers(1, 7))):
            batch: list[Change] = [
                (int(chance.integers(keys)), int(chance.integers(10)), _VALUES[int(chance.integers(4))])
                for _ in range(int(chance.integers(6)))
            ]
            for key, time, value in batch:
                models[key].apply(time, value, is_placed=is_placed)
            stored = _applied(stored, batch, keys, is_ordered=is_ordered, is_placed=is_placed)
            wanted = [
                (key, v.start, OPEN if v.end is None else v.end, v.last, v.row)
                for key, model in enumerate(models)
                for v in model.versions
            ]
            assert stored == wanted, (batch, is_ordered, is_placed)


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        ([(1, "a"), (5, "b")], [(1, 5, "a"), (5, None, "b")]),
        ([(5, "b"), (1, "a")], [(1, 5, "a"), (5, None, "b")]),
        ([(1, "a"), (5, "b"), (3, "c")], [(1, 3, "a"), (3, 5, "c"), (5, None, "b")]),
        ([(1, "a"), (5, "a"), (3, "b")], [(1, 3, "a"), (3, 5, "b"), (5, None, "a")]),
        ([(1, "a"), (5, None)], [(1, 5, "a")]),
        ([(1, "a"), (5, None), (8, "b")], [(1, 5, "a"), (8, None, "b")]),
        ([(1, "a"), (8, "b"), (5, None)], [(1, 5, "a"), (8, None, "b")]),
        ([(1, "a"), (1, "b")], [(1, None, "b")]),
        ([(1, "a"), (5, "b"), (5, "a")], [(1, None, "a")]),
        ([(1, "a"), (1, None)], []),
    ],
)
def test_the_source_decides_whatever_the_order_of_arrival(
    changes: list[tuple[int, str | None]], versions: list[tuple[int, int | None, str]]
) -> None:
    names: list[Any] = ["a", "b", "c"]
    numbered: list[Change] = [(0, time, None if value is None else names.index(value)) for time, value in changes]
    applied = _applied([], numbered, 1, is_ordered=True, is_placed=True)
    assert [(s, None if e == OPEN else e, names[v]) for _, s, e, _, v in applied] == versions
