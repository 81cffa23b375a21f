"""Whether a table can be partitioned and sorted as the pipeline file says, and the steps to it."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frazil.catalog.layout import METRICS_OF, bind, find_column, is_arranged, unknown_transform
from frazil.catalog.port import Catalog, TableState
from frazil.errors import SpecError
from frazil.ingest.table_settings import layout_of, own_columns
from frazil.schema.evolve import new_schema
from frazil.spec import TableSpec
from frazil.spec.problems import advice


def has_layout_columns(spec: TableSpec) -> bool:
    """Whether every column that a table is partitioned or sorted by, or that its properties name, is declared or of its own;
    if not, the table is made when records have shown it.
    """
    declared = {column.name: column.type for column in spec.columns} | own_columns(spec)
    schema = new_schema(declared.items())
    named = [*(term.column for term in layout_of(spec).terms), *measured_columns(spec)]
    return all(find_column(schema, name) is not None for name in named)


def measured_columns(spec: TableSpec) -> list[str]:
    """The columns that table properties of the file name."""
    return [name.removeprefix(METRICS_OF) for name in spec.properties if name.startswith(METRICS_OF)]


def check_measured_columns(spec: TableSpec, schema: Schema) -> None:
    """Raises SpecError for a property of a column that a new table does not have: Iceberg would not make it."""
    for name in measured_columns(spec):
        setting = METRICS_OF + name
        if find_column(schema, name) is None:
            raise SpecError(
                f"`{setting}`: the table has no column `{name}`",
                remedy=f"declare it under `columns`, or correct the name: {advice(name, schema.column_names)}",
                where=spec.name,
            )


def arranged(catalog: Catalog, spec: TableSpec, state: TableState) -> TableState:
    """The table, with the partition spec and sort order that the file asks for. Raises as `Catalog.arrange` does."""
    layout = layout_of(spec)
    if is_arranged(layout, state.schema, state.partitioning, state.sorting, state.name):
        return state
    return catalog.arrange(state.name, layout)


def layout_mismatch(spec: TableSpec, state: TableState, file: Path) -> SpecError | None:
    """Why a table that is there cannot be written as the file says: with file and line; None when it can."""
    spec_kept = state.partitioning if spec.partition_by is None else PartitionSpec()
    unknown = unknown_transform(spec_kept, state.sorting if spec.sort_by is None else UNSORTED_SORT_ORDER)
    if unknown:
        return SpecError(
            f"the table is partitioned or sorted by {unknown}, which is not a known transform",
            remedy="write `partition_by` and `sort_by` with known transforms, or use another table",
            where=state.name,
        )
    return term_mismatch(spec, state.schema, file)


def term_mismatch(spec: TableSpec, found: Schema, file: Path) -> SpecError | None:
    """The first term of `partition_by` and `sort_by` that cannot be had of the columns that are `found`, the declared ones
    and the table's own: with file and line; None when all can.
    """
    declared = {column.name: column.type for column in spec.columns} | own_columns(spec)
    there = {field.name: field.field_type for field in found.fields}
    schema = new_schema({**declared, **there}.items())
    for term in layout_of(spec).terms:
        try:
            bind(term, schema)
        except SpecError as error:
            error.where = f"{file}:{term.line}" if term.line else spec.name
            return error
    return None
