"""What packages beside the core, and those of the pages on contributing, import of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.scan import PACKAGES, ROOT, tree

PAGE = ROOT / "docs" / "contributing" / "allowed-imports.md"
_BLOCK = re.compile(r"```text\n(.*?)```", re.DOTALL)
_EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
Names = Mapping[str, frozenset[str]]
"""Names by module. A module that is imported itself has the name `*`."""


def promised() -> Names:
    """Returns what the page lists."""
    [block] = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    lines = " ".join(block.splitlines()).replace("frazil", "\nfrazil").splitlines()
    pairs = (line.strip().partition(": ") for line in lines if line.strip())
    return {module: frozenset(names.split(", ")) for module, _, names in pairs}


def imported() -> Names:
    """Returns what the packages and the examples import."""
    modules = [tree(path) for path in sorted(PACKAGES.glob("*/src/**/*.py"))]
    for page in sorted((ROOT / "docs" / "contributing").glob("*.md")):
        modules += [ast.parse(example) for example in _EXAMPLE.findall(page.read_text(encoding="utf-8"))]
    names = defaultdict[str, set[str]](set)
    for node in (node for module in modules for node in ast.walk(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "frazil":
            names[str(node.module)].update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "frazil":
                    names[alias.name].add("*")
    return {module: frozenset(of_module) for module, of_module in names.items()}


def listed(names: Names) -> Iterable[str]:
    """Yields the lines of the page's list."""
    for module, of_module in sorted(names.items()):
        yield f"{module}: {', '.join(sorted(of_module))}"


def is_there(module: str, name: str) -> bool:
    """Returns whether a module of the core has a name."""
    place = ROOT / "src" / Path(*module.split("."))
    files = [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    if name == "*":
        return bool(files)
    if (place / name).is_dir() or (place / f"{name}.py").is_file():
        return True
    return any(re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) for file in files)


if __name__ == "__main__":
    written = "\n".join(listed(imported()))
    PAGE.write_text(
        _BLOCK.sub(lambda _: f"```text\n{written}\n```", PAGE.read_text(encoding="utf-8")), encoding="utf-8"
    )
