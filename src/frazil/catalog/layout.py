"""The layout of a table's files: the terms of the pipeline file bound to columns, as partition spec and sort order.

Iceberg stores both by column id, so an existing table is compared by column id and transform; the names of its
partition fields are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import NestedField, StructType

from frazil.column_names import Spellings
from frazil.errors import SpecError
from frazil.spec.partitioning import PartitionTerm, SortTerm, check_type, transform_of
from frazil.spec.syntax.problems import advice

METRICS_OF = "write.metadata.metrics.column."
"""Prefix of the table properties that choose the metrics of a column. Iceberg refuses to create a table without the
column.
"""

_VOID = "void"


@dataclass(frozen=True)
class Layout:
    """The layout in a pipeline file. None: not specified, the table's own layout stays."""

    #: The terms of the partition spec.
    partition_by: tuple[PartitionTerm, ...] | None = None
    #: The terms of the sort order.
    sort_by: tuple[SortTerm, ...] | None = None

    @property
    def terms(self) -> tuple[PartitionTerm, ...]:
        """All terms, in the order of the pipeline file."""
        return (*(self.partition_by or ()), *(sort.term for sort in self.sort_by or ()))


UNARRANGED = Layout()
"""The table's own layout; for a new table neither partitions nor a sort order."""


@dataclass(frozen=True)
class SpecChange:
    """The change from one partition spec to another."""

    #: The names of partition fields to be removed.
    removed: tuple[str, ...]
    #: The terms to be added, with the names of their partition fields.
    added: tuple[tuple[PartitionTerm, str], ...]


def find_column(schema: Schema | StructType, path: str) -> NestedField | None:
    """Returns the column at `path`, also inside structs; None without one. Names may contain dots themselves, and are found
    in any case where only one differs from the given name in case alone.
    """
    fields = {field.name: field for field in schema.fields}
    spellings = Spellings(fields)
    if spelled := spellings.find(path):
        return fields[spelled]
    for cut in (n for n, character in enumerate(path) if character == "."):
        name = spellings.find(path[:cut])
        kind = fields[name].field_type if name is not None else None
        inner = find_column(kind, path[cut + 1 :]) if isinstance(kind, StructType) else None
        if inner is not None:
            return inner
    return None


def bind(term: PartitionTerm, schema: Schema, where: str = "") -> NestedField:
    """Returns the column of the term.

    Raises: SpecError where the column does not exist, or its type does not allow the transform.
    """
    field = find_column(schema, term.column)
    if field is None and term.column in schema.column_names:
        raise SpecError(
            f"`{term.text}`: a row may have several values of `{term.column}`, which is inside a list or a map",
            remedy="name a column that is not a list, map or struct, or one inside it, such as `a.b`",
            where=where,
        )
    if field is None:
        column_names = [name for name in schema.column_names if find_column(schema, name) is not None]
        raise SpecError(
            f"`{term.text}`: the table has no column `{term.column}`",
            remedy=f"declare it under `columns`, or correct the name: {advice(term.column, column_names)}",
            where=where,
        )
    try:
        check_type(term, field.field_type)
    except SpecError as error:
        error.where = where
        raise
    return field


def spelled_term(term: PartitionTerm, schema: Schema, where: str = "") -> PartitionTerm:
    """Returns the term with the name of its column as the table writes it.

    Raises: SpecError as `bind`.
    """
    return replace(term, column=schema.find_column_name(bind(term, schema, where).field_id) or term.column)


def spec_of(terms: Sequence[PartitionTerm], schema: Schema, where: str = "") -> PartitionSpec:
    """Returns the partition spec of a new table.

    Raises: SpecError as `bind`.
    """
    spelled = [spelled_term(term, schema, where) for term in terms]
    fields = [
        PartitionField(
            bind(term, schema, where).field_id, PARTITION_FIELD_ID_START + n, transform_of(term.transform), name
        )
        for n, (term, name) in enumerate(zip(spelled, _names(spelled, schema, ()), strict=True))
    ]
    return PartitionSpec(*fields)


def order_of(sorts: Sequence[SortTerm], schema: Schema, where: str = "") -> SortOrder:
    """Returns the sort order.

    Raises: SpecError as `bind`.
    """
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
    """Returns the change of `spec` to the partition spec of the pipeline file.

    Raises: SpecError as `bind`.
    """
    wanted = {(bind(term, schema, where).field_id, term.transform): term for term in terms}
    current = {(field.source_id, str(field.transform)): field for field in spec.fields}
    removed = [field.name for key, field in current.items() if key not in wanted and not _is_void(field)]
    added = [spelled_term(term, schema, where) for key, term in wanted.items() if key not in current]
    kept = [field.name for field in spec.fields]
    return SpecChange(tuple(removed), tuple(zip(added, _names(added, schema, kept), strict=True)))


def arranged_terms(
    terms: Sequence[PartitionTerm], schema: Schema, spec: PartitionSpec, where: str = ""
) -> tuple[str, ...]:
    """Returns the partition spec that `spec_change` makes of `spec`, in the notation of a pipeline file: the terms, and void
    fields, which stay.

    Raises: SpecError as `bind`.
    """
    wanted = [spelled_term(term, schema, where).text for term in terms]
    void = [text for field, text in zip(spec.fields, partition_terms(spec, schema), strict=True) if _is_void(field)]
    return (*wanted, *(text for text in void if text not in wanted))


def _is_void(field: PartitionField) -> bool:
    """Returns whether a partition field has no values: a table of format version 1 keeps a removed field so."""
    return str(field.transform) == _VOID


def is_arranged(layout: Layout, schema: Schema, spec: PartitionSpec, order: SortOrder, where: str = "") -> bool:
    """Returns whether a table has the layout of the pipeline file.

    Raises: SpecError as `bind`.
    """
    if layout.partition_by is not None and spec_change(layout.partition_by, schema, spec, where) != SpecChange((), ()):
        return False
    return layout.sort_by is None or order_of(layout.sort_by, schema, where).fields == order.fields


def refuse_partition_field_names(before: Schema, after: Schema, specs: Iterable[PartitionSpec], where: str) -> None:
    """Checks that no new column has the name of a partition field of any spec that the table ever had: Iceberg has one
    namespace for both. It releases a name once the column of the partition field is dropped.

    Raises: SpecError where a column has such a name.
    """
    earlier_ids = before.field_ids
    reserved = {field.name for spec in specs for field in spec.fields if field.source_id in earlier_ids}
    clash = sorted(reserved & (set(after.column_names) - set(before.column_names)))
    if clash:
        raise SpecError(
            f"records have a field `{clash[0]}`, and the table has a partition field of this name",
            remedy=f"leave it out with `exclude`, or give it a column: `columns: {{NAME: {{type: …, field: {clash[0]}}}}}`",
            where=where,
        )


def unknown_transform(spec: PartitionSpec, order: SortOrder) -> str:
    """Returns the first transform of the table that only a newer version of Iceberg knows; empty without one."""
    transforms = [*(field.transform for field in spec.fields), *(field.transform for field in order.fields)]
    return next((transform._transform for transform in transforms if isinstance(transform, UnknownTransform)), "")


def partition_terms(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """Returns the partition spec in the notation of a pipeline file; a dropped column is given by its id."""
    return tuple(_term_of(field, schema).text for field in spec.fields)


def sort_terms(order: SortOrder, schema: Schema) -> tuple[str, ...]:
    """Returns the sort order in the notation of a pipeline file."""
    return tuple(
        SortTerm(
            _term_of(field, schema),
            field.direction == SortDirection.DESC,
            field.null_order == NullOrder.NULLS_FIRST,
        ).text
        for field in order.fields
    )


def _term_of(field: PartitionField | SortField, schema: Schema) -> PartitionTerm:
    return PartitionTerm(schema.find_column_name(field.source_id) or str(field.source_id), str(field.transform))


def _names(terms: Sequence[PartitionTerm], schema: Schema, reserved: Sequence[str]) -> list[str]:
    """Returns names for partition fields. Only an identity field may have the name of a column."""
    columns, names = set(schema.column_names), list(reserved)
    for term in terms:
        name, number = term.field_name, 1
        while name in names or (name in columns and term.transform != "identity"):
            name, number = f"{term.field_name}_{number + 1}", number + 1
        names.append(name)
    return names[len(reserved) :]
