"""Errors as RFC 9457 has them: `application/problem+json` with the message, the remedy and the place of every error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse

from frazil.errors import ConflictError, FrazilError, SpecError, UnavailableError
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.loop.requests import UnknownTable

_RETRY_AFTER_S = "5"


class Problem(BaseModel):
    """What is wrong with a request, or with the pipeline that it asks about."""

    type: str = "about:blank"
    #: The standard phrase of the status.
    title: str
    status: int
    #: The message, as every client of RFC 9457 shows it.
    detail: str
    message: str
    #: What to do.
    remedy: str = ""
    #: The place: a table, a topic, a parameter.
    where: str = ""
    #: The kind of error, for programs.
    code: str


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, code: str, message: str, remedy: str, where: str = "") -> None:
        super().__init__(message)
        self.problem = make_problem(status, code, message, remedy, where)
        self.headers: Mapping[str, str] = {}


def make_problem(status: int, code: str, message: str, remedy: str = "", where: str = "") -> Problem:
    """Returns a problem with the phrase of its status."""
    title = HTTPStatus(status).phrase
    return Problem(title=title, status=status, detail=message, message=message, remedy=remedy, where=where, code=code)


def problem_of(error: Exception) -> Problem:
    """Returns the problem of an error: 503 where a repetition may succeed, 500 for one that nothing foresees."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, FrazilError | TableStopped):
        message, remedy, where = describe_error(error)
        code = error.type_name if isinstance(error, FrazilError) else type(error).__name__
        return make_problem(_status_of(error), code, message, remedy, where)
    remedy = "look at the log of the process for `http_request_failed`"
    return make_problem(500, "InternalError", "the request failed in an unforeseen way", remedy)


def _status_of(error: FrazilError | TableStopped) -> int:
    if isinstance(error, UnknownTable):
        return 404
    statuses = {SpecError: 400, UnavailableError: 503, ConflictError: 409, TableStopped: 409}
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)


def answer(problem: Problem, redact: Callable[[Any], Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the problem as a response."""
    retry = {"Retry-After": _RETRY_AFTER_S} if problem.status == 503 else {}
    return JSONResponse(
        redact(problem.model_dump()),
        problem.status,
        headers={**retry, **(headers or {})},
        media_type="application/problem+json",
    )
