"""Column-name conflicts: which of the requested fields a table can have together. Pure.

Two fields may map to one column, or a field to a column reserved for something else: the table has the column once, and
records with the rejected field are bad records. So a conflict rejects records, and not the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from pyiceberg.types import IcebergType, MapType, NestedField, StructType

from frazil.schema.evolve import NameConflict, Path, RequestedFields, extend_fields
from frazil.schema.names import key_settings
from frazil.schema.parts import change_parts, parts_of, retyped, types_in, with_parts
from frazil.schema.projection import KEY_ROOT

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
