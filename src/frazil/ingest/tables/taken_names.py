"""Fields of records that the table's query cannot have: records with them are bad.

Such are fields with a name that the query makes, of which the column wins, and fields with which it cannot be analysed.

A table that exists knows which fields are new. The first records of a table bring all of them at once, so that the names
that two columns would have are found one after another, each without the fields before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.column_names import fold_case
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.schema_changes import columns_with_query, naming_in_query, query_adder, unknown_column
from frazil.ingest.tables.settings import declared_columns
from frazil.ingest.tables.table import Table
from frazil.process.analysis import Query
from frazil.process.catalyst import NameTaken
from frazil.process.steps import IntoCollection
from frazil.schema.conflicts import without_rejected
from frazil.schema.evolve import NameConflict, Path, new_schema

_ADVICE = "leave the field out with `exclude`, or give it a column of its own under `columns`"
_RESULT = "a new field has a name that is taken"
_UNREAD = "the query cannot read records with the new field"


def refuse_taken_names(table: Table, query: Query, records: Schema) -> None:
    """Raises NameTaken where the table cannot have the columns of its query, or a new field would be what the query's later
    columns are made of in place of its own earlier one. records: the fields, with new ones.
    """
    state = table.records.state
    known_names = state.schema.column_names if state is not None else declared_columns(table.records.spec)
    for field in records.fields:
        if field.name not in known_names and fold_case(field.name) in query.aliases:
            raise NameTaken(f"other columns are made of its column `{field.name}`", (field.name,), remedy=_ADVICE)
    if table.state is not None:
        query_adder(table.spec, query)(table.state.schema)
        return
    with naming_in_query(table.spec):
        new_schema(columns_with_query(table.spec, query).items())


@contextmanager
def rejecting_fields(*, are_new: bool) -> Iterator[None]:
    """Makes a column-name conflict of the new fields, in its block, of a query whose columns cannot have one name each, and
    of one that cannot read records with them: it has read the others, so that one odd record would stop the table. are_new:
    whether there are new fields, and not only wider types.
    """
    try:
        yield
    except SpecError as error:
        if not are_new and not isinstance(error, NameTaken):
            raise
        raise NameConflict(_reason(error), _ADVICE) from None


def _reason(error: SpecError) -> str:
    return f"{_RESULT if isinstance(error, NameTaken) else _UNREAD}: {error.message}"


class FirstNames:
    """Refuses fields of a table's first records that take a name of its query. Fields that it is called with later are
    expected to be some of those that it was called with at first.
    """

    def __init__(self, analyse: Callable[[Schema], object], declared: Collection[str]) -> None:
        """analyse: analyses the query for records with these fields; raises NameTaken or IntoCollection. declared: the
        columns of the records that the pipeline file declares, which it cannot be without.
        """
        self._analyse = analyse
        self._declared = declared
        #: The fields that take a name of the query, or that its steps lead into wrongly, each with the conflict.
        self._taken: dict[Path, str] = {}

    def __call__(self, records: Schema) -> None:
        """Raises: NameConflict where one of the fields takes a name of the query."""
        self._taken |= self._find(_without(records, self._taken))
        fields = set(_fields(records.as_struct(), ()))
        for path, reason in self._taken.items():
            if path in fields:
                raise NameConflict(reason, _ADVICE)

    def _find(self, records: Schema) -> dict[Path, str]:
        """Returns the fields without which the query can be analysed; none where the query names one of them itself, or has
        two columns of one name whatever fields records have.
        """
        taken: dict[Path, str] = {}
        while True:
            try:
                self._analyse(_without(records, taken))
            except (NameTaken, IntoCollection) as error:
                # Full names in Iceberg are the same, letter case aside.
                whole = fold_case(".".join(error.path))
                candidates = (
                    path for path in _fields(_without(records, taken).as_struct(), ()) if path[0] not in self._declared
                )
                paths = [path for path in candidates if fold_case(".".join(path)) == whole]
                if not paths:
                    return {}
                taken |= dict.fromkeys(paths, _reason(error))
            except (SpecError, UnavailableError) as error:  # Raised again when the table is created.
                named = fold_case(unknown_column(error))
                return {} if named in {fold_case(path[-1]) for path in taken} else taken
            else:
                return taken


def _without(records: Schema, paths: Collection[Path]) -> Schema:
    return Schema(*without_rejected(records.as_struct(), paths).fields) if paths else records


def _fields(struct: StructType, above: Path) -> Iterator[Path]:
    """Yields the paths of all fields of a struct and of the structs inside it."""
    for field in struct.fields:
        yield (*above, field.name)
        if isinstance(field.field_type, StructType):
            yield from _fields(field.field_type, (*above, field.name))
