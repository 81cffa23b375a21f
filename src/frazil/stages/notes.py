"""What the documents of `frazil plan` and `frazil lineage` have of the stages of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class StageNote(ABC):
    """What a stage does to the fields of a table's records: its fields are keys of both documents."""

    @property
    @abstractmethod
    def setting(self) -> str:
        """The key of the pipeline file."""

    @property
    @abstractmethod
    def line(self) -> str:
        """The note in one line, for people."""

    @property
    def masked(self) -> tuple[str, ...]:
        """Paths of the fields whose values the table does not have."""
        return ()
