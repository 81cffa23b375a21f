"""Clients of schema registries. They are of packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class RegistryKind:
    """A kind of registry."""

    #: `open(spec)` returns the `registry.port.SchemaRegistry` of a `spec.connections.RegistrySpec`; the function, or
    #: `module:name` of it. Importing it costs a fifth of a second.
    open: Callable[..., Any] | str
    #: `check(spec, schemas, tables, queries)` yields the `ops.check.Finding`s of `frazil check`; the function, or
    #: `module:name` of it. schemas: asks the registry. queries: None where queries cannot be analysed.
    check: Callable[..., Any] | str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the registry."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks the registry, and compares its newest schemas with the tables."""
        return function_of(self.check)


REGISTRIES: Registered[RegistryKind] = Registered("frazil.registries", "registry", RegistryKind, {})
"""Every kind of registry."""
