"""The columns that a pipeline file declares, compared with those of the table. Pure."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from frazil.errors import SpecError
from frazil.schema.evolve import can_promote
from frazil.schema.name_case import Spellings
from frazil.spec import TableSpec


def declared_mismatch(spec: TableSpec, schema: Schema | None) -> SpecError | None:
    """Returns the reason why the table (None: it will be created) cannot have the declared columns; None when it can,
    also where a run adds or widens some.
    """
    there = {field.name: field.field_type for field in schema.fields} if schema is not None else {}
    spellings = Spellings([*there])
    for column in spec.columns:
        if column.name in there:
            if not _is_or_becomes(there[column.name], column.type):
                return _of_another_type(spec, column.name, there[column.name], column.type)
            continue
        others = spellings.others(column.name)
        if others:
            return _respelt(spec, column.name, others[0], is_there=others[0] in there)
        spellings.add(column.name)
    return None


def _is_or_becomes(table: IcebergType, declared: IcebergType) -> bool:
    """Whether a column has the declared type, or a wider one that records have required since, or can be widened to it."""
    if isinstance(table, StructType) and isinstance(declared, StructType):
        there = {member.name: member.field_type for member in table.fields}
        return all(
            _is_or_becomes(there[member.name], member.field_type) for member in declared.fields if member.name in there
        )
    if isinstance(table, ListType) and isinstance(declared, ListType):
        return _is_or_becomes(table.element_type, declared.element_type)
    if isinstance(table, MapType) and isinstance(declared, MapType):
        return table.key_type == declared.key_type and _is_or_becomes(table.value_type, declared.value_type)
    return table == declared or can_promote(table, declared) or can_promote(declared, table)


def _of_another_type(spec: TableSpec, name: str, table: IcebergType, declared: IcebergType) -> SpecError:
    have, asked = (str(kind).split("<")[0] for kind in (table, declared))
    differs = f"a {have}" if have != asked else f"another {have}"
    column = next(one for one in spec.columns if one.name == name)
    field = ".".join(column.field or (name,))
    as_text = ", coerce: true" if column.coerce else ""
    return SpecError(
        f"`columns` declares `{name}` as {asked}, and the table has it as {differs}, which Iceberg cannot widen to"
        " that",
        remedy=(
            f"take `{name}` out of `columns`, or write its type as the table has it; or declare the field under another"
            f" name, `columns: {{NAME: {{type: {asked}{as_text}, field: {field}}}}}`"
        ),
        where=spec.name,
    )


def _respelt(spec: TableSpec, name: str, other: str, is_there: bool) -> SpecError:
    if is_there:
        message = f"`columns` declares `{name}`, and the table has `{other}`, which differs only in letter case"
        return SpecError(message, remedy=f"write `{other}` under `columns`, as the table has it", where=spec.name)
    message = (
        f"`columns` declares `{other}` and `{name}`, which differ only in letter case: engines cannot distinguish them"
    )
    remedy = f"give one of them another name, such as `{name}_2: {{type: …, field: {name}}}`"
    return SpecError(message, remedy=remedy, where=spec.name)
