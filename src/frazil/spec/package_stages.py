"""Keys of a table that installed packages add: each holds the settings of a stage, which a model of the package checks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from frazil.errors import SpecError
from frazil.plugins.stages import STAGES
from frazil.spec.syntax.document import Items, Node, Section
from frazil.spec.syntax.reading import Reading


def take_stages(table: Section, reading: Reading) -> None:
    """Takes the keys of installed stages out of a table, in the order of the file, and hides their settings in it."""
    stages = [(name, _read(name, table.pop(name), reading)) for name in list(table) if name in STAGES.added()]
    table.hide("stages", tuple((name, settings) for name, settings in stages if settings is not None))


def _read(name: str, node: Node, reading: Reading) -> BaseModel | None:
    try:
        return STAGES.get(name).settings.model_validate(_plain(node) or {})
    except SpecError as error:
        reading.problems.add(node.line, error.message, error.remedy)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            message = f"`{'.'.join((name, *map(str, one['loc'])))}`: {one['msg']}"
            reading.problems.add(_line_at(node, one["loc"]), message, f"write it as the stage `{name}` needs it")
    return None


def _plain(node: Node) -> Any:
    if isinstance(node, Section):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, Items):
        return [_plain(item) for item in node]
    return None if node.kind == "nothing" else node.text


def _line_at(node: Node, path: tuple[int | str, ...]) -> int:
    """Returns the line of the key at a path, or of the nearest that the file has above it."""
    line = node.line
    for part in path:
        if isinstance(node, Section) and part in node:
            line, node = node.lines[str(part)], node[str(part)]
        elif isinstance(node, Items) and isinstance(part, int):
            node = node[part]
            line = node.line
        else:
            break
    return line
