"""Values of rows: as JSON, and compared with what a case expects. Numbers and times are compared by value."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from pyiceberg.types import IcebergType, ListType, MapType, StructType, UUIDType

from frazil.decode.values_as_json import as_json
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import is_true
from frazil_testing.encoding import is_null, json_text, moment_of, number_text


def document_of(value: Any, kind: IcebergType | None) -> Any:
    """Returns a value of a row as JSON has it: bytes in base64, UUIDs as they are written, maps as objects. A member of a
    struct that its file lacks, as one from before the member was added, is null.
    """
    if value is None:
        return None
    if isinstance(kind, UUIDType):
        return str(value if isinstance(value, UUID) else UUID(bytes=value))
    if isinstance(kind, StructType):
        return {field.name: document_of(value.get(field.name), field.field_type) for field in kind.fields}
    if isinstance(kind, ListType):
        return [document_of(element, kind.element_type) for element in value]
    if isinstance(kind, MapType):
        entries = value.items() if isinstance(value, Mapping) else value
        return {_key_text(key, kind.key_type): document_of(held, kind.value_type) for key, held in entries}
    return json.loads(as_json(value))


def _key_text(key: Any, kind: IcebergType) -> str:
    document = document_of(key, kind)
    return document if isinstance(document, str) else json.dumps(document)


def shown(document: Any) -> str:
    """Returns a value of a document for people."""
    return json.dumps(document, ensure_ascii=False)


def equals(node: Node, value: Any, kind: IcebergType | None) -> bool:
    """Whether a value of a row is the expected one. Of a struct only the named fields are compared.

    kind: of the column; None for bytes of a dead letter and other values without a type.
    """
    if value is None or is_null(node):
        return value is None and is_null(node)
    if isinstance(kind, StructType):
        return isinstance(node, Section) and not [*differing_fields(node, value, kind)]
    if isinstance(kind, ListType):
        return (
            isinstance(node, Items)
            and len(node) == len(value)
            and all(equals(item, element, kind.element_type) for item, element in zip(node, value, strict=True))
        )
    if isinstance(kind, MapType):
        entries = value.items() if isinstance(value, Mapping) else value
        held = {_key_text(key, kind.key_type): member for key, member in entries}
        return (
            isinstance(node, Section)
            and node.keys() == held.keys()
            and all(equals(node[key], held[key], kind.value_type) for key in node)
        )
    if isinstance(node, Section | Items):
        return isinstance(value, str) and _is_same_json(node, value)
    try:
        return _is_same(node, value, kind)
    except (ValueError, InvalidOperation, OverflowError):
        return False


def differing_fields(node: Section, value: Mapping[str, Any], kind: StructType) -> Iterator[str]:
    """Yields the names of the expected fields whose values differ."""
    kinds = {field.name: field.field_type for field in kind.fields}
    for name, expected in node.items():
        if name not in kinds or not equals(expected, value.get(name), kinds[name]):
            yield name


def _is_same_json(node: Node, text: str) -> bool:
    """Whether a column of text has the JSON of a structured value."""
    try:
        return bool(json.loads(text) == json.loads(json_text(node)))
    except ValueError:
        return False


def _is_same(node: Scalar, value: Any, kind: IcebergType | None) -> bool:
    if isinstance(value, bytes | UUID) and isinstance(kind, UUIDType):
        return UUID(node.text) == (value if isinstance(value, UUID) else UUID(bytes=value))
    return next((compare(node, value) for type_, compare in _COMPARED if isinstance(value, type_)), False)


def _is_same_float(node: Scalar, value: float) -> bool:
    expected = float(number_text(node))
    return expected == value or (math.isnan(expected) and math.isnan(value))


def _is_same_moment(text: str, value: datetime) -> bool:
    if value.tzinfo is None:
        return datetime.fromisoformat(text).replace(tzinfo=None) == value
    return moment_of(text) == value.astimezone(UTC)


_COMPARED: tuple[tuple[type[Any], Callable[[Scalar, Any], bool]], ...] = (
    (bool, lambda node, value: node.kind == "boolean" and is_true(node) == value),
    (int, lambda node, value: node.kind != "boolean" and Decimal(node.text) == value),
    (Decimal, lambda node, value: Decimal(node.text) == value),
    (float, _is_same_float),
    (str, lambda node, value: node.text == value),
    (datetime, lambda node, value: _is_same_moment(node.text, value)),
    (date, lambda node, value: date.fromisoformat(node.text) == value),
    (time, lambda node, value: time.fromisoformat(node.text) == value),
    (bytes, lambda node, value: node.text in (base64.b64encode(value).decode(), value.decode("utf-8", "replace"))),
)
"""How a value is compared, by its Python type; the first that it has counts."""
