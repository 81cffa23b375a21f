"""The files that a task has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from frazil.types import DataFile


@dataclass(frozen=True)
class WrittenFiles:
    """Data files of the table, and of its dead-letter table."""

    #: Data files of the table.
    data: tuple[DataFile, ...] = ()
    #: Data files of the dead-letter table.
    dead_letters: tuple[DataFile, ...] = ()
    #: The number of bad records in the files of the dead-letter table.
    dead_letter_count: int = 0
    #: Names of two partitions, where the rows have more partitions than one batch may write; there are no files then.
    scattered: tuple[str, ...] = ()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the files of all tasks of a batch."""
        return cls(
            data=tuple(file for part in parts for file in part.data),
            dead_letters=tuple(file for part in parts for file in part.dead_letters),
            dead_letter_count=sum(part.dead_letter_count for part in parts),
            scattered=next((part.scattered for part in parts if part.scattered), ()),
        )

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record from its JSON."""
        data, dead_letters = (tuple(DataFile(**file) for file in fields[name]) for name in ("data", "dead_letters"))
        return cls(data, dead_letters, fields["dead_letter_count"], tuple(fields["scattered"]))
