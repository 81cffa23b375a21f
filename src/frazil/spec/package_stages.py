"""Keys of a table that installed packages add: each holds the settings of a stage, which a model of the package checks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from frazil.plugins.stages import STAGES
from frazil.spec.syntax.document import Items, Node, Section
from frazil.spec.syntax.keys import Fields, Form, Key


def stage_keys() -> dict[str, Key]:
    """The keys of the stages that are installed here."""
    return {name: Key(Form({}), name=name, description="A stage of an installed package.") for name in STAGES.added()}


def read_stages(fields: Fields) -> tuple[tuple[str, BaseModel], ...]:
    """The stages that a table names with their settings, in the order of the file."""
    named = [entry for entry in map(fields.get, STAGES.added()) if entry is not None]
    found = ((one.key, _read(fields, one.key)) for one in sorted(named, key=lambda entry: entry.line))
    return tuple((name, settings) for name, settings in found if settings is not None)


def _read(fields: Fields, name: str) -> BaseModel | None:
    node = fields.node(name)
    kind = fields.problems.attempt(node.line, None, STAGES.get, name)
    if kind is None:
        return None
    try:
        return kind.settings.model_validate(_plain(node) or {})
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            key, line = fields.path(".".join((name, *map(str, one["loc"])))), _line_at(node, one["loc"])
            fields.problems.add(
                line, f"`{key}`: {one['msg']}", f"write it as the stage `{name}` of its package needs it"
            )
        return None


def _plain(node: Node) -> Any:
    if isinstance(node, Section):
        return {entry.key: _plain(entry.value) for entry in node.entries}
    if isinstance(node, Items):
        return [_plain(item) for item in node.items]
    return None if node.kind == "nothing" else node.text


def _line_at(node: Node, path: tuple[int | str, ...]) -> int:
    """The line of what is at a path, or of the nearest that the file has above it."""
    for part in path:
        inner: Node | None = None
        if isinstance(node, Section):
            inner = next((entry.value for entry in node.entries if entry.key == part), None)
        elif isinstance(node, Items) and isinstance(part, int):
            inner = node.items[part]
        if inner is None:
            break
        node = inner
    return node.line
