"""Creates tables, with the columns that the pipeline file declares and those that their first records need."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.dead_letters.tables import create_table
from frazil.ingest.preflight import check_measured_columns, refuse_columns
from frazil.ingest.queries import QueryTables
from frazil.ingest.schema_changes import declared_adder
from frazil.ingest.settings import declared_columns, layout_of, own_columns
from frazil.ingest.table import Table
from frazil.ingest.target import target_of
from frazil.schema.evolve import compare_schemas, new_schema, with_identifiers
from frazil.schema.projection import document

log = structlog.get_logger("frazil")


class NewTables:
    """Creates tables in a catalog."""

    def __init__(self, catalog: Catalog, queries: QueryTables) -> None:
        self._catalog = catalog
        self._queries = queries

    def create(self, table: Table, found: Schema | None = None, key_columns: Sequence[str] = ()) -> TableState:
        """Creates the table with its declared columns, those of `found`, and its metadata columns. key_columns: the fields
        of the records' keys, where these identify the rows.
        """
        spec = table.spec
        if spec.has_query:
            return self._create_with_query(table, found or Schema(), key_columns)
        found_fields = found.fields if found is not None else ()
        columns = {column.name: column.type for column in spec.columns}
        columns |= {field.name: field.field_type for field in found_fields if field.name not in columns}
        columns |= own_columns(spec)
        docs = {field.name: field.doc for field in found_fields if field.doc}
        schema = document(new_schema(columns.items()), docs)
        refuse_columns(table, schema)
        changes = target_of(table, schema).changes
        keys = (changes.key_columns or key_columns) if changes is not None else ()
        return self._made(table, with_identifiers(schema, keys) if keys else schema)

    def _create_with_query(self, table: Table, records: Schema, key_columns: Sequence[str]) -> TableState:
        """Creates a table with the columns that its query makes of the fields of its records."""
        declared = declared_columns(table.records.spec)
        records = Schema(*(field for field in records.fields if field.name not in declared))
        schema = self._queries.first_schema(table, records, key_columns)
        self._made(table, schema)
        return self._queries.remember(table, records)

    def _made(self, table: Table, schema: Schema) -> TableState:
        spec = table.spec
        check_measured_columns(spec, schema)
        version, layout = spec.format_version, layout_of(spec)
        made = create_table(self._catalog, table.name, schema, spec.properties, version, layout, spec.location)
        if made.format_version != version:
            log.warning("other_format_version", table=table.name, asked=version, found=made.format_version)
        return self.with_declared(table, made)

    def with_declared(self, table: Table, state: TableState) -> TableState:
        """Adds columns that the pipeline file has, as another one may have created the table; returns the table."""
        if not compare_schemas(state.schema, declared_adder(table.spec)(state.schema)):
            return state
        return self._catalog.evolve(table.name, declared_adder(table.spec))
