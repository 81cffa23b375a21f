"""Decoding: bytes to Arrow columns. The compiled loops are kept on disk, as compiling them takes seconds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def _choose_cache() -> None:
    """Gives numba a cache folder of this process where it can write neither beside the sources nor in the user's cache
    folder (a user without a home, a read-only container): numba fails without one.
    """
    places = (Path(__file__).parent, Path(os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME") or "/nonexistent"))
    if not os.environ.get("NUMBA_CACHE_DIR") and not any(os.access(place, os.W_OK | os.X_OK) for place in places):
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="frazil-compiled-")


_choose_cache()  # Before the first import of numba, which reads the variable only once.
