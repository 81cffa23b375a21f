"""What a table cannot have of the fields that records request, and the remedy. Pure.

These are conflicts of names, and changes that the table's settings refuse, with the schemas that request each. Two fields
may map to one column, or a field to a column reserved for something else: the table has the column once, and records with
the rejected field are bad records. So a conflict rejects records, and not the whole table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.types import IcebergType, MapType, NestedField, StructType

from frazil.schema.evolve import NameConflict, Path, RequestedFields, extend_fields
from frazil.schema.names import cast_settings, fraction_settings, key_settings
from frazil.schema.parts import change_parts, parts_of, retyped, types_in, with_parts
from frazil.schema.projection import KEY_ROOT
from frazil.types import list_names

MAX_REJECTED = 100
"""The largest number of rejected fields: a producer that makes up more of them is not a case of single bad records."""


def accept(
    requested_fields: RequestedFields, check: Callable[[RequestedFields], object]
) -> tuple[RequestedFields, dict[Path, str]]:
    """Returns the fields that the table can have together, earlier ones before later ones, and the reason for each
    rejected path.

    check: raises NameConflict where the table cannot have the fields it is given; its message for a single field is the
    reason.

    Raises: NameConflict where more than MAX_REJECTED fields would be rejected.
    """
    clashes: dict[Path, NameConflict] = {}
    members = (((*parent, name), kind) for parent, inner in requested_fields.items() for name, kind in inner.items())
    leaves = [leaf for path, kind in members for leaf in _leaves_of(kind, path)]
    accepted = set(_accept(leaves, [], lambda kept: check(_only(requested_fields, set(kept))), clashes))
    rejected = {
        # Fields of keys get no columns of their own.
        _rejected(path, clash.field, requested_fields, accepted): (
            f"{clash.reason}: {key_settings()}" if path[0] == KEY_ROOT else str(clash)
        )
        for path, clash in clashes.items()
    }
    return _only(requested_fields, accepted), rejected


def _accept(
    paths: Sequence[Path],
    before: Sequence[Path],
    check: Callable[[Sequence[Path]], object],
    clashes: dict[Path, NameConflict],
) -> list[Path]:
    """Returns those of `paths` that are possible together with the ones in `before`. Halves of the paths are tried, as
    few conflicts are expected.
    """
    try:
        check([*before, *paths])
    except NameConflict as error:
        if len(paths) > 1:
            half = len(paths) // 2
            first = _accept(paths[:half], before, check, clashes)
            return first + _accept(paths[half:], [*before, *first], check, clashes)
        if len(clashes) >= MAX_REJECTED:
            raise
        clashes[paths[0]] = error
        return []
    return list(paths)


def _leaves_of(kind: IcebergType, path: Path) -> Iterator[Path]:
    if _has_members(kind):
        for part in parts_of(kind):
            yield from _leaves_of(part.field_type, (*path, part.name))
    else:
        yield path


def _has_members(kind: IcebergType) -> bool:
    """Whether the type is a struct with members, or has one in its lists and maps."""
    return any(isinstance(inner, StructType) and inner.fields for _, inner in types_in(kind))


def _only(requested_fields: RequestedFields, kept: Collection[Path]) -> dict[Path, dict[str, IcebergType]]:
    """Returns the requested fields whose leaves are kept."""
    kept_fields: dict[Path, dict[str, IcebergType]] = {}
    for parent, members in requested_fields.items():
        for name, kind in members.items():
            left = _pruned(kind, (*parent, name), lambda path: path in kept)
            if left is not None:
                kept_fields.setdefault(parent, {})[name] = left
    return kept_fields


def _pruned(kind: IcebergType, path: Path, takes: Callable[[Path], bool]) -> IcebergType | None:
    """Returns the type with the accepted leaves; None without any."""
    if not _has_members(kind):
        return kind if takes(path) else None
    parts = ((part, _pruned(part.field_type, (*path, part.name), takes)) for part in parts_of(kind))
    left = [retyped(part, inner) for part, inner in parts if inner is not None]
    return with_parts(kind, left) if left else None


def _rejected(path: Path, field: Path, requested_fields: RequestedFields, accepted: Collection[Path]) -> Path:
    """Returns the path of the conflict's `field`, where it has one, else that of the outermost field around `path` of which
    nothing is accepted: it has no column at all.
    """
    if field:  # Of a table whose columns are made from several levels, the path is another one than in records.
        return field if path[: len(field)] == field else path
    parent = max((parent for parent in requested_fields if path[: len(parent)] == parent), key=len)
    for cut in range(len(parent) + 1, len(path)):
        if not any(other[:cut] == path[:cut] for other in accepted):
            return path[:cut]
    return path


def without_rejected(struct: StructType, rejected: Collection[Path], path: Path = ()) -> StructType:
    """Returns a writer's struct without the rejected fields."""
    left = (
        retyped(member, type_without_rejected(member.field_type, rejected, (*path, member.name)))
        for member in struct.fields
        if (*path, member.name) not in rejected
    )
    return StructType(*left)


def type_without_rejected(kind: IcebergType, rejected: Collection[Path], path: Path) -> IcebergType:
    """Returns the type of the field at `path` without the rejected fields."""
    if isinstance(kind, StructType):
        return without_rejected(kind, rejected, path)
    return change_parts(kind, lambda inner, inner_path: type_without_rejected(inner, rejected, inner_path), path)


def growth(fields: Sequence[NestedField], requested_fields: RequestedFields, is_shaped: bool = False) -> int:
    """Returns the number of columns, nested ones included, that the requested fields add to a table with these fields.

    is_shaped: nested records may become top-level columns, so structs themselves are not counted.
    """
    before = StructType(*fields)
    after = extend_fields(before, requested_fields)
    return _count(after, is_shaped) - _count(before, is_shaped)


def _count(kind: IcebergType, is_shaped: bool) -> int:
    """Returns the number of columns inside a type; a map has one for its keys."""
    counts = (
        _count(part.field_type, is_shaped)
        + (not (is_shaped and isinstance(kind, StructType) and isinstance(part.field_type, StructType)))
        for part in parts_of(kind)
    )
    return isinstance(kind, MapType) + sum(counts)


_BY = re.compile(r"schema ([^:]+): (column .*)", re.DOTALL)
_MISMATCH = re.compile(r"column ([^:]+): (.+) does not fit (\w+(?:\(\d+, ?\d+\))?)")
_WORD = re.compile(r"\w*")
_BYTES = ("binary", "fixed")
_NO_TEXT = ("string", "uuid", *_BYTES)
_OF_THEIR_OWN = ("float", "double", "decimal", "uuid", "date", "time", "timestamp", "timestamptz")
"""Types that a column of their own keeps better than one of text."""
_NUMBERS = ("int", "long", "float", "double", "decimal")
_COUNTED = {"date": "days since the epoch", "time": "milliseconds since midnight"}
_SINCE = {"timestamp": "the epoch", "timestamptz": "the epoch", "time": "midnight"}
OF_KEYS = ", in keys of records"
"""The end of the refusal of another type in the column of record keys, which `columns` cannot declare."""
KEYS_AS_TEXT = "correct the schema; a new table with `key: {format: text}` keeps both as text"
_REMEDIES: Mapping[str, str] = {
    "not added: `schema_evolution`": (
        "write `schema_evolution: add_only`, or add the column yourself; `exclude` leaves the field out"
    ),
    " are not widened to ": (
        "give the field another column with wider keys, which Iceberg does not widen:"
        ' `columns: {NAME: {type: "map<KEY, VALUE>", field: PATH}}`'
    ),
    " is not widened to ": "write `schema_evolution: evolve`, or widen the column yourself",
    " does not fit ": (
        "correct the schema, or give the field another name; a new table with"
        " `columns: {NAME: {type: string, coerce: true, field: PATH}}` keeps both as text"
    ),
    "would both be the column": "leave one of them out with `exclude`, or give it a column of its own under `columns`",
    " only in letter case": "give the field a column of its own under `columns`, or leave it out with `exclude`",
    "a column of its own with this name": "leave it out with `exclude`, or give it a column of its own under `columns`",
    "cannot read records with the new field": (
        "leave the field out with `exclude`, or give it a column of its own under `columns`"
    ),
    "has a name that is taken": "leave it out with `exclude`, or give it a column of its own under `columns`",
    "would share the column": "leave one of them out with `exclude`, or give it a column of its own under `columns`",
    "not for fields of records": "leave it out with `exclude`, or give it a column of its own under `columns`",
    "metadata columns": "leave it out with `exclude`, or give it a column of its own under `columns`",
}
"""The remedy, by words of the refusal."""


@dataclass(frozen=True)
class RefusedChange:
    """One refused schema change."""

    #: The change as text.
    change: str
    #: Ids of the schemas that request it; empty for records without a schema.
    schemas: tuple[str, ...]
    #: The remedy as a sentence.
    remedy: str


def refused_changes(refusals: Iterable[str]) -> list[RefusedChange]:
    """Returns the refused changes of tasks, each once with all schemas that request it."""
    schemas: dict[str, list[str]] = {}
    for refusal in list_names(refusals):
        match = _BY.fullmatch(refusal)
        asking = schemas.setdefault(match[2] if match else refusal, [])
        if match:
            asking.append(match[1])
    return [
        RefusedChange(
            change,
            tuple(sorted(ids, key=lambda id_: (int(id_), "") if id_.isdecimal() else (0, id_))),
            remedy_of(change),
        )
        for change, ids in schemas.items()
    ]


def declaration_for(path: Sequence[str], written: str, wanted: str) -> str:
    """Returns the declaration that gives values of a type a column, as the end of a sentence; empty where no
    declaration helps.

    path: of the field in the row. written, wanted: the written type, and the column's, of which the first word is enough.
    """
    had, has = (_WORD.match(word)[0] for word in (written, wanted))  # type: ignore[index]
    name, field, is_top = path[-1], ".".join(path), len(path) == 1
    is_member = "element" not in path and "value" not in path
    if is_member and ((had, has) == ("struct", "boolean") or had == has in ("list", "map")):
        return (
            "the column was made of a message or record without fields: give the field a column of its own, such as"
            f' `columns: {{{name}_fields: {{type: "{written}", field: {field}}}}}`'
        )
    if had in _BYTES and has != "binary" and is_member:
        return (
            f"give the field a column of bytes instead: `columns: {{{name}_bytes: {{type: binary, field: {field}}}}}`"
        )
    if {had, has} == {"timestamp", "timestamptz"} and is_member:
        zoned = f"{{type: {has}, zone: UTC}}" if is_top else f"{{type: {has}, zone: UTC, field: {field}}}"
        return f"to convert times with and without a zone, write `columns: {{{name}: {zoned}}}`"
    if has == "string" and had not in _NO_TEXT:
        inside = f"declare the column `{path[0]}` with its type and `coerce: true`"
        return f"to keep it as text, {f'write `columns: {{{name}: {{type: string, coerce: true}}}}`' if is_top else inside}"
    if had in ("float", "double") and has in ("int", "long"):
        return fraction_settings(tuple(path), is_json=False)
    if had == "string" and is_member and has in (*_NUMBERS, *_SINCE, *_COUNTED):
        keeps = f"to keep the text, give it a column: `columns: {{{name}_text: {{type: string, field: {field}}}}}`"
        return cast_settings(tuple(path), wanted) if has in _NUMBERS else keeps
    if had in _OF_THEIR_OWN and is_member:
        return f'give the field a column of its own: `columns: {{{name}_{had}: {{type: "{written}", field: {field}}}}}`'
    return _unit_for(path, had, has) if had in ("int", "long") else ""


def _unit_for(path: Sequence[str], had: str, has: str) -> str:
    """Returns the declaration of what integers count that come to a column of time."""
    name, is_top = path[-1], len(path) == 1
    if has in _SINCE and "element" not in path and "value" not in path:
        kind = f"{has}({'us' if (had, has) == ('long', 'time') else 'ms'})"  # Avro's time-micros is a long.
        if is_top:
            return f"say what its numbers count since {_SINCE[has]}, such as `columns: {{{name}: {kind}}}`"
        return (
            f"say what its numbers count since {_SINCE[has]}, such as"
            f" `columns: {{{name}: {{type: {kind}, field: {'.'.join(path)}}}}}`"
        )
    if has not in _COUNTED:
        return ""
    if is_top:
        return f"where its numbers are {_COUNTED[has]}, declare it: `columns: {{{name}: {has}}}`"
    return f"where its numbers are {_COUNTED[has]}, declare the column `{path[0]}` with its type"


def remedy_of(change: str) -> str:
    """Returns the remedy for a refused change; empty where none is known."""
    if change.endswith(OF_KEYS) or key_settings() in change:
        return KEYS_AS_TEXT
    match = _MISMATCH.search(change)
    if match:
        path = match[1].split(".")  # The path begins with an image of the row in an envelope.
        declaration = declaration_for(path[path[0] in ("after", "before") and len(path) > 1 :], match[2], match[3])
        if declaration:
            return declaration
    return next((remedy for words, remedy in _REMEDIES.items() if words in change), "")
