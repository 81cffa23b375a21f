"""Who may call the service, and the headers of every answer.

On loopback without `http.tokens` everyone on this machine may; browsers are kept from being used against it: the host that a
request names must be this one (DNS rebinding), and a request that acts must come from a page of the service itself.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frazil.ops.audit import Actor
from frazil.spec.connections import HttpSpec, HttpTokensSpec
from frazil_http.pages import Pages
from frazil_http.problems import Refused, answer

log = structlog.get_logger("frazil")

LOGIN = "/login"
"""Takes a token from a browser and answers with the cookie."""
PUBLIC = ("/healthz", "/readyz", LOGIN)
"""Paths that need no token: they answer nothing but yes or no."""
STATIC = "/static/"
"""Begins the paths of style sheets and scripts, which need no token either."""
RIGHTS = "frazil.rights"
CALLER = "frazil.caller"
_SAFE = ("GET", "HEAD")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action"
    " 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Passes on requests that are allowed, with the rights of their caller in the scope: `read`, and `operate` to act."""

    def __init__(
        self,
        app: ASGIApp,
        http: HttpSpec,
        redact: Callable[[Any], Any],
        pages: Sequence[Pages],
    ) -> None:
        """pages: the first ones ask a browser for its token, where there are any."""
        self._app = app
        self._http = http
        self._redact = redact
        self._pages = pages
        self._headers = dict(_HEADERS)
        if http.tls is not None:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    def start(self) -> None:
        """Begins what pages do beside requests."""
        for pages in self._pages:
            pages.start()

    def stop(self) -> None:
        """Ends it, and answers that never end by themselves."""
        for pages in self._pages:
            pages.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        is_answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_answered
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, send_with_headers)
        except Refused as refused:
            # A browser without a token is asked for it.
            request = Request(scope)
            if self._pages and refused.problem.status == 401 and wants_page(request):
                response = self._pages[0].login(request)
            else:
                response = answer(refused.problem, self._redact, refused.headers)
            await response(scope, receive, send_with_headers)
        except Exception as error:
            log.error("http_request_failed", path=scope["path"], exc_info=error)
            if not is_answered:
                raise

    def _check(self, scope: Scope) -> None:
        request = Request(scope)
        if self._http.listen.is_loopback:
            _check_host(request, self._http.listen.host)
        if request.method not in _SAFE:
            _check_origin(request)
        scope[RIGHTS] = rights = self._rights(request)
        scope[CALLER] = self._caller(request)
        if scope["path"] in PUBLIC or scope["path"].startswith(STATIC):
            return
        if not rights:
            refused = Refused(
                401, "Unauthorized", "the token is missing or unknown", "send `Authorization: Bearer TOKEN`"
            )
            refused.headers = {"WWW-Authenticate": "Bearer"}
            raise refused
        if request.method not in _SAFE:
            require_operate(request)

    def _rights(self, request: Request) -> frozenset[str]:
        tokens = self._http.tokens
        if not (tokens.read or tokens.operate):
            return frozenset(("read", "operate"))
        return rights_of(_token_of(request, self._http), tokens)

    def _caller(self, request: Request) -> str:
        """Returns who sends a request, for the audit log: the token by the beginning of its SHA-256 sum."""
        if not (self._http.tokens.read or self._http.tokens.operate):
            return "anyone"
        return f"token {hashlib.sha256(_token_of(request, self._http).encode()).hexdigest()[:8]}"


def _token_of(request: Request, http: HttpSpec) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else request.cookies.get(cookie_of(http), "")


def actor_of(request: Request, through: str) -> Actor:
    """Returns who sends a request that was let in. through: the part of the service that was asked, `api` or `console`."""
    return Actor(through, request.scope[CALLER], request.client.host if request.client is not None else "")


def cookie_of(http: HttpSpec) -> str:
    """Returns the name of the cookie with a browser's token: scripts cannot read the cookie, and pages of other sites cannot
    send it. It has the port, as browsers send a cookie to every port of a host: several pipelines run on one machine.
    """
    return f"frazil_token_{http.listen.port}"


def wants_page(request: Request) -> bool:
    """Returns whether a person with a browser asks, and no program."""
    return "text/html" in request.headers.get("accept", "")


def rights_of(token: str, tokens: HttpTokensSpec) -> frozenset[str]:
    """Returns the rights of the caller who has this token."""
    if _is_among(token, tokens.operate):
        return frozenset(("read", "operate"))
    return frozenset(("read",)) if _is_among(token, tokens.read) else frozenset()


def require_operate(request: Request) -> None:
    """Raises Refused where the caller may only read."""
    if "operate" not in request.scope[RIGHTS]:
        raise Refused(403, "Forbidden", "this token may only read", "use a token of `http.tokens.operate`")


def _is_among(given: str, tokens: tuple[str, ...]) -> bool:
    """Compares in a time that does not depend on where the texts differ."""
    return any(hmac.compare_digest(given.encode(), token.encode()) for token in tokens)


def _check_host(request: Request, own_host: str) -> None:
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:  # Brackets that are not an IPv6 address.
        host = ""
    if host not in ("localhost", "127.0.0.1", "::1", own_host):
        raise Refused(
            421,
            "WrongHost",
            "the host of the request is not this machine",
            "name the service localhost; a proxy in front of it sets `Host: localhost`",
            "Host",
        )


def _check_origin(request: Request) -> None:
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    if site == "same-origin":  # A browser's own words; behind a proxy the origin has another name than the host.
        return
    own_origin = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
    if site != "none" or origin not in (None, own_origin):
        raise Refused(
            403,
            "OtherSite",
            "a page of another site made this request",
            "act on a page of the service itself",
            "Origin",
        )
