"""The pages and the stream of changes: what each shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from frazil.catalog.table_metadata import TableMetadata
from frazil.dead_letters.files import Selection
from frazil.errors import FrazilError, UnavailableError
from frazil.ops import reports
from frazil.ops.audit import audit_file
from frazil.ops.running import RunningPipeline
from frazil.printable import plural
from frazil.spec.connections import HttpSpec
from frazil.spec.load import read_settings
from frazil.spec.syntax.shown import shown
from frazil_console import figures, table_page
from frazil_console.actions import SEVERAL, Actions
from frazil_console.charts import Chart, chart
from frazil_console.history import FINE, History, open_history
from frazil_console.live import LiveTables, Streams
from frazil_console.overview import overview_of, total_rate
from frazil_console.process_page import process_figures
from frazil_console.render import page, problem_page, static_file, unavailable
from frazil_console.runbooks import HELP, INDEX, html_of, page_of, titles
from frazil_console.timeline import timeline
from frazil_deadletters.running import dead_letter_records, dead_letters
from frazil_http.api import Shown, read_parameters
from frazil_http.operations import Operations
from frazil_http.problems import Refused
from frazil_http.security import LOGIN, STATIC, cookie_of, require_operate, rights_of

TABS = {
    "now": "Now",
    "commits": "Commits",
    "files": "Files and maintenance",
    "schema": "Schema",
    "partitions": "Partitions",
    "events": "Events",
    "settings": "Settings",
}
"""The parts of a table's page, by the word in its address."""
_PLACE = re.compile(r"topic (.+), partition (\d+), offset (\d+)")
_MOST_EVIDENCE = 3
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
        self._settings = _file_as_read(pipeline)

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
            Route(f"{HELP}{{name}}", self.help),
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
        is_starting, now_ms = self._pipeline.state_file.state is None, self._pipeline.clock.now_ms()
        rates = total_rate([self._history.last_hour(name) for name in rows])
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
            is_starting=is_starting,
            overview=overview_of(every, is_starting),
            rate=chart("Records per second", rates, now_ms // 1000, FINE.step_s, figures.rate_text),
            now_ms=now_ms,
            several=SEVERAL,
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
        row, tab = self._live.rows.get(name), request.query_params.get("tab", "now")
        report = next(iter(pipeline.report(name).tables), None)
        metadata, failure = self._metadata(name)
        commits = table_page.commits_of(metadata, pipeline.spec.pipeline) if metadata is not None else []
        schemas = table_page.schema_changes(metadata, commits) if metadata is not None else []
        ends, ends_failure = self._ends(name) if tab == "partitions" else ({}, None)
        partitions = table_page.partitions_of(table, ends)
        stopped = report.condition.problem if report and report.condition.state in ("stopped", "backing off") else None
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
            schemas=schemas,
            partitions=table_page.with_bars(partitions),
            lags=[partition.lag for partition in partitions if partition.lag is not None],
            ends_failure=ends_failure,
            tab=tab if tab in TABS else "now",
            tabs=TABS,
            times=table_page.batch_time(table.counts),
            path=table_page.path_of(table.spec, report.lag.topics if report else ()),
            stopped=pipeline.redact(vars(stopped)) if stopped else None,
            runbook=_runbook_of(stopped.message, stopped.where) if stopped else None,
            evidence=self._evidence(name, stopped.where) if stopped and _may_operate(request) else [],
            events=timeline(name, audit_file(pipeline.spec), self._history.states, schemas) if tab == "events" else [],
            settings=pipeline.redact([vars(setting) for setting in table_page.settings_of(pipeline.spec, table.spec)]),
            is_paused=table.schedule.is_paused,
        )

    def _metadata(self, name: str) -> tuple[TableMetadata | None, Mapping[str, str] | None]:
        try:
            return self._pipeline.metadata(name), None
        except UnavailableError as error:  # What the loop knows is shown all the same.
            return None, self._pipeline.redact(unavailable(error))

    def _ends(self, name: str) -> tuple[Mapping[tuple[str, int], int], Mapping[str, str] | None]:
        try:
            return self._pipeline.ends(name), None
        except UnavailableError as error:
            return {}, self._pipeline.redact(unavailable(error))

    def _evidence(self, name: str, where: str) -> list[dict[str, str]]:
        """Returns the record at the place where a table has stopped, or its newest dead letters; none where neither is to
        be had, which the rest of the page does not wait for.
        """
        try:
            place = _PLACE.fullmatch(where)
            record = self._pipeline.record_at(name, place[1], int(place[2]), int(place[3])) if place else None
            if record is not None:
                value = "" if record.value is None else record.value.decode(errors="backslashreplace")
                return [self._pipeline.redact({"place": where, "error": "", "value": value})]
            stored = dead_letter_records(self._pipeline, name, Selection(), _MOST_EVIDENCE)
        except FrazilError:
            return []
        return [self._pipeline.redact(_evidence_of(dead_letter)) for dead_letter in stored]

    def _charts(self, name: str, seconds: int) -> list[Chart]:
        step_s, samples = self._history.read(name, seconds)
        now_s = self._pipeline.clock.now_ms() // 1000
        named = (
            ("Throughput", 2, figures.rate_text),
            ("Freshness", 1, reports.duration),
            ("Lag", 0, lambda number: plural(round(number), "record")),
        )
        return [chart(title, samples[row], now_s, step_s, text) for title, row, text in named]

    def dead_letters(self, request: Request) -> Response:
        """A table's dead letters by error class, and the records for those who may operate."""
        name, pipeline = request.path_params["table"], self._pipeline
        parameters = read_parameters(request, Shown)
        classes: dict[str, Any] = pipeline.redact(dead_letters(pipeline, name))
        records = None
        if _may_operate(request):
            records = pipeline.redact(dead_letter_records(pipeline, name, parameters.selection, parameters.limit))
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

    # ---- help

    def help(self, request: Request) -> Response:
        """One page of docs/troubleshoot, which may be read without the rights to operate."""
        name = request.path_params["name"]
        if name not in titles():
            raise Refused(404, "NotFound", "there is no such page", "see the list of tables")
        values = {"name": name, "title": titles()[name], "text": html_of(name), "index": INDEX}
        return page(request, "help.html", pipeline=self._pipeline.spec.pipeline, **values)

    # ---- the process

    def process(self, request: Request) -> Response:
        """The process that runs the pipeline."""
        report = self._pipeline.report()
        shown_figures = process_figures(self._pipeline, report)
        values: dict[str, Any] = {"report": report, "process": shown_figures, "settings": self._settings}
        return page(request, "process.html", pipeline=report.pipeline, **values)

    # ---- logging in

    def login(self, request: Request) -> Response:
        """The page that asks for a token, in place of one that needs it."""
        path, query = quote(request.scope["path"], safe="/"), request.scope["query_string"].decode("latin-1")
        address = f"{path}?{query}" if query else path
        return page(request, "login.html", 401, next=_own_path(address), is_refused=False)

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


def _file_as_read(pipeline: RunningPipeline) -> list[str]:
    """Returns the lines of the pipeline file as the process has read it; none where it has changed or gone since."""
    try:
        lines: list[str] = pipeline.redact(list(shown(read_settings(pipeline.spec.file.path))))
    except (FrazilError, OSError):
        return []
    return lines


def _may_operate(request: Request) -> bool:
    try:
        require_operate(request)
    except Refused:
        return False
    return True


def _runbook_of(message: str, where: str) -> dict[str, str]:
    """Returns the address and the title of the page that explains why a table has stopped."""
    name = page_of(message, place_of_record=_PLACE.fullmatch(where) is not None)
    return {"address": f"{HELP}{name}", "title": titles()[name]}


def _evidence_of(dead_letter: Mapping[str, Any]) -> dict[str, str]:
    """Returns what is shown of a dead letter: its place, its error, and its value as far as anybody may read it."""
    value = dead_letter["value"] or {}
    shown = value.get("text") or (f"base64: {value['base64']}" if "base64" in value else "encrypted" if value else "")
    place = f"topic {dead_letter['topic']}, partition {dead_letter['partition']}, offset {dead_letter['offset']}"
    error = f"{dead_letter['error_class']}: {dead_letter['message'] or ''}"
    return {"place": place, "error": error, "value": shown}


def _own_path(path: str) -> str:
    """Returns a path of this service; `//host/…` would lead to another one."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path != LOGIN else "/"
