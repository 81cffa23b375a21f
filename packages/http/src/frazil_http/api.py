"""The API: every endpoint with its parameters, its answers and what it calls.

The routes and the OpenAPI document are both made from `ENDPOINTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from frazil.dead_letters.files import Selection
from frazil.ops.audit import record
from frazil.ops.pipeline_status import SHOWN, pipeline_document, pipeline_schema, tables_document
from frazil.ops.reports import schema_of
from frazil.ops.running import RunningPipeline
from frazil_deadletters.running import dead_letter_records, dead_letters, replay
from frazil_http.operations import Operation, Operations
from frazil_http.problems import Refused
from frazil_http.security import actor_of, require_operate

log = structlog.get_logger("frazil")

Schema = Mapping[str, Any]
OBJECT: Schema = {"type": "object"}
_MOST_RECORDS = 1000
_Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Parameters(BaseModel):
    """The parameters of a query; unknown ones are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


_Kind = TypeVar("_Kind", bound=Parameters)


class DryRun(Parameters):
    """Parameters of a command with a dry run."""

    dry_run: bool = False
    """Whether to show what the command would do, and change nothing."""


class Selected(Parameters):
    """Which dead letters."""

    error_class: str | None = None
    """Only dead letters of this error class."""
    topic: str | None = None
    """Only dead letters from this topic."""
    partition: _Number | None = None
    """Only dead letters from this partition."""
    offset: _Offset | None = None
    """Only the dead letter of this offset."""

    @property
    def selection(self) -> Selection:
        """The dead letters."""
        return Selection(self.error_class, self.topic, self.partition, self.offset)


class Shown(Selected):
    """Which dead letters, and how many."""

    limit: Annotated[int, Field(ge=1, le=_MOST_RECORDS)] = 20
    """How many dead letters at most, the newest first."""


class Replayed(Selected, DryRun):
    """Which dead letters to replay."""


@dataclass(frozen=True)
class Call:
    """One request."""

    pipeline: RunningPipeline
    operations: Operations
    #: The variables of the path.
    path: Mapping[str, str]
    parameters: Any


@dataclass(frozen=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    #: Returns the JSON of the answer; an Operation is answered with 202.
    act: Callable[[Call], Any]
    #: The JSON Schema of the answer.
    answer: Schema = field(default_factory=lambda: OBJECT)
    parameters: type[Parameters] = Parameters
    #: Whether it may be answered with 202, while the work continues.
    is_long: bool = False
    #: Whether also a GET needs the right to operate: records are shown.
    is_private: bool = False


def _pipeline(call: Call) -> Any:
    return pipeline_document(call.pipeline.report())


def _table(call: Call) -> Any:
    name = call.path["table"]
    return tables_document(call.pipeline.report(name))[name]


def _pause(call: Call) -> Any:
    call.pipeline.pause(call.path["table"])
    return _table(call)


def _resume(call: Call) -> Any:
    call.pipeline.resume(call.path["table"])
    return _table(call)


def _reset(call: Call) -> Any:
    reset = call.pipeline.reset(call.path["table"], call.parameters.dry_run)
    figures = {"read_again": reset.read_again, "left_unread": reset.left_unread}
    return {"dry_run": call.parameters.dry_run, **asdict(reset), **figures}


def _stand_down(call: Call) -> Any:
    call.pipeline.stand_down()
    return _pipeline(call)


def _maintain(call: Call) -> Any:
    name, pipeline = call.path["table"], call.pipeline
    pipeline.find(name)
    if call.parameters.dry_run:
        return pipeline.maintain(name, dry_run=True)
    return call.operations.begin(lambda: pipeline.maintain(name, dry_run=False))


def _replay(call: Call) -> Any:
    name, pipeline, selection = call.path["table"], call.pipeline, call.parameters.selection
    pipeline.find(name)
    if call.parameters.dry_run:
        return replay(pipeline, name, selection, dry_run=True)
    return call.operations.begin(lambda: replay(pipeline, name, selection, dry_run=False))


_TABLE = schema_of(*SHOWN.values())
_AT_TABLE = "/api/v1/tables/{table}"
_LIST: Schema = {"type": "array", "items": OBJECT}
ENDPOINTS = (
    Endpoint("GET", "/api/v1/pipeline", "getPipeline", "The pipeline and its process.", _pipeline, pipeline_schema()),
    Endpoint(
        "POST",
        "/api/v1/stand-down",
        "standDown",
        "Let another process take over all tables of this one, which becomes a standby.",
        _stand_down,
        pipeline_schema(),
    ),
    Endpoint(
        "GET",
        "/api/v1/tables",
        "listTables",
        "Every table by name, as `frazil status --output json` prints it.",
        lambda call: tables_document(call.pipeline.report()),
        {"type": "object", "additionalProperties": _TABLE},
    ),
    Endpoint("GET", _AT_TABLE, "getTable", "One table, as in the list.", _table, _TABLE),
    Endpoint(
        "GET", "/api/v1/plan", "getPlan", "What `frazil plan --output json` prints.", lambda call: call.pipeline.plan()
    ),
    Endpoint(
        "GET",
        f"{_AT_TABLE}/dead-letters",
        "listDeadLetters",
        "The dead letters of a table by error class, as `frazil dead-letters list` prints them.",
        lambda call: dead_letters(call.pipeline, call.path["table"]),
    ),
    Endpoint(
        "GET",
        f"{_AT_TABLE}/dead-letters/records",
        "showDeadLetters",
        "Dead letters with their records, as `frazil dead-letters show` prints them.",
        lambda call: dead_letter_records(
            call.pipeline, call.path["table"], call.parameters.selection, call.parameters.limit
        ),
        _LIST,
        Shown,
        is_private=True,
    ),
    Endpoint(
        "POST",
        f"{_AT_TABLE}/dead-letters/replay",
        "replayDeadLetters",
        "Replay dead letters; with `dry_run` the number of those selected.",
        _replay,
        parameters=Replayed,
        is_long=True,
    ),
    Endpoint(
        "POST",
        f"{_AT_TABLE}/pause",
        "pauseTable",
        "Begin no further batch of the table until it is resumed, or the process starts again.",
        _pause,
        _TABLE,
    ),
    Endpoint("POST", f"{_AT_TABLE}/resume", "resumeTable", "Continue a paused or stopped table.", _resume, _TABLE),
    Endpoint(
        "POST",
        f"{_AT_TABLE}/reset",
        "resetTable",
        "Make a paused or stopped table begin again at its setting `start`.",
        _reset,
        parameters=DryRun,
    ),
    Endpoint(
        "POST",
        f"{_AT_TABLE}/maintain",
        "maintainTable",
        "Run a round of maintenance; with `dry_run` what is due.",
        _maintain,
        parameters=DryRun,
        is_long=True,
    ),
    Endpoint(
        "GET",
        "/api/v1/operations/{operation}",
        "getOperation",
        "Work that was answered with 202.",
        lambda call: call.operations.get(call.path["operation"]).model_dump(),
        Operation.model_json_schema(ref_template="#/components/schemas/{model}"),
    ),
)


def routes(pipeline: RunningPipeline, operations: Operations) -> list[Route]:
    """Returns the routes of all endpoints."""
    return [
        Route(endpoint.path, _handler(endpoint, pipeline, operations), methods=[endpoint.method], name=endpoint.name)
        for endpoint in ENDPOINTS
    ]


def _handler(endpoint: Endpoint, pipeline: RunningPipeline, operations: Operations) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        if endpoint.is_private:
            require_operate(request)
        # The `dry_run` of a body would not be read.
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            remedy = "write the parameters behind the path, such as `?dry_run=true`, and send no body"
            raise Refused(400, "UnexpectedBody", "the request has a body", remedy)
        parameters = read_parameters(request, endpoint.parameters)
        if request.method == "POST":
            chosen = parameters.model_dump(exclude_defaults=True)
            log.info("http_command", operation=endpoint.name, **request.path_params, **chosen)
            record(pipeline.spec, actor_of(request, "api"), endpoint.name, {**request.path_params, **chosen})
        answer = endpoint.act(Call(pipeline, operations, request.path_params, parameters))
        if isinstance(answer, Operation):
            place = {"Location": f"/api/v1/operations/{answer.id}"}
            return JSONResponse(answer.model_dump(), 202, headers=place)
        return JSONResponse(pipeline.redact(answer))

    return handle


def read_parameters(request: Request, kind: type[_Kind]) -> _Kind:
    """Returns the parameters of the query. Raises: Refused for unknown, repeated and wrong ones."""
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise Refused(400, "WrongParameter", f"`{repeated}` occurs twice", "keep one of them", repeated)
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            parameters_here = ", ".join(f"`{parameter}`" for parameter in kind.model_fields) or "none"
            raise Refused(
                400, "UnknownParameter", f"unknown parameter `{name}`", f"the parameters here: {parameters_here}", name
            ) from None
        raise Refused(400, "WrongParameter", f"`{name}` is wrong: {first['msg']}", "correct it", name) from None
