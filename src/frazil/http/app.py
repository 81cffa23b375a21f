"""The application: its routes, and what every request passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from frazil.errors import UnavailableError
from frazil.ops.reports import as_document
from frazil.ops.running import RunningPipeline
from frazil.spec.models import HttpSpec


@dataclass(frozen=True)
class Api:
    """The endpoints."""

    pipeline: RunningPipeline

    def tables(self, _: Request) -> Response:
        """The tables, as `frazil status --output json` has them."""
        return JSONResponse(as_document(self.pipeline.report())["tables"])

    def healthz(self, _: Request) -> Response:
        """Whether the loop turns."""
        return JSONResponse({"ok": True})


def _starting(_: Request, error: Exception) -> Response:
    return JSONResponse({"message": str(error)}, 503)


def make_app(pipeline: RunningPipeline, http: HttpSpec) -> Starlette:  # noqa: ARG001
    """Returns the application."""
    api = Api(pipeline)
    routes: list[tuple[str, Callable[[Request], Any]]] = [("/healthz", api.healthz), ("/api/v1/tables", api.tables)]
    return Starlette(
        routes=[Route(path, endpoint) for path, endpoint in routes], exception_handlers={UnavailableError: _starting}
    )
