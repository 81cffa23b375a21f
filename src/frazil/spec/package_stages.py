"""Keys of a table that installed packages add: each holds the settings of a stage, which a model of the package checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from frazil.errors import SpecError
from frazil.plugins.extras import names_of_extras
from frazil.plugins.stages import STAGES
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import Form, Key, describe
from frazil.spec.syntax.problems import LABEL, REFUSED, Mistake, Mistakes, advice


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
            if isinstance(node, Scalar) and node.kind == "nothing":
                mistakes.append(Mistake(name, f"`{LABEL}` is empty where a mapping is expected", _EXPECTED["model"][1]))
                continue
            mistakes += [_mistake(name, model, node, fault) for fault in error.errors(include_url=False)]
    if mistakes:
        raise Mistakes(mistakes)
    return tuple(read)


_EXPECTED = {
    "string": ("text", f"write text after `{LABEL}:`"),
    "tuple": ("a list", "write a list, such as `[a, b]`"),
    "list": ("a list", "write a list, such as `[a, b]`"),
    "int": ("a whole number", "write a whole number, such as 16"),
    "float": ("a number", "write a number, such as 0.5"),
    "bool": ("true or false", "write true or false"),
    "dict": ("a mapping", "write `name: value` pairs"),
    "mapping": ("a mapping", "write `name: value` pairs"),
    "model": ("a mapping", "write `key: value` pairs"),
}
"""By the beginning of pydantic's types of errors what a setting is to be, and the remedy."""
_OF_KIND = re.compile(rf"({'|'.join(_EXPECTED)})_(type|parsing|from_float|attributes_type)")


def _mistake(name: str, model: type[BaseModel], node: Node, fault: ErrorDetails) -> Mistake:
    """Returns what the model of a stage refuses, in the words of the other keys of the file. node: the settings."""
    *path, key = where = (name, *fault["loc"])
    context = fault.get("ctx", {})
    remedy = f"write it as the stage `{name}` needs it"
    if expected := _OF_KIND.fullmatch(fault["type"]):
        kind, remedy = _EXPECTED[expected[1]]
        return Mistake(where, f"`{LABEL}` is {_described(node, fault['loc'])} where {kind} is expected", remedy)
    if fault["type"] == REFUSED:
        return Mistake(where, f"`{LABEL}`: {context['message']}", context["remedy"])
    match fault["type"]:
        case "extra_forbidden":
            message = f"unknown key `{key}` in `{'.'.join(map(str, path))}`"
            return Mistake(where, message, advice(str(key), _keys_at(model, path[1:])))
        case "missing":
            return Mistake(where, f"`{LABEL}` is missing", f"write `{key}: …` below `{'.'.join(map(str, path))}`")
        case "literal_error":
            words = re.findall("'([^']*)'", str(context["expected"]))
            return Mistake(where, f"`{LABEL}` cannot be `{fault['input']}`", advice(str(fault["input"]), words))
        case "too_short":
            return Mistake(where, f"`{LABEL}` is empty", "write at least one entry")
        case "greater_than_equal":
            return Mistake(where, f"`{LABEL}` is less than {context['ge']}", f"write {context['ge']} or more")
        case "less_than_equal":
            return Mistake(where, f"`{LABEL}` is more than {context['le']}", f"write {context['le']} or less")
    return Mistake(where, f"`{LABEL}`: {fault['msg'].removeprefix('Value error, ')}", remedy)


def _described(node: Node, path: Sequence[str | int]) -> str:
    """Returns what the value at a path of keys and of indices in lists is."""
    part: Node | None = node
    for key in path:
        if isinstance(part, Section):
            part = part.get(str(key))
        elif isinstance(part, Items) and isinstance(key, int):
            part = part[key]
    return "empty" if part is None else describe(part)


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
