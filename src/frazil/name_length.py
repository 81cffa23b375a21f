"""The length limit for names of columns, at every depth. Every metadata file of a table contains every name, for good."""

from __future__ import annotations

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

MAX_NAME_BYTES = 255
"""The longest name of a column, in bytes of UTF-8. Many readers of tables accept no longer ones."""

_SHOWN = 40


def is_long(name: str) -> bool:
    """Whether the name is too long for a column."""
    return 4 * len(name) > MAX_NAME_BYTES and _size(name) > MAX_NAME_BYTES


def long_name_in(kind: IcebergType) -> str | None:
    """Returns a name inside the type that is too long for a column; None without one."""
    if isinstance(kind, StructType):
        for member in kind.fields:
            long_name = member.name if is_long(member.name) else long_name_in(member.field_type)
            if long_name is not None:
                return long_name
    if isinstance(kind, ListType):
        return long_name_in(kind.element_type)
    return long_name_in(kind.value_type) if isinstance(kind, MapType) else None


def drop_long_names(struct: StructType) -> StructType:
    """Returns the struct without the fields that no table can have because of a name that is too long."""
    left = (member for member in struct.fields if not is_long(member.name))
    return StructType(*(_pruned(member) for member in left if not _is_all_long(member.field_type)))


def long_name_reason(name: str) -> str:
    """Returns the reason why the name is too long."""
    return f"the name {shorten(name)} has {_size(name):,} bytes, and a column's name has {MAX_NAME_BYTES} at most"


def explain_long_name(name: str) -> str:
    """Returns the reason why a field with this name has no column, and the remedy."""
    return f"{long_name_reason(name)}: give the field a shorter one, or leave it out with `exclude`"


def shorten(name: str) -> str:
    """Returns the name as messages show it."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"


def _size(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def _pruned(member: NestedField) -> NestedField:
    if isinstance(member.field_type, StructType) and long_name_in(member.field_type) is not None:
        return member.model_copy(update={"field_type": drop_long_names(member.field_type)})
    return member


def _is_all_long(kind: IcebergType) -> bool:
    """Whether nothing of the type is left without its long names; lists and maps are kept or dropped entirely."""
    if isinstance(kind, StructType):
        return bool(kind.fields) and not drop_long_names(kind).fields
    return long_name_in(kind) is not None
