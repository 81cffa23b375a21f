"""Python functions that queries call (`udf`), imported by their names in the driver and in tasks alike."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from frazil.errors import SpecError


@dataclass(frozen=True)
class Function:
    """A Python function, as a table names it."""

    #: `module.name`.
    path: str
    #: The folder of the pipeline file, where modules are looked for that are not installed.
    folder: str
    #: The type of its values, as its decorator has it.
    returns: str

    @property
    def name(self) -> str:
        """The name in queries."""
        return self.path.rpartition(".")[2]


@lru_cache(maxsize=256)
def import_function(path: str, folder: str) -> Callable[..., Any]:
    """Returns the function. path, folder: as in Function.

    Raises: SpecError where it cannot be imported.
    """
    module, _, name = path.rpartition(".")
    if folder not in sys.path:
        sys.path.append(folder)  # Last, so that no file beside the pipeline file hides a package.
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise SpecError(
            f"the function `{path}` cannot be imported: {type(error).__name__}: {error}",
            remedy="name it `module.function`, and put the module next to the pipeline file, or install its package",
        ) from error
    return function
