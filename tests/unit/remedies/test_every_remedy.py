"""Every remedy in the source is followed by a test, or is on the list of those that only people can follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from docs.remedies import Remedy, remedies
from docs.scan import GAP, ROOT, name_of, nodes, sources
from frazil.errors import SpecError
from frazil.spec import load_spec
from tests.needs import needs_all
from tests.unit.remedies.followed import BY_PEOPLE, FOLLOWED
from tests.unit.spec.refusals import ENVIRONMENT, read_parts

PAGE = re.compile(r"\bdocs/|\w\.md\b")
OF_FILES = re.compile(
    r"spec/|frazil_state/sql\.py|literals\.py|secrets\.py|stages/\w+_settings\.py|routes/settings\.py"
)
ELSEWHERE = {
    "create it, or correct its path",
    "save the secret as UTF-8 text",
    "set it to UTF-8 text",
    "set … before starting Frazil",
    "write `${env:…}` for an environment variable; it has no default",
    "write `${env:NAME}` or `${file:PATH}`",
    "write the secret, and only it, into the file",
    "change to its folder, name it with -f FILE, or let `frazil init` write a first one",
    "name a file that can be read with -f FILE",
    "save it as UTF-8",
    "remove the character",
    "split the pipeline",
    "give it a shorter name",
    "give the lookup a shorter name",
    "shorten it",
}
"""Followed in test_pipeline_files.py, with files and variables beside the pipeline file, or with long names in unit/spec."""


@needs_all()
def test_every_remedy_of_the_pipeline_file_is_followed(tmp_path: Path) -> None:
    path, shown = tmp_path / "pipeline.yaml", []
    for mistake in (one for part in read_parts() for one in part.mistakes if one.corrections):
        path.write_text(mistake.file(mistake.written), encoding="utf-8")
        with pytest.raises(SpecError) as refused:
            load_spec(path, ENVIRONMENT)
        shown.append(refused.value.remedy)
    written = [remedy for remedy in remedies() if OF_FILES.match(remedy.module)]
    followed = {found for text in shown for found in closest(text, written)} | ELSEWHERE
    assert {remedy.text for remedy in written} - followed - BY_PEOPLE.keys() - FOLLOWED.keys() == set()


@needs_all()
def test_every_other_remedy_is_followed_by_a_test_or_by_people() -> None:
    others = {remedy.text for remedy in remedies() if not OF_FILES.match(remedy.module)}
    assert others - FOLLOWED.keys() - BY_PEOPLE.keys() == set()
    every = {remedy.text for remedy in remedies()}
    assert (FOLLOWED.keys() | BY_PEOPLE.keys()) - every == set()
    assert FOLLOWED.keys() & BY_PEOPLE.keys() == set()


@needs_all()
def test_the_tests_that_follow_remedies_are_there() -> None:
    missing = []
    for test in sorted(set(FOLLOWED.values())):
        file, _, name = test.partition("::")
        path = ROOT / file if file.startswith("packages/") else ROOT / "tests" / file
        if not path.exists() or f"def {name}(" not in path.read_text():
            missing.append(test)
    assert missing == []


def test_nothing_that_is_told_names_a_page_which_an_installed_package_lacks() -> None:
    """Docstrings, which people read beside the pages, may."""
    told = [
        f"{name_of(path)}:{node.lineno}: {node.value}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PAGE.search(node.value)
        if node.value not in docstrings(path)
    ]
    assert told == []


def docstrings(path: Path) -> set[str]:
    """The texts of a module that stand alone."""
    values = [node.value for node in nodes(path) if isinstance(node, ast.Expr)]
    return {one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def closest(shown: str, written: Iterable[Remedy]) -> set[str]:
    """Of the remedies that an advice can be, those that say the most of it themselves."""
    own = {remedy.text: len(remedy.text.replace(GAP, "")) for remedy in written if remedy.matches(shown)}
    return {text for text, size in own.items() if size == max(own.values())}
