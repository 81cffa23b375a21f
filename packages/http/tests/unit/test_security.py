"""Who may call the service."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.ops.audit import audit_file
from frazil.spec.connections import HttpSpec, HttpTlsSpec, HttpTokensSpec
from frazil.spec.syntax.forms import Address
from frazil_http.security import cookie_of
from packages.http.tests.unit.running_scene import BASE, RunningScene

READ, OPERATE, OLD = "r" * 32, "o" * 32, "x" * 40
TOKENS = HttpTokensSpec(read=(READ,), operate=(OPERATE, OLD))
TABLES, PAUSE, RECORDS = "/api/v1/tables", "/api/v1/tables/n.a/pause", "/api/v1/tables/n.a/dead-letters/records"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RunningScene]:
    """A pipeline with one table."""
    scene = RunningScene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    with scene.running():
        yield scene


def test_tokens_separate_reading_from_acting(scene: RunningScene) -> None:
    client = scene.client(HttpSpec(tokens=TOKENS))

    def statuses(token: str | None) -> list[int]:
        headers = {b"Authorization": f"Bearer {token}".encode("latin-1")} if token is not None else {}
        asked = [client.get(path, headers=headers) for path in ("/metrics", TABLES, "/openapi.json", RECORDS)]
        return [*(one.status_code for one in asked), client.post(PAUSE, headers=headers).status_code]

    assert statuses(None) == [401] * 5
    assert statuses("") == statuses("w" * 32) == statuses("\xf6" * 32) == [401] * 5
    assert statuses(READ) == [200, 200, 200, 403, 403]
    assert statuses(OPERATE) == statuses(OLD) == [200] * 5
    refused = client.get(TABLES)
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert refused.json()["remedy"] == "send `Authorization: Bearer TOKEN`"
    assert client.post(PAUSE, headers={"Authorization": f"Bearer {READ}"}).json()["remedy"] == (
        "use a token of `http.tokens.operate`"
    )
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_browser_sends_its_token_as_a_cookie(scene: RunningScene) -> None:
    client = scene.client(HttpSpec(tokens=TOKENS))
    client.cookies.set(cookie_of(HttpSpec(tokens=TOKENS)), OPERATE)
    assert client.get(TABLES).status_code == 200


def test_without_tokens_everyone_on_this_machine_may_act(scene: RunningScene) -> None:
    client = scene.client()
    assert [client.get(RECORDS).status_code, client.post(PAUSE).status_code] == [200, 200]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "localhost.evil", "[::1"]
)
def test_another_host_is_refused_on_loopback(scene: RunningScene, host: str) -> None:
    answer = scene.client().get(TABLES, headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "WrongHost")
    assert answer.json()["remedy"] == "name the service localhost; a proxy in front of it sets `Host: localhost`"


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:8787", "[::1]:8787"])
def test_this_machine_has_several_names(scene: RunningScene, host: str) -> None:
    assert scene.client().get(TABLES, headers={"Host": host}).status_code == 200


def test_an_address_for_other_machines_takes_any_host_as_it_needs_a_token(scene: RunningScene) -> None:
    spec = HttpSpec(listen=Address("0.0.0.0", 8787), tokens=TOKENS, tls=HttpTlsSpec(certificate="c", key="k"))
    client = scene.client(spec, "https://frazil.example:8787")
    assert client.get(TABLES).status_code == 401
    answer = client.get(TABLES, headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == 200
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8787"},
    ],
)
def test_pages_of_other_sites_do_not_act(scene: RunningScene, headers: dict[str, str]) -> None:
    answer = scene.client().post(PAUSE, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "OtherSite")
    assert answer.json()["remedy"] == "act on a page of the service itself"


def test_the_services_own_pages_may_act(scene: RunningScene) -> None:
    # Behind a proxy a browser knows the service by another name; with plain HTTP it sends the origin alone.
    for headers in (
        {"Origin": "http://localhost:8787", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://frazil.example", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:8787"},
    ):
        assert scene.client().post(PAUSE, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/metrics", TABLES, "/nothing", "/api/v1/tables/n.b"])
def test_every_answer_has_the_headers_that_protect_browsers(scene: RunningScene, path: str) -> None:
    headers = scene.client().get(path).headers
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Server" not in headers
    assert "Access-Control-Allow-Origin" not in headers
    assert "Strict-Transport-Security" not in headers


def test_who_changes_something_is_known_by_the_token_and_the_address(scene: RunningScene) -> None:
    client = scene.client(HttpSpec(tokens=TOKENS))
    for token in (OPERATE, OLD):
        client.post(PAUSE, headers={"Authorization": f"Bearer {token}"})
    assert client.post(PAUSE, headers={"Authorization": f"Bearer {READ}"}).status_code == 403
    scene.client().post("/tables/n.a/resume", headers={"Origin": BASE})
    written = [json.loads(line) for line in audit_file(scene.pipeline.spec).read_text().splitlines()]
    shown = [f"token {hashlib.sha256(token.encode()).hexdigest()[:8]}" for token in (OPERATE, OLD)]
    assert [(line["through"], line["who"], line["operation"]) for line in written] == [
        ("api", shown[0], "pauseTable"),
        ("api", shown[1], "pauseTable"),
        ("console", "anyone", "resumeTable"),
    ]
    assert {line["place"] for line in written} == {"testclient"}
