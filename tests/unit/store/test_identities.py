"""The identity that a property names is that of tasks, whatever the environment of their machine has for others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from frazil.store.file_io import StoreIO

HOST = "account.dfs.core.windows.net"
ENVIRONMENTS = {
    "a service principal": {"AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s", "AZURE_TENANT_ID": "t"},
    "a workload identity": {"AZURE_CLIENT_ID": "i", "AZURE_FEDERATED_TOKEN_FILE": "token", "AZURE_TENANT_ID": "t"},
    "keys": {"AZURE_STORAGE_ACCOUNT_KEY": "b3RoZXI=", "AZURE_STORAGE_TOKEN": "other"},
    "no signature": {"AZURE_SKIP_SIGNATURE": "true"},
}
Asked = list[tuple[str, str]]


@pytest.fixture
def store() -> Iterator[tuple[str, Asked]]:
    """The address of a store that takes everything, and what it was asked: path and authorization."""
    asked: Asked = []

    class Store(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, self.headers.get("authorization", "")))
            self.send_response(201)
            for name, value in {"etag": '"e"', "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
@pytest.mark.parametrize(
    ("properties", "path", "authorization"),
    [
        ({f"adls.sas-token.{HOST}": "?sig=a%2Bb&sv=1"}, "/c/x?sig=a%2Bb&sv=1", ""),
        (
            {"adls.auth.shared-key.account.name": "named", "adls.auth.shared-key.account.key": "a2V5"},
            "/c/x",
            "SharedKey named:",
        ),
        ({"adls.token": "mine"}, "/c/x", "Bearer mine"),
    ],
    ids=["SAS token", "shared key", "token"],
)
def test_azure_is_asked_by_the_identity_of_the_properties(
    store: tuple[str, Asked],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    path: str,
    authorization: str,
    environment: dict[str, str],
) -> None:
    url, asked = store
    (tmp_path / "token").write_text("federated")
    monkeypatch.chdir(tmp_path)
    for name, value in {**environment, "AZURE_AUTHORITY_HOST": url}.items():
        monkeypatch.setenv(name, value)
    access = StoreIO({f"adls.connection-string.{HOST}": url, **properties})
    with access.new_output(f"abfss://c@{HOST}/x").create(overwrite=True) as stream:
        stream.write(b"row")
    [(found, identity)] = asked
    assert (found, identity[: len(authorization)], bool(identity)) == (path, authorization, bool(authorization))
