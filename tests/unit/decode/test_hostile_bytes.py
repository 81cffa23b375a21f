"""Damaged records of every format, in one batch with good ones: nothing hangs or dies, each damaged record is a row, a bad
one or skipped, and its neighbours are the rows that they are without it.

FRAZIL_EXAMPLES: how many times as many batches to try.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from frazil.clock import SystemClock
from tests.fixtures.chance import Chance
from tests.needs import has_package, needs
from tests.unit.decode.hostile import CASES, NAMES, World, mutate, worlds

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_BATCHES = 3
_LONGEST_S = 60.0
_MOST_KB = 1024 * 1024
_WAYS = ("drop", "add", "rescue")


def _strike(world: World, folder: Path, seed: int) -> None:
    """One batch of which about a third is damaged."""
    chance, way = Chance(seed), _WAYS[seed % len(_WAYS)]
    target = world.target(folder, way)
    whole = world.look(target, world.records(world.values))
    assert whole.refused == frozenset(), "the records are good ones"
    struck = [chance.happens(0.3) for _ in world.values]
    values = [mutate(raw, world.values, chance) if hit else raw for raw, hit in zip(world.values, struck, strict=True)]
    batch = world.records(values)
    seen = world.look(target, batch)
    assert not seen.rows.keys() & seen.refused
    if not world.name.startswith("canal"):  # A message of Canal's may have no row at all.
        assert len(seen.rows) + len(seen.refused) + seen.ignored_records == len(values)
    for n, is_struck in enumerate(struck):
        if not is_struck:
            assert n not in seen.refused
            assert seen.rows.get(n) == whole.rows.get(n)
    world.write(folder, way, batch)


def test_every_topic_is_struck() -> None:
    assert worlds().keys() == {name for name in NAMES if name != "protobuf" or has_package("protobuf")}


@pytest.mark.parametrize("name", CASES)
def test_damaged_records_are_refused_and_leave_their_neighbours_alone(name: str, tmp_path: Path) -> None:
    clock, before_kb = SystemClock(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(_BATCHES * _TIMES):
        began_s = clock.monotonic_s()
        _strike(worlds()[name], tmp_path, seed)
        assert clock.monotonic_s() - began_s < _LONGEST_S, f"seed {seed}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < _MOST_KB


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("canal", b'"mysqlType":{', b'"mysqlType":{"x":' + b"1" * 5000 + b",", marks=needs("cdc")),
        pytest.param("canal", b'"pkNames":[', b'"pkNames":[' + b"1" * 5000 + b",", marks=needs("cdc")),
        ("json", b'"', b'"\\ud800'),
        ("json, inferred", b'"', b'"\\ud800'),
    ],
)
def test_numbers_of_very_many_digits_and_halves_of_characters_concern_their_record_alone(
    name: str, old: bytes, new: bytes, way: str, tmp_path: Path
) -> None:
    world = worlds()[name]
    target = world.target(tmp_path, way)
    whole = world.look(target, world.records(world.values))
    values = [raw.replace(old, new, 1) if n % 2 else raw for n, raw in enumerate(world.values)]
    assert values != world.values
    seen = world.look(target, world.records(values))
    assert all(seen.rows.get(n) == whole.rows.get(n) for n in range(0, len(values), 2))
    world.write(tmp_path, way, world.records(values))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_records_with_any_damage_are_rows_or_bad_records(name: str, tmp_path: Path) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + float(os.environ.get("FRAZIL_SOAK_SECONDS", "600")) / len(NAMES)
    seed = 1_000_000
    while clock.monotonic_s() < until_s:
        _strike(worlds()[name], tmp_path, seed)
        seed += 1
