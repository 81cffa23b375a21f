"""Changes of a table's partition spec and sort order, by Iceberg's Java API."""

from __future__ import annotations

from typing import Any

from frazil.catalog.layout import Layout, order_of, spec_change
from frazil.catalog.port import TableState
from frazil.failpoints import hit
from frazil.spec.partitioning import PartitionTerm, SortTerm


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
