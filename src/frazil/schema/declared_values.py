"""What settings and schemas declare of values, by the paths of the fields that have them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from frazil.schema.parts import Path


@dataclass(frozen=True)
class DeclaredValues:
    """How values are read that do not say it themselves."""

    #: The units of numbers in time fields. Without one they are milliseconds in JSON, and no times in other formats.
    units: tuple[tuple[Path, str], ...] = ()
    #: String columns that accept values of other types (`coerce: true`).
    coerced: tuple[Path, ...] = ()
    #: The zones of local times.
    zones: tuple[tuple[Path, str], ...] = ()
    #: JSON values that are local times by the type that their schema names, whatever they are written as.
    local_times: frozenset[Path] = frozenset()
    #: JSON integers that are unsigned by the type that their schema names, and wrap below 0.
    unsigned: frozenset[Path] = frozenset()

    def moved(self, places: Callable[[Path], Iterable[Path]]) -> DeclaredValues:
        """Returns what is declared of the values at other paths. places: returns the new paths of a field."""
        return DeclaredValues(
            units=tuple((place, unit) for path, unit in self.units for place in places(path)),
            coerced=tuple(place for path in self.coerced for place in places(path)),
            zones=tuple((place, zone) for path, zone in self.zones for place in places(path)),
            local_times=frozenset(place for path in self.local_times for place in places(path)),
            unsigned=frozenset(place for path in self.unsigned for place in places(path)),
        )


NOTHING_DECLARED = DeclaredValues()
