"""The port of a format whose schemas define several messages, of which each record names one: Protobuf.

A package implements it: the core knows the format's name and settings, and no byte of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.decode.columns import Bodies, Fault, Reader
from frazil.decode.connect.values import LogicalType
from frazil.decode.forms import OWN_FORMS, Forms
from frazil.decode.settings import Envelope
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
