"""The ports of formats whose schemas packages read: the core knows the names and settings of these formats.

One is of formats whose schemas define several messages, of which each record names one: Protobuf. The other is of
formats whose records are JSON text, which the core reads: JSON Schema. A table's column may have another form of a
writer's values than the schema's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyiceberg import types as t
from pyiceberg.types import NestedField, StructType

from frazil.decode.columns import Bodies, Decoded, Fault, Reader, UnionStruct
from frazil.decode.connect.values import LogicalType
from frazil.decode.renames import NO_RENAMES, Renames, fed_members
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.plugins.formats import MESSAGES
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


Message = str | tuple[int, ...]
"""A message of a schema: its full name, or the indexes that lead to it."""
FIRST = (0,)


@dataclass(frozen=True)
class Indexed:
    """Records with the message that each one is."""

    #: The distinct index paths, in the order of their first record.
    paths: list[tuple[int, ...]]
    #: The index in `paths` of each record, -1 for a faulty one: int32 of shape (n_records,).
    path: NDArray[np.int32]
    #: The bytes after the indexes.
    bodies: Bodies
    #: 0, or the 1-based index in `index_faults`: uint8 of shape (n_records,).
    fault: NDArray[np.uint8]


class MessageSchemas(Protocol):
    """Reads schemas and their messages. Everything but `compile` runs in tasks too."""

    @property
    def index_faults(self) -> Sequence[Fault]:
        """The faults of `split_indexes`."""

    def compile(self, text: str, references: tuple[tuple[str, str], ...]) -> bytes:
        """Returns the descriptors of a schema, in the driver. references: pairs of an import name and its text.

        Raises: UnusableSchema; UnavailableError where the compiler is ended by others, or takes too long.
        """

    def full_name(self, descriptors: bytes) -> str:
        """Returns the name of the first message.

        Raises: UnusableSchema where it cannot be read as columns.
        """

    def reader(self, descriptors: bytes, message: Message, forms: Forms = OWN_FORMS) -> Reader:
        """Returns the reader of one message. forms: of values that are read in another form than their schema's own.

        Raises: UnusableSchema.
        """

    def logical_types(
        self, reader: Reader, columns: Sequence[NestedField], envelope: Envelope | None
    ) -> Mapping[Path, LogicalType]:
        """Returns the logical types of Kafka Connect by path of the fields of a reader. columns: of the table."""

    def split_indexes(self, bodies: Bodies) -> Indexed:
        """Returns the records without the message indexes that they begin with. Bad records raise nothing."""

    def warm_up(self, compiles_all: bool) -> None:
        """Loads the compiled functions; compiles_all: also compiles those that few tables need."""


def message_schemas() -> MessageSchemas:
    """Returns what reads Protobuf's schemas.

    Raises: SpecError where the package that has it is not installed.
    """
    schemas: MessageSchemas = MESSAGES.get("protobuf").schemas
    return schemas


def has_message_schemas() -> bool:
    """Whether a package that reads Protobuf's schemas is installed."""
    return "protobuf" in MESSAGES


class TextSchemas(Protocol):
    """Reads schemas of JSON text: in the driver and in tasks."""

    def struct(self, schema: WriterSchema) -> StructType:
        """Returns the type of the records that a schema describes, without the fields whose type it leaves open.

        Raises: UnusableSchema.
        """

    def refused_changes(self, reading: Reading, table: StructType, written: StructType, schema_id: str) -> set[str]:
        """Returns what the table's policy or its types refuse of the struct that a schema describes."""

    def decode(
        self, bodies: Bodies, fields: tuple[NestedField, ...], reading: Reading, schema_id: str, limit: int
    ) -> Decoded:
        """Returns the columns `fields` of records of one of the reading's schemas, which gives the types of new columns. Bad
        records raise nothing. limit: the number of mismatches that are kept.
        """


def text_schemas() -> TextSchemas:
    """Returns what reads JSON Schemas.

    Raises: SpecError where the package that has it is not installed.
    """
    schemas: TextSchemas = MESSAGES.get("json_schema").schemas
    return schemas
