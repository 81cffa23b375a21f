"""What the documents of `frazil plan` and `frazil lineage` have of the stages of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

Action = Literal["drop", "null", "hash", "mask", "tokenize", "truncate", "constant"]
"""What `protect` does to a field."""


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


@dataclass(frozen=True)
class ProtectedField:
    """A field of the records that is protected."""

    #: Its path in the records.
    field: str
    #: What happens to it; of the keys of a map `hash`.
    action: Action


@dataclass(frozen=True)
class ProtectedFields(StageNote):
    """The fields of a table's records that are protected."""

    #: The fields of the records that `protect` finds: `field` and its `action`.
    protected: tuple[ProtectedField, ...] = ()

    @property
    def setting(self) -> str:
        """See StageNote."""
        return "protect"

    @property
    def line(self) -> str:
        """See StageNote."""
        return f"protects {', '.join(f'{field.field} ({field.action})' for field in self.protected)}"

    @property
    def masked(self) -> tuple[str, ...]:
        """See StageNote."""
        return tuple(field.field for field in self.protected)
