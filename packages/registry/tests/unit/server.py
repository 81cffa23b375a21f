"""A registry on the loopback that answers what a test tells it to, also badly, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Desk"], None]


class FakeRegistry(ThreadingHTTPServer):
    """answers: by path with its query, else by path alone. asked: path with query and headers of every request."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Desk)
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that the client gives up on are what some tests are about."""


class Desk(BaseHTTPRequestHandler):
    """One request."""

    server: FakeRegistry

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        answers = self.server.answers
        answer = (
            answers.get(self.path) or answers.get(self.path.partition("?")[0]) or answers.get("*") or missing(40403)
        )
        answer(self)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Reports nothing."""

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def schema(text: object, kind: str = "", **more: object) -> Answer:
    """A schema, its text as JSON unless it is text."""
    held = text if isinstance(text, str) else json.dumps(text)
    document = {"schema": held, **({"schemaType": kind} if kind else {}), **more}
    return lambda desk: desk.send(200, json.dumps(document).encode())


def reference(name: str, subject: str, version: int | None = 1) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}


def missing(code: int) -> Answer:
    return trouble(404, json.dumps({"error_code": code, "message": "not found"}).encode())


def trouble(status: int, body: bytes = b"oh", headers: dict[str, str] | None = None) -> Answer:
    return lambda desk: desk.send(status, body, headers)


def hang(desk: Desk) -> None:
    """Takes the request and reports nothing."""
    desk.server.is_over.wait(30)


def trickle(desk: Desk) -> None:
    """A header without end, a byte at a time: no single read takes long."""
    desk.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not desk.server.is_over.wait(0.05):
        desk.wfile.write(b"x")


@contextmanager
def fake_registry(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    with FakeRegistry() as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:  # A thread that is left with a closed socket keeps a processor busy.
            server.is_over.set()
            server.shutdown()
            thread.join()
