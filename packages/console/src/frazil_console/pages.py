"""The pages and the stream of changes: what each shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from frazil.catalog.table_metadata import TableMetadata
from frazil.errors import UnavailableError
from frazil.http.api import Shown, read_parameters
from frazil.http.operations import Operations
from frazil.http.problems import Refused
from frazil.http.security import LOGIN, STATIC, cookie_of, require_operate, rights_of
from frazil.ops import reports
from frazil.ops.running import RunningPipeline
from frazil.printable import plural
from frazil.spec.connections import HttpSpec
from frazil_console import figures, table_page
from frazil_console.actions import Actions
from frazil_console.charts import Chart, chart
from frazil_console.history import History, open_history
from frazil_console.live import LiveTables, Streams
from frazil_console.process_page import process_figures
from frazil_console.render import page, problem_page, static_file, unavailable

SPANS = {"hour": 3_600, "day": 86_400, "month": 30 * 86_400}
"""How far back the charts of a table reach, in seconds."""
_MOST_FORM_BYTES = 4096


class Console:
    """The pages of one pipeline."""

    def __init__(
        self, pipeline: RunningPipeline, operations: Operations, http: HttpSpec, history: History | None = None
    ) -> None:
        """history: that of the pipeline unless given."""
        self._pipeline = pipeline
        self._history = history or open_history(pipeline)
        self._http = http
        self._live = LiveTables(pipeline.state_file, self._history, pipeline.clock)
        self._streams = Streams(self._live)
        self._actions = Actions(pipeline, operations)

    def start(self) -> None:
        """Begins to take samples of the tables."""
        self._history.start()

    def routes(self) -> list[Route]:
        """Returns the routes of the pages, their forms and files."""
        return [
            Route("/", self.tables),
            Route("/tables/{table}", self.table),
            Route("/tables/{table}/dead-letters", self.dead_letters),
            Route("/process", self.process),
            Route("/events", self.events),
            Route(LOGIN, self.log_in, methods=["GET", "POST"]),
            Route(f"{STATIC}{{file}}", static_file),
            *self._actions.routes(),
        ]

    # ---- the list of tables

    def tables(self, request: Request) -> Response:
        """All tables, those first that need attention."""
        given = dict(request.query_params)
        version = self._live.refresh()
        rows = dict(self._live.rows)
        column, kept, text = given.get("sort", "state"), given.get("show", ""), given.get("q", "")
        every = [row.figures for row in rows.values()]
        shown = figures.chosen(every, text, kept, column, "desc" in given)
        return page(
            request,
            "tables.html",
            pipeline=self._pipeline.spec.pipeline,
            rows=[(figures.table.name, rows[figures.table.name].cells) for figures in shown],
            total=len(every),
            summary=figures.summary_of(every),
            columns=figures.COLUMNS,
            filters=figures.FILTERS,
            given={"q": text, "show": kept, "sort": column, "desc": "desc" in given},
            live_version=version,
            is_starting=self._pipeline.state_file.state is None,
        )

    async def events(self, request: Request) -> Response:
        """The cells that have changed since the version that a page shows."""
        if self._streams.is_full:
            raise Refused(503, "TooManyStreams", "too many pages follow the changes", "close some, or refresh the page")
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        if not after.isascii() or not after.isdigit():
            raise Refused(400, "WrongParameter", "`after` is not a version", "leave it out", "after")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._streams.follow(int(after)), media_type="text/event-stream", headers=headers)

    # ---- one table

    def table(self, request: Request) -> Response:
        """One table."""
        name, pipeline = request.path_params["table"], self._pipeline
        table = pipeline.find(name)
        version, span = self._live.refresh(), request.query_params.get("span", "hour")
        row = self._live.rows.get(name)
        report = next(iter(pipeline.report(name).tables), None)
        metadata, failure = self._metadata(name)
        commits = table_page.commits_of(metadata, pipeline.spec.pipeline) if metadata is not None else []
        return page(
            request,
            "table.html",
            pipeline=pipeline.spec.pipeline,
            name=name,
            table=table.spec,
            cells=row.cells if row is not None else None,
            columns=figures.COLUMNS,
            live_version=version,
            report=report,
            waiting=None
            if row is None or row.figures.shown_problem == row.figures.held_back
            else row.figures.held_back,
            charts=self._charts(name, SPANS.get(span, SPANS["hour"])),
            span=span if span in SPANS else "hour",
            spans=SPANS,
            metadata=metadata,
            failure=failure,
            commits=commits[: table_page.MOST_COMMITS],
            commit_count=len(commits),
            sizes=table_page.file_sizes(metadata.files) if metadata is not None else [],
            schema=table_page.current_columns(metadata) if metadata is not None else [],
            schemas=table_page.schema_changes(metadata, commits) if metadata is not None else [],
            partitions=table_page.partitions_of(table),
            settings=pipeline.redact([vars(setting) for setting in table_page.settings_of(pipeline.spec, table.spec)]),
            is_paused=table.schedule.is_paused,
        )

    def _metadata(self, name: str) -> tuple[TableMetadata | None, Mapping[str, str] | None]:
        try:
            return self._pipeline.metadata(name), None
        except UnavailableError as error:  # What the loop knows is shown all the same.
            return None, self._pipeline.redact(unavailable(error))

    def _charts(self, name: str, seconds: int) -> list[Chart]:
        step_s, samples = self._history.read(name, seconds)
        now_s = self._pipeline.clock.now_ms() // 1000
        named = (("Throughput", 2, figures.rate_text), ("Freshness", 1, reports.duration), ("Lag", 0, _records))
        return [chart(title, samples[row], now_s, step_s, text) for title, row, text in named]

    def dead_letters(self, request: Request) -> Response:
        """A table's dead letters by error class, and the records for those who may operate."""
        name, pipeline = request.path_params["table"], self._pipeline
        parameters = read_parameters(request, Shown)
        classes: dict[str, Any] = pipeline.redact(pipeline.dead_letters(name))
        records = None
        if _may_operate(request):
            records = pipeline.redact(pipeline.dead_letter_records(name, parameters.selection, parameters.limit))
        return page(
            request,
            "dead_letters.html",
            pipeline=pipeline.spec.pipeline,
            name=name,
            classes=classes,
            records=records,
            chosen=parameters.model_dump(exclude_none=True, exclude={"limit"}),
            limit=parameters.limit,
        )

    # ---- the process

    def process(self, request: Request) -> Response:
        """The process that runs the pipeline."""
        report = self._pipeline.report()
        shown_figures = process_figures(self._pipeline, report)
        return page(request, "process.html", pipeline=report.pipeline, report=report, process=shown_figures)

    # ---- logging in

    def login(self, request: Request) -> Response:
        """The page that asks for a token, in place of one that needs it."""
        return page(request, "login.html", 401, next=_own_path(_address_of(request)), is_refused=False)

    async def log_in(self, request: Request) -> Response:
        """Takes a token and answers with the cookie; without one, asks for it."""
        if request.method != "POST":
            return page(request, "login.html", next="/", is_refused=False)
        if int(request.headers.get("content-length", _MOST_FORM_BYTES + 1)) > _MOST_FORM_BYTES:
            raise Refused(413, "TooLarge", "the form is too large", "send a token")
        given = dict(parse_qsl((await request.body()).decode(errors="replace")))
        token, place = given.get("token", "").strip(), _own_path(given.get("next", "/"))
        if not rights_of(token, self._http.tokens):
            return page(request, "login.html", 401, next=place, is_refused=True)
        answer = RedirectResponse(place, 303)
        is_secure = self._http.tls is not None
        answer.set_cookie(cookie_of(self._http), token, httponly=True, samesite="strict", secure=is_secure)
        return answer

    refuse = staticmethod(problem_page)

    def stop(self) -> None:
        """Ends the streams of changes, and writes the history."""
        self._streams.end()
        self._history.stop()


def _may_operate(request: Request) -> bool:
    try:
        require_operate(request)
    except Refused:
        return False
    return True


def _address_of(request: Request) -> str:
    """Returns the path of a request with its query, as a link has it."""
    path, query = quote(request.scope["path"], safe="/"), request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _own_path(path: str) -> str:
    """Returns a path of this service; `//host/…` would lead to another one."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path != LOGIN else "/"


def _records(number: float) -> str:
    return plural(round(number), "record")
