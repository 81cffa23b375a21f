"""The columns of a table, read from Iceberg's JSON. Iceberg's Java has types that Frazil cannot write, some of which
PyIceberg cannot even name: a table that has one is refused when it is loaded, before anything is asked of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyiceberg.schema import Schema

from frazil.errors import SpecError
from frazil.spec.types import parse_type


def read_schema(text: str, table: str) -> Schema:
    """The schema. SpecError that names the first column whose type cannot be written."""
    for path, kind in _primitives(json.loads(text), ()):
        if not _is_writable(kind):
            raise SpecError(
                f"the column {'.'.join(path)} has the type {kind}, which this version cannot write",
                remedy="drop the column, or name another table in the pipeline file",
                where=table,
            )
    return Schema.model_validate_json(text)


def _primitives(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every type that has no others inside, with where it is."""
    if isinstance(kind, str):
        yield path, kind
        return
    for field in kind.get("fields", ()):
        yield from _primitives(field["type"], (*path, field["name"]))
    for part in ("element", "key", "value"):
        if part in kind:
            yield from _primitives(kind[part], (*path, part))


def _is_writable(kind: str) -> bool:
    try:
        parse_type(kind)
    except SpecError:
        return False
    return True
