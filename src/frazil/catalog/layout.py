"""How a table's files are arranged: the terms of a pipeline file bound to its columns, as partition spec and sort order.

Iceberg keeps both by the ids of their columns, so a table that exists is compared by id and transform; the names of its
partition fields are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import NestedField, StructType

from frazil.errors import SpecError
from frazil.spec.partitioning import PartitionTerm, SortTerm, check_type, transform_of
from frazil.spec.problems import advice

METRICS_OF = "write.metadata.metrics.column."
"""What table properties begin with that say which statistics are kept of a column; Iceberg makes no table that lacks one."""

_VOID = "void"


@dataclass(frozen=True)
class Layout:
    """What a pipeline file asks for. None: it does not say, and what the table has stays."""

    partition_by: tuple[PartitionTerm, ...] | None = None
    sort_by: tuple[SortTerm, ...] | None = None

    @property
    def terms(self) -> tuple[PartitionTerm, ...]:
        """All terms, in the file's order."""
        return (*(self.partition_by or ()), *(sort.term for sort in self.sort_by or ()))


UNARRANGED = Layout()
"""As the table is; a new one gets no partitions and no order."""


@dataclass(frozen=True)
class SpecChange:
    """How a partition spec becomes another: names of fields that go, and terms with the names that their fields get."""

    removed: tuple[str, ...]
    added: tuple[tuple[PartitionTerm, str], ...]


def find_column(schema: Schema, path: str) -> NestedField | None:
    """The column at `path`, inside structs too; None where there is none. Names may have dots themselves."""
    return _find(schema.fields, path)


def _find(fields: Sequence[NestedField], path: str) -> NestedField | None:
    for field in fields:
        if field.name == path:
            return field
    for field in fields:
        if isinstance(field.field_type, StructType) and path.startswith(f"{field.name}."):
            found = _find(field.field_type.fields, path[len(field.name) + 1 :])
            if found is not None:
                return found
    return None


def bind(term: PartitionTerm, schema: Schema, where: str = "") -> NestedField:
    """The term's column. Raises SpecError when it is not there, or when its type does not allow the transform."""
    field = find_column(schema, term.column)
    if field is None:
        raise SpecError(
            f"`{term.text}`: the table has no column `{term.column}`",
            remedy=f"declare it under `columns`, or correct the name: {advice(term.column, schema.column_names)}",
            where=where,
        )
    try:
        check_type(term, field.field_type)
    except SpecError as error:
        error.where = where
        raise
    return field


def spec_of(terms: Sequence[PartitionTerm], schema: Schema, where: str = "") -> PartitionSpec:
    """The partition spec of a new table. Raises SpecError as `bind` does."""
    fields = [
        PartitionField(
            bind(term, schema, where).field_id, PARTITION_FIELD_ID_START + n, transform_of(term.transform), name
        )
        for n, (term, name) in enumerate(zip(terms, _names(terms, schema, ()), strict=True))
    ]
    return PartitionSpec(*fields)


def order_of(sorts: Sequence[SortTerm], schema: Schema, where: str = "") -> SortOrder:
    """The sort order. Raises SpecError as `bind` does."""
    fields = [
        SortField(
            bind(sort.term, schema, where).field_id,
            transform_of(sort.term.transform),
            SortDirection.DESC if sort.is_descending else SortDirection.ASC,
            NullOrder.NULLS_FIRST if sort.is_nulls_first else NullOrder.NULLS_LAST,
        )
        for sort in sorts
    ]
    return SortOrder(*fields, order_id=1 if fields else 0)


def spec_change(terms: Sequence[PartitionTerm], schema: Schema, spec: PartitionSpec, where: str = "") -> SpecChange:
    """What makes `spec` the one that the file asks for. Raises SpecError as `bind` does."""
    wanted = {(bind(term, schema, where).field_id, term.transform): term for term in terms}
    there = {(field.source_id, str(field.transform)): field for field in spec.fields}
    # A table of format version 1 keeps the place of a field that was removed, as void.
    removed = [field.name for key, field in there.items() if key not in wanted and key[1] != _VOID]
    added = [term for key, term in wanted.items() if key not in there]
    kept = [field.name for field in spec.fields]
    return SpecChange(tuple(removed), tuple(zip(added, _names(added, schema, kept), strict=True)))


def is_arranged(layout: Layout, schema: Schema, spec: PartitionSpec, order: SortOrder, where: str = "") -> bool:
    """Whether a table is as the file asks. Raises SpecError as `bind` does."""
    if layout.partition_by is not None and spec_change(layout.partition_by, schema, spec, where) != SpecChange((), ()):
        return False
    return layout.sort_by is None or order_of(layout.sort_by, schema, where).fields == order.fields


def refuse_taken_names(before: Schema, after: Schema, specs: Iterable[PartitionSpec], where: str) -> None:
    """Raises SpecError when a new column has the name of a partition field of any spec that the table ever had: Iceberg has
    one set of names for both, and takes none back.
    """
    taken = {field.name for spec in specs for field in spec.fields}
    clash = sorted(taken & (set(after.column_names) - set(before.column_names)))
    if clash:
        raise SpecError(
            f"records have a field `{clash[0]}`, and the table has a partition field of this name",
            remedy=f"leave it out with `exclude`, or give it a column: `columns: {{NAME: {{type: …, field: {clash[0]}}}}}`",
            where=where,
        )


def unknown_transform(spec: PartitionSpec, order: SortOrder) -> str:
    """The first transform of a table that only a later Iceberg knows; empty for none."""
    transforms = [*(field.transform for field in spec.fields), *(field.transform for field in order.fields)]
    return next((found._transform for found in transforms if isinstance(found, UnknownTransform)), "")


def words_of(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """A partition spec as a pipeline file writes it; of a column that is gone its id."""
    return tuple(
        PartitionTerm(schema.find_column_name(field.source_id) or str(field.source_id), str(field.transform)).text
        for field in spec.fields
    )


def order_words(order: SortOrder, schema: Schema) -> tuple[str, ...]:
    """A sort order, likewise."""
    return tuple(
        SortTerm(
            PartitionTerm(schema.find_column_name(field.source_id) or str(field.source_id), str(field.transform)),
            field.direction == SortDirection.DESC,
            field.null_order == NullOrder.NULLS_FIRST,
        ).text
        for field in order.fields
    )


def _names(terms: Sequence[PartitionTerm], schema: Schema, taken: Sequence[str]) -> list[str]:
    """Names for partition fields. Only the field of a column itself may have the name of a column."""
    columns, names = set(schema.column_names), list(taken)
    for term in terms:
        name, number = term.field_name, 1
        while name in names or (name in columns and term.transform != "identity"):
            name, number = f"{term.field_name}_{number + 1}", number + 1
        names.append(name)
    return names[len(taken) :]
