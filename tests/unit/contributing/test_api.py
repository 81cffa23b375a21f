"""docs/contributing/allowed-imports.md lists what packages import of the core: nothing else, and all of it exists."""

from __future__ import annotations

import frazil
from docs.api import PAGE, imported, is_there, listed, promised
from tests.needs import needs_all


@needs_all()
def test_what_packages_import_is_on_the_page() -> None:
    assert list(listed(imported())) == list(listed(promised())), "a change of the list is a change of the promise"


def test_what_the_page_promises_exists() -> None:
    assert [
        (module, name) for module, names in promised().items() for name in names if not is_there(module, name)
    ] == []


def test_the_list_is_that_of_this_minor_version() -> None:
    assert f"## The list of {'.'.join(frazil.__version__.split('.')[:2])}\n" in PAGE.read_text()
