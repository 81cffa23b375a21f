"""What a stage of a table is asked, by the driver, by tasks and by commands: it overrides what concerns it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.error_classes import ErrorClass
from frazil.plugins.stages import StageCheck
from frazil.queries.program import Expression, Project
from frazil.schema.parts import Path
from frazil.stages.changes import Changes, ReadRecords
from frazil.stages.findings import QueriedRows, StageFinding
from frazil.stages.notes import StageNote
from frazil.stages.record_key import RecordKey
from frazil.types import OffsetRange

if TYPE_CHECKING:
    from frazil.queries.analysis import Query
    from frazil.spec.models import TableSpec
    from frazil.write.target import TableTarget

Origins: TypeAlias = Mapping[str, Path | None]
"""What feeds columns of records, as `TableTarget.origins`."""


class UnusedField(NamedTuple):
    """A field that a setting names and no record of a sample has."""

    setting: str
    path: str
    #: The names of fields of which one may be meant.
    names: Collection[str] = ()


class RowCondition(NamedTuple):
    """A condition in Spark SQL, over the table's columns, by which a stage judges rows."""

    name: str
    text: str
    #: Where the pipeline file has it, inside of the table.
    place: str
    #: What to do where tasks cannot compute it.
    remedy: str


@dataclass(frozen=True)
class Assembled:
    """Records of which some were parts of others."""

    #: The records that are left, each with its whole value, and with the value that it had in RAW_VALUE.
    records: pa.RecordBatch
    #: The records that make no row and are not bad, such as parts of later ones, by what they are counted as.
    parts: Mapping[str, pa.RecordBatch]
    #: The records whose value cannot be part of a whole one.
    refused: pa.RecordBatch
    #: Why not, of each.
    reasons: Sequence[tuple[ErrorClass, str]]
    #: Whether the refused records are of earlier ranges, whose tasks have counted them among the parts.
    are_read_again: bool = False


RAW_VALUE = "raw_value"
"""The column of records with what was read as their values, where these were assembled."""


class Assembler(Protocol):
    """Makes whole records of one topic of those that have parts of their values: what one task does for one table."""

    def take(self, records: pa.RecordBatch, /) -> Iterable[Assembled] | None:
        """Returns what becomes of the next records, of some after the other as memory has room for their whole values; None
        where none of them is a part.

        Raises: UnavailableError where earlier records cannot be read, also while the result is iterated.
        """

    def end(self, offset_range: OffsetRange, /) -> Iterable[Assembled]:
        """Returns what becomes of earlier parts when a range of the task is read to its end. Raises: as `take`."""


class RowWriter(Protocol):
    """What one task writes beside the files of a table: what it has written stays only if the files do."""

    def write(self, rows: pa.Table) -> pa.Table:
        """Returns as many rows, as they are to be in the files. Rows that it has returned it returns as they are.

        Raises: OSError where the store refuses what is written.
        """

    def finish(self) -> None:
        """Completes what was written, before the files are. Raises: OSError."""

    def abandon(self) -> None:
        """Removes what was written, as far as possible."""


@dataclass(frozen=True)
class TableStage:
    """A stage of one table, made from its settings: small, comparable, and sent to tasks as it is."""

    @classmethod
    def make(cls, _name: str, _settings: Any, /) -> TableStage | None:
        """Returns the stage of a table with these `StageSettings`; None where they ask for none. _name: of its kind."""
        return cls()

    @property
    def record_key(self) -> RecordKey | None:
        """What encrypts the table's records wherever they are kept whole; None where anybody may read them."""
        return None

    # In the driver: before, around and behind the query that makes the rows.

    def describe(self) -> str:
        """Returns the stage in one line of `frazil plan`; empty where other lines show it."""
        return ""

    def before_query(self, _fields: Schema, _origins: Origins, /) -> tuple[Project, StageNote] | None:
        """Returns what the table's query has in place of these columns of the records; None where they stay."""
        return None

    def check_query(self, _spec: TableSpec, _query: Query, _fields: Schema, _origins: Origins, /) -> None:
        """Raises SpecError where the query makes what the stage forbids. _fields: the columns of the records."""

    def after_query(self, _types: Mapping[str, pa.DataType], /) -> Mapping[str, Expression]:
        """Returns columns that are other ones behind the table's query, or new, made of its columns. _types: of these. The
        settings of such a stage say so (`makes_rows`).
        """
        return {}

    def check_table(self, _location: str | None, /) -> Iterable[StageCheck]:
        """Yields what `frazil check` finds. _location: the table's folder; None where the table does not exist."""
        return ()

    @property
    def actions(self) -> Sequence[str]:
        """The maintenance actions that the table has for the stage's sake."""
        return ()

    def conditions(self) -> Sequence[RowCondition]:
        """Returns the conditions that `Program.conditions` is to have."""
        return ()

    def unused_fields(self, _fields: Schema, _origins: Origins, _headers: Collection[str], /) -> Iterable[UnusedField]:
        """Yields the fields that the settings name and these columns of records, and headers, do not have."""
        return ()

    def new_marks(
        self, _spec: TableSpec, _marks: Mapping[str, str], _key_columns: Callable[[], Sequence[str]], /
    ) -> Mapping[str, str]:
        """Returns what is to be remembered in the table, where its marks have another value or none.

        Raises: SpecError for a value that must not change. _key_columns: returns the columns that identify rows.
        """
        return {}

    # In tasks.

    @property
    def needs_headers(self) -> bool:
        """Whether all headers of a record are needed."""
        return False

    def assembler(self, _target: TableTarget, _topic: str, /) -> Assembler | None:
        """Returns what makes whole records of a topic of its parts; None where each record is whole."""
        return None

    def judge(self, _rows: QueriedRows, /) -> Iterable[StageFinding]:
        """Yields what the stage finds in rows that a query has made."""
        return ()

    def run(self, _target: TableTarget, _read: ReadRecords, changes: Changes, /) -> Changes:
        """Returns the changes, which have the table's rows, behind the stage."""
        return changes

    def finish(self, _target: TableTarget, _read: ReadRecords, changes: Changes, /) -> Changes:
        """Returns the changes as they may be written and reported, when all stages have run."""
        return changes

    @property
    def keeps_aside(self) -> bool:
        """Whether rows refer to what is written beside the files, by other names each time that they are written."""
        return type(self).open is not TableStage.open

    def open(self, _target: TableTarget, /) -> RowWriter | None:
        """Returns what a task writes beside the files of the table; None where the stage writes nothing."""
        return None

    def show(self, _records: TableTarget, columns: Mapping[str, pa.Array], /) -> Mapping[str, pa.Array]:
        """Returns columns of records as people may see them. _records: the table that the records alone would make."""
        return columns
