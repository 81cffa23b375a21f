"""Changes of a table's partition spec and sort order, by Iceberg's Java API."""

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
    """Makes the Java table, which is as `state` says, what `layout` asks for: two commits at most, each complete in itself.

    Raises py4j's error, of a conflict too: to be looked at anew and called again.
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
            hit("arrange.spec-changed")
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
    """A RowDelta of the Java table that is not committed yet: `files` come, what `delta` names goes, with all of Iceberg's
    own checks that nobody has changed what they go from. data_files: how files get to Java.
    """
    update = java.newRowDelta().validateDeletedFiles()
    if delta.read_at is not None:
        update.validateFromSnapshot(delta.read_at)
    update.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    if delta.touched:
        update.validateDataFilesExist(data_files.texts(delta.touched))
    data_files.tell((file.content for file in files), java, update, "RowDelta.addRows")
    data_files.tell((file.content for file in delta.removed), java, update, "RowDelta.removeRows")
    data_files.tell((delete.content for delete in delta.deletes), java, update, "RowDelta.addDeletes")
    data_files.tell((delete.content for delete in delta.replaced), java, update, "RowDelta.removeDeletes")
    return update
