"""What a record of JSON becomes."""

from __future__ import annotations

from collections.abc import Collection

from frazil_verify.model.faults import Unreadable
from frazil_verify.model.json_nodes import JsonNode
from frazil_verify.model.json_text import read_object
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Settings, Table

HEADER = 5
"""Bytes of Confluent's wire format."""


def framed_outcome_of(settings: Settings, table: Table, value: bytes | None, ids: Collection[int]) -> Outcome:
    """Returns what becomes of a value behind the id of a JSON Schema. ids: those that the registry has."""
    try:
        if value is None:
            raise Unreadable("tombstone")
        if len(value) < HEADER or value[0] != 0:
            raise Unreadable("no_wire_format", "malformed")
        if int.from_bytes(value[1:HEADER]) not in ids:
            raise Unreadable("unknown_schema_id")
    except Unreadable as fault:
        return Outcome.dead(fault, "*")
    result = outcome_of(settings, table, value[HEADER:])
    result.inferred.clear()  # Its schema has the types.
    return result


def outcome_of(settings: Settings, table: Table, value: bytes | None) -> Outcome:
    """Returns what becomes of a record's value."""
    try:
        root = read_object(value)
    except Unreadable as fault:
        return Outcome.dead(fault)
    return Walk(settings, table).run(JsonNode(root))
