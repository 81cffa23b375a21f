"""Installs the packages of docs/contributing for one test each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.commands import REGISTERED
from frazil.plugins import registration
from frazil.plugins.catalogs import CATALOGS
from frazil.plugins.driver import ACTIONS, ELECTIONS, OBSERVERS
from frazil.plugins.formats import ENVELOPES, FORMATS
from frazil.plugins.registration import Registered
from frazil.plugins.stages import STAGES
from tests.fixtures.plugins import install_example, write_package
from tests.needs import has_package
from tests.unit.spec.conftest import load as load
from tests.unit.spec.conftest import refuse as refuse
from tests.unit.spec.conftest import working_directory as working_directory

if has_package("http"):
    from frazil_http.page_kinds import PAGES

Install = Callable[..., None]
_TABLES: tuple[Registered[Any], ...] = (FORMATS, ENVELOPES, STAGES, CATALOGS, ACTIONS, OBSERVERS, ELECTIONS, REGISTERED)


def rescan() -> None:
    """Forgets which packages are installed: a process finds them once."""
    registration._scanned.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python finds packages in, while the test runs."""
    folder, modules = tmp_path / "site", set(sys.modules)
    folder.mkdir()
    for table in (*_TABLES, PAGES) if has_package("http") else _TABLES:
        monkeypatch.setattr(table, "_loaded", {})
        monkeypatch.setattr(table, "packages", set())
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def example(site: Path) -> Install:
    """Installs the complete example of a page."""

    def install(page: str) -> None:
        install_example(site, page)
        rescan()

    return install


@pytest.fixture
def package(site: Path) -> Install:
    """Installs a package: its name, its code, the group and the line of its entry point."""

    def install(*words: str) -> None:
        write_package(site, *words)
        rescan()

    return install
