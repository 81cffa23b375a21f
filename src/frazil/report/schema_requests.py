"""Schema changes, key columns and registry schemas that a task's records need and the table or the task does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class SchemaRequests:
    """Requests that are fulfilled or refused before the rows can be committed."""

    #: Fields that the table lacks, as JSON of `schema.evolve.dump_requested_fields`.
    requested_fields: tuple[str, ...] = ()
    #: Paths of required columns for which records have no value, as JSON lists.
    made_optional: frozenset[str] = frozenset()
    #: The fields of the records' keys, for an upsert table whose key columns are not known yet.
    key_columns: tuple[str, ...] = ()
    #: Ids of schemas that the task did not have.
    missing: frozenset[str] = frozenset()
    #: Schema changes that the table's settings do not allow.
    refusals: frozenset[str] = frozenset()
    #: Paths of fields that were left out.
    dropped: frozenset[str] = frozenset()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the requests of all tasks of a batch."""
        return cls(
            requested_fields=tuple(dict.fromkeys(one for part in parts for one in part.requested_fields)),
            made_optional=frozenset[str]().union(*(part.made_optional for part in parts)),
            key_columns=next((part.key_columns for part in parts if part.key_columns), ()),
            missing=frozenset[str]().union(*(part.missing for part in parts)),
            refusals=frozenset[str]().union(*(part.refusals for part in parts)),
            dropped=frozenset[str]().union(*(part.dropped for part in parts)),
        )

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record from its JSON."""
        made_optional, missing, refusals, dropped = (
            frozenset(fields[name]) for name in ("made_optional", "missing", "refusals", "dropped")
        )
        requested_fields, key_columns = (tuple(fields[name]) for name in ("requested_fields", "key_columns"))
        return cls(requested_fields, made_optional, key_columns, missing, refusals, dropped)
