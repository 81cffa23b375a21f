"""Forms of a writer's values: those read in another form than the schema's own, as the table's column has that form.

Avro's logical types leave the bytes unchanged, so a `timestamp-millis` is also the `long` that was written; a Protobuf
enum is a number on the wire; a message or record without fields fits a struct. A change from one to the other does not
change the written bytes, and must not change the stored values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg import types as t

from frazil.decode.columns import UnionStruct
from frazil.decode.renames import NO_RENAMES, Renames, fed_members
from frazil.schema.parts import Path, common_part

Forms = frozenset[tuple[Path, str]]
"""The form of the column, by path of the writer's value: `number`, `text`, `bytes` or `struct`."""

OWN_FORMS: Forms = frozenset()
"""Every value is read in its schema's own form."""

_NUMBERS = (t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType)
_BYTES = (t.BinaryType, t.FixedType)
_TIMES = (t.DateType, t.TimeType, t.TimestampType, t.TimestamptzType)


def forms_of(struct: t.StructType, fields: Sequence[t.NestedField], renames: Renames = NO_RENAMES) -> Forms:
    """Returns the forms that the table's `fields` need for a writer's values. struct: the types by their schema alone.

    A reader uses the forms that its format supports, and ignores the others.
    """
    return frozenset(_of_members(struct, fields, renames, (), ()))


def _of_members(
    struct: t.StructType, fields: Iterable[t.NestedField], renames: Renames, written_at: Path, at: Path
) -> Iterator[tuple[Path, str]]:
    """Yields forms of a struct's members. written_at, at: the path of the struct in the writer's schema and in the
    table.
    """
    fields = list(fields)
    fed = fed_members(struct, fields, renames, at)
    for member in struct.fields:
        column = fed.get(member.name)
        if column is not None:
            inner = (*written_at, member.name)
            yield from _of_value(member.field_type, column.field_type, renames, inner, (*at, column.name))
    full = {column.name for column in fed.values()}
    for column in fields:
        if column.name not in full:  # A record without fields has no column of its own, but may be inside the column.
            yield from _structs_in(column.field_type, (*written_at, column.name))


def _of_value(
    written: t.IcebergType, wanted: t.IcebergType, renames: Renames, written_at: Path, at: Path
) -> Iterator[tuple[Path, str]]:
    if isinstance(written, t.StructType) and isinstance(wanted, t.StructType):
        yield from _of_members(written, wanted.fields, renames, written_at, at)
    elif (both := common_part(written, wanted)) is not None:
        part, column = both
        inner = (*written_at, part.name)
        yield from _of_value(part.field_type, column.field_type, renames, inner, (*at, column.name))
    elif isinstance(written, UnionStruct):
        for branch in written.fields:
            yield from _of_value(branch.field_type, wanted, renames, (*written_at, branch.name), at)
    elif isinstance(written, t.BooleanType) and isinstance(wanted, t.StructType):
        yield from _structs_in(wanted, written_at)
    else:
        form = _form_of(written, wanted)
        if form:
            yield written_at, form


def _structs_in(kind: t.IcebergType, path: Path) -> Iterator[tuple[Path, str]]:
    """Yields the struct that a type is, and those among its members."""
    if isinstance(kind, t.StructType):
        yield path, "struct"
        for member in kind.fields:
            yield from _structs_in(member.field_type, (*path, member.name))


def _form_of(written: t.IcebergType, wanted: t.IcebergType) -> str:
    """Returns the form of the column, where a value of the written type has it; empty where it has not, or where it is
    its own.
    """
    if isinstance(wanted, _NUMBERS) and isinstance(written, (*_TIMES, t.StringType, t.BooleanType)):
        return "number"
    if isinstance(wanted, t.StringType) and isinstance(written, (t.UUIDType, *_BYTES)):
        return "text"
    if isinstance(wanted, _BYTES) and isinstance(written, (t.DecimalType, t.UUIDType, t.StringType)):
        return "bytes"
    return ""
