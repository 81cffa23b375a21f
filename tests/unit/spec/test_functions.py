"""`udf`: functions that are found, and what is wrong with those that are not."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from frazil.clock import new_id
from frazil.plugins.functions import Function
from tests.unit.spec.pipeline_file import Load, Refuse, with_table

MODULE = """
import frazil

@frazil.udf(returns="decimal(12,2)")
def price(text):
    return text

@frazil.udf(returns="string")
def clean(text):
    return text

@frazil.udf(returns="strin")
def misspelt(text):
    return text

@frazil.udf(returns="list<uuid>")
def ids(text):
    return text

def bare(text):
    return text
"""


@pytest.fixture
def module(working_directory: Path) -> str:
    """A module beside the pipeline file, of a name that no other test has."""
    name = f"own_{new_id().replace('-', '_')}"
    (working_directory / f"{name}.py").write_text(MODULE)
    return name


def test_functions_of_a_module_beside_the_file_are_found_one_or_several(
    load: Load, working_directory: Path, module: str
) -> None:
    folder = str(working_directory)
    (one,) = load(with_table(f"udf: {module}.clean")).tables
    assert one.query.udf == (Function(f"{module}.clean", folder, "string"),)
    assert not one.has_query
    (two,) = load(with_table(f"udf: [{module}.clean, {module}.price]")).tables
    assert [(function.name, function.returns) for function in two.query.udf] == [
        ("clean", "string"),
        ("price", "decimal(12,2)"),
    ]
    shared = load(f"defaults: {{udf: {module}.clean}}\n{with_table('')}").tables
    assert [function.name for function in shared[0].query.udf] == ["clean"]


def test_a_function_is_found_once_its_module_is_beside_the_file(
    load: Load, refuse: Refuse, working_directory: Path, module: str
) -> None:
    text, source = with_table(f"udf: {module}.clean"), working_directory / f"{module}.py"
    source.rename(working_directory / "elsewhere.txt")
    assert "put the module next to the pipeline file" in refuse(text).remedy
    (working_directory / "elsewhere.txt").rename(source)
    importlib.invalidate_caches()
    assert len(load(text).tables[0].query.udf) == 1


@pytest.mark.parametrize(
    ("udf", "words"),
    [
        ("{module}.cleen", "AttributeError: module '{module}' has no attribute 'cleen'"),
        ("no_such_module.clean", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("clean", "the function `clean` cannot be imported"),
        ("{module}.bare", "`{module}.bare` does not declare the type of its values"),
        ("{module}.misspelt", "`strin`"),
        ("{module}.ids", "returns list<uuid>, which Spark has no type for"),
        ("[{module}.clean, {module}.clean]", "`udf` has two functions `clean`"),
        ("{{a: b}}", "`udf` is a mapping where text is expected"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(refuse: Refuse, module: str, udf: str, words: str) -> None:
    error = refuse(with_table(f"udf: {udf.format(module=module)}"))
    assert words.format(module=module) in error.message
    assert error.where.rpartition(":")[2].isdigit()
