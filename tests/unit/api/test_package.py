"""The package as a user imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import frazil
from frazil import errors

_HEAVY = {"pydantic", "typer", "yaml", "pyspark", "numba", "confluent_kafka", "structlog", "pyarrow"}


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys, frazil; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert [name for name in names if name.startswith("frazil")] == ["frazil"]
    assert {name.partition(".")[0] for name in names} & _HEAVY == set()


def test_every_name_of_the_api_exists_and_is_listed() -> None:
    assert {name: getattr(frazil, name).__name__ for name in frazil.__all__ if name != "__version__"} == {
        name: name for name in frazil.__all__ if name != "__version__"
    }
    assert set(frazil.__all__) <= set(dir(frazil))
    with pytest.raises(AttributeError, match="module 'frazil' has no attribute 'lode'"):
        frazil.lode  # noqa: B018


def test_the_six_errors_are_those_that_the_package_raises() -> None:
    """A kind of one of the six, such as `UnusableType`, is that one for whoever catches it."""
    six = [kind for kind in errors.FrazilError.__subclasses__() if kind.__module__ == errors.__name__]
    kinds: list[type[errors.FrazilError]] = [errors.FrazilError, *six]
    assert len(six) == 6
    assert [getattr(frazil, kind.__name__) for kind in kinds] == kinds
