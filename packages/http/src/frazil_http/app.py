"""The application: its routes, and the guard that every request passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from frazil.errors import FrazilError
from frazil.ingest.failures import TableStopped
from frazil.ops.running import RunningPipeline
from frazil.spec.connections import HttpSpec
from frazil_http.api import Parameters, read_parameters, routes
from frazil_http.metrics import MEDIA_TYPE, render
from frazil_http.openapi import openapi_document
from frazil_http.operations import Operations
from frazil_http.pages import Pages, open_pages
from frazil_http.problems import Problem, Refused, answer, make_problem, problem_of
from frazil_http.security import Guard, wants_page

OpenPages = Callable[[RunningPipeline, Operations, HttpSpec], Sequence[Pages]]
"""Opens the pages for people."""


def make_app(pipeline: RunningPipeline, http: HttpSpec, open_pages: OpenPages = open_pages) -> Guard:
    """Returns the application. open_pages: by default those of installed packages; the first ones answer a browser."""
    plain: dict[str, Callable[[Request], Response]] = {
        # 503 while the loop is silent: the process should be started again.
        "/healthz": lambda _: _answer_health(pipeline.is_alive),
        # While no table can be committed: the process starts, or a service that all tables need is missing.
        "/readyz": lambda _: _answer_health(pipeline.is_ready),
        "/metrics": lambda _: Response(render(pipeline), media_type=MEDIA_TYPE),
        "/openapi.json": lambda _: JSONResponse(openapi_document()),
    }

    operations = Operations()
    pages = open_pages(pipeline, operations, http)
    first = pages[0] if pages else None

    async def refuse(request: Request, error: Exception) -> Response:
        if first is not None and wants_page(request):
            return first.refuse(request, _problem(error))
        return answer(_problem(error), pipeline.redact, getattr(error, "headers", None))

    app = Starlette(
        routes=[
            *(Route(path, _without_parameters(act)) for path, act in plain.items()),
            *routes(pipeline, operations),
            *(route for of_package in pages for route in of_package.routes()),
        ],
        exception_handlers=dict.fromkeys((HTTPException, FrazilError, TableStopped, Refused, Exception), refuse),
    )
    app.router.redirect_slashes = False
    return Guard(app, http, pipeline.redact, pages)


def _without_parameters(act: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        read_parameters(request, Parameters)
        return act(request)

    return handle


def _answer_health(is_ok: bool) -> Response:
    return JSONResponse({"ok": is_ok}, 200 if is_ok else 503)


def _problem(error: Exception) -> Problem:
    if not isinstance(error, HTTPException):
        return problem_of(error)
    message = "there is nothing at this path" if error.status_code == 404 else "this path has no such method"
    code = "NotFound" if error.status_code == 404 else "MethodNotAllowed"
    return make_problem(error.status_code, code, message, "see /openapi.json")
