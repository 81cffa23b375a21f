"""`udf`: the Python functions that a table's query may call."""

from __future__ import annotations

import re

from frazil.errors import SpecError
from frazil.plugins.functions import Function, import_function
from frazil.spec.document import Items
from frazil.spec.keys import Fields, read_text
from frazil.spec.types import parse_type


def read_functions(fields: Fields, key: str) -> tuple[Function, ...]:
    """Reads the name of a function, or a list of names; each is imported."""
    node, problems = fields.node(key), fields.problems
    found: dict[str, Function] = {}
    for item in node.items if isinstance(node, Items) else (node,):
        text = read_text(item, fields.path(key), problems)
        function = problems.attempt(item.line, None, _load, text, problems.folder) if text else None
        if function is None:
            continue
        if function.name.lower() in found:
            message = f"`{key}` has two functions `{function.name}`"
            problems.add(item.line, message, "keep one of them")
        found[function.name.lower()] = function
    return tuple(found.values())


def _load(path: str, folder: str) -> Function:
    returns = getattr(import_function(path, folder), "frazil_returns", None)
    if not isinstance(returns, str):
        remedy = "write `@frazil.udf(returns=TYPE)` above the function"
        raise SpecError(f"the function `{path}` does not declare the type of its values", remedy=remedy)
    if re.search(r"\b(uuid|fixed)\b", str(parse_type(returns))):
        remedy = "return `string` or `binary`"
        raise SpecError(f"the function `{path}` returns {returns}, which Spark has no type for", remedy=remedy)
    return Function(path, folder, returns)
