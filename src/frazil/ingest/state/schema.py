"""Schemas that a table's records name, and changes of its own schema that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.decode.settings import WriterSchema
from frazil.ingest.no_op_changes import NoOpChange
from frazil.schema.selection import Path


@dataclass
class SchemaState:
    """What is known of schemas."""

    #: Schemas of the registry that the records have named, by id; those of keys and headers have a prefix.
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    #: When the newest one was asked for, on the monotonic clock in seconds.
    schemas_at_s: float = float("-inf")
    #: Whether some came that no commit has been read with yet.
    has_new_schemas: bool = False
    #: Changes of the table that records asked for and its policy forbids.
    refusals: frozenset[str] = frozenset()
    #: Fields that the table cannot have, by path with the reason: records with them are bad ones.
    rejected: dict[Path, str] = field(default_factory=dict)
    #: Names of fields that were dropped.
    dropped: frozenset[str] = frozenset()
    #: The change that the last batch asked for, where it left the table as it was.
    no_op_change: NoOpChange | None = None

    def note_schemas(self, schemas: Mapping[str, WriterSchema]) -> None:
        """Adds the schemas that a batch has asked for; the next one is read with them."""
        self.schemas |= schemas
        self.has_new_schemas |= bool(schemas)

    @property
    def of_values(self) -> list[tuple[str, WriterSchema]]:
        """The schemas of the records' values, with their ids."""
        return [(name, schema) for name, schema in self.schemas.items() if ":" not in name]

    def under(self, prefix: str) -> tuple[tuple[str, WriterSchema], ...]:
        """The schemas under ids that begin with a prefix, by id without it."""
        found = sorted(item for item in self.schemas.items() if item[0].startswith(prefix))
        return tuple((name.removeprefix(prefix), schema) for name, schema in found)
