"""The bad records of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from frazil.types import BadRecord

MOST_BAD = 20
"""The largest number of bad records that are reported one by one."""


@dataclass(frozen=True)
class BadRecords:
    """The number of bad records, and the first of them."""

    #: The first bad records, by topic, partition and offset.
    first: tuple[BadRecord, ...] = ()
    #: The number of all bad records.
    count: int = 0

    @classmethod
    def merge(cls, parts: Sequence[Self], limit: int = MOST_BAD) -> Self:
        """Returns the bad records of all tasks of a batch; the first `limit` of them are listed one by one."""
        first = sorted((one for part in parts for one in part.first), key=lambda b: (b.topic, b.partition, b.offset))
        return cls(tuple(first[:limit]), sum(part.count for part in parts))

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record from its JSON."""
        return cls(tuple(BadRecord(**one) for one in fields["first"]), fields["count"])
