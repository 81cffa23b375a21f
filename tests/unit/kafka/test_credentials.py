"""Tokens of an OIDC provider: asked for once, kept for most of their lifetime, and what a provider can answer instead."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka import credentials
from frazil.kafka.credentials import TokenError, forget_token, token
from tests.fixtures.certificates import LOOPBACK

Answer = tuple[int, dict[str, str], bytes]


class _Provider:
    """Answers with what a test puts in `answers`, the last of them for good."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str]] = []
        self._server = server = ThreadingHTTPServer((LOOPBACK, 0), _Desk)
        server.daemon_threads = True
        server.provider = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.settings = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "s:1/ä",
            "sasl.oauthbearer.scope": "kafka all",
            "sasl.oauthbearer.token.endpoint.url": f"http://{LOOPBACK}:{server.server_address[1]}/token",
        }

    def gives(self, **document: object) -> None:
        self.answers.append((200, {}, json.dumps(document).encode()))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider: _Provider = self.server.provider  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        provider.asked.append((self.headers["Authorization"], body))
        status, headers, answer = provider.answers.pop(0) if len(provider.answers) > 1 else provider.answers[0]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Reports nothing."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Provider]:
    monkeypatch.setattr(credentials, "_kept", {})
    made = _Provider()
    yield made
    made.close()


class _Clock(SystemClock):
    late_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.late_ms


def test_a_token_is_asked_for_with_the_client_s_secret_and_kept_for_most_of_its_life(
    provider: _Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr(credentials, "_CLOCK", clock)
    provider.gives(access_token="first", expires_in=100)
    provider.gives(access_token="second", expires_in=100)
    assert [token(provider.settings, 5)[0] for _ in range(3)] == ["first"] * 3
    login = "Basic " + base64.b64encode("me:s:1/ä".encode()).decode()
    assert provider.asked == [(login, "grant_type=client_credentials&scope=kafka%20all")]
    clock.late_ms = 79_000
    assert token(provider.settings, 5)[0] == "first"
    clock.late_ms = 81_000
    assert token(provider.settings, 5)[0] == "second"


def test_another_client_gets_another_token_and_a_refused_one_is_not_used_again(provider: _Provider) -> None:
    for name in ("first", "second", "third"):
        provider.gives(access_token=name, expires_in=100)
    assert token(provider.settings, 5)[0] == "first"
    assert token(provider.settings | {"sasl.oauthbearer.client.secret": "renewed"}, 5)[0] == "second"
    forget_token(provider.settings)
    assert token(provider.settings, 5)[0] == "third"


def test_the_lifetime_is_read_from_the_token_where_the_answer_does_not_have_it(provider: _Provider) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4_000_000_000}).encode()).decode().rstrip("=")
    provider.gives(access_token=f"e30.{claims}.c2ln")
    assert token(provider.settings, 5) == (f"e30.{claims}.c2ln", 4_000_000_000_000.0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}, b'{"error": "invalid_client"}'), "401 invalid_client"),
        ((400, {}, b'{"error": "invalid_scope", "error_description": "no such"}'), "400 invalid_scope no such"),
        ((403, {}, b"<html>"), "answers 403"),
        ((302, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), "answers 302"),
    ],
)
def test_a_provider_that_refuses_is_quoted_and_a_secret_follows_no_redirect(
    provider: _Provider, answer: Answer, words: str
) -> None:
    provider.answers.append(answer)
    with pytest.raises(TokenError, match=words):
        token(provider.settings, 5)
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((503, {}, b""), "answers 503"),
        ((429, {}, b""), "answers 429"),
        ((200, {}, b"<html>"), "gives no token"),
        ((200, {}, b"[]"), "no access_token"),
        ((200, {}, b'{"access_token": "opaque"}'), "does not say when the token expires"),
    ],
)
def test_a_provider_that_has_no_token_is_away(provider: _Provider, answer: Answer, words: str) -> None:
    provider.answers.append(answer)
    with pytest.raises(UnavailableError, match=words) as away:
        token(provider.settings, 5)
    assert away.value.where == provider.settings["sasl.oauthbearer.token.endpoint.url"]


def test_a_provider_that_is_not_there_is_away(provider: _Provider) -> None:
    away = provider.settings | {"sasl.oauthbearer.token.endpoint.url": f"http://{LOOPBACK}:1/token"}
    with pytest.raises(UnavailableError, match=r"gives no token: .*refused"):
        token(away, 5)
