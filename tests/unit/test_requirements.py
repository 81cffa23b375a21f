"""What the wheel asks for is all that Frazil imports: a machine that has only the wheel has the rest from these names."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docs.scan import ROOT, SOURCE, nodes
from frazil.runtime.ship import closure


def test_every_import_is_of_a_package_that_the_wheel_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [found[0] for line in _required(project) if (found := re.match(r"[\w.-]+", line))]
    required = {distribution.name for distribution in closure(names)}
    providers = importlib.metadata.packages_distributions()
    assert [name for name in sorted(_imported(SOURCE)) if required.isdisjoint(providers[name])] == []


def test_what_the_wheel_requires_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = (ROOT / "requirements" / name for name in ("runtime.txt", "extras.txt"))
    locked = {name for file in files for name in re.findall(r"^([\w.-]+)==", file.read_text(), re.MULTILINE)}
    assert {re.split(r"[\[>]", line)[0] for line in _required(project)} - locked == set()


def _required(project: dict[str, Any]) -> list[str]:
    """What the wheel asks for, its extras included."""
    return [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]


def _imported(folder: Path) -> set[str]:
    """The packages that are imported anywhere, without Python's own and Frazil itself."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"frazil"}
