"""A schema registry of the bench's own on the loopback: it answers what a reader asks of Confluent's API, and no more.

It runs in this process, so that its CPU is the harness's and not the subject's. A reader asks for each schema once.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
_HOST = "127.0.0.1"
_NOT_FOUND: Mapping[str, object] = {"error_code": 40403, "message": "Schema not found"}


class Registry:
    """Serves what was registered with it, on a free port, from `with` to its end."""

    def __init__(self) -> None:
        self._answers: dict[str, Mapping[str, object]] = {}
        self._versions: dict[str, int] = {}
        self._last_id = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None, "it is not running"
        return f"http://{_HOST}:{self._server.server_address[1]}"

    def answer(self, target: str) -> Mapping[str, object] | None:
        """What it says to a GET of a path, with or without a query; None when there is no such thing."""
        return self._answers.get(urlsplit(target).path)

    def register(self, subject: str, kind: Kind, text: str) -> int:
        """The id of a new version of the subject; a name must be one that a URL can hold as it is."""
        self._last_id += 1
        version = self._versions[subject] = self._versions.get(subject, 0) + 1
        guid = str(uuid.UUID(bytes=hashlib.sha256(f"{kind}{text}".encode()).digest()[:16]))
        answer = {
            "id": self._last_id,
            "guid": guid,
            "subject": subject,
            "version": version,
            "schemaType": kind,
            "schema": text,
        }
        places = (f"ids/{self._last_id}", f"guids/{guid}")
        self._answers |= {f"/schemas/{place}": answer for place in places}
        self._answers |= {f"/subjects/{subject}/versions/{name}": answer for name in (version, "latest")}
        return self._last_id

    def __enter__(self) -> Registry:
        self._server = ThreadingHTTPServer((_HOST, 0), _answering(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="registry", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _answering(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = registry.answer(self.path)
            body = json.dumps(found or _NOT_FOUND).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  (the name it is called with)
            pass

    return Answering
