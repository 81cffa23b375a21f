"""Updates of Java tables: partition spec, sort order, and row deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.catalog.iceberg.data_files import DataFiles
from frazil.catalog.layout import Layout, order_of, spec_change
from frazil.catalog.port import TableState
from frazil.failpoints import hit
from frazil.spec.partitioning import PartitionTerm, SortTerm
from frazil.types import DataFile, RowDelta


def arrange(jvm: Any, java: Any, state: TableState, layout: Layout) -> None:
    """Gives the Java table, which is as in `state`, the layout: at most two commits, each complete in itself.

    Raises: py4j's error, of a conflict too: the table is to be loaded again.
    """
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    if layout.partition_by is not None:
        change = spec_change(layout.partition_by, state.schema, state.partitioning, state.name)
        update = java.updateSpec()
        for name in change.removed:
            update.removeField(name)
        for term, name in change.added:
            update.addField(name, _java_term(jvm, expressions, term))
        if change.removed or change.added:
            update.commit()
            hit("layout.spec-changed")
    if layout.sort_by is not None and order_of(layout.sort_by, state.schema).fields != state.sorting.fields:
        _sort(jvm, java, layout.sort_by)


def _sort(jvm: Any, java: Any, sorts: tuple[SortTerm, ...]) -> None:
    iceberg = jvm.org.apache.iceberg
    update = java.replaceSortOrder()
    for sort in sorts:
        nulls = iceberg.NullOrder.NULLS_FIRST if sort.is_nulls_first else iceberg.NullOrder.NULLS_LAST
        term = _java_term(jvm, iceberg.expressions.Expressions, sort.term)
        update = update.desc(term, nulls) if sort.is_descending else update.asc(term, nulls)
    update.commit()


def _java_term(jvm: Any, expressions: Any, term: PartitionTerm) -> Any:
    if term.transform == "identity":
        return expressions.ref(term.column)
    return expressions.transform(term.column, jvm.org.apache.iceberg.transforms.Transforms.fromString(term.transform))


def row_delta(java: Any, files: Sequence[DataFile], delta: RowDelta, data_files: DataFiles) -> Any:
    """Returns an uncommitted RowDelta of the Java table that adds `files` and deletes what `delta` names, with
    Iceberg's checks that nobody has changed the files and rows it deletes from.
    """
    update = java.newRowDelta().validateDeletedFiles()
    if delta.read_at is not None:
        update.validateFromSnapshot(delta.read_at)
    update.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    if delta.touched:
        update.validateDataFilesExist(data_files.texts(delta.touched))
    data_files.apply((file.content for file in files), java, update, "RowDelta.addRows")
    data_files.apply((file.content for file in delta.removed), java, update, "RowDelta.removeRows")
    data_files.apply((delete.content for delete in delta.deletes), java, update, "RowDelta.addDeletes")
    data_files.apply((delete.content for delete in delta.replaced), java, update, "RowDelta.removeDeletes")
    return update
