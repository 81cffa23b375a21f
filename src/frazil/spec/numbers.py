"""What a table makes of numbers and times in JSON without a schema: its settings `numbers` and `infer`."""

from __future__ import annotations

from pyiceberg.types import DecimalType, DoubleType, IcebergType

from frazil.errors import SpecError
from frazil.spec.keys import keys_of
from frazil.spec.models import TableSpec
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields
from frazil.spec.types import parse_type

AS_SEEN = "as_seen"
_REMEDY = "write as_seen, double, or a decimal such as decimal(18,4)"


def read_numbers(fields: Fields, value_format: str, problems: Problems) -> IcebergType | None:
    """The type of all numbers; None where each field gets the one that its values need."""
    entry, text = fields.get("numbers"), fields.text("numbers")
    if entry is None or text is None:
        return None
    if value_format != "json":
        message = f"`numbers` is for JSON without a schema, and the values are {value_format}"
        problems.add(entry.line, message, "remove it, or declare `columns`")
        return None
    return problems.attempt(entry.value.line, None, parse_numbers, text)


def parse_numbers(text: str) -> IcebergType | None:
    """The type that `text` names; None for `as_seen`."""
    if text.strip() == AS_SEEN:
        return None
    word = text.split("(")[0].strip()
    kind = parse_type(text) if word in ("double", "decimal") else None
    if not isinstance(kind, DoubleType | DecimalType):
        raise SpecError(f"`numbers` cannot be `{text}`", remedy=_REMEDY)
    return kind


def read_infers_timestamps(fields: Fields, value_format: str, problems: Problems) -> bool:
    """Whether text that is always an ISO 8601 time gets a column of time."""
    entry = fields.get("infer")
    if entry is None:
        return False
    if value_format != "json":
        message = f"`infer` is for JSON without a schema, and the values are {value_format}"
        problems.add(entry.line, message, "remove it, or declare `columns`")
    return bool(Fields(entry.value, keys_of(TableSpec, "infer"), "infer", problems).choice("timestamps"))
