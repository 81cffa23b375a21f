"""Which fields of the records each column of a table comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema

from frazil.ingest.tables.queries import field_origins
from frazil.ingest.tables.settings import key_column_of, own_columns, shaping_of
from frazil.ingest.tables.table import Table
from frazil.ops.reports import to_json
from frazil.queries.analysis import Query
from frazil.schema.parts import Path
from frazil.schema.projection import format_path, path_in_doc
from frazil.spec.settings import METADATA_COLUMNS
from frazil.stages.notes import StageNote
from frazil.stages.table import NOTES


@dataclass(frozen=True)
class ColumnLineage:
    """Where the values of one column come from."""

    #: The column.
    name: str
    #: Paths of the fields that its values are made of; of metadata by its name, such as `_offset`.
    fields: tuple[str, ...]


@dataclass(frozen=True)
class TableLineage:
    """Where the columns of one table come from."""

    #: The table.
    name: str
    #: Each column with its `name`, and in `fields` the fields that it is made of.
    columns: tuple[ColumnLineage, ...]
    #: The fields that decide which records make rows.
    conditions: tuple[str, ...] = ()
    #: What stages do to fields before the query.
    notes: tuple[StageNote, ...] = ()

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the lineage, without the table's name."""
        return to_json(self, "name", "notes") | notes_document(self.notes)


def notes_document(notes: Iterable[StageNote]) -> dict[str, Any]:
    """Returns the keys of stages in a document of a table, those of stages that the table does not have among them."""
    return {key: value for note in (*(kind() for kind in NOTES), *notes) for key, value in to_json(note).items()}


def lineage_of(table: Table, query: Query | None) -> TableLineage:
    """Returns the lineage of a loaded table; of one that does not exist, no column. query: the table's own, as analysed;
    None for a table without one, or where no field of its records is known.
    """
    if table.spec.has_query:
        return _of_query(table, query)
    schema = table.state.schema if table.state is not None else Schema()
    return TableLineage(table.name, tuple(_plain(table, schema)))


def _of_query(table: Table, query: Query | None) -> TableLineage:
    if query is None:
        return TableLineage(table.name, ())
    view = table.records.state
    origins = field_origins(table, view.schema) if view is not None else {}

    def fields(paths: Iterable[Path]) -> tuple[str, ...]:
        return tuple(sorted(format_path((*(origins.get(path[0]) or path[:1]), *path[1:])) for path in paths))

    columns = [ColumnLineage(column.name, fields(column.sources)) for column in query.columns]
    own = own_columns(table.spec).keys() - {column.name for column in columns}
    metadata = _metadata_of(table)
    columns += [ColumnLineage(name, (metadata.get(name, name),)) for name in sorted(own)]
    return TableLineage(table.name, tuple(columns), fields(query.conditions), query.notes)


def _plain(table: Table, schema: Schema) -> Iterator[ColumnLineage]:
    shaping, own = shaping_of(table.spec), own_columns(table.spec)
    declared = dict(shaping.fields) if shaping is not None else {}
    headers = dict(shaping.headers) if shaping is not None else {}
    metadata = _metadata_of(table)
    for field in schema.fields:
        name = field.name
        if name in headers:
            yield ColumnLineage(name, (f"_headers.{headers[name]}",))
        elif name in own or name == key_column_of(table.spec):
            constants = dict(shaping.constants) if shaping is not None else {}
            yield ColumnLineage(name, () if name in constants else (metadata.get(name, name),))
        else:
            yield ColumnLineage(name, (format_path(declared.get(name) or path_in_doc(field.doc) or (name,)),))


def _metadata_of(table: Table) -> dict[str, str]:
    """Returns the metadata in each column that `metadata` names, by the name that queries use."""
    columns = {column: METADATA_COLUMNS[field] for field, column in table.spec.metadata.items()}
    changes = table.spec.changes
    if changes.keeps_history and changes.order_by is not None:
        columns |= dict.fromkeys((table.spec.metadata["valid_from"], table.spec.metadata["valid_to"]), changes.order_by)
    return columns
