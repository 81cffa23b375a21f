"""Decoding: bytes to Arrow columns. The compiled loops are kept on disk, as compiling them takes seconds."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


def _choose_cache() -> None:
    """Gives numba a cache folder, until this process ends, where it can write neither beside the sources nor in the
    user's cache folder (a user without a home, a read-only container): numba fails without one.
    """
    places = (Path(__file__).parent, Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME") or "/nonexistent"))
    if not os.environ.get("NUMBA_CACHE_DIR") and not any(os.access(place, os.W_OK | os.X_OK) for place in places):
        from frazil.files import temporary_folder  # noqa: PLC0415  (few processes need one)

        held = ExitStack()
        os.environ["NUMBA_CACHE_DIR"] = str(held.enter_context(temporary_folder("frazil-compiled-")))
        atexit.register(held.close)


class _NoPandas(MetaPathFinder):
    """An import hook that hides pandas."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def _begin_arrow_without_pandas() -> None:
    """Creates the first PyArrow array without pandas, which PyArrow would import for it: a third of a second and 30 MB of
    every process that uses none. PyArrow tries again where pandas is really needed.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import_module("pyarrow").array([0])
    finally:
        sys.meta_path.remove(finder)


_begin_arrow_without_pandas()
_choose_cache()  # Before the first import of numba, which reads the variable only once.
