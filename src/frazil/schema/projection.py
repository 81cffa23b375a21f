"""Projection: from the path of a field in the record to the name of its column, and back. Pure.

The way back is stored, not guessed: `userId` and `user.id` may both become `user_id`. Where names are made from paths,
a column's `doc` in the table's schema names the field that feeds it (docs/decisions/0012).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.column_names import Spellings, change_case, explain_long_name, fold_case, fold_path, is_long
from frazil.schema.evolve import (
    NameConflict,
    RequestedFields,
    adds_to,
    extend_schema,
    merge_requested_fields,
    merge_types,
    type_at,
    widest,
)
from frazil.schema.names import column_settings
from frazil.schema.parts import Path, change_parts, is_empty_type, is_one_column, retyped
from frazil.schema.selection import DeclaredValues, NamedColumns, Selection
from frazil.types import RESERVED_COLUMNS

KEY_ROOT = "\udc00key"
"""The first part of paths of fields in a record's key. No field can have this name: a single surrogate is not text."""
KEY, HEADERS = "_key", "_headers"
"""How settings name the record's key, and a header: `_headers.NAME`."""
_DOC = re.compile(r"(?:\A|\n)field: (.+)\Z")
_PLAIN_NAME = re.compile(r"[^.\[\s][^.\s]*")


@dataclass(frozen=True)
class Shaping:
    """How a table's columns are made from its records."""

    #: How many levels of nested records become columns, with names joined by `separator`; 0: none.
    depth: int = 0
    #: The text between the joined names.
    separator: str = "_"
    #: The case of the names of new columns: `keep`, `lower`, `snake` or `camel`.
    case: str = "keep"
    #: Paths of the fields to take; see Selection.
    include: tuple[Path, ...] = ()
    #: Paths of the fields to leave out; see Selection.
    exclude: tuple[Path, ...] = ()
    #: Fields that the pipeline file names otherwise, and whose names differ from some in `exclude` in case alone.
    kept: tuple[Path, ...] = ()
    #: The same of a table that makes names: columns that the pipeline file names, without case.
    kept_columns: frozenset[Path] = frozenset()
    #: Declared columns with the paths of the fields that feed them.
    fields: tuple[tuple[str, Path], ...] = ()
    #: Time columns with the unit of numbers in them.
    units: tuple[tuple[str, str], ...] = ()
    #: Declared dates and times of day: the column, the path inside it, and the unit of numbers.
    counted: tuple[tuple[str, Path, str], ...] = ()
    #: String columns that accept values of other types (`coerce: true`).
    coerced: tuple[str, ...] = ()
    #: Time columns with the zone of local times.
    zones: tuple[tuple[str, str], ...] = ()
    #: Constant columns with their value.
    constants: tuple[tuple[str, str], ...] = ()
    #: Columns with the name of the header that feeds them.
    headers: tuple[tuple[str, str], ...] = ()
    #: The column of decoded record keys; empty without one.
    key: str = ""

    @cached_property
    def own(self) -> frozenset[str]:
        """The columns that are not made from the record's value."""
        key = (self.key,) if self.key else ()
        return frozenset((*key, *(name for name, _ in (*self.constants, *self.headers))))

    @property
    def makes_names(self) -> bool:
        """Whether the name of a column may differ from that of the field that feeds it without a declaration."""
        return self.depth > 0 or self.case != "keep"

    @cached_property
    def selection(self) -> Selection:
        """The fields that the table takes. The field of a declared column is taken whatever `include` lists."""
        declared = tuple(path for _, path in self.fields) if self.include else ()
        columns = NamedColumns(self.kept_columns, self.depth, self.separator, self.case) if self.kept_columns else None
        return Selection(self.include + declared, self.exclude, self.kept, columns)

    def spellings(self, path: Path) -> set[Path]:
        """Returns the paths, without case, that a new column for the field at `path` may have in the table."""
        cased = tuple(change_case(name, self.case) for name in path)
        return {tuple(map(fold_case, spelling)) for spelling in (path, cased, (self.separator.join(cased),))}

    def column_name(self, path: Path, names: ColumnNames) -> str:
        """Returns the name of the column for the field at `path`: of one of the columns `names` in whatever case. A
        column that no known field feeds may have the field's own name too, as a declaration writes it.
        """
        joined, name = (self.separator.join(change_case(name, case) for name in path) for case in ("keep", self.case))
        spelled = names.unbound.find(joined)
        if spelled == joined:
            return joined
        return names.every.find(name) or spelled or name


@dataclass(frozen=True)
class ColumnNames:
    """The names of a table's columns that are made from the record's value."""

    #: Of all columns.
    every: Spellings
    #: Of the columns that no known field feeds.
    unbound: Spellings

    @classmethod
    def of(cls, bound: Mapping[str, Path | None]) -> ColumnNames:
        """Returns the names of columns with the path of the field that feeds each; see `bind_columns`."""
        return cls(Spellings(bound), Spellings(name for name, path in bound.items() if path is None))


@dataclass(frozen=True)
class Layout:
    """The fields to decode for a table, and the columns they feed."""

    #: The fields nested as in the record. A struct of which nothing is taken has no members: a value that is not a struct
    #: does not fit it, and it is not a new field.
    fields: tuple[NestedField, ...]
    #: The path of the field that feeds each column.
    paths: Mapping[str, Path]
    #: Columns that no known field feeds, with their types: no record with a field of such a name was read yet.
    unbound: Mapping[str, IcebergType]
    #: The names of the columns.
    names: ColumnNames
    #: What the pipeline file declares of the values of these fields.
    declared: DeclaredValues

    @cached_property
    def moved(self) -> frozenset[Path]:
        """The paths of fields that feed a column but are not at the top of the record: their values leave their struct."""
        return frozenset(path for path in self.paths.values() if len(path) > 1)

    def column_path(self, path: Path) -> Path:
        """Returns the path of a field, `path` in the record, as a path that begins with its column."""
        columns = {fed: column for column, fed in self.paths.items()}
        cut = next((cut for cut in range(len(path), 0, -1) if path[:cut] in columns), 0)
        return (columns[path[:cut]], *path[cut:]) if cut else path


def format_path(path: Path) -> str:
    """Returns a path in one line: with dots, or as a JSON list when a name contains a dot, a blank or a bracket."""
    if all(_PLAIN_NAME.fullmatch(name) for name in path):
        return ".".join(path)
    return json.dumps(list(path), ensure_ascii=False)


def shown_path(path: Path) -> Path:
    """Returns a path as people are shown it: that of a field in a record's key begins with `_key`."""
    return ("_key", *path[1:]) if path[0] == KEY_ROOT else path


def doc_of(path: Path, old: str | None = None) -> str:
    """Returns a column's `doc` with the field that feeds it added; the rest of the text is kept."""
    kept = _DOC.sub("", old or "")
    return f"{kept}\nfield: {format_path(path)}" if kept else f"field: {format_path(path)}"


def path_in_doc(doc: str | None) -> Path | None:
    """Returns the path of the field from a `doc` of `doc_of`; None where there is none."""
    match = _DOC.search(doc or "")
    if match is None:
        return None
    text = match.group(1)
    if not text.startswith("["):
        return tuple(text.split("."))
    try:
        names = json.loads(text)
    except ValueError:
        return None
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def bind_columns(fields: Sequence[NestedField], shaping: Shaping) -> dict[str, Path | None]:
    """Returns the path of the field that feeds each column; None for a column whose field is not known yet."""
    declared = dict(shaping.fields)
    paths: dict[str, Path | None] = {}
    for member in fields:
        if member.name in declared:
            paths[member.name] = declared[member.name]
        else:
            paths[member.name] = path_in_doc(member.doc) if shaping.makes_names else (member.name,)
    return paths


def fed_columns(bound: Mapping[str, Path | None], shaping: Shaping) -> dict[Path, str]:
    """Returns the column that the field at each path feeds: of several the one declared with this field, else the
    first. bound: the result of `bind_columns`.
    """
    columns: dict[Path, str] = {}
    for name, path in bound.items():
        if path is not None and (path not in columns or (name, path) in shaping.fields):
            columns[path] = name
    return columns


def make_layout(fields: Sequence[NestedField], shaping: Shaping) -> Layout:
    """Returns the layout of a table. fields: the columns that are made from the record's value."""
    fields = [member for member in fields if member.name not in shaping.own]
    bound = bind_columns(fields, shaping)
    fed = fed_columns(bound, shaping)
    root = _Node()
    paths: dict[str, Path] = {}
    for member in fields:
        path = bound[member.name]
        kind = shaping.selection.prune(in_record(member.field_type), path, keeps_empty=True) if path else None
        if path is None or kind is None or fed[path] != member.name:
            continue
        if not is_empty_type(kind):  # Without members the column is null.
            paths[member.name] = path
        node = root
        for name in path:
            node = node.children.setdefault(name, _Node())
        node.kind, node.required = kind, member.required and len(path) == 1 and not is_empty_type(kind)
    unbound = {member.name: member.field_type for member in fields if bound[member.name] is None}
    struct = _type_of(root, None)
    assert isinstance(struct, StructType)
    units = tuple((paths[name], unit) for name, unit in shaping.units if name in paths)
    units += tuple(((*paths[name], *inner), unit) for name, inner, unit in shaping.counted if name in paths)
    coerced = tuple(paths[name] for name in shaping.coerced if name in paths)
    zones = tuple((paths[name], zone) for name, zone in shaping.zones if name in paths)
    return Layout(struct.fields, paths, unbound, ColumnNames.of(bound), DeclaredValues(units, coerced, zones))


@dataclass
class _Node:
    """A field of the record."""

    #: The type of the column that it feeds; None without one.
    kind: IcebergType | None = None
    #: Whether the column is required.
    required: bool = False
    #: The members that feed columns.
    children: dict[str, _Node] = field(default_factory=dict)


def _type_of(node: _Node, around: IcebergType | None) -> IcebergType:
    """Returns the type to decode at this node. around: the type of the same field in the column of an enclosing struct."""
    own_kind = node.kind if node.kind is not None else around
    if own_kind is not None and (not node.children or not isinstance(own_kind, StructType)):
        return own_kind
    members = {member.name: member for member in own_kind.fields} if isinstance(own_kind, StructType) else {}
    for name, child in node.children.items():
        old = members.get(name)
        kind = _type_of(child, old.field_type if old is not None else None)
        members[name] = NestedField(0, name, kind, required=child.required)
    return StructType(*members.values())


def extend_shaped(
    schema: Schema,
    shaping: Shaping,
    other_columns: Collection[str],
    requested_fields: RequestedFields,
    made_optional: Collection[Path] = (),
    may_widen: bool = True,
) -> Schema:
    """Returns `schema` extended as by `extend_schema`, with `requested_fields` by their paths in records and
    `made_optional` by columns.

    other_columns: columns that are not made from the record's value.

    Raises: NameConflict when two fields would share a column.
    """
    others = frozenset(other_columns) | shaping.own
    in_records = (m if m.name in others else retyped(m, in_record(m.field_type)) for m in schema.fields)
    before, schema = schema, _with_fields(schema, in_records)
    plan = _Plan(schema, shaping, others)
    of_keys: dict[Path, dict[str, IcebergType]] = {}
    for parent, members in requested_fields.items():
        for name, kind in members.items():
            path = (*parent, name)
            if path[0] == KEY_ROOT:
                path = (shaping.key, *path[1:])
                of_keys.setdefault(path[:-1], {})[path[-1]] = kind
            else:
                plan.add(path, kind)
    columns, docs = plan.columns()
    columns = merge_requested_fields([columns, of_keys])
    after = document(extend_schema(schema, columns, made_optional, may_widen), docs)
    return _schema_in_table(after, before, shaping.case, others)


def in_record(kind: IcebergType) -> IcebergType:
    """Returns the type of a column with the names that members of structs have in records, as their docs record them."""
    if not isinstance(kind, StructType):
        return change_parts(kind, lambda inner, _: in_record(inner))
    members = (retyped(member, in_record(member.field_type), name=name_in_record(member)) for member in kind.fields)
    return type(kind)(*members)


def name_in_record(member: NestedField) -> str:
    """Returns the name that a member of a struct has in records, as its doc records it."""
    path = path_in_doc(member.doc) or ()
    return path[0] if len(path) == 1 else member.name


def _with_fields(schema: Schema, fields: Iterable[NestedField]) -> Schema:
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _schema_in_table(schema: Schema, before: Schema, case: str, other_columns: Container[str]) -> Schema:
    """Returns the schema with the names of the table inside its columns: existing names for existing fields, for the
    others names in the table's `case`.

    Raises: NameConflict where two fields of one struct would share a name, or the table's name of one is too long.
    """
    if case == "keep" and schema == before:
        return schema
    names = {field_id: before.find_field(field_id) for field_id in before.field_ids}
    return _with_fields(
        schema,
        (
            m if m.name in other_columns else retyped(m, _in_table(m.field_type, names, case, (m.name,)))
            for m in schema.fields
        ),
    )


def _in_table(kind: IcebergType, old: Mapping[int, NestedField], case: str, path: Path) -> IcebergType:
    if not isinstance(kind, StructType):
        return change_parts(kind, lambda inner, inner_path: _in_table(inner, old, case, inner_path), path)
    members: list[NestedField] = []
    taken: dict[str, str] = {}
    for member in kind.fields:
        existing, inner = old.get(member.field_id), (*path, member.name)
        name = existing.name if existing is not None else change_case(member.name, case)
        if existing is None and is_long(name):
            raise NameConflict(explain_long_name(name))
        doc = existing.doc if existing is not None else member.doc if name == member.name else doc_of((member.name,))
        if existing is None and fold_case(name) in taken:
            both = f"{format_path((*path, taken[fold_case(name)]))} and {format_path(inner)}"
            raise NameConflict(f"the fields {both} would share the column {name}", column_settings(inner))
        taken.setdefault(fold_case(name), member.name)
        members.append(retyped(member, _in_table(member.field_type, old, case, inner), name=name, doc=doc))
    return type(kind)(*members)


def document(schema: Schema, docs: Mapping[str, str]) -> Schema:
    """Returns the schema with docs for some of its columns."""
    if not docs:
        return schema
    return _with_fields(schema, (m.model_copy(update={"doc": docs.get(m.name, m.doc)}) for m in schema.fields))


class _Plan:
    """Requested fields, assigned to existing and new columns."""

    def __init__(self, schema: Schema, shaping: Shaping, other_columns: frozenset[str]) -> None:
        self._shaping = shaping
        self._other_columns = other_columns
        self._record_columns = {member.name: member for member in schema.fields if member.name not in other_columns}
        self._bound = bind_columns(tuple(self._record_columns.values()), shaping)
        self._names = ColumnNames.of(self._bound)
        self._columns = fed_columns(self._bound, shaping)
        spellings = Spellings(self._bound)
        #: Columns that the table has in several cases: each is for the field of exactly its name.
        self._alike = frozenset(name for name in self._bound if spellings.others(name))
        self._by_folded: dict[Path, list[str]] = {}
        for fed, column in self._columns.items():
            self._by_folded.setdefault(fold_path(fed), []).append(column)
        self._inside: dict[Path, dict[str, IcebergType]] = {}
        self._new: dict[Path, IcebergType] = {}
        self._by_folded_path: dict[Path, Path] = {}

    def add(self, path: Path, kind: IcebergType) -> None:
        """Adds the field at `path`, which records have with this type."""
        pruned = self._shaping.selection.prune(kind, path)
        if pruned is None:
            return
        if isinstance(pruned, StructType) and self._is_divided(path):
            for member in pruned.fields:
                self.add((*path, member.name), member.field_type)
            return
        for cut in range(len(path), 0, -1):
            column = self._column_of(path[:cut])
            if column is not None:
                self._add_inside((column, *path[cut:]), pruned, path, is_respelt=path[:cut] not in self._columns)
                return
        cut = min(len(path), self._shaping.depth + 1)
        first = path[:cut]
        if cut > 1 or path[0] not in self._alike:
            first = self._by_folded_path.setdefault(fold_path(first), first)
        wrapped, requested = _wrapped(pruned, path[cut:]), self._new.get(first)
        # Of names that differ in case alone the first one names the column, with the first type.
        united = (
            _united(requested, wrapped, path)
            if requested is None or first == path[:cut]
            else widest(requested, wrapped)
        )
        self._new[first] = united

    def _column_of(self, path: Path) -> str | None:
        """Returns the column that the field at `path` feeds or, where only one such path differs in case alone, that one:
        records are read likewise. None without one.
        """
        if path in self._columns or path[0] in self._alike:
            return self._columns.get(path)
        others = self._by_folded.get(fold_path(path), ())
        return others[0] if len(others) == 1 else None

    def _add_inside(self, place: Path, kind: IcebergType, path: Path, is_respelt: bool = False) -> None:
        """Adds the field at `path` to an existing column. place: the path beginning with the column. An enclosing
        struct may be missing there: all its members so far may be in columns of their own. is_respelt: whether the
        column's own field has this name in another case; its type goes first.
        """
        column = StructType(self._record_columns[place[0]])
        held = type_at(column, place)
        if held is not None and self._shaping.selection.prune(held, path) is None and not adds_to(held, kind):
            # The values are never compared with the column's type, so such a record would not be refused for them.
            raise NameConflict(
                f"field {format_path(path)}: {kind} does not fit its column, and nothing is read from it"
            )
        cut = next(cut for cut in range(len(place) - 1, -1, -1) if type_at(column, place[:cut]) is not None)
        mine = self._inside.setdefault(place[:cut], {})
        requested, wrapped = mine.get(place[cut]), _wrapped(kind, place[cut + 1 :])
        mine[place[cut]] = (
            widest(requested, wrapped) if requested is not None and is_respelt else _united(requested, wrapped, path)
        )

    def _is_divided(self, path: Path) -> bool:
        if self._has_unbound_column(path):
            return False
        if any(len(bound) > len(path) and bound[: len(path)] == path for bound in self._columns):
            return True
        return len(path) <= self._shaping.depth and not has_column(path, self._columns)

    def _has_unbound_column(self, path: Path) -> bool:
        """Whether an unbound column can hold the record at `path` entirely, except for members that have columns of
        their own.
        """
        name = self._shaping.column_name(path, self._names)
        return self._bound.get(name, path) is None and is_one_column(self._record_columns[name].field_type)

    def columns(self) -> tuple[RequestedFields, dict[str, str]]:
        """Returns the requested columns, and the docs of columns that name the field that feeds them."""
        requested_fields = {path: dict(members) for path, members in self._inside.items()}
        docs: dict[str, str] = {}
        claimed = {self._claim(name): path for name, path in self._bound.items() if path is not None}
        for path, kind in self._new.items():
            name = self._shaping.column_name(path, self._names)
            self._check_name(name, path, claimed)
            claimed[self._claim(name)] = path
            old = self._record_columns.get(name)
            if old is None:
                requested_fields.setdefault((), {})[name] = kind
            if self._shaping.makes_names:
                docs[name] = doc_of(path, old.doc if old is not None else None)
        return requested_fields, docs

    def _claim(self, name: str) -> str:
        """Returns the text that is equal for the names of one column."""
        return name if name in self._alike else fold_case(name)

    def _check_name(self, name: str, path: Path, claimed: Mapping[str, Path]) -> None:
        if self._claim(name) in claimed:
            both = f"{format_path(claimed[self._claim(name)])} and {format_path(path)}"
            raise NameConflict(f"the fields {both} would share the column {name}", column_settings(path))
        if fold_case(name) in map(fold_case, self._other_columns):
            raise NameConflict(
                f"field {format_path(path)}: the table has a column {name} that is not for fields of records",
                column_settings(path),
            )
        check_reserved(name, path)


def check_reserved(name: str, path: Path) -> None:
    """Raises NameConflict for a field whose column would have the name of one of Iceberg's metadata columns."""
    if fold_case(name) in RESERVED_COLUMNS:
        raise NameConflict(
            f"field {format_path(path)}: {name} is the name of one of Iceberg's metadata columns", column_settings(path)
        )


def has_column(path: Path, columns: Container[Path]) -> bool:
    """Whether the field at `path`, or one around it, has a column in `columns`: the column contains everything inside
    the field.
    """
    return any(path[:cut] in columns for cut in range(1, len(path) + 1))


def _united(old: IcebergType | None, new: IcebergType, path: Path) -> IcebergType:
    return new if old is None else merge_types(old, new, path)


def _wrapped(kind: IcebergType, names: Path) -> IcebergType:
    """Returns the type inside nested structs of one member, named from the outside in."""
    for name in reversed(names):
        kind = StructType(NestedField(0, name, kind, required=False))
    return kind
