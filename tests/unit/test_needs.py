"""Without a package beside the core, what needs it is skipped with its name; nothing else is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import get_args

import pytest

from frazil.plugins.extras import EXTRAS
from tests.needs import Package, cases, has_package, missing_package, needs, pytest_pycollect_makemodule


@pytest.fixture(autouse=True)
def without_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if frazil-demo was not installed."""
    monkeypatch.setitem(sys.modules, "frazil_demo", None)  # As Python marks what is not there.


def test_every_package_beside_the_core_can_be_named() -> None:
    assert {extra.name for extra in EXTRAS} <= set(get_args(Package))


def test_a_mark_skips_what_needs_a_package_that_is_missing_and_names_it() -> None:
    assert not has_package("demo")
    assert needs("testing").args == (False,)
    mark = needs("demo", "testing")
    assert (mark.args, mark.kwargs) == ((True,), {"reason": "needs frazil-demo"})
    plain, marked = cases(("a", "b"), {"b": "demo"})
    assert (plain.values, plain.marks, marked.values) == (("a",), (), ("b",))
    assert [mark.kwargs["reason"] for mark in marked.marks] == ["needs frazil-demo"]


def collected(session: pytest.Session, path: Path, text: str) -> list[pytest.Item | pytest.Collector]:
    path.write_text(text)
    return list(pytest_pycollect_makemodule(path, session).collect())


def test_a_module_that_imports_the_package_is_skipped_and_named(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "test_of_demo.py"
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match=r"test_of_demo.py needs frazil-demo$"):
            collected(request.session, path, "X = 1\nfrom frazil_demo import samples\n")
    assert [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(path)] == []


@pytest.mark.parametrize("text", ["import no_such_module", "from frazil_testing import no_such_name", "1 / 0"])
def test_any_other_error_of_a_module_is_an_error(request: pytest.FixtureRequest, tmp_path: Path, text: str) -> None:
    with pytest.raises((pytest.Module.CollectError, ZeroDivisionError)):
        collected(request.session, tmp_path / "test_of_another.py", text)


@pytest.mark.parametrize("name", ["frazil_testing.no_such_module", "no_such_module"])
def test_a_module_that_an_installed_package_lacks_is_not_a_missing_package(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    assert missing_package(caught.value) is None
