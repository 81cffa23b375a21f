"""Reports as people and programs read them: problems, durations, sizes and numbers as words, and dataclasses as JSON.

Each dataclass is written as it is, read without the values that are wrong in it, and described as a schema. The key of a
field is its name, or its alias where it is declared with `Field(alias=…)`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from frazil.printable import plural
from frazil.types import OffsetRange

NOTHING = "–"
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Problem:
    """A problem of the pipeline or of a table."""

    message: str
    remedy: str = ""
    where: str = ""


def problem_document(problem: Problem | None) -> dict[str, str]:
    """Returns the JSON of a table's problem; empty texts without one."""
    problem = problem or Problem("")
    return {"reason": problem.message, "remedy": problem.remedy, "where": problem.where}


def behind(lag_records: int | None) -> str:
    """Returns how far a table is behind, for a sentence: `3 records behind`."""
    return "its lag is not known" if lag_records is None else f"{plural(lag_records, 'record')} behind"


OPEN_TRANSACTION_REMEDY = (
    "wait until its producer commits or aborts it, or Kafka does after `transaction.timeout.ms`; if it stays, find and"
    " end it with `kafka-transactions.sh find-hanging` and `abort`"
)


def held_back(open_transactions: Sequence[OffsetRange]) -> Problem | None:
    """Returns what keeps records from being read though they are in Kafka; None where nothing does."""
    if not open_transactions:
        return None
    first, *others = open_transactions
    records = sum(offsets.span for offsets in open_transactions)
    verb = "waits" if records == 1 else "wait"
    reason = f"{plural(records, 'record')} {verb} behind an open transaction since offset {first.start}"
    if others:
        reason += f", and behind others in {plural(len(others), 'more partition')}"
    return Problem(reason, OPEN_TRANSACTION_REMEDY, f"topic {first.topic}, partition {first.partition}")


def duration(seconds: float | None) -> str:
    """Returns a duration in the largest unit in which it is at least one: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    if seconds is None:
        return NOTHING
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.95 or seconds == 0 else f"{seconds:.1f} s"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Returns how long ago a time was: `3 s ago`; `now` within a second, also for a clock slightly ahead of ours."""
    if then_ms is None:
        return NOTHING
    seconds = (now_ms - then_ms) // 1000
    if seconds < 1:
        return "now"
    return f"{seconds} s ago" if seconds < 60 else f"{duration(seconds)} ago"


def size(bytes_: float | None) -> str:
    """Returns a size: `512 B`, `1.4 MiB`, `23 GiB`."""
    if bytes_ is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if bytes_ < 1024 or unit == "TiB":
            break
        bytes_ /= 1024
    return f"{bytes_:.1f} {unit}" if unit != "B" and bytes_ < 9.95 else f"{bytes_:.0f} {unit}"


def count(number: float | None) -> str:
    """Returns a number with separators: `1,234`."""
    return NOTHING if number is None else f"{number:,.0f}"


_Record = TypeVar("_Record")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
_UNSTATED = frozenset(("title", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_json(record: Any, *left_out: str) -> dict[str, Any]:
    """Returns the JSON object of a dataclass without the fields `left_out`."""
    document: dict[str, Any] = _adapter(type(record)).dump_python(
        record, mode="json", by_alias=True, exclude=set(left_out)
    )
    return document


def read_record(kind: type[_Record], document: Any) -> _Record | None:
    """Returns the dataclass of a JSON document; None for a document that is not an object.

    The document may have been written by another version, or edited by hand: a value of another type is removed from it, and
    so is an object that lacks a key without a default. What is removed has its default in the record.
    """
    while True:
        try:
            record: _Record = _adapter(kind).validate_json(json.dumps(document), strict=True)
            return record
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        places = {problem["loc"][: -1 if problem["type"] == "missing" else None] for problem in problems}
        if () in places:
            return None
        for *outer, key in sorted(places, reverse=True):
            del reduce(getitem, outer, document)[key]


def schema_of(*kinds: type) -> dict[str, Any]:
    """Returns the JSON Schema of an object with the keys of all these dataclasses, without references: every key is there,
    and no other.
    """
    properties: dict[str, Any] = {}
    for kind in kinds:
        schema = _adapter(kind).json_schema()
        properties |= _expanded(schema["properties"], schema.get("$defs", {}))
    return object_schema(properties)


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of an object that has all these keys and no other."""
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(properties)}


def _expanded(schema: Any, definitions: dict[str, Any]) -> Any:
    """Returns a schema with its definitions in place of references to them, and without limits of numbers."""
    if isinstance(schema, list):
        return [_expanded(member, definitions) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _expanded(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if isinstance(schema.get("properties"), dict):
        return object_schema(_expanded(schema["properties"], definitions))
    return {name: _expanded(member, definitions) for name, member in schema.items() if name not in _UNSTATED}
