"""What is wrong with a package is reported where its name is used, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.cli.commands import REGISTERED
from frazil.errors import SpecError
from frazil.plugins.catalogs import CATALOGS
from frazil.plugins.driver import ACTIONS, ELECTIONS, OBSERVERS
from frazil.plugins.extras import EXTRAS
from frazil.plugins.formats import ENVELOPES, FORMATS
from frazil.plugins.registration import function_of
from frazil.plugins.stages import STAGES
from tests.fixtures.plugins import PAGES
from tests.needs import has_package, needs
from tests.unit.contributing.conftest import Install, rescan
from tests.unit.spec.pipeline_file import Load, Refuse, with_table

if has_package("http"):
    from frazil_http.page_kinds import PAGES as SERVED

TABLE = with_table("value: {format: odd}")
GOOD = "from frazil.plugins.formats import Format\nFORMAT = Format('frazil.decode.plain:decode_plain')"


def test_a_package_that_cannot_be_imported_is_named(package: Install, load: Load, refuse: Refuse) -> None:
    package("odd", "raise RuntimeError('no licence')", "frazil.formats", "odd = odd:FORMAT")
    assert load(with_table("value: {format: json}"))  # It is used by nobody.
    error = refuse(TABLE)
    message = "the format `odd` of the package odd cannot be imported: RuntimeError: no licence"
    assert (error.message, error.remedy) == (message, "correct or reinstall the package odd")
    assert error.where.endswith(":4")


@pytest.mark.parametrize("code", ["FORMAT = 7", "FORMAT = None"])
def test_an_object_of_another_class_is_refused_until_it_is_corrected(
    package: Install, site: Path, load: Load, refuse: Refuse, code: str
) -> None:
    package("odd", code, "frazil.formats", "odd = odd:FORMAT")
    error = refuse(TABLE)
    message = "the format `odd` of the package odd cannot be used: `odd:FORMAT` is not of the class Format"
    assert (error.message, error.remedy) == (message, "correct or reinstall the package odd")
    (site / "even.py").write_text(GOOD)
    (site / "odd-1.0.dist-info" / "entry_points.txt").write_text("[frazil.formats]\nodd = even:FORMAT\n")
    rescan()
    assert load(TABLE).tables[0].source.value.format == "odd"


def test_a_name_of_two_packages_is_refused_until_one_is_uninstalled(
    package: Install, site: Path, load: Load, refuse: Refuse
) -> None:
    for name in ("odd", "even"):
        package(name, GOOD, "frazil.formats", f"odd = {name}:FORMAT")
    error = refuse(TABLE)
    assert (error.message, error.remedy) == (
        "several packages have the format `odd`: even, odd",
        "uninstall all of them but one",
    )
    (site / "even-1.0.dist-info" / "entry_points.txt").unlink()
    rescan()
    assert load(TABLE).tables[0].source.value.format == "odd"


def test_a_name_that_a_task_does_not_find_is_reported() -> None:
    with pytest.raises(SpecError) as caught:
        FORMATS.get("odd")
    assert caught.value.message == "no installed package has the format `odd`"
    assert caught.value.remedy == "install the package that has it"


def test_every_target_of_a_table_exists() -> None:
    targets = [one.decode for one in FORMATS.built_in.values()]
    targets += [target for one in ACTIONS.built_in.values() for target in (one.plan, one.run)]
    assert all(callable(function_of(target)) for target in targets)


@needs("http")
def test_the_pages_name_every_group() -> None:
    index = (PAGES / "README.md").read_text()
    groups = [
        table.group
        for table in (FORMATS, ENVELOPES, STAGES, CATALOGS, ACTIONS, OBSERVERS, ELECTIONS, SERVED, REGISTERED)
    ]
    assert [group for group in groups if f"`{group}`" not in index] == []


def test_the_pages_name_every_group_of_the_packages_beside_the_core() -> None:
    pages = (PAGES / "README.md").read_text() + (PAGES / "packages.md").read_text()
    assert [group for extra in EXTRAS for group in extra.added if f"`{group}`" not in pages] == []
