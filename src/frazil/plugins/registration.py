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
from typing import Any, Generic, TypeVar

from frazil.errors import SpecError

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
        return tuple(sorted({one.name for one in _installed(self.group)} - self.built_in.keys()))

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.added()

    def get(self, name: str) -> _Object:
        """Returns the object of this name, imported at the first call.

        Raises: SpecError where no package has it, two packages have it, or it cannot be imported.
        """
        found = self.built_in.get(name) or self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def _load(self, name: str) -> _Object:
        found = [one for one in _installed(self.group) if one.name == name]
        packages = sorted({package_of(one) for one in found})
        what = f"the {self._noun} `{name}`"
        if not found:
            raise SpecError(f"no installed package has {what}", remedy="install the package that has it")
        if len(found) > 1:
            remedy = "uninstall all of them but one"
            raise SpecError(f"several packages have {what}: {', '.join(packages)}", remedy=remedy)
        remedy = f"correct or reinstall the package {packages[0]}"
        try:
            loaded = found[0].load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"{what} of the package {packages[0]} cannot be imported: {reason}"
            raise SpecError(message, remedy=remedy) from error
        if not isinstance(loaded, self._kind):
            is_not = f"`{found[0].value}` is not of the class {self._kind.__name__}"
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
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
