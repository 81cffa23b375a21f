"""The CDC envelope of a table's records, as the pipeline file declares it: small and comparable, for tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.types import BooleanType, IcebergType, ListType, LongType, StringType, TimestamptzType

PLACEHOLDER = "__debezium_unavailable_value"
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
"""Headers of Debezium for primary-key updates: the old key on the insert, the new key on the delete."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Envelope:
    """The envelope of records, and what is needed of their changes."""

    #: `debezium`, `maxwell`, `canal`, or `operation` where a field of the row names the operation; `none`: the record
    #: is a row, as record keys are.
    kind: str
    #: The field that names the operation.
    operation: str = ""
    #: Its values for an insert.
    insert: tuple[str, ...] = ()
    #: Its values for an update.
    update: tuple[str, ...] = ()
    #: Its values for a delete.
    delete: tuple[str, ...] = ()
    #: The placeholder for a value that was not sent.
    placeholder: str = PLACEHOLDER
    #: Paths of the key columns, where they are known.
    keys: tuple[Path, ...] = ()
    #: Whether every image of every change becomes a row (a changelog table).
    is_log: bool = False
    #: Whether a deleted row stays, marked as deleted (`deletes: soft`).
    marks_deletes: bool = False
    #: Whether rows replace those with the same key.
    is_upsert: bool = False

    @property
    def needs_keys(self) -> bool:
        """Whether a deleted row may be identified by its record's key alone, as with MongoDB documents."""
        return self.kind == "debezium" and (self.is_log or self.is_upsert)

    @property
    def needs_headers(self) -> bool:
        """Whether a primary-key update may be announced by a header."""
        return self.kind == "debezium" and self.is_upsert

    @property
    def names_keys(self) -> bool:
        """Whether each record names the columns that identify a row."""
        return self.kind == "canal"

    @property
    def has_many_rows(self) -> bool:
        """Whether a record may have several rows."""
        return self.kind == "canal"

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record without a value deletes the row of its key. It may be the only remaining record of a delete:
        Debezium's unwrap transform can drop the delete, and compaction removes it.
        """
        return self.kind in ("debezium", "operation") and self.is_upsert and not self.marks_deletes


NO_ENVELOPE = Envelope("none")
"""The envelope for the keys of wrapped changes: their fields are written as those of rows are."""

OWN_TYPES: Mapping[str, IcebergType] = {
    "op": StringType(),
    "image": StringType(),
    "source_ts": TimestamptzType(),
    "connector_ts": TimestamptzType(),
    "transaction_id": StringType(),
    "total_order": LongType(),
    "collection_order": LongType(),
    "source_order": StringType(),
    "position": StringType(),
    "source_database": StringType(),
    "source_schema": StringType(),
    "source_table": StringType(),
    "unavailable": ListType(0, StringType(), element_required=False),
    "deleted": BooleanType(),
    "deleted_at": TimestamptzType(),
}
"""Fields of `metadata` that an envelope provides, with the types of their columns."""
