"""How the records of a history of upserts look: where their key is, what orders them, what wraps them, what deletes do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frazil.spec.settings import EnvelopeSpec, ValueSpec
from tests.simulation.faults import Fate
from tests.simulation.upsert_model import Change, Key, Place, Row

PLACES = ("_topic", "_partition", "_offset")
UNSENT = "__debezium_unavailable_value"
_NAMES = {"value": ("id",), "record": ("region", "code"), "text": ("_key",), "nested": ("o.id", "region")}
_KINDS = {
    "value": {"id": "long"},
    "record": {"region": "long", "code": "string"},
    "text": {},
    "nested": {"o": "struct<id: long, x: string>", "region": "string"},
}
_OPERATIONS = {"c": "I", "r": "I", "u": "U", "d": "D"}
_ROWS = EnvelopeSpec(kind="operation", operation="ops", insert=("I",), update=("U",), delete=("D",))


@dataclass(frozen=True)
class Form:
    """keys: `value`: the field `id` of the value; `record`: the fields of the key, two of them; `text`: the key as it is;
    `nested`: two fields of the value, one of them in a struct. has_marks: deleted rows stay. is_wrapped: records are
    Debezium's envelopes. tells_operation: they are rows with a field for it.
    """

    keys: str
    is_ordered: bool
    has_marks: bool
    is_wrapped: bool
    tells_operation: bool = False

    @property
    def tells_deletes(self) -> bool:
        """Whether records with a value can take rows away."""
        return self.is_wrapped or self.tells_operation

    @property
    def order_by(self) -> str | None:
        """The column that orders changes. A tombstone that is to be marked has none but Kafka's time."""
        if not self.is_ordered:
            return None
        return "_at" if self.has_marks and not self.is_wrapped else "at"

    @property
    def fills_rows(self) -> bool:
        """Whether rows get values of rows before them. Which of two rows of one key gives them nobody reports."""
        return self.has_marks or self.is_wrapped

    @property
    def marks_in_order(self) -> bool:
        """Whether a delete needs an ordering value."""
        return self.is_ordered and self.has_marks

    def key(self, number: int) -> Key:
        """The key of this number."""
        return {
            "value": (number,),
            "record": (number % 5, f"k{number}"),
            "text": (f"k{number}",),
            "nested": (number, f"r{number % 3}"),
        }[self.keys]

    def key_fields(self, number: int) -> dict[str, Any]:
        """Its columns."""
        fields: dict[str, Any] = {}
        for name, value in zip(_NAMES[self.keys], self.key(number), strict=True):
            struct, _, member = name.rpartition(".")
            fields[struct or name] = {member: value} if struct else value
        return fields

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called."""
        return _NAMES[self.keys]

    @property
    def kinds(self) -> Mapping[str, str]:
        """Their types, but for those that a table has of its own."""
        return _KINDS[self.keys]

    def values_of(self, row: Row) -> list[Any]:
        """The key of a table's row."""
        structs = [(row[struct], member) for struct, _, member in (name.partition(".") for name in _NAMES[self.keys])]
        return [value[member] if member else value for value, member in structs]

    def key_of(self, row: Row) -> str:
        """The same as text."""
        return json.dumps(self.values_of(row))

    def own_fields(self, number: int) -> dict[str, Any]:
        """Those that the value has."""
        fields = self.key_fields(number) if self.keys in ("value", "nested") or self.tells_deletes else {}
        return {**fields, "o": {**fields["o"], "x": f"of {number}"}} if "o" in fields else fields

    def record_key(self, number: int) -> bytes:
        """As it stands in the record."""
        if self.keys == "text":
            return f"k{number}".encode()
        is_bare = self.keys == "value" and not self.is_wrapped
        return json.dumps(number if is_bare else self.key_fields(number)).encode()

    def value(self, row: Row, op: str, at_ms: int) -> bytes:
        """Of a record that writes the row, or, with the operation `d`, takes it away."""
        if self.tells_operation:
            return json.dumps({**row, "ops": _OPERATIONS.get(op, op)}).encode()
        if not self.is_wrapped:
            return json.dumps(row).encode()
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return json.dumps({"op": op, **images, "source": {"ts_ms": at_ms}}).encode()

    def truncation(self, at_ms: int) -> bytes:
        """Of a record that takes all rows away."""
        return json.dumps({"op": "t", "before": None, "after": None, "source": {"ts_ms": at_ms}}).encode()

    def written(self, place: Place, number: int, row: Row, at_ms: int) -> Change:
        """What a record that writes the row asks for."""
        unsent = frozenset(name for name, value in row.items() if value == UNSENT)
        marks = {"_deleted": False} if self.has_marks else {}
        placed = {**self._placed(place, number, at_ms), **row, **marks}
        return Change("upsert", place, self.key(number), placed, self._order(row, at_ms), unsent)

    def deleted(self, place: Place, number: int, at_ms: int, at: int | None = None) -> Change:
        """What a record that takes a row away asks for. at: its ordering value."""
        key, order = self.key(number), self._order({"at": at}, at_ms)
        if not self.has_marks:
            return Change("delete", place, key, order=order if self.tells_deletes else None)
        marks: dict[str, Any] = {"_deleted": True, "_deleted_at": _time(at_ms)}
        if self.order_by == "at":
            marks["at"] = at
        return Change("upsert", place, key, {**self._placed(place, number, at_ms), **marks}, order, is_mark=True)

    def tombstone(self, place: Place, number: int, at_ms: int) -> tuple[Change, ...]:
        """What a record without a value asks for: nothing, where envelopes tell of deletes that are marked."""
        return () if self.is_wrapped and self.has_marks else (self.deleted(place, number, at_ms),)

    def settings(self) -> Mapping[str, Any]:
        """Of the table."""
        metadata = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
        if self.keys == "text":
            metadata["key"] = "_key"
        if self.has_marks:
            metadata |= {"deleted": "_deleted", "deleted_at": "_deleted_at"}
        if self.order_by == "_at":
            metadata["timestamp"] = "_at"
        return {
            "metadata": metadata,
            "key": ValueSpec(format="text" if self.keys == "text" else "json"),
            "key_columns": _NAMES[self.keys] if self.keys in ("value", "nested") else (),
            "order_by": self.order_by,
            "deletes": "soft" if self.has_marks else "hard",
            "envelope": _ROWS if self.tells_operation else EnvelopeSpec(kind="debezium") if self.is_wrapped else None,
        }

    def _placed(self, place: Place, number: int, at_ms: int) -> dict[str, Any]:
        times = {"_at": _time(at_ms)} if self.order_by == "_at" else {}
        return {**dict(zip(PLACES, place, strict=True)), **self.key_fields(number), **times}

    def _order(self, row: Row, at_ms: int) -> Any:
        """Rows have it though nothing is ordered by it yet."""
        return at_ms if self.order_by == "_at" else row["at"]


def draw_form(fate: Fate) -> Form:
    """One of them."""
    is_wrapped = fate.maybe(0.4)
    kinds = ("record", "nested", "value") if is_wrapped else ("value", "record", "text", "nested")
    keys = kinds[fate.pick(0, len(kinds) - 1)]
    return Form(keys, is_ordered=fate.maybe(0.5), has_marks=fate.maybe(0.3), is_wrapped=is_wrapped)


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
