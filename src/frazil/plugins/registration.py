"""Tables of what can be chosen by name: what Frazil has itself, and what installed packages add by entry points.

A package adds a line to its own pyproject.toml, in a group such as `frazil.formats`. Names are found without importing
anything, and an object is imported when its name is first used: a broken package fails only pipelines that use it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from frazil.errors import SpecError
from frazil.plugins.extras import missing_extra, names_of_extras

_Object = TypeVar("_Object")


class Registered(Generic[_Object]):
    """The objects of one group, by name: the same table in the driver, in a task and on an executor."""

    def __init__(self, group: str, noun: str, kind: type[Any], built_in: Mapping[str, _Object]) -> None:
        """group: of entry points. noun: what an object is, for messages. kind: the class that an object must have."""
        #: The group of entry points.
        self.group = group
        self._noun = noun
        self._kind = kind
        #: Frazil's own objects. Their names cannot be taken.
        self.built_in = built_in
        self._loaded: dict[str, _Object] = {}
        #: The packages of the objects that were used so far.
        self.packages: set[str] = set()

    def added(self) -> tuple[str, ...]:
        """Returns the names that installed packages add."""
        return tuple(sorted({entry_point.name for entry_point in _installed(self.group)} - self.built_in.keys()))

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.added()

    def get(self, name: str) -> _Object:
        """Returns the object of this name, imported at the first call.

        Raises: SpecError where no package has it, an extra is not installed, two packages have it, or it cannot be imported.
        """
        loaded = self.built_in.get(name) or self._loaded.get(name)
        if loaded is None:
            loaded = self._loaded[name] = self._load(name)
        return loaded

    def _load(self, name: str) -> _Object:
        entry_points = [entry_point for entry_point in _installed(self.group) if entry_point.name == name]
        packages = sorted({package_of(entry_point) for entry_point in entry_points})
        what = f"the {self._noun} `{name.replace('.', ' ')}`"  # As a command of a group is typed.
        if not entry_points:
            missing = missing_extra(self.group, name, what)
            if missing is not None:
                raise missing
            raise SpecError(f"no installed package has {what}", remedy="install the package that has it")
        if len(entry_points) > 1:
            remedy = "uninstall all of them but one"
            raise SpecError(f"several packages have {what}: {', '.join(packages)}", remedy=remedy)
        remedy = f"correct or reinstall the package {packages[0]}"
        try:
            loaded = entry_points[0].load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"{what} of the package {packages[0]} cannot be imported: {reason}"
            raise SpecError(message, remedy=remedy) from error
        if not isinstance(loaded, self._kind):
            is_not = f"`{entry_points[0].value}` is not of the class {self._kind.__name__}"
            raise SpecError(f"{what} of the package {packages[0]} cannot be used: {is_not}", remedy=remedy)
        self.packages.update(packages)
        result: _Object = loaded
        return result


def package_of(entry_point: EntryPoint) -> str:
    """Returns the name of the package that an entry point is from."""
    return entry_point.dist.name if entry_point.dist is not None else entry_point.module


def _installed(group: str) -> tuple[EntryPoint, ...]:
    return _scanned(group, tuple(sys.path))


@lru_cache(maxsize=64)
def _scanned(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001  (what was scanned)
    return tuple(entry_points(group=group))


@cache
def function_of(target: Callable[..., Any] | str) -> Callable[..., Any]:
    """Returns the function; one that is named `module:name`, as importing it costs time, is imported now."""
    function: Callable[..., Any] = value_of(target) if isinstance(target, str) else target
    return function


def value_of(target: str) -> Any:
    """Returns what `module:name` names, imported now."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


GROUP = "frazil.modules"
MODULES: Registered[ModuleType] = Registered(GROUP, "module", ModuleType, {})
"""Every module; the name of the entry point is that behind `frazil.`."""


def module_of(name: str) -> ModuleType | None:
    """Returns the module that is used as `frazil.NAME`; None where no package and no extra has one of this name.

    Raises: SpecError where its extra is not installed.
    """
    return MODULES.get(name) if name in MODULES or name in names_of_extras(GROUP) else None
