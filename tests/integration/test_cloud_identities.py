"""Tasks write to Google's and Microsoft's stores by the identity of the driver's machine: by tokens that the driver's own
libraries get, here from a server in place of the clouds'. `make test-all` fetches the jars of these libraries.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from frazil.catalog.iceberg.store_access import identity_of
from frazil.clock import SystemClock
from frazil.store.properties import PROXY, credentials_end_ms
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.programs import bundle

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.timeout(300)]
PROXY_OF_JAVA = {"https.proxyHost": "proxy", "https.proxyPort": "8", "http.nonProxyHosts": "127.*|*.inside"}
HOUR_S, DAY_S = 3600, 86400
ACCOUNT = "abfss://data@lake.dfs.core.windows.net/t"


@pytest.fixture
def cloud() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The address of a server that gives out tokens, and what it was asked: path and body."""
    asked: list[tuple[str, str]] = []

    class Cloud(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.rfile.read(int(self.headers["content-length"] or 0)).decode()))
            ends_s = SystemClock().now_ms() // 1000 + DAY_S
            token = {"access_token": f"token-{len(asked)}", "expires_in": HOUR_S, "expires_on": str(ends_s)}
            content = json.dumps({**token, "token_type": "Bearer", "resource": "r"}).encode()
            self.send_response(200)
            for name, value in {"content-type": "application/json", "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815  (the name that http.server calls)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def _service_account(url: str) -> str:
    """The key of a service account, as Google's console gives it out."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "project_id": "p", "private_key_id": "1", "private_key": key.decode()}
    return json.dumps({**account, "client_email": "a@p.example", "client_id": "1", "token_uri": f"{url}/token"})


def test_tasks_get_tokens_of_the_identity_that_only_the_drivers_machine_has(
    cloud: tuple[str, list[tuple[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = cloud
    (tmp_path / "key.json").write_text(_service_account(url))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")
    now_ms = SystemClock().now_ms()
    with light_jvm(conf={"spark.jars": f"{bundle('azure')},{bundle('gcp')}"}) as jvm:
        for name, value in PROXY_OF_JAVA.items():
            jvm.gateway.jvm.java.lang.System.setProperty(name, value)
        load = jvm.gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO
        google = load("org.apache.iceberg.gcp.gcs.GCSFileIO", {}, None)
        found = identity_of(jvm.gateway, google, "gs://lake/t", {})
        azure = load("org.apache.iceberg.azure.adlsv2.ADLSFileIO", {}, None)
        of_azure = [identity_of(jvm.gateway, azure, ACCOUNT, {}) for _ in range(2)]
        named = {"adls.sas-token.lake.dfs.core.windows.net": "sig=x"}
        assert identity_of(jvm.gateway, azure, ACCOUNT, named) == {PROXY: "http://proxy:8"}
        inside = {"adls.connection-string.lake.dfs.core.windows.net": "https://lake.inside?sig=x"}
        assert identity_of(jvm.gateway, azure, ACCOUNT, inside) == {PROXY: ""}, "Java reaches it directly"
    (asked_at, body), (azure_asked_at, _) = asked
    assert (asked_at, azure_asked_at.partition("?")[0]) == ("/token", "/identity")
    claims = json.loads(base64.urlsafe_b64decode(parse_qs(body)["assertion"][0].split(".")[1] + "=="))
    assert claims["scope"].startswith("https://www.googleapis.com/auth/devstorage"), "Google refuses a request without"
    assert found["gcs.oauth2.token"] == "token-1"
    assert of_azure == [{**of_azure[0], "adls.token": "token-2", PROXY: "http://proxy:8"}] * 2
    for identity, seconds in ((found, HOUR_S), (of_azure[0], DAY_S)):
        assert abs((credentials_end_ms(identity) or 0) - now_ms - seconds * 1000) < 120_000
