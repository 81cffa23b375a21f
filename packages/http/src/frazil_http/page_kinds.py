"""Pages of the HTTP service for people: all of them are of packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class PagesKind:
    """The pages of one package."""

    #: `open(pipeline, operations, http)` returns the `frazil_http.pages.Pages` of a running pipeline; the function, or
    #: `module:name` of it.
    open: Callable[..., Any] | str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the pages."""
        return function_of(self.open)


PAGES: Registered[PagesKind] = Registered("frazil.pages", "page", PagesKind, {})
"""Pages of packages: those of every installed one are served."""
