"""Topics whose records have a name of their own each: user ids, dates and the like as keys of objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from frazil_verify.model import json_records
from frazil_verify.model.settings import Column, Settings
from tests.simulation.judge.formats import Topic
from tests.simulation.judge.json_chance import METADATA

SETTINGS: Mapping[str, Settings] = {
    "rescue": Settings({"id": Column("long")}, unknown_fields="rescue", metadata=METADATA),
    "freeze": Settings({"id": Column("long")}, schema_evolution="freeze", metadata=METADATA),
    "rescued freeze": Settings({"id": Column("long")}, schema_evolution="freeze", rescue=True, metadata=METADATA),
    "limit": Settings(limit_columns=4000, metadata=METADATA),
    "drop": Settings({"id": Column("long")}, unknown_fields="drop", metadata=METADATA),
    "struct": Settings(
        {"id": Column("long"), "users": Column("struct<a: long>")}, unknown_fields="rescue", metadata=METADATA
    ),
    "list": Settings(
        {"id": Column("long"), "users": Column("list<struct<a: long>>")}, unknown_fields="rescue", metadata=METADATA
    ),
    "map": Settings({"id": Column("long"), "users": Column("map<string,long>")}, metadata=METADATA),
}
"""Settings that have a place for so many names."""


@dataclass
class ManyNames:
    """The records of one of these topics."""

    kind: str
    made: int = 0

    def record(self) -> tuple[bytes | None, bytes | None]:
        """Returns the next one."""
        number = self.made
        self.made += 1
        own = {f"user_{number}": number}
        inside: dict[str, dict[str, object]] = {
            "struct": {"users": own},
            "list": {"users": [{"a": 1}, own]},
            "map": {"users": own},
        }
        return None, json.dumps({"id": number, **inside.get(self.kind, dict(own))}).encode()


def many_names(kind: str) -> Topic:
    """Returns a topic with these settings."""
    settings, records = SETTINGS[kind], ManyNames(kind)
    return Topic(
        settings, {}, records.record, lambda table, fed: {"": json_records.outcome_of(settings, table, fed.value)}
    )
