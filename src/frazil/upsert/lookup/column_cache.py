"""Caches of columns read from live data files, bounded by size.

A data file never changes, so a cached column stays valid. Every cache may be cleared at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from typing import Any

import pyarrow as pa

from frazil.catalog.scans import LiveFile

_ENTRY_BYTES = 512
Name = tuple[Any, ...]
"""A cache key: the path of the file first, then whatever distinguishes several entries of one file."""


class ColumnCache:
    """A cache of columns by name: the least recently used entries are evicted. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffered: OrderedDict[Name, tuple[pa.Array, ...]] = OrderedDict()
        self._of_file: dict[str, set[Name]] = {}
        self._lock = threading.Lock()
        #: The size of all entries.
        self.size_bytes = 0
        _caches.append(self)

    def get(self, name: Name) -> tuple[pa.Array, ...] | None:
        """Returns the columns under this name; None without an entry."""
        with self._lock:
            if name in self._buffered:
                self._buffered.move_to_end(name)
            return self._buffered.get(name)

    def put(self, name: Name, columns: tuple[pa.Array, ...]) -> None:
        """Stores the columns under this name, and evicts the least recently used entries above the limit."""
        with self._lock:
            if name in self._buffered:
                self._drop(name)
            self._buffered[name] = columns
            self._of_file.setdefault(name[0], set()).add(name)
            self.size_bytes += _size(columns)
            while self.size_bytes > self._limit:
                self._drop(next(iter(self._buffered)))

    def forget(self, paths: Set[str]) -> None:
        """Removes the entries of these files."""
        with self._lock:
            for name in [name for path in paths for name in self._of_file.get(path, ())]:
                self._drop(name)

    def _drop(self, name: Name) -> None:
        self.size_bytes -= _size(self._buffered.pop(name))
        self._of_file[name[0]].remove(name)
        if not self._of_file[name[0]]:
            del self._of_file[name[0]]


_caches: list[ColumnCache] = []
_live: dict[str, frozenset[str]] = {}


def retain_live_files(table: str, files: Iterable[LiveFile]) -> None:
    """Removes the entries of files that have left the table since the last call: table maintenance replaces files again
    and again.
    """
    now = frozenset(path for file in files for path in (file.path, *(delete.path for delete in file.deletes)))
    forget_files(_live.get(table, frozenset()) - now)
    _live[table] = now


def forget_files(paths: Set[str]) -> None:
    """Removes the entries of these files, which are no longer in any table, from every cache."""
    for cache in _caches if paths else ():
        cache.forget(paths)


def _size(columns: Sequence[pa.Array]) -> int:
    return _ENTRY_BYTES + sum(int(column.nbytes) for column in columns)
