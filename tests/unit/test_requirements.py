"""What the wheels ask for is all that they import: a machine that has only a wheel has the rest from these names."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import frazil
from docs.scan import PACKAGES, ROOT, SOURCE, nodes
from frazil.plugins.extras import EXTRAS
from frazil.runtime.setup import closure
from tests.needs import needs_all

_EXTRAS = [extra.name for extra in EXTRAS]


def test_every_import_is_of_a_package_that_the_wheel_requires() -> None:
    assert _unrequired(_project(ROOT), SOURCE) == []


@pytest.mark.parametrize("extra", _EXTRAS)
@needs_all()
def test_every_import_of_an_extra_is_of_a_package_that_its_wheel_requires(extra: str) -> None:
    assert _unrequired(_project(PACKAGES / extra), PACKAGES / extra / "src") == []


@needs_all()
def test_what_the_wheels_require_is_locked() -> None:
    files = (ROOT / "requirements" / name for name in ("runtime.txt", "extras.txt"))
    locked = {name for file in files for name in re.findall(r"^([\w.-]+)==", file.read_text(), re.MULTILINE)}
    projects = [_project(folder) for folder in (ROOT, *(PACKAGES / extra for extra in _EXTRAS))]
    required = {re.split(r"[\[>=]", line)[0] for project in projects for line in _required(project)}
    assert {name for name in required if name.split("-")[0] != "frazil"} - locked == set()


@needs_all()
def test_every_folder_of_packages_is_an_extra_of_the_core_in_its_version() -> None:
    assert sorted(folder.parent.name for folder in PACKAGES.glob("*/pyproject.toml")) == sorted(_EXTRAS)
    extras = _project(ROOT)["optional-dependencies"]
    for extra in EXTRAS:
        project = _project(PACKAGES / extra.name)
        assert (project["name"], project["version"]) == (extra.distribution, frazil.__version__)
        assert f"frazil=={frazil.__version__}" in project["dependencies"]
        assert re.fullmatch(rf"{extra.distribution}(\[[a-z,]+\])?=={frazil.__version__}", extras[extra.name][0])
        assert (PACKAGES / extra.name / "src" / extra.module).is_dir()
        assert {"description", "readme", "license", "authors", "keywords", "classifiers"} <= project.keys()
    [of_all] = extras["all"]
    assert sorted(of_all.removeprefix("frazil[").removesuffix("]").split(",")) == sorted([*_EXTRAS, "avro-files"])


@needs_all()
def test_extras_add_by_entry_points_what_the_core_lists_of_them() -> None:
    added = {
        extra.name: {
            group: tuple(names)
            for group, names in _project(PACKAGES / extra.name).get("entry-points", {}).items()
            if group.startswith("frazil.")
        }
        for extra in EXTRAS
    }
    assert added == {extra.name: dict(extra.added) for extra in EXTRAS}


def test_linters_and_the_architecture_know_every_extra() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    modules = sorted(extra.module for extra in EXTRAS)
    assert sorted(tools["mypy"]["mypy_path"]) == sorted(["src", *(f"packages/{name}/src" for name in _EXTRAS)])
    assert sorted(tools["importlinter"]["root_packages"]) == ["frazil", *modules]
    beside = tools["importlinter"]["contracts"][0]["layers"]
    assert sorted(re.findall(r"frazil_\w+", " ".join(beside))) == modules
    rows = re.findall(r"^\| \[`(\w+)`\]\(packages/", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert rows == sorted(_EXTRAS)


def test_the_core_names_no_module_of_an_extra_to_import_it() -> None:
    """The import contract sees statements alone; a module can also be imported by its name."""
    module = re.compile(rf"({'|'.join(extra.module for extra in EXTRAS)})\b[\w.:]*")
    texts = {
        (path.relative_to(SOURCE).as_posix(), node.value)
        for path in SOURCE.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and module.fullmatch(node.value)
    }
    assert texts == set()


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def _unrequired(project: dict[str, Any], folder: Path) -> list[str]:
    """The packages that the modules of a folder import and a project does not require."""
    names = [name[0] for line in _required(project) if (name := re.match(r"[\w.-]+", line))]
    if project["name"] == "frazil":
        names = [name for name in names if not name.startswith("frazil")]
    required = {distribution.name for distribution in closure(names)}
    # An editable installation does not record its modules.
    own = {module: [module.replace("_", "-")] for module in ("frazil", *(extra.module for extra in EXTRAS))}
    providers = {**importlib.metadata.packages_distributions(), **own}
    return [name for name in sorted(_imported(folder)) if required.isdisjoint(providers[name])]


def _required(project: dict[str, Any]) -> list[str]:
    """What the wheel asks for, its extras included."""
    extras = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(line for extra in extras.values() for line in extra)]


def _imported(folder: Path) -> set[str]:
    """The packages that are imported anywhere, without Python's own and that of the folder itself."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Import):
                names |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    own_names = {folder.name, *(path.name for path in folder.glob("frazil_*"))}
    return names - sys.stdlib_module_names - own_names
