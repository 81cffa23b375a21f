"""The origin of a change in its source: database, schema and table, as each kind of envelope names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

ORIGINS: Mapping[str, tuple[str, ...]] = {
    "source_database": ("db", "keyspace_name", "keyspace"),
    "source_schema": ("schema",),
    "source_table": ("table", "collection", "table_name"),
}
"""The members of a Debezium envelope's `source`, by field of `metadata`; each envelope has one of them: MongoDB has
collections.
"""
IN_SOURCE = tuple(name for names in ORIGINS.values() for name in names)
FLAT_ORIGINS: Mapping[str, tuple[str, ...]] = {
    fact: tuple(f"{prefix}{name}" for prefix in ("__source_", "__") for name in names)
    for fact, names in ORIGINS.items()
}
"""The names that Debezium's unwrap transform gives them in a row (`add.fields`), the longer name first."""
IN_MESSAGES: Mapping[str, str] = {"source_database": "database", "source_table": "table"}
"""The members of Maxwell's and Canal's messages."""


def origins_of(requested: Collection[str], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the requested origins of changes. text_of: returns the texts of a member of `source`; None where no record
    has it.
    """
    return _first_of({fact: names for fact, names in ORIGINS.items() if fact in requested}, text_of)


def flat_origins_of(requested: Collection[str], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the requested origins of rows that were unwrapped. text_of: returns the texts of a field of the row."""
    return _first_of({fact: names for fact, names in FLAT_ORIGINS.items() if fact in requested}, text_of)


def _first_of(named: Mapping[str, tuple[str, ...]], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the first text that is present, for each origin. Protobuf has the empty text for an absent one."""
    found = {}
    for fact, names in named.items():
        first_text = [
            array for name in names if (array := text_of(name)) is not None and pa.types.is_string(array.type)
        ]
        if first_text:
            found[fact] = pc.coalesce(*(pc.if_else(pc.equal(one, ""), None, one) for one in first_text))
    return found
