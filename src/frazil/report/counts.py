"""Numbers and sizes of the records that a task has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from frazil.types import add_counts, later


@dataclass(frozen=True)
class Counts:
    """Numbers of records and bytes, and the newest timestamps."""

    #: The number of records.
    record_count: int = 0
    #: Bytes of all record values.
    value_bytes: int = 0
    #: Bytes of the largest record value.
    largest_bytes: int = 0
    #: Whether a batch planned with small records had an oversized one, and must be planned again.
    has_oversized: bool = False
    #: The latest record timestamp in milliseconds, by topic and partition.
    latest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: The number of records that are no change of a row, by kind of record.
    ignored_records: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the sums over the tasks of a batch."""
        latest: dict[str, dict[int, int]] = {}
        for part in parts:
            latest = later(latest, part.latest_ms)
        return cls(
            record_count=sum(part.record_count for part in parts),
            value_bytes=sum(part.value_bytes for part in parts),
            largest_bytes=max((part.largest_bytes for part in parts), default=0),
            has_oversized=any(part.has_oversized for part in parts),
            latest_ms=latest,
            ignored_records=add_counts(*(part.ignored_records for part in parts)),
        )

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record from its JSON."""
        latest = {t: {int(p): ms for p, ms in ps.items()} for t, ps in fields["latest_ms"].items()}
        return cls(**{**fields, "latest_ms": latest})
