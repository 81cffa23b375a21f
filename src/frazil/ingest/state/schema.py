"""Registry schemas that a table's records refer to, and changes of the table's own schema that records request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.decode.settings import WriterSchema
from frazil.ingest.no_op_changes import NoOpChange
from frazil.schema.selection import Path


@dataclass
class SchemaState:
    """Registry schemas, refused schema changes and dropped fields of one table."""

    #: Registry schemas that the records refer to, by id; ids of keys and headers have a prefix.
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    #: When the newest schema was last requested, on the monotonic clock in seconds.
    schemas_at_s: float = float("-inf")
    #: Whether schemas were added with which no committed batch was read yet.
    has_new_schemas: bool = False
    #: Requested schema changes that the table's settings do not allow.
    refusals: frozenset[str] = frozenset()
    #: Fields that cannot be columns of the table, by path with the reason: records with them are bad records.
    rejected: dict[Path, str] = field(default_factory=dict)
    #: Names of fields that were dropped.
    dropped: frozenset[str] = frozenset()
    #: The schema change that the last batch requested, where it left the table unchanged.
    no_op_change: NoOpChange | None = None

    def add_schemas(self, schemas: Mapping[str, WriterSchema]) -> None:
        """Adds registry schemas that a batch has requested; the next batch is read with them."""
        self.schemas |= schemas
        self.has_new_schemas |= bool(schemas)

    @property
    def of_values(self) -> list[tuple[str, WriterSchema]]:
        """The schemas of the records' values, with their ids."""
        return [(name, schema) for name, schema in self.schemas.items() if ":" not in name]

    def under(self, prefix: str) -> tuple[tuple[str, WriterSchema], ...]:
        """Returns the schemas whose ids begin with `prefix`, by id without the prefix."""
        found = sorted(item for item in self.schemas.items() if item[0].startswith(prefix))
        return tuple((name.removeprefix(prefix), schema) for name, schema in found)
