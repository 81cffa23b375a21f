"""Records that wait for their row of a reference table (`wait` of a lookup): dead letters of a class of their own.

The commit of their batch holds them, as it holds every dead letter, with the time since when the record waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, TableState
from frazil.dead_letters.files import pieces
from frazil.dead_letters.record import HELD_AT
from frazil.error_classes import ErrorClass
from frazil.errors import UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.write.plain_target import plain_target

_COLUMNS = ("error_class", "path", HELD_AT)


def are_waiting(rows: pa.Table) -> pa.ChunkedArray:
    """Returns which dead letters wait, bool `(n_rows,)`."""
    return pc.fill_null(pc.equal(rows["error_class"], str(ErrorClass.LOOKUP_WAITING)), False)


@dataclass(frozen=True)
class Held:
    """The records of a table that wait."""

    #: The number of these records.
    count: int = 0
    #: By lookup, since when the first of its records waits, in microseconds since 1970.
    since_us: Mapping[str, int] = field(default_factory=dict)
    #: The files of the dead-letter table.
    files: frozenset[str] = frozenset()


class HeldRecords:
    """Counts the records of one table that wait; each file of its dead-letter table is read once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_file: dict[str, Held] = {}

    def read(self, dead_letters: TableState | None) -> Held:
        """Returns the records that wait. dead_letters: as it was just loaded; None where it does not exist.

        Raises: UnavailableError; OSError where the store fails; TableStopped as `pieces`.
        """
        if dead_letters is None or HELD_AT not in {field.name for field in dead_letters.schema.fields}:
            return Held()
        target, files = plain_target(dead_letters), self._catalog.scan(dead_letters.name).files
        known = self._by_file
        self._by_file = {file.path: known.get(file.path) or _held_in(pieces(target, file, _COLUMNS)) for file in files}
        return _together(self._by_file.values(), frozenset(self._by_file))


def _held_in(parts: Iterable[pa.Table]) -> Held:
    counted = list[Held]()
    for rows in parts:
        waiting = rows.filter(are_waiting(rows))
        micros, names = waiting[HELD_AT].cast(pa.int64()).fill_null(0).to_pylist(), waiting["path"].to_pylist()
        since: dict[str, int] = {}
        for name, held_us in zip(names, micros, strict=True):
            since[name or ""] = min(held_us, since.get(name or "", held_us))
        counted.append(Held(waiting.num_rows, since))
    return _together(counted)


def _together(parts: Iterable[Held], files: frozenset[str] = frozenset()) -> Held:
    count, since = 0, dict[str, int]()
    for part in parts:
        count += part.count
        for name, held_us in part.since_us.items():
            since[name] = min(held_us, since.get(name, held_us))
    return Held(count, since, files)


def count_waiting(catalog: Catalog, dead_letters: TableState | None) -> int | None:
    """Returns how many records of a table wait; None where that cannot be read. dead_letters: as it was just loaded."""
    with suppress(OSError, UnavailableError, TableStopped):
        return HeldRecords(catalog).read(dead_letters).count
    return None
