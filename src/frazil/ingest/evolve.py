"""A table's schema and the fields that records brought along: what to add. Pure; nothing is ever dropped or renamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from frazil.errors import InvariantError

Wanted = Mapping[tuple[str, ...], Mapping[str, IcebergType]]
"""Fields a table lacks: by path of the struct they belong to (`element` and `value` lead into lists and maps)."""


class TypesDiffer(Exception):
    """Two tasks saw values of two kinds under one name: no type holds both."""

    def __init__(self, path: tuple[str, ...], one: IcebergType, other: IcebergType) -> None:
        kinds = (str(kind).split("<")[0] for kind in (one, other))
        super().__init__("{} is {} in some records and {} in others".format(".".join(path), *kinds))
        self.path = path


class NamesClash(Exception):
    """Two columns would have one full name, as a field `a.b` and a field `b` of `a` have."""


@dataclass(frozen=True)
class SchemaChange:
    """One added column: its full name and type."""

    path: str
    type: str


def dump_wanted(wanted: Wanted) -> str:
    """As JSON, field ids left to chance."""
    plain = [
        [list(path), [[name, json.loads(_struct_json(kind))] for name, kind in fields.items()]]
        for path, fields in wanted.items()
    ]
    return json.dumps(plain)


def load_wanted(text: str) -> dict[tuple[str, ...], dict[str, IcebergType]]:
    """What `dump_wanted` wrote."""
    found: dict[tuple[str, ...], dict[str, IcebergType]] = {}
    for path, fields in json.loads(text):
        members = {name: StructType.model_validate(struct).fields[0].field_type for name, struct in fields}
        found[tuple(path)] = members
    return found


def _struct_json(kind: IcebergType) -> str:
    return StructType(NestedField(0, "_", kind, required=False)).model_dump_json()


def first_wanted(many: Iterable[Wanted]) -> dict[tuple[str, ...], dict[str, IcebergType]]:
    """Of each wanted field the type it was first seen with: what contradicts it is then a misfit with a place."""
    merged: dict[tuple[str, ...], dict[str, IcebergType]] = {}
    for wanted in many:
        for path, fields in wanted.items():
            merged[path] = {**fields, **merged.get(path, {})}
    return merged


def merge_wanted(many: Iterable[Wanted]) -> dict[tuple[str, ...], dict[str, IcebergType]]:
    """What all tasks together want; TypesDiffer where they contradict each other."""
    merged: dict[tuple[str, ...], dict[str, IcebergType]] = {}
    for wanted in many:
        for path, fields in wanted.items():
            mine = merged.setdefault(path, {})
            for name, kind in fields.items():
                mine[name] = merge_types(mine[name], kind, (*path, name)) if name in mine else kind
    return merged


def merge_types(one: IcebergType, other: IcebergType, path: tuple[str, ...]) -> IcebergType:
    """The inferred type that holds the values of both."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {field.name: field.field_type for field in one.fields}
        for field in other.fields:
            mine = fields.get(field.name)
            fields[field.name] = (
                field.field_type if mine is None else merge_types(mine, field.field_type, (*path, field.name))
            )
        return StructType(*(NestedField(0, name, kind, required=False) for name, kind in fields.items()))
    if isinstance(one, ListType) and isinstance(other, ListType):
        return ListType(0, merge_types(one.element_type, other.element_type, (*path, "element")), False)
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    if one != other:
        raise TypesDiffer(path, one, other)
    return one


def extend_schema(schema: Schema, wanted: Wanted) -> Schema:
    """`schema` with the wanted fields, ids of new fields above all others (the catalog gives its own).

    A field that is there already (another process was quicker) stays as it is. Raises NamesClash for what no table can
    have.
    """
    ids = iter(range(max(schema.highest_field_id, 0) + 1, 2**31 - 1))
    fields = _extend(schema.as_struct(), wanted, (), ids).fields
    try:
        return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    except ValueError as error:
        raise NamesClash(f"no table can have these columns together: {error}") from None


def new_schema(fields: Iterable[tuple[str, IcebergType]]) -> Schema:
    """A schema of optional columns with ids from 1 on."""
    return extend_schema(Schema(), {(): dict(fields)})


def list_changes(schema: Schema, wanted: Wanted) -> list[SchemaChange]:
    """The columns that `extend_schema` would add, in words."""
    known = {schema.find_column_name(field_id) for field_id in schema.field_ids}
    paths = ((".".join((*path, name)), kind) for path, fields in wanted.items() for name, kind in fields.items())
    return [SchemaChange(path, str(kind)) for path, kind in paths if path not in known]


def _extend(struct: StructType, wanted: Wanted, path: tuple[str, ...], ids: Iterator[int]) -> StructType:
    fields = [_extend_field(field, wanted, (*path, field.name), ids) for field in struct.fields]
    known = {field.name for field in fields}
    for name, kind in wanted.get(path, {}).items():
        if name not in known:
            field_id = next(ids)
            fields.append(NestedField(field_id, name, _numbered(kind, ids), required=False))
    return StructType(*fields)


def _extend_field(field: NestedField, wanted: Wanted, path: tuple[str, ...], ids: Iterator[int]) -> NestedField:
    return field.model_copy(update={"field_type": _extend_type(field.field_type, wanted, path, ids)})


def _extend_type(kind: IcebergType, wanted: Wanted, path: tuple[str, ...], ids: Iterator[int]) -> IcebergType:
    if isinstance(kind, StructType):
        return _extend(kind, wanted, path, ids)
    if isinstance(kind, ListType):
        element = _extend_type(kind.element_type, wanted, (*path, "element"), ids)
        return kind.model_copy(update={"element_type": element})
    if isinstance(kind, MapType):
        value = _extend_type(kind.value_type, wanted, (*path, "value"), ids)
        return kind.model_copy(update={"value_type": value})
    return kind


def _numbered(kind: IcebergType, ids: Iterator[int]) -> IcebergType:
    """A new type with ids of its own at every level."""
    if isinstance(kind, StructType):
        return StructType(
            *(
                f.model_copy(update={"field_id": next(ids), "field_type": _numbered(f.field_type, ids)})
                for f in kind.fields
            )
        )
    if isinstance(kind, ListType):
        element_id = next(ids)
        return ListType(element_id, _numbered(kind.element_type, ids), kind.element_required)
    if isinstance(kind, MapType):
        key_id, value_id = next(ids), next(ids)
        return MapType(key_id, kind.key_type, value_id, _numbered(kind.value_type, ids), kind.value_required)
    if isinstance(kind, IcebergType):
        return kind
    raise InvariantError(f"no Iceberg type: type={kind}")
