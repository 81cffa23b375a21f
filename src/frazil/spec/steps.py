"""The steps of a table before its rows are written: `rename`, `drop_fields`, `keep_fields`, `cast`, `add_fields`."""

from __future__ import annotations

from frazil.spec.document import Scalar, Section
from frazil.spec.forms import parse_path
from frazil.spec.keys import Fields, Path, describe, read_text
from frazil.spec.models import Constant
from frazil.spec.types import parse_type

_NUMBERS = {"integer": int, "number": float}


def read_rename(fields: Fields, key: str) -> tuple[tuple[Path, str], ...]:
    """Reads a mapping of paths to new names."""
    renamed = fields.strings(key, lambda *_: None)
    paths = {name: fields.problems.attempt(fields.node(key).line, None, parse_path, name) for name in renamed}
    return tuple((path, renamed[name]) for name, path in paths.items() if path)


def read_cast(fields: Fields, key: str) -> tuple[tuple[Path, object], ...]:
    """Reads a mapping of paths to types in Iceberg's words."""
    found = []
    for name, text in fields.strings(key, lambda *_: None).items():
        line = fields.node(key).line
        path = fields.problems.attempt(line, None, parse_path, name)
        parsed = fields.problems.attempt(line, None, parse_type, text)
        if path and parsed:
            found.append((path, parsed))
    return tuple(found)


def read_added(fields: Fields, key: str) -> tuple[tuple[str, Constant], ...]:
    """Reads a mapping of new columns to constants, or to pieces of metadata by their names."""
    node = fields.node(key)
    if not isinstance(node, Section):
        message = f"`{key}` is {describe(node)} where a mapping is expected"
        fields.problems.add(node.line, message, "write `add_fields: {name: value}`")
        return ()
    found: list[tuple[str, Constant]] = []
    for entry in node.entries:
        value = entry.value
        if isinstance(value, Scalar) and value.kind in _NUMBERS:
            found.append((entry.key, _NUMBERS[value.kind](value.text)))
        elif isinstance(value, Scalar) and value.text.lower() in ("true", "false") and value.kind == "boolean":
            found.append((entry.key, value.text.lower() == "true"))
        else:
            text = read_text(value, f"{key}.{entry.key}", fields.problems)
            found += [(entry.key, text)] if text else []
    return tuple(found)
