"""Modules of packages that are used as `frazil.NAME`, such as `frazil.blobs`."""

from __future__ import annotations

from types import ModuleType

from frazil.plugins.extras import names_of_extras
from frazil.plugins.registration import Registered

GROUP = "frazil.modules"
MODULES: Registered[ModuleType] = Registered(GROUP, "module", ModuleType, {})
"""Every module; the name of the entry point is that behind `frazil.`."""


def module_of(name: str) -> ModuleType | None:
    """Returns the module that is used as `frazil.NAME`; None where no package and no extra has one of this name.

    Raises: SpecError where its extra is not installed.
    """
    return MODULES.get(name) if name in MODULES or name in names_of_extras(GROUP) else None
