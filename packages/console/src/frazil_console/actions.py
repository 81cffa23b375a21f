"""What the forms of the console do: each shows first what it would do, and does it when that page is sent back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from frazil.ops.audit import record
from frazil.ops.running import RunningPipeline
from frazil_console.figures import url_of
from frazil_console.render import page
from frazil_deadletters.running import replay
from frazil_http.api import Parameters, Selected, read_parameters
from frazil_http.operations import Operation, Operations
from frazil_http.problems import Refused
from frazil_http.security import actor_of, require_operate

log = structlog.get_logger("frazil")


@dataclass(frozen=True)
class _Act:
    """An action on one table."""

    #: The API's name of it, for the log.
    operation: str
    title: str
    #: What the action does, whatever the table's state.
    about: str
    #: Returns what it would do now, a line each.
    preview: Callable[[RunningPipeline, str, Any], list[str]]
    #: Does it; work that takes long is returned as an operation.
    act: Callable[[RunningPipeline, Operations, str, Any], Operation | None]
    parameters: type[Parameters] = Parameters


def _nothing(_pipeline: RunningPipeline, _name: str, _chosen: Any) -> list[str]:
    return []


def _preview_reset(pipeline: RunningPipeline, name: str, _chosen: Any) -> list[str]:
    reset = pipeline.reset(name, dry_run=True)
    effect = "they become rows a second time" if reset.mode == "append" else "they replace their rows"
    return [
        f"offsets that are read again: {reset.read_again:,}; {effect}",
        f"offsets that are left unread: {reset.left_unread:,}",
    ]


def _preview_maintenance(pipeline: RunningPipeline, name: str, _chosen: Any) -> list[str]:
    tables = pipeline.maintain(name, dry_run=True)["tables"]
    due = [
        f"{table}: {due_action['action']}: {due_action['reason']}"
        for table, held in tables.items()
        for due_action in held["actions"]
    ]
    failures = [f"{table}: {held['failure']}" for table, held in tables.items() if held["failure"]]
    return [str(pipeline.redact(line)) for line in [*due, *failures] or ["nothing is due"]]


def _preview_replay(pipeline: RunningPipeline, name: str, chosen: Any) -> list[str]:
    count = replay(pipeline, name, chosen.selection, dry_run=True)["dead_letters"]
    return [f"dead letters that are decoded again: {count:,}; those that fail again remain"]


def _reset(pipeline: RunningPipeline, _operations: Operations, name: str, _chosen: Any) -> None:
    pipeline.reset(name, dry_run=False)


ACTIONS: Mapping[str, _Act] = {
    "pause": _Act(
        "pauseTable",
        "Pause",
        "No further batch begins until the table is resumed, or the process starts again.",
        _nothing,
        lambda pipeline, _, name, __: pipeline.pause(name),
    ),
    "resume": _Act(
        "resumeTable",
        "Resume",
        "The paused or stopped table continues.",
        _nothing,
        lambda pipeline, _, name, __: pipeline.resume(name),
    ),
    "reset": _Act(
        "resetTable",
        "Reset",
        "The paused or stopped table begins again at its setting `start`. Rows stay.",
        _preview_reset,
        _reset,
    ),
    "maintain": _Act(
        "maintainTable",
        "Maintain",
        "One round of table maintenance runs now. It changes no row.",
        _preview_maintenance,
        lambda pipeline, operations, name, _: operations.begin(partial(pipeline.maintain, name, dry_run=False)),
    ),
    "replay": _Act(
        "replayDeadLetters",
        "Replay",
        "Dead letters are decoded again with the current schemas and settings; those that succeed become rows, each once.",
        _preview_replay,
        lambda pipeline, operations, name, chosen: operations.begin(
            partial(replay, pipeline, name, chosen.selection, dry_run=False)
        ),
        Selected,
    ),
}
"""The actions on a table, by the last part of their path."""


SEVERAL = ("pause", "resume", "maintain")
"""The actions that may be taken on several tables at once: those that need no choice."""
_MOST_TABLES = 1_000


class Actions:
    """The pages of actions and of work that takes long."""

    def __init__(self, pipeline: RunningPipeline, operations: Operations) -> None:
        self._pipeline = pipeline
        self._operations = operations

    def routes(self) -> list[Route]:
        """Returns the routes."""
        return [
            *(
                Route(f"/tables/{{table}}/{name}", partial(self._handle, act), methods=["GET", "POST"])
                for name, act in ACTIONS.items()
            ),
            Route("/tables/{table}/operations/{operation}", self.operation),
            Route("/several", self.several, methods=["GET", "POST"]),
        ]

    def _handle(self, act: _Act, request: Request) -> Response:
        require_operate(request)
        name, chosen = request.path_params["table"], read_parameters(request, act.parameters)
        self._pipeline.find(name)
        if request.method == "POST":
            return self._do(request, act, name, chosen)
        selection = chosen.model_dump(exclude_none=True)
        return page(
            request,
            "action.html",
            pipeline=self._pipeline.spec.pipeline,
            name=name,
            act=act,
            effects=act.preview(self._pipeline, name, chosen),
            selection=selection,
        )

    def _do(self, request: Request, act: _Act, name: str, chosen: Parameters) -> Response:
        arguments = {"table": name, **chosen.model_dump(exclude_defaults=True)}
        log.info("http_command", operation=act.operation, **arguments)
        record(self._pipeline.spec, actor_of(request, "console"), act.operation, arguments)
        begun = act.act(self._pipeline, self._operations, name, chosen)
        return RedirectResponse(url_of(name) + (f"/operations/{begun.id}" if begun else ""), 303)

    def several(self, request: Request) -> Response:
        """One action on the tables that were chosen: shown first, then done for each."""
        require_operate(request)
        names = list(dict.fromkeys(request.query_params.getlist("table")))[:_MOST_TABLES]
        act = ACTIONS.get(request.query_params.get("act", ""))
        if act is None or request.query_params["act"] not in SEVERAL or not names:
            raise Refused(
                400, "WrongParameter", "no table was chosen, or no action", "choose tables in the list", "table"
            )
        for name in names:
            self._pipeline.find(name)
        if request.method == "POST":
            for name in names:
                self._do(request, act, name, Parameters())
            return RedirectResponse("/", 303)
        return page(request, "several.html", pipeline=self._pipeline.spec.pipeline, names=names, act=act)

    def operation(self, request: Request) -> Response:
        """Work on a table that takes longer than a request."""
        require_operate(request)
        name = request.path_params["table"]
        operation = self._operations.get(request.path_params["operation"])
        shown = self._pipeline.redact(operation.model_dump())
        return page(request, "operation.html", pipeline=self._pipeline.spec.pipeline, name=name, operation=shown)
