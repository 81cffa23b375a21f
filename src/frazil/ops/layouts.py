"""How `frazil plan` shows what becomes of a table's partitions and sort order, and `frazil check` what cannot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.schema import Schema

from frazil.catalog.layout import order_of, order_words, words_of
from frazil.catalog.port import TableState
from frazil.errors import SpecError
from frazil.ingest.table import Table
from frazil.ingest.table_layout import check_measured_columns, term_mismatch
from frazil.ingest.table_settings import layout_of, own_columns
from frazil.spec import TableSpec
from frazil.spec.maintenance import check_order


@dataclass(frozen=True)
class PlannedLayout:
    """As a pipeline file writes it: what new files will have, and what they have until now, of a table that is there."""

    partition_spec: tuple[str, ...] = ()
    partition_spec_before: tuple[str, ...] = ()
    sort_order: tuple[str, ...] = ()
    sort_order_before: tuple[str, ...] = ()

    @property
    def has_other_partitions(self) -> bool:
        """Whether the partition spec changes; terms that trade places are no change."""
        return set(self.partition_spec) != set(self.partition_spec_before)

    @property
    def has_other_order(self) -> bool:
        """Whether the sort order changes."""
        return self.sort_order != self.sort_order_before

    @property
    def is_changed(self) -> bool:
        """Whether either does."""
        return self.has_other_partitions or self.has_other_order


def order_mismatch(spec: TableSpec, state: TableState, file: Path) -> SpecError | None:
    """Why table care cannot put the rows of a table that is there into the order that the file asks for: with file and line;
    None when it can.
    """
    declared = {column.name: column.type for column in spec.columns} | own_columns(spec)
    there = {field.name: field.field_type for field in state.schema.fields}
    for line, error in check_order(spec.maintenance, {**declared, **there}, is_complete=True):
        error.where = f"{file}:{line}"
        return error
    return None


def plan_layout(table: Table, schema: Schema, file: Path) -> PlannedLayout:
    """Of a table with these columns, those to be made included. Raises SpecError when it cannot be had."""
    layout, state = layout_of(table.spec), table.state
    mismatch = term_mismatch(table.spec, schema, file)
    if mismatch is not None:
        raise mismatch
    spec_before: tuple[str, ...] = ()
    order_before: tuple[str, ...] = ()
    if state is not None:
        spec_before = words_of(state.partitioning, schema)
        order_before = order_words(state.sorting, schema)
    spec, order = spec_before, order_before
    if layout.partition_by is not None:
        spec = tuple(term.text for term in layout.partition_by)
    if layout.sort_by is not None:
        order = order_words(order_of(layout.sort_by, schema, table.name), schema)
    if state is None:
        check_measured_columns(table.spec, schema)
    return PlannedLayout(spec, spec_before, order, order_before)
