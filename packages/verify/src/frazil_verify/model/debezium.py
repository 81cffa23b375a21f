"""Debezium's change events (docs/reference/envelopes.md): which images of a row a record brings, and to which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil_verify.model import avro
from frazil_verify.model.connect import ConnectNode, payload_of
from frazil_verify.model.faults import Fault, Unreadable
from frazil_verify.model.json_nodes import JsonNode
from frazil_verify.model.json_text import Json, read_object
from frazil_verify.model.rows import Node, Outcome, Walk
from frazil_verify.model.settings import Settings, Table

_INSERTS, _FIELDS = ("c", "r", "u"), ("before", "after", "op", "source")


@dataclass(frozen=True)
class Envelope:
    """How a table reads change events. kind: append, changelog or upsert. schemas: texts of Avro by id. keys: the columns
    that identify a row, of a table whose rows are replaced.
    """

    kind: str
    is_avro: bool
    schemas: Mapping[int, str]
    keys: Sequence[str] = ("id",)

    def images(self, settings: Settings, table: Table, value: bytes | None) -> Mapping[str, Outcome]:
        """Returns what becomes of a record, by the image of the row: none where it changes nothing."""
        if value is None or (not self.is_avro and value.strip() == b"null"):
            return {}
        try:
            return self._of(settings, table, self._fields(value))
        except Fault as fault:
            return {"": Outcome.dead(fault, "*")}

    def _fields(self, value: bytes) -> Mapping[str, Node]:
        if self.is_avro:
            return dict(avro.read_value(value, self.schemas).members() or ())
        message = read_object(value)
        if len(set(message.keys)) < len(message.keys):
            raise Unreadable("duplicate_key")
        payload = payload_of(message)
        if payload is not None:
            return dict(payload.members() or ())
        return {name: JsonNode(member) for name, member in message.value}

    def _of(self, settings: Settings, table: Table, fields: Mapping[str, Node]) -> Mapping[str, Outcome]:
        if not any(name in fields for name in _FIELDS):
            raise Fault("not_an_envelope")
        op = text_of(fields.get("op"))
        after, before = (_present(fields.get(name)) for name in ("after", "before"))
        if op not in (*_INSERTS, "d", "t"):
            return {"": _bad("unknown_operation", settings, table, (before, after))}
        if op == "t" or (op == "d" and self.kind == "append"):
            return {}
        if (op in _INSERTS and after is None) or (op == "d" and before is None):
            raise Fault("missing_image")
        if self.kind == "changelog":
            return _both(settings, table, before if op in ("u", "d") else None, after if op != "d" else None)
        if op == "d" or after is None:
            return {"": Outcome()}
        result = Walk(settings, table, ("after",)).run(after)
        if self.kind == "upsert" and any(result.row.get(name) is None for name in self.keys):
            result.kinds |= {"missing_key", "no_key"}
            result.paths |= {"*"}
        return {"": result}


def _both(settings: Settings, table: Table, before: Node | None, after: Node | None) -> Mapping[str, Outcome]:
    """Returns what becomes of the rows of a change; each has what was rescued of all of it."""
    rows = {"before": before, "after": after}
    images = {name: Walk(settings, table, (name,)).run(row) for name, row in rows.items() if row is not None}
    every = [value for item in images.values() for value in item.rescued]
    for item in images.values():
        item.rescued = every
    return images


def _bad(kind: str, settings: Settings, table: Table, rows: Sequence[Node | None]) -> Outcome:
    """Returns a bad record, whose rows may be bad too."""
    result = Outcome.dead(Fault(kind), "*")
    for row in rows:
        if row is not None:
            result.kinds |= Walk(settings, table).run(row).kinds
    return result


def replaced(records: Sequence[Any], images: Mapping[Any, Mapping[str, Outcome]], key_of: Any) -> frozenset[Any]:
    """Returns the places of records whose rows are not in an upsert table any more: a later change of their key has come."""
    last: dict[Any, Any] = {}
    gone = set()
    for record in records:
        mine = images[record.place]
        if any(outcome.kinds for outcome in mine.values()):
            continue
        key, is_delete = key_of(record)
        if key in last:
            gone.add(last[key])
        last[key] = record.place
        if is_delete:
            gone.add(record.place)
    return frozenset(gone)


def text_of(node: Node | None) -> str | None:
    """Returns the text of a field; None where it has none."""
    if isinstance(node, JsonNode | ConnectNode):
        return node.json.value if node.json.kind == "string" else None
    return node.value if isinstance(node, avro.AvroNode) else None


def _present(node: Node | None) -> Node | None:
    return None if node is None or node.is_null else node


__all__ = ["Envelope", "Json", "replaced"]
