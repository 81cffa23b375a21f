"""Acceptance tests that `make test` leaves out name the quicker tests that make their points in time; what slow tests need
is fetched before them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.scan import PACKAGES, ROOT
from tests.fixtures.fetching import DECLARATIONS
from tests.fixtures.stores.programs import JARS
from tests.needs import needs_all
from tests.tiers import LONGEST

_TESTS = ROOT / "tests"
_FILES = [*_TESTS.rglob("test_*.py"), *PACKAGES.glob("*/tests/**/test_*.py")]
_SLOW = [path for path in sorted(_FILES) if path.parent.name == "acceptance" and "mark.slow" in path.read_text()]


@pytest.mark.parametrize("path", _SLOW, ids=lambda path: path.name)
@needs_all()
def test_a_file_with_slow_tests_names_tests_that_make_their_points_in_time(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"\b(in\s+time|IN_TIME)\b", text, re.IGNORECASE)
    named = re.findall(r"(?:[a-z_]+/)*test_\w+\.py", text)
    folders = (path.parent, path.parents[1], _TESTS, ROOT)
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []


@needs_all()
def test_the_longest_files_exist() -> None:
    names = {path.name for path in _FILES}
    assert set(LONGEST) - names == set()


def test_files_with_a_test_that_comes_last_have_a_place_of_their_own() -> None:
    last = {path.name for path in _FILES if "@pytest.mark.last\n" in path.read_text()}
    assert last >= {"test_loop.py"}
    assert last - set(LONGEST) == set()


def test_all_jars_are_fetched_before_tests_whose_time_is_limited() -> None:
    assert {*DECLARATIONS, *JARS} == set(_TESTS.rglob("*ivy.xml"))
    _, _, recipe = (ROOT / "Makefile").read_text().partition("\ntest-all: test-setup\n")
    assert recipe.split("\n\n")[0].splitlines()[0].endswith("python -m tests.fixtures.stores.programs jars")
