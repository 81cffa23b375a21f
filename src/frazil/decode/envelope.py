"""How a table's records wrap a change of their source: what the pipeline file says of it, as tasks need it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.types import BooleanType, IcebergType, ListType, LongType, StringType, TimestamptzType

PLACEHOLDER = "__debezium_unavailable_value"
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
"""Headers of an insert whose row had another key before, and of a delete whose row has another key from now on."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Envelope:
    """What a record of the source looks like, and what is asked of its changes.

    kind: `debezium`, `maxwell`, `canal`, or `operation` where a field of the row itself names the operation; `none`: the
    record is a row, as the record's key is one of the key's fields. operation: that
    field; insert, update, delete: its values. placeholder: what stands for a value that was not sent. keys: paths of the
    key columns, where they are known. is_log: every image of every change becomes a row. marks_deletes: a deleted row
    stays and is marked. is_upsert: rows take the place of those with their key.
    """

    kind: str
    operation: str = ""
    insert: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    placeholder: str = PLACEHOLDER
    keys: tuple[Path, ...] = ()
    is_log: bool = False
    marks_deletes: bool = False
    is_upsert: bool = False

    @property
    def needs_keys(self) -> bool:
        """Whether a deleted row may be told by its record's key alone, as MongoDB's documents are."""
        return self.kind == "debezium" and (self.is_log or self.is_upsert)

    @property
    def needs_headers(self) -> bool:
        """Whether a row that moved to a new key may be told by a header."""
        return self.kind == "debezium" and self.is_upsert

    @property
    def names_keys(self) -> bool:
        """Whether each record says itself which columns identify a row."""
        return self.kind == "canal"

    @property
    def has_many_rows(self) -> bool:
        """Whether a record may tell of several rows."""
        return self.kind == "canal"

    @property
    def takes_tombstones(self) -> bool:
        """Whether a record without a value deletes the row of its key. It may be all that is left of a delete: Debezium's
        unwrap transform can leave the delete out, and compaction takes it away.
        """
        return self.kind in ("debezium", "operation") and self.is_upsert and not self.marks_deletes


NO_ENVELOPE = Envelope("none")
"""How the keys of wrapped changes are read: their fields are written as those of rows are."""

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
"""Fields of `metadata` that an envelope gives, with the types of their columns."""
