"""Tables whose rows a query makes: the schema of their records, kept in a mark of the table, and the query analysed for it.

The fields of records change by the rules of any table's schema; the table's own columns follow what the query makes of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.ingest.schema_changes import query_adder, same_table
from frazil.ingest.table import (
    RECORDS_SCHEMA,
    Table,
    columns_of_keys,
    declared_columns,
    loaded,
    own_columns,
    query_columns,
)
from frazil.process.analysis import Query
from frazil.schema.evolve import extend_schema, new_schema, with_identifiers
from frazil.spec import TableSpec


class Queries(Protocol):
    """Analyses queries."""

    def analyse(self, spec: TableSpec, records: Schema) -> Query:
        """Returns the table's query for records with these fields and columns of metadata.

        Raises: SpecError for a query that is wrong; UnavailableError for a field that no record has had yet, and where Spark
        does not answer.
        """


class QueryTables:
    """Creates and changes tables with a query. queries: None where no table has one."""

    def __init__(self, catalog: Catalog, queries: Queries | None) -> None:
        self._catalog = catalog
        self._queries = queries

    def first_schema(self, table: Table, records: Schema, key_columns: Sequence[str]) -> Schema:
        """Returns the schema of a new table. records: the fields of its records. key_columns: the fields of the records'
        keys, where these identify the rows.

        Raises: as `Queries.analyse`; SpecError where the query leaves out a field of the key.
        """
        query = table.schema.query = self._analysed(table, records)
        schema = new_schema((query_columns(query) | own_columns(table.spec)).items())
        if table.spec.mode != "upsert":
            return schema
        return with_identifiers(schema, table.spec.key_columns or columns_of_keys(query, key_columns))

    def load(self, table: Table) -> TableState:
        """Analyses the query of a loaded table for the known fields of its records, and adds the columns that the table
        lacks; returns the table.

        Raises: as `Queries.analyse`; SpecError for a query that makes no such table.
        """
        state = table.state
        assert state is not None
        table.schema.query = None
        records = table.records.state
        if RECORDS_SCHEMA not in state.marks or records is None:
            return state
        query = table.schema.query = self._analysed(table, records.schema)
        change = query_adder(table.spec, query)
        return self._catalog.evolve(table.name, change) if change(state.schema) != state.schema else state

    def evolve(self, table: Table, change: Callable[[Schema], Schema]) -> TableState:
        """Applies a change to the schema of the table's records; returns the table.

        Raises: as `load`; ConflictError where the table was recreated.
        """
        assert table.state is not None
        if not table.spec.has_query:
            return same_table(table.state, self._catalog.evolve(table.name, change))
        view = table.records.state
        assert view is not None
        records = change(view.schema)
        query = self._analysed(table, records)
        # The columns first: were the fields known without them, no batch would ask for them again.
        same_table(table.state, self._catalog.evolve(table.name, query_adder(table.spec, query)))
        hit("evolve.query")
        table.schema.query = query
        return self.remember(table, records)

    def remember(self, table: Table, records: Schema) -> TableState:
        """Keeps the fields of the table's records in the table; returns the table."""
        own = own_columns(table.records.spec)
        fields = Schema(*(field for field in records.fields if field.name not in own))
        self._catalog.mark(table.name, RECORDS_SCHEMA, fields.model_dump_json())
        return loaded(self._catalog, table.name)

    def _analysed(self, table: Table, records: Schema) -> Query:
        if self._queries is None:
            raise SpecError("the table has a query, and there is no Spark to analyse it", where=table.name)
        named = declared_columns(table.records.spec)
        return self._queries.analyse(table.spec, extend_schema(records, {(): named}))
