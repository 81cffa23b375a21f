"""What is kept of files: as much as there is room for, and only of files that are in a table."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.catalog.scans import LiveFile
from frazil.types import DeleteFile
from frazil.upsert.lookup import live_rows, search
from frazil.upsert.lookup.live_rows import ColumnCache, Name, forget_files, retain_live_files
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

_COLUMN, _SMALL = (pa.array(range(1000)),), (pa.array([1]),)


def _files(*paths: str) -> list[LiveFile]:
    return [LiveFile(path, 1, "{}") for path in paths]


def _kept(cache: ColumnCache, *paths: str) -> list[bool]:
    return [cache.get((path, 1)) is not None for path in paths]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ColumnCache:
    monkeypatch.setattr(live_rows, "_caches", [])
    monkeypatch.setattr(live_rows, "_live", {})
    return ColumnCache(30_000)


def test_what_was_not_asked_for_longest_makes_room(cache: ColumnCache) -> None:
    for path in "abc":
        cache.put((path, 1), _COLUMN)
    assert _kept(cache, "b", "c", "a") == [True, True, True]
    cache.put(("d", 1), _COLUMN)
    assert _kept(cache, "a", "b", "c", "d") == [True, False, True, True]
    cache.put(("d", 1), _COLUMN)
    assert _kept(cache, "a", "c", "d") == [True, True, True]
    cache.put(("e", 1), (pa.array(range(10_000)),))
    assert _kept(cache, *"acde") == [True, True, True, False], "larger than the cache, it takes no other's place"


def test_nothing_is_kept_of_files_and_deletes_that_have_left_the_table(cache: ColumnCache) -> None:
    for name in (("a", 1), ("b", 1), ("v", 1), ("a", 2)):
        cache.put(name, _SMALL)
    delete = DeleteFile("v", "vector", "b", 1, "{}")
    retain_live_files("n.t", [*_files("a"), LiveFile("b", 1, "{}", (delete,))])
    retain_live_files("n.other", _files("c"))
    assert _kept(cache, "a", "b", "v") == [True, True, True]
    one_size = cache.size_bytes // 4
    retain_live_files("n.t", _files("b", "d"))
    assert (_kept(cache, "a", "b", "v"), cache.get(("a", 2))) == ([False, True, False], None)
    assert cache.size_bytes == one_size
    forget_files({"b", "nowhere"})
    assert (_kept(cache, "b"), cache.size_bytes) == ([False], 0)


class _Seen(ColumnCache):
    """Knows which files it keeps something of."""

    def __init__(self) -> None:
        super().__init__(2**20)
        self.paths: set[str] = set()

    def put(self, name: Name, columns: tuple[pa.Array, ...]) -> None:
        super().put(name, columns)
        self.paths.add(name[0])

    def forget(self, paths: Set[str]) -> None:
        super().forget(paths)
        self.paths -= paths


def test_a_process_keeps_keys_of_files_that_are_in_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(search, "_INDEXED_ROWS_FOR_A_KEY", 0)
    monkeypatch.setattr(live_rows, "_caches", [])
    monkeypatch.setattr(live_rows, "_live", {})
    plain, ordered = _Seen(), _Seen()
    monkeypatch.setattr(live_rows, "_cache", plain)
    monkeypatch.setattr(search, "_indexes", ordered)
    scenario = UpsertScenario(tmp_path, tasks=2, key=JSON_KEYS, key_columns=("id",))
    live: frozenset[str] = frozenset()
    for version in range(3):
        scenario.tell(*((str(n), {"id": n, "v": version}) for n in range(12)))
        live = frozenset(file.path for file in scenario.catalog.data_files("n.t"))
        assert plain.paths | ordered.paths <= live, "not of those that were written again with their rows' ids"
    assert plain.paths or ordered.paths
    scenario.catalog.append_foreign("n.t", (), live)
    scenario.tell(("1", {"id": 1, "v": 9}))
    assert not (plain.paths | ordered.paths) & live
    assert scenario.upsert_table() == [{"id": 1, "v": 9}]
