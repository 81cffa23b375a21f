"""The server: a socket that is bound when the process starts, and a thread that answers.

Its libraries are loaded in that thread, once the first commit is done, which they would delay by a fifth of a second.
"""

from __future__ import annotations

import errno
import importlib
import socket
import threading
from typing import Any

import structlog

from frazil.errors import SpecError, UnavailableError
from frazil.spec.connections import HttpSpec
from frazil_http.certificate import check_certificate, renewing

log = structlog.get_logger("frazil")

LONGEST_DELAY_S = 10.0
_STOP_S = 2.0
_BACKLOG = 128
_MOST_CONNECTIONS = 200


class HttpServer:
    """Serves the application that `make_app`, as `module:function`, returns for `subject`."""

    def __init__(self, http: HttpSpec, listener: socket.socket, make_app: str, subject: Any) -> None:
        self._http = http
        self._listener = listener
        self._make_app = make_app
        self._subject = subject
        self._may_begin = threading.Event()
        self._is_ended = False
        self._server: Any = None
        self._app: Any = None
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Closes the socket of a server that was not started."""
        self._listener.close()

    def begin(self) -> None:
        """Lets the thread load what it needs; without this call it waits for ten seconds."""
        self._may_begin.set()

    def stop(self) -> None:
        """Ends open connections after at most two seconds, and closes the socket."""
        self._is_ended = True
        self._may_begin.set()
        if self._server is not None:
            self._server.should_exit = True
            self._app.stop()
        self._thread.join(_STOP_S)
        self._listener.close()

    def _serve(self) -> None:
        self._may_begin.wait(LONGEST_DELAY_S)
        if self._is_ended:
            return
        uvicorn = importlib.import_module("uvicorn")
        module, _, function = self._make_app.partition(":")
        self._app = app = getattr(importlib.import_module(module), function)(self._subject, self._http)
        tls = self._http.tls
        config = uvicorn.Config(
            app,
            http="frazil_http.connections:Connection",
            ws="none",
            lifespan="off",
            loop="asyncio",
            access_log=False,
            log_config=None,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_context_factory=renewing(tls) if tls else None,
        )
        app.start()
        self._server = uvicorn.Server(config)
        self._server.should_exit = self._is_ended
        log.info("http_started", address=str(self._http.listen), tls=tls is not None)
        self._server.run(sockets=[self._listener])


def open_server(http: HttpSpec | None, make_app: str, subject: Any) -> HttpServer | None:
    """Returns the server, its socket bound; None where it is switched off, or another process has the default address.

    Raises:
        UnavailableError: another process has the address that the pipeline file declares, or this machine has no such one.
        SpecError: the certificate or its key cannot be read.
    """
    if http is None:
        return None
    try:
        _check_certificate(http)
        return HttpServer(http, _bind(http), make_app, subject)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "another process listens there" if taken else (error.strerror or str(error))
        if http.is_declared:
            raise UnavailableError(
                f"the HTTP service cannot listen on {http.listen}: {reason}",
                remedy="end the other process, or write another address under `http.listen`",
                where=str(http.listen),
            ) from None
        remedy = "write an address under `http: {listen: …}`, or `http: false`"
        log.warning("http_unavailable", address=str(http.listen), reason=reason, remedy=remedy)
        return None


def try_address(http: HttpSpec) -> bool:
    """Listens for a moment where `open_server` would, with its certificate; returns whether it could.

    Raises: as `open_server`.
    """
    server = open_server(http, "", None)
    if server is not None:
        server.close()
    return server is not None


def _bind(http: HttpSpec) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(*http.listen, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _check_certificate(http: HttpSpec) -> None:
    if http.tls is None:
        return
    try:
        check_certificate(http.tls)
    except OSError as error:  # An SSLError is one.
        raise SpecError(
            f"`http.tls` cannot be used: {error.strerror or error}",
            remedy="name a certificate and its key, both as PEM and without a password",
            where=error.filename or http.tls.certificate,
        ) from None
