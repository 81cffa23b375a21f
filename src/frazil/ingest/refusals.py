"""Changes of a table that records ask for and that are refused: which schemas ask for each, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.types import list_names

_BY = re.compile(r"schema ([^:]+): (column .*)", re.DOTALL)
_REMEDIES: Mapping[str, str] = {
    "not added: `schema_evolution`": (
        "write `schema_evolution: add_only`, or add the column yourself; `unknown_fields: drop` leaves the field out"
    ),
    " is not widened to ": "write `schema_evolution: evolve`, or widen the column yourself",
    " does not fit ": (
        "correct the schema, or give the field another name; a new table with the column declared in a type for both can"
        " take the topic over"
    ),
    "would share the column": "leave one of them out with `exclude`, or give it a column of its own under `columns`",
    "not for fields of records": "leave it out with `exclude`, or give it a column of its own under `columns`",
    "metadata columns": "leave it out with `exclude`, or give it a column of its own under `columns`",
}
"""What to do, by words of the refusal."""


@dataclass(frozen=True)
class RefusedChange:
    """One change. schemas: the ids of those that ask for it; empty for records without a schema. remedy: what to do."""

    change: str
    schemas: tuple[str, ...]
    remedy: str


def refused_changes(refusals: Iterable[str]) -> list[RefusedChange]:
    """The changes that tasks have refused, each once, whichever schema asks for it."""
    schemas: dict[str, list[str]] = {}
    for refusal in list_names(refusals):
        found = _BY.fullmatch(refusal)
        asking = schemas.setdefault(found[2] if found else refusal, [])
        if found:
            asking.append(found[1])
    return [
        RefusedChange(change, tuple(sorted(ids, key=_in_order)), remedy_of(change)) for change, ids in schemas.items()
    ]


def remedy_of(change: str) -> str:
    """What to do about a refused change; empty where nothing is known."""
    return next((remedy for words, remedy in _REMEDIES.items() if words in change), "")


def _in_order(schema_id: str) -> tuple[int, str]:
    return (int(schema_id), "") if schema_id.isdecimal() else (0, schema_id)
