"""Checks the partitioning and sort order of the pipeline file against a table, and applies them."""

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
    """Whether every column of the table's partitioning, sort order and properties is declared or a metadata column;
    otherwise the table is created when records have shown its columns.
    """
    declared = {column.name: column.type for column in spec.columns} | own_columns(spec)
    schema = new_schema(declared.items())
    named = [*(term.column for term in layout_of(spec).terms), *measured_columns(spec)]
    return all(find_column(schema, name) is not None for name in named)


def measured_columns(spec: TableSpec) -> list[str]:
    """Returns the columns that table properties of the pipeline file name."""
    return [name.removeprefix(METRICS_OF) for name in spec.properties if name.startswith(METRICS_OF)]


def check_measured_columns(spec: TableSpec, schema: Schema) -> None:
    """Raises SpecError for a property of a column that a new table does not have: Iceberg would refuse to create it."""
    for name in measured_columns(spec):
        setting = METRICS_OF + name
        if find_column(schema, name) is None:
            raise SpecError(
                f"`{setting}`: the table has no column `{name}`",
                remedy=f"declare it under `columns`, or correct the name: {advice(name, schema.column_names)}",
                where=spec.name,
            )


def arranged(catalog: Catalog, spec: TableSpec, state: TableState) -> TableState:
    """Returns the table after setting the partition spec and sort order of the pipeline file.

    Raises: the errors of `Catalog.arrange`.
    """
    layout = layout_of(spec)
    if is_arranged(layout, state.schema, state.partitioning, state.sorting, state.name):
        return state
    return catalog.arrange(state.name, layout)


def layout_mismatch(spec: TableSpec, state: TableState, file: Path) -> SpecError | None:
    """Returns the error, with file and line, of an existing table that cannot be written with the layout of the
    pipeline file; None when it can.
    """
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
    """Returns the error, with file and line, of the first term of `partition_by` and `sort_by` that has no column among
    the schema `found`, the declared columns and the metadata columns; None when all have one.
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
