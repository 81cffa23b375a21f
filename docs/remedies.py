"""What the source advises: the remedies of errors, of stops and of problems that commands show.

Read from the syntax tree, as `scan.py` does. An advice that is put together is followed through names, choices, tables and
functions of the source to the texts that it can have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from docs.scan import GAP, call_name, name_of, nodes, sources, text_with_gaps, tree

_PLACES = {
    "TableStopped": 1,
    "Problem": 1,
    "RefusedChange": 2,
    "Refusal": 1,
    "NotJudged": 1,
    "JudgedTable": 2,
    "VerifiedTable": 2,
    "Finding": 4,
    "_mind": 2,
    "_told_nothing": 1,
    "Refused": 3,
    "make_problem": 3,
    "Status": 2,
    "Mistake": 2,
}
"""Where a call without the word `remedy` has it."""
_NAMES = {"remedy", "advice"}
"""What the parameters and variables are called that carry one."""
_TABLES = re.compile("REMED|STRANGE")
"""What tables of remedies are called."""
_DEPTH = 4


@dataclass(frozen=True, order=True)
class Remedy:
    """One advice as its reader meets it. module: of the source, such as `spec/syntax/units.py`. text: its values are GAP."""

    module: str
    text: str

    def matches(self, advice: str) -> bool:
        """Whether an advice that was shown is this one."""
        return _pattern(self.text).fullmatch(advice) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split(GAP))), re.DOTALL)


@dataclass(frozen=True)
class _Place:
    """Where an expression stands: its module, and the functions around it, the innermost last."""

    path: Path
    around: tuple[ast.FunctionDef, ...] = ()


@cache
def remedies() -> tuple[Remedy, ...]:
    """Every advice in the source, each once for each module."""
    found = set()
    for path in _modules():
        if path.name.startswith("memory") or path.name == "twins.py":
            continue
        tables = [value for name, value in _constants(path).items() if _TABLES.search(name)]
        told = [(value, _Place(path)) for table in tables for value in _values(table)]
        for node, place in (*told, *_expressions(path)):
            for text in _texts(node, place):
                if re.search("[a-z]{3}", text.replace(GAP, "")):
                    found.add(Remedy(name_of(path), text))
    return tuple(sorted(found))


def _expressions(path: Path) -> Iterator[tuple[ast.expr, _Place]]:
    """What is given as a remedy anywhere in a module."""
    left: list[tuple[ast.AST, _Place]] = [(tree(path), _Place(path))]
    while left:
        node, place = left.pop()
        if isinstance(node, ast.FunctionDef):
            place = _Place(path, (*place.around, node))
        elif isinstance(node, ast.Call):
            yield from ((word.value, place) for word in node.keywords if word.arg in _NAMES)
            at = _carried().get(call_name(node))
            if at is not None and len(node.args) > at:
                yield node.args[at], place
        left.extend((child, place) for child in ast.iter_child_nodes(node))


@cache
def _carried() -> dict[str, int]:
    """Functions and classes that get a remedy without its name, and where it is among the arguments."""
    found = dict(_PLACES)
    for path in _modules():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                words = [word.arg for word in node.args.args if word.arg not in ("self", "cls")]
                for name in _NAMES.intersection(words):
                    found[node.name] = words.index(name)
    return found


@cache
def _constants(path: Path) -> dict[str, ast.expr]:
    """The constants of a module by name."""
    found = {}
    for node in tree(path).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({name.id: node.value for name in targets if isinstance(name, ast.Name)})
    return found


@cache
def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions and methods of a module by name."""
    return {node.name: node for node in nodes(path) if isinstance(node, ast.FunctionDef)}


def _where(name: str, own: Path, names: Callable[[Path], Mapping[str, object]]) -> list[Path]:
    """The modules that a name can be from: its own, or else all that have it."""
    if name in names(own):
        return [own]
    return [path for path in _modules() if name in names(path)]


@cache
def _modules() -> tuple[Path, ...]:
    return tuple(sources())


def _constant(name: str, own: Path) -> tuple[ast.expr | None, Path]:
    path = next(iter(_where(name, own, _constants)), own)
    return _constants(path).get(name), path


def _texts(node: ast.expr, place: _Place, depth: int = _DEPTH) -> list[str]:
    """All texts that an expression can be, as far as the source tells."""
    match node:
        case ast.Constant(value=str()):
            return [str(node.value)]
        case ast.Name(id="LABEL" | "NAME"):
            return [GAP]
        case ast.JoinedStr():
            parts = [
                _texts(part.value, place, depth)
                if isinstance(part, ast.FormattedValue) and not isinstance(part.value, ast.Subscript)
                else [text_with_gaps(part)]
                for part in node.values
            ]
            return ["".join(words) for words in product(*parts)]
        case ast.IfExp():
            return _texts(node.body, place, depth) + _texts(node.orelse, place, depth)
        case ast.BoolOp():
            return [text for value in node.values for text in _texts(value, place, depth)]
        case ast.BinOp(op=ast.Add()):
            return ["".join(two) for two in product(_texts(node.left, place, depth), _texts(node.right, place, depth))]
    if depth == 0:
        return [GAP]
    found = list(_followed(node, place, depth - 1))
    return list(dict.fromkeys(found)) or [GAP]


def _followed(node: ast.expr, place: _Place, depth: int) -> Iterator[str]:
    """The texts behind a name, a table's value or a call."""
    match node:
        case ast.Name():
            yield from _named(node.id, place, depth)
        case (
            ast.Subscript(value=ast.Name(id=table)) | ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get"))
        ):
            value, path = _constant(table, place.path)
            for one in _values(value):
                yield from _texts(one, _Place(path), depth)
        case ast.Call():
            for path in _where(call_name(node), place.path, _functions):
                function = _functions(path)[call_name(node)]
                for inner in ast.walk(function):
                    if isinstance(inner, ast.Return) and inner.value is not None and _is_text(function):
                        yield from _texts(inner.value, _Place(path, (function,)), depth)


def _named(name: str, place: _Place, depth: int) -> Iterator[str]:
    """The texts of a variable: of those that the innermost function gives it, or of the constant."""
    for function in reversed(place.around):
        given = list(_given(function, name))
        for one in given:
            yield from _texts(one, place, depth)
        if given or name in {word.arg for word in (*function.args.args, *function.args.kwonlyargs)}:
            return
    value, path = _constant(name, place.path)
    if value is not None:
        yield from _texts(value, _Place(path), depth)


def _given(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What a function assigns to a name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple):
                    yield from _at(target, node.value, name)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield ast.BinOp(ast.Constant(GAP), ast.Add(), node.value)


def _at(target: ast.Tuple, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """The part of a value that a name gets where several are assigned at a time."""
    at = next((n for n, one in enumerate(target.elts) if isinstance(one, ast.Name) and one.id == name), None)
    choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    for choice in choices:
        if at is not None and isinstance(choice, ast.Tuple) and at < len(choice.elts):
            yield choice.elts[at]


def _values(table: ast.expr | None) -> Iterator[ast.expr]:
    """What a table has for its keys."""
    match table:
        case ast.Dict():
            for key, value in zip(table.keys, table.values, strict=True):
                yield from [value] if key is not None else _values(value)
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[_, value]):
            yield value
        case ast.DictComp():
            yield table.value


def _is_text(function: ast.FunctionDef) -> bool:
    return isinstance(function.returns, ast.Name) and function.returns.id == "str"
