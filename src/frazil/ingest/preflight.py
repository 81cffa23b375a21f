"""Checks of a loaded table that need no record: `check` and `plan` run them before a run would stop for the same
reasons.
"""

from __future__ import annotations

from pyiceberg.schema import Schema

from frazil.catalog.layout import refuse_partition_field_names
from frazil.catalog.port import Catalog
from frazil.dead_letters.tables import refuse_other_table
from frazil.errors import FrazilError
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.schema_changes import CLASH_REMEDY, declared_adder
from frazil.ingest.table import Table
from frazil.ingest.table_layout import check_measured_columns
from frazil.ingest.table_settings import own_columns
from frazil.ingest.transactions.lookahead import check_partitions
from frazil.schema.evolve import NameConflict, new_schema
from frazil.upsert.lookup.live_rows import check_columns


def refuse_foreseen(table: Table, catalog: Catalog) -> None:
    """Raises TableStopped for the first reason for which a run would stop this table."""
    try:
        check_partitions(table)
        _check_declared(table)
        if table.spec.on_bad_record == "dead_letter":
            found = catalog.load(table.dead_letter_table_name)
            if found is not None:
                refuse_other_table(found, table.name)
    except FrazilError as error:
        if error.exit_code != 2:
            raise
        raise TableStopped(*describe_error(error)) from None


def _check_declared(table: Table) -> None:
    """Raises an error when the declared columns cannot be added to the existing table, or cannot be those of a new one."""
    spec, state = table.spec, table.state
    if state is None:
        schema = new_schema([*((one.name, one.type) for one in spec.columns), *own_columns(spec).items()])
        if spec.unknown_fields != "add":
            check_measured_columns(spec, schema)
    else:
        try:
            schema = declared_adder(spec)(state.schema)
        except NameConflict as error:
            raise TableStopped(str(error), CLASH_REMEDY, table.name) from None
        refuse_partition_field_names(state.schema, schema, (state.partitioning,), table.name)
    refuse_columns(table, schema)


def refuse_columns(table: Table, schema: Schema) -> None:
    """Raises SpecError where a table with this schema cannot be an upsert table."""
    if table.spec.mode == "upsert":
        check_columns(table.target(schema), ())
