"""Observers of runs: what packages do with the batches that end, and with the state of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class ObserverKind:
    """One kind of observer."""

    #: `is_wanted(spec, environment)` returns whether a run of this pipeline file, with these variables, needs the observer:
    #: a function that imports little, or `module:name` of it.
    is_wanted: Callable[..., bool] | str
    #: `open(observed)` returns the `ops.observers.Observer` of one run, from an `ops.observers.Observed`; the function, or
    #: `module:name` of it.
    open: Callable[..., Any] | str
    #: `check(spec, environment)` yields the `ops.check.Finding`s of `frazil check`; None where there is nothing to check.
    check: Callable[..., Any] | str | None = None

    @property
    def decider(self) -> Callable[..., bool]:
        """The function that decides whether the observer is needed."""
        return function_of(self.is_wanted)

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens an observer."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks what the observer needs."""
        return (lambda _spec, _environment: ()) if self.check is None else function_of(self.check)


OBSERVERS: Registered[ObserverKind] = Registered("frazil.observers", "observer", ObserverKind, {})
"""Observers of packages: every installed one that a run wants is opened."""
