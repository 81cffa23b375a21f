"""Single steps without SQL, compiled to a query over `records`, so that one engine evaluates both. Pure.

Paths go through structs, and find names in any case, as Spark does; later steps name fields as `rename` has named them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg import types as t
from pyiceberg.schema import Schema

from frazil.column_names import Spellings, fold_case
from frazil.errors import SpecError
from frazil.queries.analysis import METADATA
from frazil.queries.catalyst import RECORDS, NameTaken
from frazil.schema.parts import type_word
from frazil.spec.syntax.problems import nearest

Path = tuple[str, ...]
_SQL_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}


@dataclass(frozen=True)
class Steps:
    """The steps of a table, in the order in which they are applied."""

    #: The new name of each field, which stays where it is.
    rename: Mapping[Path, str] = field(default_factory=dict)
    #: Fields to leave out, each with everything in it.
    drop_fields: Sequence[Path] = ()
    #: Fields to keep, each with everything in it; all others are left out. Empty: all are kept.
    keep_fields: Sequence[Path] = ()
    #: The new type of each field.
    cast: Mapping[Path, t.IcebergType] = field(default_factory=dict)
    #: Columns to add behind the fields: a piece of metadata by its name, such as `_topic`, or a constant.
    add_fields: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    #: The condition of the rows to keep, in Spark's SQL, over the fields that the other steps leave; empty for all rows.
    filter: str = ""
    #: The SQL of what texts of `add_fields` name; other texts are constants.
    names: Mapping[str, str] = field(default_factory=lambda: {name: name for name in METADATA})


class NoFieldLeft(SpecError):
    """Steps leave out every field that records have had."""


class IntoCollection(SpecError):
    """A step leads into a list or a map. path: of the list or map."""

    def __init__(self, message: str, path: Path, *, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.path = path


@dataclass(frozen=True)
class Missing:
    """A field that a step names and records do not have."""

    #: The step's key in the pipeline file.
    step: str
    path: Path
    #: The path that was probably meant; None where none is like it.
    nearest: Path | None


@dataclass(frozen=True)
class Compiled:
    """Steps as a query."""

    #: Of the fields that records have.
    sql: str
    #: What steps name besides: the step has no effect on it until records have it.
    missing: tuple[Missing, ...]


@dataclass
class _Node:
    """A field of the result."""

    name: str
    #: The expression of its value before its parts are changed.
    sql: str
    #: Of a struct; empty for another type.
    parts: list[_Node]
    type: t.IcebergType | None = None
    is_changed: bool = False
    #: `list` or `map` where the field is one, into which no path leads; empty for another type.
    collection: str = ""

    def sql_of_value(self) -> str:
        value = self.sql
        if self.has_changed_parts():
            members = ", ".join(f"{_text(part.name)}, {part.sql_of_value()}" for part in self.parts)
            # A struct of nulls is not a null.
            value = f"if({self.sql} is null, null, named_struct({members}))"
        return f"cast({value} as {_sql_type(self.type)})" if self.type else value

    def has_changed_parts(self) -> bool:
        return self.is_changed or any(part.type is not None or part.has_changed_parts() for part in self.parts)


def compile_steps(steps: Steps, fields: Schema, metadata: Sequence[str] = METADATA) -> Compiled:
    """Returns the query that applies the steps. fields: of the records, without metadata. metadata: the pieces of metadata
    that `filter`, or a query over the result, may name.

    Raises: NoFieldLeft; IntoCollection; SpecError where two fields would have one name, or a type is not one of Spark's.
    """
    root = _Node("", "", [_node(field, "") for field in fields.fields])
    missing = [
        *_rename(root, steps.rename),
        *_drop(root, steps.drop_fields),
        *_keep(root, steps.keep_fields),
        *_cast(root, steps.cast),
    ]
    columns = [f"{part.sql_of_value()} as {quoted(part.name)}" for part in root.parts]
    added = [f"{_constant(value, steps.names)} as {quoted(name)}" for name, value in steps.add_fields.items()]
    _refuse_twins("add_fields", [*(part.name for part in root.parts), *steps.add_fields])
    if not [*columns, *added]:
        raise NoFieldLeft(
            "the steps leave no field that records have had", remedy="keep one with `keep_fields`, or drop fewer"
        )
    if not steps.filter:
        return Compiled(_select([*columns, *added]), tuple(missing))
    inner = _select([*columns, *added, *(name for name in metadata if name not in steps.add_fields)])
    # On lines of its own, as it may end with a comment.
    return Compiled(f"select * from ({inner}) as {RECORDS}\nwhere (\n{steps.filter}\n)", tuple(missing))


def refused_lists(steps: Steps) -> dict[Path, str]:
    """Returns the paths of fields of the records into which steps lead, each with why a list there is refused: `{value}`
    stands for it.
    """
    original = {(*path[:-1], name): path for path, name in steps.rename.items()}
    refused: dict[Path, str] = {}
    for step, paths in (
        ("rename", steps.rename),
        ("drop_fields", steps.drop_fields),
        ("keep_fields", steps.keep_fields),
        ("cast", steps.cast),
    ):
        for path in paths:
            for around in (path[:depth] for depth in range(1, len(path))):
                reason = f"{{value}} is a list, and {_leads(step, path, 'the list', around)}; {_way_into(step, around)}"
                refused.setdefault(around if step == "rename" else original.get(around, around), reason)
    return refused


def quoted(name: str) -> str:
    """Returns a name as Spark's SQL has it, whatever its signs are."""
    return "`" + name.replace("`", "``") + "`"


def _select(columns: Sequence[str]) -> str:
    return f"select {', '.join(columns)} from {RECORDS}"


def _node(of: t.NestedField, above: str) -> _Node:
    sql = f"{above}.{quoted(of.name)}" if above else quoted(of.name)
    parts = of.field_type.fields if isinstance(of.field_type, t.StructType) else ()
    collection = type_word(of.field_type) if isinstance(of.field_type, t.ListType | t.MapType) else ""
    return _Node(of.name, sql, [_node(part, sql) for part in parts], collection=collection)


def _rename(root: _Node, names: Mapping[Path, str]) -> Iterator[Missing]:
    renamed: list[tuple[Path, _Node, _Node, str]] = []
    for path, name in names.items():
        place = _find(root, path)
        if place is None:
            yield _missing("rename", root, path)
        else:
            renamed.append((path[:-1], *place, name))
    for _, parent, node, name in renamed:
        node.name, parent.is_changed = name, True
    for above, parent, _, _ in renamed:
        _refuse_twins("rename", [part.name for part in parent.parts], above)


def _drop(root: _Node, paths: Sequence[Path]) -> Iterator[Missing]:
    for path in paths:
        place = _find(root, path)
        if place is None:
            yield _missing("drop_fields", root, path)
        else:
            _remove(root, path)


def _remove(root: _Node, path: Path) -> None:
    """Removes a field, and the structs that have nothing but it."""
    place = _find(root, path)
    if place is None:
        return
    parent, node = place
    parent.parts.remove(node)
    parent.is_changed = True
    if not parent.parts and len(path) > 1:
        _remove(root, path[:-1])


def _keep(root: _Node, paths: Sequence[Path]) -> Iterator[Missing]:
    if not paths:
        return
    kept: list[_Node] = []
    for path in paths:
        place = _find(root, path)
        if place is None:
            yield _missing("keep_fields", root, path)
        else:
            kept.append(place[1])
    _keep_in(root, kept)


def _keep_in(node: _Node, nodes: Sequence[_Node]) -> None:
    """Removes the parts that are none of these nodes, inside none of them and around none of them."""
    kept = []
    for part in node.parts:
        if not any(part is wanted for wanted in nodes):
            _keep_in(part, nodes)
        if part.parts or any(part is wanted for wanted in nodes):
            kept.append(part)
    node.is_changed |= len(kept) < len(node.parts)
    node.parts = kept


def _cast(root: _Node, types: Mapping[Path, t.IcebergType]) -> Iterator[Missing]:
    for path, kind in types.items():
        _sql_type(kind)  # Refused also where records have no such field yet.
        place = _find(root, path)
        if place is None:
            yield _missing("cast", root, path)
        else:
            place[1].type = kind


def _find(root: _Node, path: Path) -> tuple[_Node, _Node] | None:
    """Returns the parent of a field and the field; None where records do not have it."""
    parent, node = root, root
    for name in path:
        parent = node
        spelled = Spellings(part.name for part in node.parts).find(name)
        if spelled is None:
            return None
        node = next(part for part in node.parts if part.name == spelled)
    return parent, node


def _missing(step: str, root: _Node, path: Path) -> Missing:
    """Returns what records do not have.

    Raises: IntoCollection where they never will, as the path leads into a list or a map.
    """
    node = root
    for depth, name in enumerate(path):
        if node.collection:
            around = path[:depth]
            message = _leads(step, path, f"the {node.collection}", around)
            raise IntoCollection(message, around, remedy=_way_into(step, around))
        spelled = Spellings(part.name for part in node.parts).find(name)
        if spelled is None:
            break
        node = next(part for part in node.parts if part.name == spelled)
    by_name = {".".join(path_known): path_known for path_known in _paths(root, ())}
    close = nearest(".".join(path), by_name)
    return Missing(step, path, by_name[close] if close else None)


def _leads(step: str, path: Path, collection: str, around: Path) -> str:
    return f"`{step}` has `{'.'.join(path)}`, and no step leads into {collection} `{'.'.join(around)}`"


def _way_into(step: str, path: Path) -> str:
    """Returns what does what the step was to do inside of a list or a map. path: of the list or map."""
    around = ".".join(path)
    exclude = "leave it out with `exclude`, whose paths lead into lists by `element` and into maps by `value`"
    if step == "drop_fields":
        return exclude
    if step == "keep_fields":
        return f"keep all of `{around}`; of what it has inside, {exclude}"
    return f"change all of `{around}` in `select`, by Spark's `transform` or `transform_values`"


def _paths(node: _Node, above: Path) -> Iterator[Path]:
    for part in node.parts:
        yield (*above, part.name)
        yield from _paths(part, (*above, part.name))


def _refuse_twins(step: str, names: Sequence[str], above: Path = ()) -> None:
    lowered = [fold_case(name) for name in names]
    twins = [name for name in names if lowered.count(fold_case(name)) > 1]
    if twins:
        message, path = f"`{step}` makes two fields `{twins[0]}`", (*above, twins[0])
        raise NameTaken(message, path, remedy="choose another name, or drop one of them")


def _constant(value: str | int | float | bool, names: Mapping[str, str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return f"{value!r}D" if isinstance(value, float) else f"{value}L"
    return names.get(value) or _text(value)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _sql_type(kind: t.IcebergType | None) -> str:
    """Returns a type in Spark's SQL.

    Raises: SpecError for a type that Spark does not have.
    """
    if isinstance(kind, t.StructType):
        return f"struct<{', '.join(f'{quoted(field.name)}: {_sql_type(field.field_type)}' for field in kind.fields)}>"
    if isinstance(kind, t.ListType):
        return f"array<{_sql_type(kind.element_type)}>"
    if isinstance(kind, t.MapType):
        return f"map<{_sql_type(kind.key_type)}, {_sql_type(kind.value_type)}>"
    if isinstance(kind, t.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, t.UUIDType | t.FixedType | t.TimeType):
        raise SpecError(f"a field cannot be cast to {kind}", remedy="declare the column, `columns: {NAME: {type: …}}`")
    return _SQL_TYPES[str(kind)]
