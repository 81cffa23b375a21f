"""Changes of partition specs and sort orders for `frazil plan`, and their errors for `frazil check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from frazil.catalog.layout import arranged_terms, order_of, partition_terms, sort_terms
from frazil.catalog.port import TableState
from frazil.errors import SpecError
from frazil.ingest.tables.preflight import check_measured_columns, term_mismatch
from frazil.ingest.tables.settings import layout_of, own_columns
from frazil.ingest.tables.table import Table
from frazil.spec import TableSpec
from frazil.spec.sections import check_order


@dataclass(frozen=True)
class PlannedLayout:
    """The layout of new files, before and after a run, in the notation of a pipeline file."""

    #: The partition spec of new files.
    partition_spec: tuple[str, ...] = ()
    #: The current partition spec.
    partition_spec_before: tuple[str, ...] = ()
    #: The sort order of new files.
    sort_order: tuple[str, ...] = ()
    #: The current sort order.
    sort_order_before: tuple[str, ...] = ()

    @property
    def has_other_partitions(self) -> bool:
        """Whether the partition spec changes; another order of its terms is no change."""
        return set(self.partition_spec) != set(self.partition_spec_before)

    @property
    def has_other_order(self) -> bool:
        """Whether the sort order changes."""
        return self.sort_order != self.sort_order_before

    @property
    def is_changed(self) -> bool:
        """Whether the partition spec or the sort order changes."""
        return self.has_other_partitions or self.has_other_order


def order_mismatch(spec: TableSpec, state: TableState, file: Path) -> SpecError | None:
    """Returns why maintenance cannot sort the rows of an existing table as the pipeline file asks, with file and line;
    None where it can.
    """
    declared = {column.name: column.type for column in spec.shape.columns} | own_columns(spec)
    columns = {field.name: field.field_type for field in state.schema.fields}
    for line, error in check_order(spec.maintenance, {**declared, **columns}, is_complete=True):
        error.where = f"{file}:{line}"
        return error
    return None


def plan_layout(table: Table, schema: Schema, file: Path) -> PlannedLayout:
    """Returns the layout of a table with these columns, which include those to be added.

    Raises: SpecError where the table cannot have the layout.
    """
    layout, state = layout_of(table.spec), table.state
    mismatch = term_mismatch(table.spec, schema, file)
    if mismatch is not None:
        raise mismatch
    spec_before: tuple[str, ...] = ()
    order_before: tuple[str, ...] = ()
    if state is not None:
        spec_before = partition_terms(state.partitioning, schema)
        order_before = sort_terms(state.sorting, schema)
    spec, order = spec_before, order_before
    if layout.partition_by is not None:
        own = state.partitioning if state is not None else PartitionSpec()
        spec = arranged_terms(layout.partition_by, schema, own, table.name)
    if layout.sort_by is not None:
        order = sort_terms(order_of(layout.sort_by, schema, table.name), schema)
    if state is None:
        check_measured_columns(table.spec, schema)
    return PlannedLayout(spec, spec_before, order, order_before)
