"""Names of columns: from the path of a field in the record to the name of its column, and back. Pure.

The way back is written down, not guessed: `userId` and `user.id` may both become `user_id`. Where names are made from
paths, a column's `doc` in the table's schema says which field feeds it (docs/decisions/0012).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, ListType, MapType, NestedField, StructType, TimeType

from frazil.schema.evolve import NamesClash, Wanted, adds_to, extend_schema, merge_types, merge_wanted, type_at, widest
from frazil.schema.name_case import exits, fold
from frazil.schema.selection import Path, Selection, is_bare, list_with, map_with
from frazil.types import RESERVED_COLUMNS

KEY_ROOT = "\udc00key"
"""Where paths of fields of a record's key begin. No field can be called so: half of a surrogate pair is no text."""
_DOC = re.compile(r"(?:\A|\n)field: (.+)\Z")
_PLAIN_NAME = re.compile(r"[^.\[\s][^.\s]*")


@dataclass(frozen=True)
class Shaping:
    """How a table's columns come from its records.

    depth: how many levels of nested records become columns, names joined by `separator`; 0: none. case: of the names of
    new columns (`keep`, `lower`, `snake`, `camel`). include, exclude: see Selection. fields: declared columns with the
    paths of the fields that feed them. units: columns of time with the unit of numbers in them. counted: of declared
    dates and times of day the column, the path in it, and the unit of numbers. coerced: columns whose text takes values of
    other types. zones: columns of time with the zone of local times. constants, headers: columns with their one value, or
    the header that they come from. key: the column of decoded record keys.
    """

    depth: int = 0
    separator: str = "_"
    case: str = "keep"
    include: tuple[Path, ...] = ()
    exclude: tuple[Path, ...] = ()
    fields: tuple[tuple[str, Path], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    counted: tuple[tuple[str, Path, str], ...] = ()
    coerced: tuple[str, ...] = ()
    zones: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    key: str = ""

    @cached_property
    def own(self) -> frozenset[str]:
        """Columns that come from something else than the record's value."""
        key = (self.key,) if self.key else ()
        return frozenset((*key, *(name for name, _ in (*self.constants, *self.headers))))

    @property
    def makes_names(self) -> bool:
        """Whether a column may be called otherwise than the field that feeds it, without being declared so."""
        return self.depth > 0 or self.case != "keep"

    @cached_property
    def selection(self) -> Selection:
        """The fields that it takes. What a column was declared for is never left out by `include`."""
        declared = tuple(path for _, path in self.fields) if self.include else ()
        return Selection(self.include + declared, self.exclude)

    def column_name(self, path: Path) -> str:
        """The name of the column that the field at `path` gets."""
        return self.separator.join(change_case(name, self.case) for name in path)


@dataclass(frozen=True)
class Layout:
    """What to decode for a table, and where its columns lie in it.

    fields: of the record, nested as they are there; a struct of which nothing is taken is bare, so that a value that is no
    struct does not fit it, and is no new field. paths: by column the field that feeds it. unbound: columns with their types
    that nothing feeds so far, because no record with a field of such a name was met. units: of fields of time, by path.
    coerced: paths of fields whose text takes values of other types. zones: of local times, by path.
    """

    fields: tuple[NestedField, ...]
    paths: Mapping[str, Path]
    unbound: Mapping[str, IcebergType]
    units: tuple[tuple[Path, str], ...] = ()
    coerced: tuple[Path, ...] = ()
    zones: tuple[tuple[Path, str], ...] = ()

    @cached_property
    def moved(self) -> frozenset[Path]:
        """Paths that are no columns of the top: their values are no longer in the struct they are in."""
        return frozenset(path for path in self.paths.values() if len(path) > 1)

    def column_path(self, path: Path) -> Path:
        """The field at `path` of the record, as a path that begins with its column."""
        columns = {fed: column for column, fed in self.paths.items()}
        cut = next((cut for cut in range(len(path), 0, -1) if path[:cut] in columns), 0)
        return (columns[path[:cut]], *path[cut:]) if cut else path


def counted_in(kind: IcebergType, unit: str | None = None, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """The dates and times of day in a declared column's type, each with what whole numbers count there: days since the
    epoch, and milliseconds since midnight, or what the type says. path: in the column.
    """
    if isinstance(kind, DateType):
        yield path, "d"
    elif isinstance(kind, TimeType):
        yield path, unit or "ms"
    elif isinstance(kind, StructType):
        for member in kind.fields:
            yield from counted_in(member.field_type, None, (*path, member.name))
    elif isinstance(kind, ListType):
        yield from counted_in(kind.element_type, None, (*path, "element"))
    elif isinstance(kind, MapType):
        yield from counted_in(kind.value_type, None, (*path, "value"))


def change_case(name: str, case: str) -> str:
    """A field's name in another case; underscores at its beginning stay."""
    if case == "keep":
        return name
    if case == "lower":
        return name.lower()
    bare = name.lstrip("_")
    words = [word.lower() for word in _words(bare)]
    if not words:
        return name
    start = name[: len(name) - len(bare)]
    if case == "snake":
        return start + "_".join(words)
    return start + words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


def _words(name: str) -> list[str]:
    """The words of a name: divided by `_`, `-`, blanks and dots, before a capital after a small letter or a digit, and
    before the last capital of several that a small letter follows.
    """
    words, start = [], 0
    for n in range(1, len(name)):
        before, here, after = name[n - 1], name[n], name[n + 1 : n + 2]
        if here.isupper() and (before.islower() or before.isdigit() or (before.isupper() and after.islower())):
            words.append(name[start:n])
            start = n
    return [part for word in [*words, name[start:]] for part in re.split(r"[_\-.\s]+", word) if part]


def spell_path(path: Path) -> str:
    """A path in one line: with dots, or as a JSON list when a name itself has a dot, a blank or a bracket."""
    if all(_PLAIN_NAME.fullmatch(name) for name in path):
        return ".".join(path)
    return json.dumps(list(path), ensure_ascii=False)


def doc_of(path: Path, old: str | None = None) -> str:
    """A column's doc that says which field feeds it; what else there was to say stays."""
    kept = _DOC.sub("", old or "")
    return f"{kept}\nfield: {spell_path(path)}" if kept else f"field: {spell_path(path)}"


def path_in_doc(doc: str | None) -> Path | None:
    """The field that `doc_of` wrote down; None where there is none."""
    found = _DOC.search(doc or "")
    if found is None:
        return None
    text = found.group(1)
    if not text.startswith("["):
        return tuple(text.split("."))
    try:
        names = json.loads(text)
    except ValueError:
        return None
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def bind_columns(fields: Sequence[NestedField], shaping: Shaping) -> dict[str, Path | None]:
    """By column the path of the field that feeds it; None where that is not known yet."""
    declared = dict(shaping.fields)
    found: dict[str, Path | None] = {}
    for member in fields:
        if member.name in declared:
            found[member.name] = declared[member.name]
        else:
            found[member.name] = path_in_doc(member.doc) if shaping.makes_names else (member.name,)
    return found


def fed_columns(bound: Mapping[str, Path | None], shaping: Shaping) -> dict[Path, str]:
    """By path of a field the column that it feeds: of several the one that is declared with it, else the first. bound: what
    `bind_columns` has found.
    """
    found: dict[Path, str] = {}
    for name, path in bound.items():
        if path is not None and (path not in found or (name, path) in shaping.fields):
            found[path] = name
    return found


def make_layout(fields: Sequence[NestedField], shaping: Shaping) -> Layout:
    """fields: the table's columns that come from the record's value."""
    fields = [member for member in fields if member.name not in shaping.own]
    bound = bind_columns(fields, shaping)
    fed = fed_columns(bound, shaping)
    root = _Node()
    paths: dict[str, Path] = {}
    for member in fields:
        path = bound[member.name]
        kind = shaping.selection.prune(in_record(member.field_type), path, keeps_bare=True) if path else None
        if path is None or kind is None or fed[path] != member.name:
            continue
        if not is_bare(kind):  # Else its column is null.
            paths[member.name] = path
        node = root
        for name in path:
            node = node.children.setdefault(name, _Node())
        node.kind, node.required = kind, member.required and len(path) == 1 and not is_bare(kind)
    unbound = {member.name: member.field_type for member in fields if bound[member.name] is None}
    struct = _type_of(root, None)
    assert isinstance(struct, StructType)
    units = tuple((paths[name], unit) for name, unit in shaping.units if name in paths)
    units += tuple(((*paths[name], *inner), unit) for name, inner, unit in shaping.counted if name in paths)
    coerced = tuple(paths[name] for name in shaping.coerced if name in paths)
    zones = tuple((paths[name], zone) for name, zone in shaping.zones if name in paths)
    return Layout(struct.fields, paths, unbound, units, coerced, zones)


@dataclass
class _Node:
    """A field of the record: the type of its own column, if it has one, and the members that have columns of theirs."""

    kind: IcebergType | None = None
    required: bool = False
    children: dict[str, _Node] = field(default_factory=dict)


def _type_of(node: _Node, around: IcebergType | None) -> IcebergType:
    """What to decode at this node; `around`: what the column of a struct around it says of its type."""
    own = node.kind if node.kind is not None else around
    if own is not None and (not node.children or not isinstance(own, StructType)):
        return own
    members = {member.name: member for member in own.fields} if isinstance(own, StructType) else {}
    for name, child in node.children.items():
        old = members.get(name)
        kind = _type_of(child, old.field_type if old is not None else None)
        members[name] = NestedField(0, name, kind, required=child.required)
    return StructType(*members.values())


def extend_shaped(
    schema: Schema,
    shaping: Shaping,
    own: Collection[str],
    wanted: Wanted,
    loosened: Collection[Path] = (),
    may_widen: bool = True,
) -> Schema:
    """`extend_schema` with fields of records: `wanted` is by their paths, `loosened` by columns.

    own: columns that do not come from the record's value. Raises NamesClash when two fields would share a column.
    """
    others = frozenset(own) | shaping.own
    before, schema = schema, _schema_in_record(schema, others)
    plan = _Plan(schema, shaping, others)
    of_keys: dict[Path, dict[str, IcebergType]] = {}
    for parent, members in wanted.items():
        for name, kind in members.items():
            path = (*parent, name)
            if path[0] == KEY_ROOT:
                path = (shaping.key, *path[1:])
                of_keys.setdefault(path[:-1], {})[path[-1]] = kind
            else:
                plan.add(path, kind)
    columns, docs = plan.columns()
    columns = merge_wanted([columns, of_keys])
    after = document(extend_schema(schema, columns, loosened, may_widen), docs)
    return _schema_in_table(after, before, shaping.case, others)


def in_record(kind: IcebergType) -> IcebergType:
    """The type of a column with the names that members of structs have in records, where their docs say so."""
    if isinstance(kind, ListType):
        return list_with(kind, in_record(kind.element_type), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, in_record(kind.value_type), kind.value_required)
    if not isinstance(kind, StructType):
        return kind
    members = []
    for member in kind.fields:
        path = path_in_doc(member.doc) or ()
        name = path[0] if len(path) == 1 else member.name
        members.append(member.model_copy(update={"name": name, "field_type": in_record(member.field_type)}))
    return type(kind)(*members)


def _schema_in_record(schema: Schema, own: Container[str]) -> Schema:
    """The schema with the names of records inside its columns."""
    fields = [
        member if member.name in own else member.model_copy(update={"field_type": in_record(member.field_type)})
        for member in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _schema_in_table(schema: Schema, before: Schema, case: str, own: Container[str]) -> Schema:
    """The schema with the names of the table inside its columns: the old ones where fields were there before, the others in
    the case that the table asks for. Raises NamesClash where two fields of one struct would share a name.
    """
    if case == "keep" and schema == before:
        return schema
    names = {field_id: before.find_field(field_id) for field_id in before.field_ids}
    fields = [
        member
        if member.name in own
        else member.model_copy(update={"field_type": _in_table(member.field_type, names, case, (member.name,))})
        for member in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _in_table(kind: IcebergType, old: Mapping[int, NestedField], case: str, path: Path) -> IcebergType:
    if isinstance(kind, ListType):
        return list_with(kind, _in_table(kind.element_type, old, case, (*path, "element")), kind.element_required)
    if isinstance(kind, MapType):
        return map_with(kind, _in_table(kind.value_type, old, case, (*path, "value")), kind.value_required)
    if not isinstance(kind, StructType):
        return kind
    members: list[NestedField] = []
    taken: dict[str, str] = {}
    for member in kind.fields:
        known, inner = old.get(member.field_id), (*path, member.name)
        name = known.name if known is not None else change_case(member.name, case)
        doc = known.doc if known is not None else member.doc if name == member.name else doc_of((member.name,))
        if known is None and fold(name) in taken:
            both = f"{spell_path((*path, taken[fold(name)]))} and {spell_path(inner)}"
            raise NamesClash(f"the fields {both} would share the column {name}: {exits(inner)}")
        taken.setdefault(fold(name), member.name)
        of = _in_table(member.field_type, old, case, inner)
        members.append(member.model_copy(update={"name": name, "doc": doc, "field_type": of}))
    return type(kind)(*members)


def document(schema: Schema, docs: Mapping[str, str]) -> Schema:
    """The schema with docs for some of its columns."""
    if not docs:
        return schema
    fields = [
        member.model_copy(update={"doc": docs[member.name]}) if member.name in docs else member
        for member in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


class _Plan:
    """Fields that records have, sorted to the columns that there are and those that are to be."""

    def __init__(self, schema: Schema, shaping: Shaping, own: frozenset[str]) -> None:
        self._shaping = shaping
        self._own = own
        self._known = {member.name: member for member in schema.fields if member.name not in own}
        self._bound = bind_columns(tuple(self._known.values()), shaping)
        self._columns = fed_columns(self._bound, shaping)
        self._inside: dict[Path, dict[str, IcebergType]] = {}
        self._new: dict[Path, IcebergType] = {}
        self._spelt: dict[Path, Path] = {}

    def add(self, path: Path, kind: IcebergType) -> None:
        """The field at `path` is in records, with this type."""
        pruned = self._shaping.selection.prune(kind, path)
        if pruned is None:
            return
        if isinstance(pruned, StructType) and self._is_taken_apart(path):
            for member in pruned.fields:
                self.add((*path, member.name), member.field_type)
            return
        for cut in range(len(path), 0, -1):
            column = self._columns.get(path[:cut])
            if column is not None:
                self._add_inside((column, *path[cut:]), pruned, path)
                return
        cut = min(len(path), self._shaping.depth + 1)
        first = self._spelt.setdefault(tuple(map(fold, path[:cut])), path[:cut])
        wrapped, known = _wrapped(pruned, path[cut:]), self._new.get(first)
        # Of names that differ in capitals alone the first is the column's, and the first type.
        united = _united(known, wrapped, path) if known is None or first == path[:cut] else widest(known, wrapped)
        self._new[first] = united

    def _add_inside(self, place: Path, kind: IcebergType, path: Path) -> None:
        """place: the field at `path`, beginning with its column. A struct around it may be missing there: all that records
        had in it so far may be in columns of its own.
        """
        column = StructType(self._known[place[0]])
        held = type_at(column, place)
        if held is not None and self._shaping.selection.prune(held, path) is None and not adds_to(held, kind):
            # No value of it is compared with the column, which would not change for it.
            raise NamesClash(f"field {spell_path(path)}: {kind} does not fit its column, and nothing is read from it")
        cut = next(cut for cut in range(len(place) - 1, -1, -1) if type_at(column, place[:cut]) is not None)
        mine = self._inside.setdefault(place[:cut], {})
        mine[place[cut]] = _united(mine.get(place[cut]), _wrapped(kind, place[cut + 1 :]), path)

    def _is_taken_apart(self, path: Path) -> bool:
        if self._is_awaited(path):
            return False
        if any(len(bound) > len(path) and bound[: len(path)] == path for bound in self._columns):
            return True
        return len(path) <= self._shaping.depth and not is_held(path, self._columns)

    def _is_awaited(self, path: Path) -> bool:
        """Whether a column waits for the record at `path` that can hold it as a whole, but for members that have columns of
        their own.
        """
        name = self._shaping.column_name(path)
        return self._bound.get(name, path) is None and is_one_column(self._known[name].field_type)

    def columns(self) -> tuple[Wanted, dict[str, str]]:
        """What the table lacks, by columns, and the docs of columns that say which field feeds them."""
        wanted = {path: dict(members) for path, members in self._inside.items()}
        docs: dict[str, str] = {}
        claimed = {fold(name): path for name, path in self._bound.items() if path is not None}
        for path, kind in self._new.items():
            name = self._shaping.column_name(path)
            self._check_name(name, path, claimed)
            claimed[fold(name)] = path
            old = self._known.get(name)
            if old is None:
                wanted.setdefault((), {})[name] = kind
            if self._shaping.makes_names:
                docs[name] = doc_of(path, old.doc if old is not None else None)
        return wanted, docs

    def _check_name(self, name: str, path: Path, claimed: Mapping[str, Path]) -> None:
        if fold(name) in claimed:
            both = f"{spell_path(claimed[fold(name)])} and {spell_path(path)}"
            raise NamesClash(f"the fields {both} would share the column {name}")
        if fold(name) in map(fold, self._own):
            raise NamesClash(
                f"field {spell_path(path)}: the table has a column {name} that is not for fields of records"
            )
        check_reserved(name, path)


def check_reserved(name: str, path: Path) -> None:
    """Raises NamesClash for a field whose column would have the name of one of Iceberg's metadata columns."""
    if fold(name) in RESERVED_COLUMNS:
        raise NamesClash(
            f"field {spell_path(path)}: {name} is the name of one of Iceberg's metadata columns: {exits(path)}"
        )


def unfold(wanted: Wanted, depth: int) -> list[tuple[Path, bool]]:
    """The paths of fields, and whether each is a record itself: those that are wanted, the records they are in and, of
    records down to `depth`, the members.
    """
    found = [(parent[:cut], True) for parent in wanted for cut in range(1, len(parent) + 1)]
    waiting = [((*parent, name), kind) for parent, members in wanted.items() for name, kind in members.items()]
    while waiting:
        path, kind = waiting.pop()
        found.append((path, isinstance(kind, StructType)))
        if isinstance(kind, StructType) and len(path) <= depth:
            waiting += [((*path, member.name), member.field_type) for member in kind.fields]
    return found


def is_one_column(kind: IcebergType) -> bool:
    """Whether a column of this type can hold a nested record as a whole."""
    return isinstance(kind, StructType | MapType)


def is_held(path: Path, columns: Container[Path]) -> bool:
    """Whether the field at `path`, or one around it, is among those that have a column: that holds all that is in it."""
    return any(path[:cut] in columns for cut in range(1, len(path) + 1))


def _united(old: IcebergType | None, new: IcebergType, path: Path) -> IcebergType:
    return new if old is None else merge_types(old, new, path)


def _wrapped(kind: IcebergType, names: Path) -> IcebergType:
    """The type inside structs of one member, which are called so from the outside in."""
    for name in reversed(names):
        kind = StructType(NestedField(0, name, kind, required=False))
    return kind
