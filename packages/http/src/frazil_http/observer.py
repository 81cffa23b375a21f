"""The HTTP service as an observer of runs: it answers from before the first table is known until after the last commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from frazil.api.wiring import known_state
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.ops.check import Finding, failed
from frazil.ops.observers import Observed, Observer
from frazil.ops.status import find_process
from frazil.spec import PipelineSpec
from frazil_http.certificate import RENEW, Validity, validity
from frazil_http.server import HttpServer, open_server, try_address


class HttpObserver(Observer):
    """See Observer."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        server.start()

    def take_tables(self, tables: Sequence[Table]) -> None:
        """Lets the server load its libraries, but not while the first batch runs: its commit would be later."""
        is_busy = any(table.schedule.in_flight for table in tables)
        if any(table.counts.records for table in tables) or not is_busy:
            self._server.begin()

    def close(self) -> None:
        """See Observer."""
        self._server.stop()


def open_observer(observed: Observed) -> Observer:
    """Returns what serves the pipeline; what does nothing where another process has the default address.

    Raises: as `open_server`.
    """
    server = open_server(observed.pipeline.spec.process.http, "frazil_http.app:make_app", observed.pipeline)
    return Observer() if server is None else HttpObserver(server)


def check_http(spec: PipelineSpec, _environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yields whether the declared HTTP service could start: without a declared address a run continues without it, and
    beside a running process of the pipeline the address is in use by it. Yields too whether clients accept the dates of its
    certificate.
    """
    if spec.process.http is None or not (spec.process.http.is_declared or spec.process.http.tls):
        return
    if spec.process.http.tls is not None and (dates := validity(spec.process.http.tls)) is not None:
        yield _check_dates(dates, spec.process.http.tls.certificate)
    if find_process(known_state(spec), SystemClock().now_ms()).is_running:
        return
    tried, address = "listened for a moment", str(spec.process.http.listen)
    try:
        can_listen = try_address(spec.process.http)
    except (SpecError, UnavailableError) as error:
        yield failed("http", tried, error)
    else:
        yield Finding("http", True, tried, f"can listen on {address}" if can_listen else f"no: {address} is in use")


def _check_dates(dates: Validity, file: str) -> Finding:
    now_ms = SystemClock().now_ms()
    name, tried = "http certificate", f"read its dates in {file}"
    if refusal := dates.refusal(now_ms):
        return Finding(name, False, tried, refusal, RENEW, file)
    warning = dates.warning(now_ms)
    return Finding(name, True, tried, f"warning: {warning}; {RENEW}" if warning else "clients accept its dates")
