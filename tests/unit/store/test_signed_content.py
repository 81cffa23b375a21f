"""Whether the content of what is written to S3 is part of the signature."""

from __future__ import annotations

import hashlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from frazil.store.file_io import StoreIO
from tests.fixtures.certificates import Authority

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.path-style-access": "true"}


@pytest.mark.parametrize("is_secure", [True, False], ids=["https", "http"])
def test_content_is_signed_where_nothing_else_protects_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_secure: bool
) -> None:
    asked: list[str] = []

    class Store(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(self.headers["x-amz-content-sha256"])
            self.send_response(200)
            for name, value in {"etag": '"e"', "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    if is_secure:
        authority = Authority(tmp_path)
        files = authority.make("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", str(not is_secure).lower())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        scheme = "https" if is_secure else "http"
        access = StoreIO({"s3.endpoint": f"{scheme}://127.0.0.1:{server.server_port}", **KEYS})
        with access.new_output("s3://lake/x").create(overwrite=True) as stream:
            stream.write(b"row")
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["UNSIGNED-PAYLOAD" if is_secure else hashlib.sha256(b"row").hexdigest()]
