"""Alarms: what is longer than this holds two ideas. They ask for a look; no file is cut to a number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.scan import ROOT, SOURCE

MODULE_LINES = 600
FUNCTION_LINES = 60
CELL_WORDS = 30


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any("njit" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_no_module_has_more_than_six_hundred_lines() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path.relative_to(SOURCE)): count for path, count in lines.items() if count > MODULE_LINES} == {}


def test_no_function_has_more_than_sixty_lines_but_compiled_loops() -> None:
    assert [name for path in SOURCE.rglob("*.py") for name in _long_functions(path)] == []


def _long_functions(path: Path) -> list[str]:
    functions = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    ]
    return [
        f"{path.relative_to(SOURCE)}:{function.name}"
        for function in functions
        if not _is_compiled(function) and _lines_of(function) > FUNCTION_LINES
    ]


def _lines_of(function: ast.FunctionDef) -> int:
    """Returns the number of lines of what it does, without its signature and docstring."""
    statements = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1


def test_no_cell_and_no_item_of_the_architecture_has_more_than_thirty_words() -> None:
    texts: list[str] = []
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        texts += line.strip("|").split("|") if line.startswith("|") else re.findall(r"^\s*(?:-|\d+\.) (.*)", line)
    without_links = [re.sub(r"\]\([^)]*\)", "]", text) for text in texts]
    assert [text for text in without_links if len(text.split()) > CELL_WORDS] == []
