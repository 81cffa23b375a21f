"""The ports of formats whose schemas packages read: the core knows the names and settings of these formats.

One is of formats whose schemas define several messages, of which each record names one: Protobuf. The other is of
formats whose records are JSON text, which the core reads: JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import NestedField, StructType

from frazil.decode.columns import Bodies, Decoded, Fault, Reader
from frazil.decode.connect.values import LogicalType
from frazil.decode.forms import OWN_FORMS, Forms
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.plugins.formats import MESSAGES
from frazil.schema.selection import Path

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
