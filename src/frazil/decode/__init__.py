"""Bytes to columns. The compiled loops are kept on disk: to compile them takes seconds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def _choose_cache() -> None:
    """numba keeps them beside the sources, else in the user's cache folder, and fails where it can write neither (a
    user without a home, a container that is read-only): there they get a folder of this process.
    """
    places = (Path(__file__).parent, Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME") or "/nonexistent"))
    if not os.environ.get("NUMBA_CACHE_DIR") and not any(os.access(place, os.W_OK | os.X_OK) for place in places):
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="frazil-compiled-")


_choose_cache()  # Before the first import of numba, which looks at the variable once.
