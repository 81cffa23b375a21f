"""Elections by name: how the processes of one pipeline choose who works on which tables. All of them are of packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class ElectionKind:
    """One kind of election."""

    #: `open(spec, run_id, clock)` returns the `ingest.loop.leadership.Leadership` of this process; the function, or
    #: `module:name` of it.
    open: Callable[..., Any] | str
    #: `check(spec)` returns the `ops.check.Finding` of `frazil check`; the function, or `module:name` of it.
    check: Callable[..., Any] | str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the leadership."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks what the election needs."""
        return function_of(self.check)


ELECTIONS: Registered[ElectionKind] = Registered("frazil.elections", "election", ElectionKind, {})
"""Every election; of a package `ha: {elect: NAME}` in its group `frazil.elections`."""
