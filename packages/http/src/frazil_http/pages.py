"""The port of pages for people, which packages add to the HTTP service: routes, and what a browser is shown in their place.

Every request passes the guard first (`security.py`): a route that is not read with GET or HEAD needs the right to operate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frazil.errors import SpecError
from frazil.ops.running import RunningPipeline
from frazil.spec.connections import HttpSpec
from frazil_http.operations import Operations
from frazil_http.page_kinds import PAGES
from frazil_http.problems import Problem

log = structlog.get_logger("frazil")


class Pages(Protocol):
    """The pages of one package for one pipeline."""

    def routes(self) -> Sequence[Route]:
        """Returns the routes of the pages, their forms and files."""

    def login(self, request: Request) -> Response:
        """Returns the page that asks for a token, in place of one that needs it."""

    def refuse(self, request: Request, problem: Problem) -> Response:
        """Returns the page of a problem."""

    def start(self) -> None:
        """Begins what the pages do beside requests; called once, when the service begins to answer."""

    def stop(self) -> None:
        """Ends answers that never end by themselves, and what the pages do beside requests, within two seconds."""


def open_pages(pipeline: RunningPipeline, operations: Operations, http: HttpSpec) -> list[Pages]:
    """Returns the pages of installed packages. A package that cannot be imported is logged, and has none."""
    pages: list[Pages] = []
    for name in PAGES.added():
        try:
            kind = PAGES.get(name)
        except SpecError as error:
            log.warning("pages_unavailable", pages=name, reason=error.message, remedy=error.remedy)
        else:
            pages.append(kind.opener(pipeline, operations, http))
    return pages
