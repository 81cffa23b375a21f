"""The settings of a stage: a group of keys of a table, with the rules between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from frazil.spec.syntax.keys import Declared
from frazil.spec.syntax.problems import Mistake
from frazil.spec.syntax.reading import Rules

if TYPE_CHECKING:
    from frazil.spec.models import TableSpec


class StageSettings(Declared):
    """The settings of a stage: what the key of a package's stage holds, or a group of keys with defaults of Frazil's own."""

    #: The sections inside the keys, by their names in the definitions of the JSON Schema.
    sections: ClassVar[Mapping[str, type[Declared]]] = {}
    #: The rules between the keys of these sections.
    rules: ClassVar[Mapping[type[Declared], Rules]] = {}

    @property
    def is_used(self) -> bool:
        """Whether the file asks for the stage: a group of keys is there also where it does not."""
        return True

    @property
    def makes_rows(self) -> bool:
        """Whether the rows of the table are other than its records' fields, for the stage's sake."""
        return False

    @property
    def counted(self) -> tuple[str, ...]:
        """The names by which the table counts, in its progress, what the stage finds."""
        return ()

    @property
    def withheld(self) -> Mapping[str, str]:
        """By those of these names that keep a commit from the readers of the table, what its records did."""
        return {}

    def of_records(self) -> Self:
        """Returns the settings of the table that the records alone would make."""
        return type(self)()

    def of_rest(self) -> Self:
        """Returns the settings of the table of the rest: no query makes the rows of records that no derived table takes."""
        return self

    def in_folder(self, _folder: str, /) -> Self:
        """Returns the settings of a copy of the table, whose tasks write what is beside its files in this folder: of cases,
        which are played.
        """
        return self

    def of_copy(self) -> Self:
        """Returns the settings of a copy of the table, which is read in other batches."""
        return self

    def outdated(self, _age_s: float, /) -> Iterable[str]:
        """Returns the names for which the newest record of the table is too old. _age_s: its age in seconds."""
        return ()

    def check(self, _table: TableSpec, /) -> Iterable[Mistake]:
        """Yields what the settings have wrong, or contradict in the others of the table."""
        return ()

    def check_share(self, _names: Sequence[str], /) -> Iterable[Mistake]:
        """Yields what is wrong where the values of these fields name the table of a record."""
        return ()
