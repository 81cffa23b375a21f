"""What is loaded before the first batch: all that is on disk, and nothing that takes long to compile unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_UNCOMPILED = """
from importlib import import_module
from pkgutil import walk_packages

from numba.core.registry import CPUDispatcher

from frazil.ingest.tasks.warm_up import warm_up
from frazil.plugins.extras import installed_extras

warm_up(compiles_all=True)
for package in ["frazil", *(extra.module for extra in installed_extras())]:
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        if module.name.endswith((".daemon", ".__main__")):
            continue
        for name, one in vars(import_module(module.name)).items():
            is_own = isinstance(one, CPUDispatcher) and one.py_func.__module__ == module.name
            if is_own and "inline" not in one.targetoptions and not one.signatures:
                print(module.name, name)
"""


@pytest.mark.soak
def test_the_set_up_compiles_every_loop(tmp_path: Path) -> None:
    """A first batch that compiles holds its table up for a minute where others keep the processor busy."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", _UNCOMPILED], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout == ""
