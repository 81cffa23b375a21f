"""Canal's messages, made and read one by one in plain Python: what the columnar reader must agree with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from frazil.decode.settings import Envelope
from frazil.stages.changes import DELETE, UPSERT

Row = Mapping[str, str | None]
TYPES = {
    "id": "int(11)",
    "name": "varchar(20)",
    "price": "decimal(10,2)",
    "at": "datetime(6)",
    "raw": "blob",
    "big": "bigint(20) unsigned",
}
COLUMNS = {
    "id": "int",
    "name": "string",
    "price": "decimal(10,2)",
    "at": "timestamp",
    "raw": "binary",
    "big": "decimal(20,0)",
}


@dataclass(frozen=True)
class Message:
    """What one message tells. old: of each row what an update changed; None: it does not say. more: other members."""

    kind: str
    data: Sequence[Row] | None
    old: Sequence[Row | None] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def value(self) -> bytes:
        """The record's value."""
        reported: dict[str, Any] = {
            "data": self.data,
            "database": "d",
            "es": 1_600_000_000_123,
            "id": 3,
            "isDdl": False,
            "mysqlType": None if self.data is None else TYPES,
            "old": self.old,
            "pkNames": None if self.data is None else ["id"],
            "sql": "",
            "sqlType": None if self.data is None else dict.fromkeys(TYPES, 4),
            "table": "t",
            "ts": 1_600_000_000_456,
            "type": self.kind,
        }
        return json.dumps({**reported, **self.more}, ensure_ascii=False, separators=(",", ":")).encode()


_READ = {
    "int": int,
    "string": str,
    "decimal(10,2)": Decimal,
    "timestamp": datetime.fromisoformat,
    "binary": lambda text: text.encode("latin-1"),
    "decimal(20,0)": Decimal,
}


def typed(row: Row) -> dict[str, Any]:
    """The row that its texts stand for."""
    return {
        name: None if row.get(name) is None else _READ[kind](row[name])  # type: ignore[operator]
        for name, kind in COLUMNS.items()
    }


def expected_changes(messages: Sequence[Message], envelope: Envelope) -> list[tuple[int, int, dict[str, Any]]]:
    """By the words of docs/reference/envelopes.md: record, operation and row, of a delete its key alone."""
    return [
        (n, op, typed(row if op == UPSERT else {"id": row["id"]}))
        for n, message in enumerate(messages)
        for place in range(len(message.data or ()))
        for op, row in _changes_of(message, place, envelope)
    ]


def _changes_of(message: Message, place: int, envelope: Envelope) -> list[tuple[int, Row]]:
    assert message.data is not None
    row, old = message.data[place], message.old[place] if message.old is not None else None
    before = {**row, **old} if old is not None else None
    if message.kind == "INSERT":
        return [(UPSERT, row)]
    if message.kind == "DELETE":
        return [(UPSERT, row)] if envelope.is_log else [(DELETE, row)] if envelope.is_upsert else []
    if envelope.is_log:
        return [(UPSERT, before), (UPSERT, row)] if before is not None else [(UPSERT, row)]
    if envelope.is_upsert and before is not None and before["id"] != row["id"]:
        return [(DELETE, before), (UPSERT, row)]
    return [(UPSERT, row)]
