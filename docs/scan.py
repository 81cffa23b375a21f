"""What the source says and a reader may meet: log events, failpoints, environment variables, messages of errors.

Read from the syntax tree, so that nothing has to be run and nothing can be forgotten.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "frazil"
"""The core."""
PACKAGES = ROOT / "packages"
"""The packages beside the core, each in a folder of its own with `src` and `tests`."""
GAP = "…"
"""Stands in a message for a value that is put in when it is raised."""

_LEVELS = ("debug", "info", "warning", "error")
_MAKERS = (
    "TableStopped", "RecordError", "UnavailableError", "FencedError", "ConflictError", "InvariantError", "SpecError",
    "unavailable",
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """What an error says, its values replaced by GAP, and where it is raised."""

    text: str
    where: str


def sources() -> list[Path]:
    """Returns every module of the core, and after them those of the packages beside it."""
    return [*sorted(SOURCE.rglob("*.py")), *sorted(PACKAGES.glob("*/src/**/*.py"))]


def name_of(path: Path) -> str:
    """Returns the path of a module below its source folder, such as `ingest/plan.py` or `frazil_demo/show.py`."""
    if path.is_relative_to(SOURCE):
        return path.relative_to(SOURCE).as_posix()
    return "/".join(path.relative_to(PACKAGES).parts[2:])


@cache
def tree(path: Path) -> ast.Module:
    # A tree is ten thousand objects, none of them garbage: to look at all earlier ones meanwhile takes most of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_enabled:
            gc.enable()


def calls(paths: Iterable[Path]) -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(paths):
        yield from ((path, call) for call in _calls(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a module, as `ast.walk` finds it."""
    return tuple(ast.walk(tree(path)))


@cache
def _calls(path: Path) -> tuple[ast.Call, ...]:
    return tuple(node for node in nodes(path) if isinstance(node, ast.Call))


def call_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def log_events() -> dict[str, str]:
    """Every event that is logged, and its level."""
    found = {}
    for _, call in calls(sources()):
        if not (isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "log"):
            continue
        if call.func.attr in _LEVELS and call.args and isinstance(call.args[0], ast.Constant):
            found[str(call.args[0].value)] = call.func.attr
    return dict(sorted(found.items()))


def failpoints() -> dict[str, str]:
    """Every failpoint, and the module that has it."""
    found = {}
    for path, call in calls(sources()):
        if call_name(call) == "hit" and call.args and isinstance(call.args[0], ast.Constant):
            found[str(call.args[0].value)] = name_of(path)
    return dict(sorted(found.items()))


def environment_variables() -> list[str]:
    """Every variable of Frazil's own that the source names, the options' aside: those are named by construction."""
    texts = (path.read_text(encoding="utf-8") for path in sources())
    return sorted({name for text in texts for name in re.findall(r"\bFRAZIL_[A-Z_]+[A-Z]\b", text)})


def messages(folders: Iterable[str]) -> list[Message]:
    """What the errors say that the modules in these folders of the source raise."""
    paths = [
        path for folder in folders for path in (SOURCE / folder).rglob("*.py") if not path.name.startswith("memory")
    ]
    found = {}
    for path, call in calls(paths):
        if call_name(call) in _MAKERS and call.args:
            text = text_with_gaps(call.args[0]) + (f": {GAP}" if call_name(call) == "unavailable" else "")
            if len(re.sub(r"[^a-z]", "", text)) >= len("not there"):
                found[text] = Message(text, f"{name_of(path)}:{call.lineno}")
    return list(found.values())


def text_with_gaps(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return GAP
