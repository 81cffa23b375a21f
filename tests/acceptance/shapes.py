"""What tables with settings of their own make of the rows that `writers` expects: nested records as columns, and a table
that takes no change, into whose `_rescued` goes all that has no place in it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.acceptance.writers import Row

RESCUED = "_rescued"
FIRST_COLUMNS = {
    "id": "long",
    "a": "int",
    "b": "float",
    "d": "decimal(9,2)",
    "o": "string",
    "s": "string",
    "c": "string",
    "loc": "struct<x: int>",
    "tags": "list<int>",
}
"""Columns that hold what the first versions of the Avro schema write, and no more."""
_INT_END = 2**31
_DECIMAL_END = Decimal(10**7)


def flat(row: Row) -> Row:
    """With `flatten: true`: each member of a nested record is a column. Lists and maps stay."""
    inside = {f"loc_{name}": value for name, value in row.get("loc", {}).items()}
    return {**{name: value for name, value in row.items() if name != "loc"}, **inside}


def stored(row: Row) -> Row:
    """In a table of FIRST_COLUMNS that is frozen and rescues: what does not fit is null and stands in `_rescued` by its
    path, with the reason, as does what has no column.
    """
    aside = _Aside()
    kept: Row = {name: row.get(name) for name in FIRST_COLUMNS}
    kept["a"] = aside.int_of("a", row["a"])
    kept["b"] = aside.keep("b", row["b"], _is_float(row["b"]), "double", "float")
    kept["d"] = aside.keep("d", row["d"], row["d"] < _DECIMAL_END, "decimal(12, 2)", "decimal(9, 2)")
    if "loc" in row:
        kept["loc"] = {"x": aside.int_of("loc.x", row["loc"]["x"])}
        aside.unknown_fields("loc.y", row["loc"]["y"])
    if "tags" in row:
        kept["tags"] = [aside.int_of("tags.element", one) for one in row["tags"]]
    for name in row.keys() - kept.keys():
        aside.unknown_fields(name, row[name])
    return {**kept, RESCUED: aside.members or None}


@dataclass
class _Aside:
    """The members of `_rescued`, by path."""

    members: Row = field(default_factory=dict)

    def int_of(self, path: str, value: int) -> int | None:
        """The value as an int, if it is one."""
        kept: int | None = self.keep(path, value, value < _INT_END, "long", "int")
        return kept

    def keep(self, path: str, value: Any, fits: bool, written: str, column: str) -> Any:
        """The value, or None once it is stored. written, column: the types."""
        if fits:
            return value
        reported = _plain(value)
        fault = "does not fit" if column == "float" else "is out of the range of"
        self.members[path] = {"value": reported, "reason": f"{json.dumps(reported)} ({written}) {fault} {column}"}
        return None

    def unknown_fields(self, path: str, value: Any) -> None:
        """A value that has no column, if there is one."""
        if value is not None:
            self.members[path] = {"value": _plain(value), "reason": "unknown_field"}


def _is_float(value: float) -> bool:
    """Whether four bytes are enough for it."""
    (again,) = struct.unpack("f", struct.pack("f", value))
    return bool(again == value)


def _plain(value: Any) -> Any:
    """As the JSON of `_rescued` reports it."""
    if isinstance(value, dict):
        return [[key, _plain(member)] for key, member in value.items()]
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return value.isoformat() if isinstance(value, datetime) else value
