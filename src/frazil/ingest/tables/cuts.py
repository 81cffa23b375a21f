"""Cuts of groups of tables: each table of a group ends a batch at the offsets of one moment, and reads on at once.

An observer requests a cut, the loop makes it. The offsets are found a little after the moment, as records with an earlier
timestamp may still arrive; until then tables of the group read no further than the topics' ends of the moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from frazil.clock import Clock
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Partition, Source
from frazil.types import Offsets, by_partition, by_topic

GRACE_S = 1.0
"""How long records with an earlier timestamp are expected after a moment."""


@dataclass(frozen=True)
class Cut:
    """The offsets at which the tables of a group end a batch."""

    tables: frozenset[str]
    #: When it was requested, on the monotonic clock in seconds.
    requested_s: float
    #: The moment, in milliseconds since 1970, and on the monotonic clock in seconds.
    at_ms: int = 0
    at_s: float = 0.0
    #: The ends of the topics just before the moment; empty until the loop has them.
    ends: Mapping[Partition, int] = field(default_factory=dict)
    #: Whether whoever has requested the cut moves its end on from the moment.
    is_moved: bool = False
    #: Behind every record that is older than the moment; empty until it is known.
    moment: Mapping[Partition, int] = field(default_factory=dict)
    #: Where the batches end: at the moment, or where they were moved to; empty until it is known.
    bounds: Mapping[Partition, int] = field(default_factory=dict)

    def offsets_of(self, table: Table) -> Offsets:
        """Returns the offsets at which the table is at the cut."""
        return by_topic({place: self.bounds[place] for place in table.partitions() if place in self.bounds})

    def is_reached(self, table: Table) -> bool:
        """Whether the table has committed up to the cut."""
        return bool(self.bounds) and _is_past(table, self.bounds)


class Cuts:
    """The cuts of all groups. One thread requests and ends them, the loop's thread makes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cuts: dict[str, Cut] = {}

    def request(self, group: str, tables: Collection[str], is_moved: bool = False) -> None:
        """Begins a cut of these tables in place of the group's last one. is_moved: as of Cut; then `move` ends it."""
        self._cuts[group] = Cut(frozenset(tables), self._clock.monotonic_s(), is_moved=is_moved)

    def of(self, group: str) -> Cut | None:
        """Returns the cut of a group; None without one."""
        return self._cuts.get(group)

    def move(self, group: str, cut: Cut, bounds: Mapping[Partition, int]) -> None:
        """Lets the batches end here, at the moment or behind it, unless the group has another cut by now."""
        if self._cuts.get(group) is cut:
            self._cuts[group] = replace(cut, bounds=bounds)

    def end(self, group: str) -> None:
        """Ends the cut of a group."""
        self._cuts.pop(group, None)

    def make(self, tables: Mapping[str, Table], ends: Mapping[Partition, int], source: Source) -> None:
        """Finds the offsets of the cuts that lack them. ends: of all topics.

        Raises: UnavailableError when Kafka does not answer.
        """
        for group, cut in tuple(self._cuts.items()):
            if cut.moment:
                continue
            places = {place for name in cut.tables & tables.keys() for place in tables[name].partitions()}
            if not places <= ends.keys():
                continue  # A partition has no leader.
            now_s = self._clock.monotonic_s()
            if not cut.ends:
                known = {place: ends[place] for place in places}
                made = replace(cut, ends=known, at_ms=self._clock.now_ms() + 1, at_s=now_s)
            elif now_s >= cut.at_s + GRACE_S:
                # The ends first: what arrives between the two requests is newer than the moment.
                newest = source.ends(cut.ends.keys())
                later = source.at_time(dict.fromkeys(cut.ends, cut.at_ms))
                if not newest.keys() & later.keys() >= cut.ends.keys():
                    continue  # A broker does not answer: records of the moment may be missing.
                moment = {place: max(end, min(newest[place], later[place])) for place, end in cut.ends.items()}
                made = replace(cut, moment=moment, bounds={} if cut.is_moved else moment)
            else:
                continue
            if self._cuts.get(group) is cut:
                self._cuts[group] = made

    def limits(self, table: Table) -> Mapping[Partition, int]:
        """Returns how far the table may read; empty where it has reached its cut, or has none."""
        for cut in tuple(self._cuts.values()):
            if table.name in cut.tables and not cut.is_reached(table):
                return cut.bounds or cut.ends
        return {}

    def hurries(self, table: Table) -> bool:
        """Whether the others of a group wait for the table's next batch."""
        return any(
            cut.bounds and table.name in cut.tables and not cut.is_reached(table) for cut in tuple(self._cuts.values())
        )


def _is_past(table: Table, bounds: Mapping[Partition, int]) -> bool:
    """Whether the table has committed at least up to these offsets, in each of its partitions."""
    position = by_partition(table.position())
    return all(position.get(place, -1) >= bounds[place] for place in table.partitions() if place in bounds)
