"""Keys of a table that installed packages add: each holds the settings of a stage, which a model of the package checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from frazil.errors import SpecError
from frazil.plugins.extras import names_of_extras
from frazil.plugins.stages import STAGES
from frazil.spec.syntax.document import Items, Node, Section
from frazil.spec.syntax.keys import Form, Key
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes, advice


def stage_keys() -> dict[str, Key]:
    """The keys of the stages that are installed here."""
    return {
        name: Key(name=name, field="stages", form=Form({}), description="A stage of an installed package.")
        for name in STAGES.added()
    }


def hide_stages(table: Section) -> None:
    """Puts the keys of stages in a table's section together, for its field `stages`; also those of extras that are not
    installed, so that the message names what to install.
    """
    names = [key for key in table if key in (*STAGES.added(), *names_of_extras(STAGES.group))]
    if names:
        stages = {name: table.pop(name) for name in sorted(names, key=lambda name: table.lines.get(name, 0))}
        table.hide("stages", Section(stages, table.line, table.lines))


def read_stages(stages: Any) -> Any:
    """Returns the stages that a table names with their settings, in the order of the file.

    Raises: Mistakes where a package's model refuses its settings.
    """
    if not isinstance(stages, Section):
        return stages
    read, mistakes = [], list[Mistake]()
    for name, node in stages.items():
        try:
            model = STAGES.get(name).load("settings")
            read.append((name, model.model_validate(_plain(node) or {})))
        except SpecError as error:
            mistakes.append(Mistake(name, error.message, error.remedy))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            mistakes += [_mistake(name, model, fault) for fault in faults]
    if mistakes:
        raise Mistakes(mistakes)
    return tuple(read)


def _mistake(name: str, model: type[BaseModel], fault: ErrorDetails) -> Mistake:
    """Returns what the model of a stage refuses, in the words of the other keys of the file."""
    where, remedy = (name, *fault["loc"]), f"write it as the stage `{name}` needs it"
    if fault["type"] == "extra_forbidden":
        *path, key = where
        message = f"unknown key `{key}` in `{'.'.join(map(str, path))}`"
        return Mistake(where, message, advice(str(key), _keys_at(model, path[1:])))
    if fault["type"] == "missing":
        return Mistake(where, f"`{LABEL}` is missing", remedy)
    if fault["type"] == "model_type":
        return Mistake(where, f"`{LABEL}` is not a mapping", remedy)
    return Mistake(where, f"`{LABEL}`: {fault['msg'].removeprefix('Value error, ')}", remedy)


def _keys_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Returns the keys that a stage's settings have at a path of keys and of indices in lists."""
    whole = model.model_json_schema()
    part: dict[str, Any] = whole
    for key in path:
        part = part.get("properties", {}).get(key) or part.get("additionalProperties") or part.get("items") or {}
        part = next((choice for choice in part.get("anyOf", ()) if choice.get("type") != "null"), part)
        part = whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    return list(part.get("properties", ()))


def _plain(node: Node) -> Any:
    if isinstance(node, Section):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, Items):
        return [_plain(item) for item in node]
    return None if node.kind == "nothing" else node.text
