"""What the documents of `frazil plan` and `frazil lineage` have of the stages of a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageNote:
    """What a stage does to the fields of a table's records: its fields are keys of both documents."""

    @property
    def setting(self) -> str:
        """The key of the pipeline file."""
        raise NotImplementedError

    @property
    def line(self) -> str:
        """The note in one line, for people."""
        raise NotImplementedError

    @property
    def masked(self) -> tuple[str, ...]:
        """Paths of the fields whose values the table does not have."""
        return ()
