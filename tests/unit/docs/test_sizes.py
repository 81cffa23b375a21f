"""Alarms: what is longer than this holds two ideas. They ask for a look; no file is cut to a number."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from docs.scan import ROOT, name_of, nodes, sources, tree

MODULE_LINES = 600
FUNCTION_LINES = 60
CELL_WORDS = 30
DECISION_LINES, DECISION_WORDS = 60, 800
RECORD_FIELDS = 15
LARGER_RECORDS = {
    "spec/models.py:RouteSpec": "its fields are keys of the pipeline file, and groups of keys: those of a table, and more",
    "ingest/batches/services.py:Services": "its fields are the ports of the loop, most of which have a default",
    "ops/plan.py:PlannedTable": "its fields are the keys of `frazil plan --output json` and of the Python API",
}
"""Records with more fields, and why."""


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any("njit" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_no_module_has_more_than_six_hundred_lines() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES} == {}


def test_no_function_has_more_than_sixty_lines_but_compiled_loops() -> None:
    assert [name for path in sources() for name in _long_functions(path)] == []


def _long_functions(path: Path) -> list[str]:
    return [
        f"{name_of(path)}:{function.name}"
        for function in (node for node in nodes(path) if isinstance(node, ast.FunctionDef))
        if not _is_compiled(function) and _lines_of(function) > FUNCTION_LINES
    ]


def _lines_of(function: ast.FunctionDef) -> int:
    """Returns the number of lines of what it does, without its signature and docstring."""
    statements = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1


def test_no_record_has_more_than_fifteen_fields() -> None:
    classes = {name_of(path): [n for n in ast.walk(tree(path)) if isinstance(n, ast.ClassDef)] for path in sources()}
    by_name = {node.name: node for nodes in classes.values() for node in nodes}
    sizes = {
        f"{module}:{node.name}": len(_fields(node, by_name)) for module, nodes in classes.items() for node in nodes
    }
    assert {name for name, size in sizes.items() if size > RECORD_FIELDS} == set(LARGER_RECORDS)


def _fields(node: ast.ClassDef, by_name: Mapping[str, ast.ClassDef]) -> set[str]:
    """Returns the declared fields of a dataclass, a model or a named tuple, those that it inherits included."""
    bases = [by_name.get(ast.unparse(base).split("[")[0].rpartition(".")[2]) for base in node.bases]
    inherited = set[str]().union(*(_fields(base, by_name) for base in bases if base is not None and base is not node))
    return inherited | {
        ast.unparse(statement.target)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation)
    }


def test_no_cell_and_no_item_of_the_architecture_has_more_than_thirty_words() -> None:
    texts: list[str] = []
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        texts += line.strip("|").split("|") if line.startswith("|") else re.findall(r"^\s*(?:-|\d+\.) (.*)", line)
    without_links = [re.sub(r"\]\([^)]*\)", "]", text) for text in texts]
    assert [text for text in without_links if len(text.split()) > CELL_WORDS] == []


def test_a_decision_is_at_most_a_page() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs/decisions").glob("0*.md")}
    sizes = {name: (len(text.splitlines()), len(text.split())) for name, text in pages.items()}
    longer = [name for name, (lines, words) in sizes.items() if lines > DECISION_LINES or words > DECISION_WORDS]
    assert sorted(longer) == [], "what was measured and tried belongs to docs/contributing/performance-diary.md"
