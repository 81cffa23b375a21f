"""What was read of files that are in a table, kept while there is room and the file is there.

A data file never changes, so what was read of it stays true; a cache may be lost at any time.
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
"""The path of the file comes first, then what tells apart what is kept of it."""


class ColumnCache:
    """Columns that were read last, up to so many bytes; threads may share it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffered: OrderedDict[Name, tuple[pa.Array, ...]] = OrderedDict()
        self._of_file: dict[str, set[Name]] = {}
        self._lock = threading.Lock()
        self.size_bytes = 0
        _caches.append(self)

    def get(self, name: Name) -> tuple[pa.Array, ...] | None:
        """What is held under this name."""
        with self._lock:
            if name in self._buffered:
                self._buffered.move_to_end(name)
            return self._buffered.get(name)

    def put(self, name: Name, columns: tuple[pa.Array, ...]) -> None:
        """Holds these; the ones that were not asked for longest make room."""
        with self._lock:
            if name in self._buffered:
                self._drop(name)
            self._buffered[name] = columns
            self._of_file.setdefault(name[0], set()).add(name)
            self.size_bytes += _size(columns)
            while self.size_bytes > self._limit:
                self._drop(next(iter(self._buffered)))

    def forget(self, paths: Set[str]) -> None:
        """Lets go of these files."""
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
    """What is in the table now: of files that have left it since the last time nothing is kept. Table care writes the same
    rows into new files again and again.
    """
    now = frozenset(path for file in files for path in (file.path, *(delete.path for delete in file.deletes)))
    forget_files(_live.get(table, frozenset()) - now)
    _live[table] = now


def forget_files(paths: Set[str]) -> None:
    """Keeps nothing of these files, which are in no table, or no longer."""
    for cache in _caches if paths else ():
        cache.forget(paths)


def _size(columns: Sequence[pa.Array]) -> int:
    return _ENTRY_BYTES + sum(int(column.nbytes) for column in columns)
