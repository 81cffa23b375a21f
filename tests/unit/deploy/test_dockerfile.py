"""The Dockerfile, which is not built here: its rules, and that what it copies exists."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from docs.generate import typer_command
from docs.scan import ROOT
from frazil.cli.commands import every_command
from tests.fixtures.image import DOCKERFILE, copies, instructions, is_sent


def last(name: str) -> str:
    return [words for instruction, words in instructions() if instruction == name][-1]


def test_the_image_has_a_user_without_rights_and_starts_without_a_shell() -> None:
    assert last("USER") == "10001:10001"
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--", "frazil"]
    assert json.loads(last("CMD"))[0] == "run"
    assert last("STOPSIGNAL") == "SIGTERM"


def test_nothing_comes_into_the_image_without_a_version_or_a_hash() -> None:
    [base] = {words.split()[0] for name, words in instructions() if name == "FROM"}
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert "ADD" not in dict(instructions())
    installs = re.findall(r"pip install ([^&]*)", " ".join(words for name, words in instructions() if name == "RUN"))
    assert all("--require-hashes" in one or "--no-index" in one for one in installs)


def test_every_file_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    sent = {line[1:] for line in ignored if line[0] == "!"}
    copied = {source for sources, _ in copies() for source in sources}
    assert copied == sent
    assert [source for source in copied if not (ROOT / source).exists()] == []


PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_every_file_that_a_project_names_is_in_the_folder_of_the_build(project: Path) -> None:
    copied = {PurePosixPath(source) for sources, _ in copies() for source in sources}
    for name in named_files(project):
        path = PurePosixPath((project / name).relative_to(ROOT))
        assert (ROOT / path).exists(), path
        assert is_sent(path), path
        assert copied & {path, *path.parents}, path


def named_files(project: Path) -> Iterator[str]:
    """Yields the files and folders that the pyproject.toml of a project names."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    yield settings["project"]["readme"]
    yield from settings["project"].get("license-files", ())
    yield from settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    if "version" in settings["tool"]["hatch"]:
        yield settings["tool"]["hatch"]["version"]["path"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("README.md", True),
        ("packages/blobs/README.md", True),
        ("packages/testing/src/frazil_testing/__init__.py", True),
        ("packages/testing/tests/unit/test_cases.py", False),
        ("src/frazil/cli/__pycache__/main.pyc", False),
        ("docs/README.md", False),
        ("frazil-data/catalog.db", False),
        (".git/config", False),
    ],
)
def test_the_builder_is_sent_sources_and_nothing_else(path: str, sent: bool) -> None:
    assert is_sent(PurePosixPath(path)) is sent


def test_the_command_of_the_image_exists_with_its_options() -> None:
    commands = {command.name: command for command in every_command()}
    name, *words = json.loads(last("CMD"))
    options = {option for parameter in typer_command(commands[name]).params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_package_lists_are_not_kept() -> None:
    [install] = [words for name, words in instructions() if name == "RUN" and "apt-get" in words]
    assert "--no-install-recommends" in install
    assert install.endswith("rm -rf /var/lib/apt/lists/*")
