"""What a record of JSON becomes."""

from __future__ import annotations

from tests.simulation.judge.model.faults import Unreadable
from tests.simulation.judge.model.json_nodes import JsonNode
from tests.simulation.judge.model.json_text import read_object
from tests.simulation.judge.model.rows import Outcome, Walk
from tests.simulation.judge.model.settings import Settings, Table


def outcome_of(settings: Settings, table: Table, value: bytes | None) -> Outcome:
    """Returns what becomes of a record's value."""
    try:
        root = read_object(value)
    except Unreadable as fault:
        return Outcome.dead(fault)
    return Walk(settings, table).run(JsonNode(root))
