"""Schema evolution: the fields that records have and the table lacks, and the schema that has them. Pure.

Columns are added, widened or made optional; none is ever dropped or renamed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg import types as t
from pyiceberg.schema import Schema

from frazil.column_names import Spellings, explain_long_name, is_long, long_name_in
from frazil.schema.names import column_settings, merge_spellings, only_case_differs
from frazil.schema.parts import (
    MAX_LEVELS,
    change_parts,
    common_part,
    levels_of,
    parts_of,
    retyped,
    too_deep_reason,
    type_word,
    types_in,
    with_parts,
    with_requirement,
)
from frazil.schema.parts import Path as Path

RequestedFields = Mapping[Path, Mapping[str, t.IcebergType]]
"""Fields that the table lacks, or has in a narrower type: by path of their struct, the type by name. The path parts
`element` and `value` lead into lists and maps.
"""

_INTEGERS = (t.IntegerType, t.LongType)
_NUMBERS = {t.IntegerType, t.LongType, t.FloatType, t.DoubleType}


class TypesDiffer(Exception):
    """Two tasks inferred types for one field that no type holds both of."""

    def __init__(self, path: Path, first: t.IcebergType, second: t.IcebergType) -> None:
        kinds = (type_word(kind) for kind in (first, second))
        super().__init__("{} is {} in some records and {} in others".format(".".join(path), *kinds))
        self.path = path


class NameConflict(Exception):
    """A column-name conflict: two columns would have one name.

    reason: the columns. advice: the settings of a table whose columns are fields of its records. field: the path of the new
    field in the table, where other members of its new struct are not part of the conflict.
    """

    def __init__(self, reason: str, advice: str = "", field: Path = ()) -> None:
        super().__init__(f"{reason}: {advice}" if advice else reason)
        self.reason = reason
        self.field = field


@dataclass(frozen=True)
class SchemaChange:
    """One column that is added or widened."""

    #: The column's full name.
    path: str
    #: The type that it will have.
    kind: t.IcebergType
    #: Whether it is added, rather than widened.
    is_new: bool = True


def dump_requested_fields(requested_fields: RequestedFields) -> str:
    """Returns the fields as JSON; field ids are not kept."""
    plain = [
        [list(path), [[name, json.loads(_struct_json(kind))] for name, kind in fields.items()]]
        for path, fields in requested_fields.items()
    ]
    return json.dumps(plain)


def load_requested_fields(text: str) -> dict[Path, dict[str, t.IcebergType]]:
    """Returns the fields from the JSON of `dump_requested_fields`."""
    requested: dict[Path, dict[str, t.IcebergType]] = {}
    for path, fields in json.loads(text):
        members = {name: t.StructType.model_validate(struct).fields[0].field_type for name, struct in fields}
        requested[tuple(path)] = members
    return requested


def _struct_json(kind: t.IcebergType) -> str:
    return t.StructType(t.NestedField(0, "_", kind, required=False)).model_dump_json()


def merge_requested_fields(
    many: Iterable[RequestedFields], keeps_first: bool = False
) -> dict[Path, dict[str, t.IcebergType]]:
    """Returns the requested fields of all tasks together.

    keeps_first: of contradicting types the first one is taken, and later values of the other type are type mismatches
    of their records.

    Raises: TypesDiffer where types contradict each other, unless `keeps_first`.
    """
    merged: dict[Path, dict[str, t.IcebergType]] = {}
    for requested_fields in many:
        for path, fields in requested_fields.items():
            mine = merged.setdefault(path, {})
            for name, kind in fields.items():
                mine[name] = merge_types(mine[name], kind, (*path, name), keeps_first) if name in mine else kind
    return merged


def merge_types(first: t.IcebergType, second: t.IcebergType, path: Path, keeps_first: bool = False) -> t.IcebergType:
    """Returns the inferred type that holds the values of both types. keeps_first: as in `merge_requested_fields`, at
    every level.

    Raises: TypesDiffer where no type holds both, unless `keeps_first`.
    """
    if isinstance(first, t.StructType) and isinstance(second, t.StructType):
        fields = {field.name: field.field_type for field in first.fields}
        for name, kind in ((field.name, field.field_type) for field in second.fields):
            fields[name] = merge_types(fields[name], kind, (*path, name), keeps_first) if name in fields else kind
        return t.StructType(*(t.NestedField(0, name, kind, required=False) for name, kind in fields.items()))
    if isinstance(first, t.ListType) and isinstance(second, t.ListType):
        element = merge_types(first.element_type, second.element_type, (*path, "element"), keeps_first)
        return t.ListType(element_id=0, element_type=element, element_required=False)
    if isinstance(first, t.MapType) and isinstance(second, t.MapType):
        key = merge_types(first.key_type, second.key_type, (*path, "key"), keeps_first)
        return t.MapType(
            0, key, 0, merge_types(first.value_type, second.value_type, (*path, "value"), keeps_first), False
        )
    if can_promote(first, second) or _is_included_in(first, second):
        return second
    if isinstance(first, _INTEGERS) != isinstance(second, _INTEGERS) and {type(first), type(second)} <= _NUMBERS:
        return t.DoubleType()
    if first != second and not (can_promote(second, first) or _is_included_in(second, first) or keeps_first):
        raise TypesDiffer(path, first, second)
    return first


_INCLUDED_IN: tuple[tuple[type[t.IcebergType], type[t.IcebergType]], ...] = (
    (t.LongType, t.DoubleType),
    (t.UUIDType, t.StringType),
    (t.BooleanType, t.StructType),
)
"""Pairs of inferred types of which the second holds the values of the first too. A message or record without fields is
inferred as a boolean, whose values fit a struct.
"""


def _is_included_in(first: t.IcebergType, second: t.IcebergType) -> bool:
    return any(isinstance(first, held) and isinstance(second, holder) for held, holder in _INCLUDED_IN)


def widest(first: t.IcebergType, second: t.IcebergType) -> t.IcebergType:
    """Returns the type that holds the values of both; of two types that no type holds, at any level, the first."""
    return merge_types(first, second, (), keeps_first=True)


def find_missing_fields(
    table: t.StructType, written: t.StructType, may_widen: bool, path: Path = ()
) -> RequestedFields:
    """Returns the fields of a writer's struct that the table lacks, or has in a type that is too narrow and may be
    widened. path: of the structs.
    """
    table_types, spellings = (
        {field.name: field.field_type for field in table.fields},
        Spellings(f.name for f in table.fields),
    )
    missing: dict[Path, Mapping[str, t.IcebergType]] = {}
    mine: dict[str, t.IcebergType] = {}
    for field in written.fields:
        name = spellings.find(field.name) or field.name
        old, inner = table_types.get(name), (*path, name)
        structs = _structs_in(old, field.field_type, inner) if old is not None else None
        if structs is not None:
            missing |= find_missing_fields(*structs[:2], may_widen, structs[2])
        elif old is None or adds_to(old, field.field_type, may_widen):
            mine[field.name] = field.field_type
    return {path: mine, **missing} if mine else missing


def _structs_in(
    first: t.IcebergType, second: t.IcebergType, path: Path
) -> tuple[t.StructType, t.StructType, Path] | None:
    """Returns the structs at the same place in two types, also inside lists and maps, and their path; None without them."""
    both = common_part(first, second)
    if both is not None:
        return _structs_in(both[0].field_type, both[1].field_type, (*path, both[0].name))
    return (first, second, path) if isinstance(first, t.StructType) and isinstance(second, t.StructType) else None


def adds_to(old: t.IcebergType, new: t.IcebergType, may_widen: bool = True) -> bool:
    """Whether values of the type `new` would change a column of the type `old`."""
    return _unite(old, new, itertools.repeat(0), may_widen) != old


def type_at(struct: t.StructType, path: Path) -> t.IcebergType | None:
    """Returns the type of the field at a path; None where there is none. `key` leads to the keys of a map."""
    kind: t.IcebergType = struct
    for name in path:
        inside = {part.name: part.field_type for part in parts_of(kind)}
        if isinstance(kind, t.MapType):
            inside["key"] = kind.key_type
        if name not in inside:
            return None
        kind = inside[name]
    return kind


def can_promote(old: t.IcebergType, new: t.IcebergType) -> bool:
    """Whether Iceberg may widen a column of the type `old` to `new` (Iceberg spec, "Schema Evolution")."""
    if isinstance(old, t.DecimalType) and isinstance(new, t.DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (type(old), type(new)) in ((t.IntegerType, t.LongType), (t.FloatType, t.DoubleType))


def extend_schema(
    schema: Schema, requested_fields: RequestedFields, made_optional: Iterable[Path] = (), may_widen: bool = True
) -> Schema:
    """Returns `schema` with the requested fields, with ids above all others (the catalog assigns its own).

    An existing field (another process was faster) is kept, and gets the nested fields it lacks of the requested type
    or, with `may_widen`, a wider type that Iceberg allows. made_optional: paths of fields that become optional.

    Raises: NameConflict for columns that no table can have.
    """
    for members in requested_fields.values():
        for name, kind in members.items():
            long = name if is_long(name) else long_name_in(kind)
            if long is not None:
                raise NameConflict(explain_long_name(long))
    ids = iter(range(max(schema.highest_field_id, 0) + 1, 2**31 - 1))
    struct: t.IcebergType = _extend(schema.as_struct(), requested_fields, (), ids, may_widen)
    for path in made_optional:
        struct = _make_optional(struct, path)
    known_ids = frozenset(schema.field_ids)
    _check_spellings(struct, known_ids, ())
    _check_full_names(struct, known_ids)
    _check_depth(struct, known_ids, (), 0)
    try:
        return Schema(*parts_of(struct), schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    except ValueError as error:
        raise NameConflict(f"no table can have these columns together: {error}") from None


def _check_spellings(kind: t.IcebergType, known_ids: frozenset[int], path: Path) -> None:
    """Raises NameConflict for a new field whose name differs from another one's only in case, or is empty: Iceberg's
    library for Java writes no file with it. known_ids: ids of fields that are not new.
    """
    spellings = Spellings(part.name for part in parts_of(kind))
    for part in parts_of(kind):
        inner, others = (*path, part.name), spellings.others(part.name)
        if not part.name and part.field_id not in known_ids:
            raise NameConflict(
                "the name of a field is empty, and no column can have such a name", column_settings(inner), inner
            )
        if others and part.field_id not in known_ids:
            raise NameConflict(only_case_differs(inner, others), column_settings(inner, others))
        _check_spellings(part.field_type, known_ids, inner)


def _check_full_names(struct: t.IcebergType, known_ids: frozenset[int]) -> None:
    """Raises NameConflict for a new field whose full name in Iceberg is another field's too: `a.b` may be one field of
    this name, or the field `b` of `a`.
    """
    named = list(_paths(struct, ()))
    if len({".".join(path) for path, _ in named}) == len(named):
        return
    owners: dict[str, Path] = {}
    for path, field_id in sorted(named, key=lambda path_and_id: path_and_id[1] not in known_ids):
        other = owners.setdefault(".".join(path), path)
        if other != path and field_id not in known_ids:
            held = f"the field `{other[-1]}`" + (f" inside `{'.'.join(other[:-1])}`" if len(other) > 1 else "")
            mine = f"the field `{path[-1]}`" + (f" inside `{'.'.join(path[:-1])}`" if len(path) > 1 else "")
            reason = f"{mine}, and {held} would both be the column `{'.'.join(path)}`"
            raise NameConflict(reason, column_settings(path), path)


def _check_depth(kind: t.IcebergType, known_ids: frozenset[int], path: Path, level: int) -> None:
    """Raises NameConflict for a new field that is nested too deep for readers of Parquet. level: of the type."""
    level += levels_of(kind)
    for part in parts_of(kind):
        inner = (*path, part.name)
        if level > MAX_LEVELS and part.field_id not in known_ids:
            raise NameConflict(too_deep_reason(inner[0]), column_settings(inner[:1]))
        _check_depth(part.field_type, known_ids, inner, level)


def _paths(kind: t.IcebergType, path: Path) -> Iterator[tuple[Path, int]]:
    """Yields every path inside a type that Iceberg has a name for, with its field id."""
    if isinstance(kind, t.MapType):
        yield (*path, "key"), kind.key_id
    for part in parts_of(kind):
        yield (*path, part.name), part.field_id
        yield from _paths(part.field_type, (*path, part.name))


def extend_fields(struct: t.StructType, requested_fields: RequestedFields) -> t.StructType:
    """Returns the struct with the requested fields, without valid ids and without a check that a table can have them."""
    return _extend(struct, requested_fields, (), itertools.repeat(0), may_widen=True)


def new_schema(fields: Iterable[tuple[str, t.IcebergType]]) -> Schema:
    """Returns a schema of optional columns with ids from 1 on."""
    return extend_schema(Schema(), {(): dict(fields)})


def with_identifiers(schema: Schema, names: Sequence[str]) -> Schema:
    """Returns the schema with these columns as identifier fields, which Iceberg requires to have values; unchanged where
    one is missing, or of a type that identifies nothing (Iceberg specification, "Identifier Field IDs").
    """
    ids = [schema.find_field(name).field_id for name in names if name in schema.column_names]
    kinds = [schema.find_type(field_id) for field_id in ids]
    if len(ids) < len(names) or any(
        not kind.is_primitive or isinstance(kind, t.FloatType | t.DoubleType) for kind in kinds
    ):
        return schema
    paths = [tuple(name.split(".")) for name in names]
    fields = (with_requirement(field, paths, True) for field in schema.fields)
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=ids)


def compare_schemas(before: Schema, after: Schema) -> list[SchemaChange]:
    """Returns the columns that were added, only the outermost of each, and the columns that were widened."""
    ids_before = {str(before.find_column_name(field_id)): field_id for field_id in before.field_ids}
    # A name may contain dots, so the path of a column does not show what it is in.
    outer = dict(_outer_fields(after.as_struct()))
    changes = []
    for field_id in after.field_ids:
        path, kind = str(after.find_column_name(field_id)), after.find_type(field_id)
        if path not in ids_before:
            if field_id not in outer or str(after.find_column_name(outer[field_id])) in ids_before:
                changes.append(SchemaChange(path, kind))
        elif kind.is_primitive and kind != before.find_type(ids_before[path]):
            changes.append(SchemaChange(path, kind, is_new=False))
    return changes


def _outer_fields(kind: t.IcebergType, outer: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields the id of each field inside the type, and of the field that it is directly in."""
    for part in (*parts_of(kind), *((kind.key_field,) if isinstance(kind, t.MapType) else ())):
        if outer is not None:
            yield part.field_id, outer
        yield from _outer_fields(part.field_type, part.field_id)


def _extend(
    struct: t.StructType, requested_fields: RequestedFields, path: Path, ids: Iterator[int], may_widen: bool
) -> t.StructType:
    fields = [
        retyped(field, _extend_type(field.field_type, requested_fields, (*path, field.name), ids, may_widen))
        for field in struct.fields
    ]
    places, spellings = {field.name: n for n, field in enumerate(fields)}, Spellings(field.name for field in fields)
    for name, kind in requested_fields.get(path, {}).items():
        column = spellings.find(name)
        if column is not None:
            place = places[column]
            fields[place] = retyped(fields[place], _unite(fields[place].field_type, kind, ids, may_widen))
            continue
        places[name] = len(fields)
        spellings.add(name)
        field_id = next(ids)
        fields.append(t.NestedField(field_id, name, _numbered(merge_spellings(kind, widest), ids), required=False))
    return t.StructType(*fields)


def _unite(old: t.IcebergType, new: t.IcebergType, ids: Iterator[int], may_widen: bool) -> t.IcebergType:
    """Returns `old` with the fields it lacks of `new`; `old` itself where the types cannot be united."""
    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        return _extend(old, {(): {field.name: field.field_type for field in new.fields}}, (), ids, may_widen)
    both = common_part(old, new)
    if both is not None:
        return with_parts(old, [retyped(both[0], _unite(both[0].field_type, both[1].field_type, ids, may_widen))])
    return new if may_widen and can_promote(old, new) else old


def _make_optional(kind: t.IcebergType, path: Path) -> t.IcebergType:
    """Returns the type with the field at `path` optional."""
    parts = {part.name: part for part in parts_of(kind)}
    part, rest = parts.get(path[0]), path[1:]
    if part is None:
        return kind
    inner = _make_optional(part.field_type, rest) if rest else part.field_type
    parts[part.name] = retyped(part, inner, required=part.required and bool(rest))
    return with_parts(kind, list(parts.values()))


def _extend_type(
    kind: t.IcebergType, requested_fields: RequestedFields, path: Path, ids: Iterator[int], may_widen: bool
) -> t.IcebergType:
    if isinstance(kind, t.StructType):
        return _extend(kind, requested_fields, path, ids, may_widen)
    return change_parts(
        kind, lambda inner, inner_path: _extend_type(inner, requested_fields, inner_path, ids, may_widen), path
    )


def _numbered(kind: t.IcebergType, ids: Iterator[int]) -> t.IcebergType:
    """Returns a new type with ids of its own at every level."""
    if isinstance(kind, t.ListType):
        element_id, element = next(ids), _numbered(kind.element_type, ids)
        return t.ListType(element_id=element_id, element_type=element, element_required=kind.element_required)
    if isinstance(kind, t.MapType):
        key_id, value_id = next(ids), next(ids)
        return t.MapType(key_id, kind.key_type, value_id, _numbered(kind.value_type, ids), kind.value_required)
    if not isinstance(kind, t.StructType):
        return kind
    return t.StructType(
        *(
            field.model_copy(update={"field_id": next(ids), "field_type": _numbered(field.field_type, ids)})
            for field in kind.fields
        )
    )


_TIMES = (t.DateType, t.TimestampType, t.TimestamptzType)


def agree_on_times(many: Sequence[RequestedFields]) -> list[RequestedFields]:
    """Returns the requested fields with text in place of a time type, where the pieces differ in the time type of a
    field, or one of them has other text.
    """
    seen: dict[Path, set[type[t.IcebergType]]] = {}
    for requested_fields in many:
        for parent, members in requested_fields.items():
            for name, kind in members.items():
                for path, inner in types_in(kind, (*parent, name)):
                    if isinstance(inner, (t.StringType, *_TIMES)):
                        seen.setdefault(path, set()).add(type(inner))
    mixed = {path for path, kinds in seen.items() if len(kinds) > 1}
    if not mixed:
        return list(many)
    return [
        {
            parent: {name: _as_text(kind, (*parent, name), mixed) for name, kind in members.items()}
            for parent, members in requested_fields.items()
        }
        for requested_fields in many
    ]


def _as_text(kind: t.IcebergType, path: Path, mixed: set[Path]) -> t.IcebergType:
    if path in mixed and isinstance(kind, _TIMES):
        return t.StringType()
    return change_parts(kind, lambda inner, inner_path: _as_text(inner, inner_path, mixed), path)


Hints = tuple[tuple[Path, str], ...]
_KINDS: dict[type[t.IcebergType], str] = {
    t.BooleanType: "boolean",
    t.IntegerType: "number",
    t.LongType: "number",
    t.FloatType: "number",
    t.DoubleType: "number",
    t.DecimalType: "number",
    t.StringType: "string",
    t.DateType: "string",
    t.TimestampType: "string",
    t.TimestamptzType: "moment",
    t.ListType: "array",
    t.StructType: "object",
}


def hints_of(requested_fields: RequestedFields) -> Hints:
    """Returns the kinds of the requested fields, and of all fields inside them."""
    return tuple(
        (path, _KINDS[type(inner)])
        for parent, members in requested_fields.items()
        for name, kind in members.items()
        for path, inner in types_in(kind, (*parent, name))
        if type(inner) in _KINDS
    )
