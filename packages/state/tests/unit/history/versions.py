"""A topic, a table that keeps history, and what its versions should be: records applied one by one to plain lists."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from packages.state.tests.unit.merge.merging import Merging

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
Shown = tuple[Any, float, float | None, Any]
"""Key, start and end in seconds since 1970, and the value of a tracked column."""


class Kept(Merging):
    """The topic `a` feeds `n.t`, which keeps the history of `k`."""

    def put_at(self, at_s: float, value: Any, *, key: Any = None, partition: int = 0) -> None:
        """Produces one record with this timestamp."""
        self.put(value, key=key, partition=partition, at_ms=round(at_s * 1000))

    def versions(self, column: str = "v") -> list[Shown]:
        """The versions in the table, and whether their flags agree with their ends."""
        rows = self.table_rows_unsorted("k", "valid_from", "valid_to", "is_current", column)
        assert all(is_current == (end is None) for _, _, end, is_current, _ in rows)
        shown = [
            (key, _seconds(start), None if end is None else _seconds(end), value) for key, start, end, _, value in rows
        ]
        return sorted(shown, key=lambda version: (version[0], version[1]))


def _seconds(moment: datetime.datetime) -> float:
    return (moment - EPOCH).total_seconds()


@dataclass
class Version:
    """One version: its start and end, the time of its last record, and its row."""

    start: int
    end: int | None
    last: int
    row: Any


@dataclass
class Model:
    """The versions of one key. is_ordered: rows have the time of their last record. tracked: what of a row is tracked."""

    is_ordered: bool
    tracked: Callable[[Any], Any]
    versions: list[Version] = field(default_factory=list)

    def apply(self, time: int, row: Any, *, is_placed: bool) -> None:
        """Applies one record. row: None deletes. is_placed: it belongs at its time, and is not just the newest."""
        if self.versions and not is_placed:
            newest = self.versions[-1]
            time = max(time, newest.last if newest.end is None else newest.end)
        valid = next((v for v in self.versions if v.start <= time and (v.end is None or time < v.end)), None)
        if valid is not None and row is not None and self.tracked(valid.row) == self.tracked(row):
            if time >= valid.last:
                valid.row, valid.last = row, time if self.is_ordered else valid.start
            return
        end = min((v.start for v in self.versions if v.start > time), default=None)
        parts = []
        if valid is not None:
            self.versions.remove(valid)
            end = valid.end
            if valid.start < time:
                parts.append(Version(valid.start, time, valid.last if valid.last < time else valid.start, valid.row))
            if valid.last > time:
                parts.append(Version(valid.last, valid.end, valid.last, valid.row))
                end = valid.last
        if row is not None:
            parts.append(Version(time, end, time, row))
        self.versions = self._joined(sorted([*self.versions, *parts], key=lambda v: v.start))

    def _joined(self, versions: list[Version]) -> list[Version]:
        joined: list[Version] = []
        for version in versions:
            before = joined[-1] if joined else None
            if before is None or before.end != version.start or self.tracked(before.row) != self.tracked(version.row):
                joined.append(version)
                continue
            before.end, before.row = version.end, version.row
            before.last = version.last if self.is_ordered else before.start
        return joined
