"""What clients log in with: tokens of an OIDC provider for tasks, those of Amazon MSK's signer for both clients.

librdkafka gets the tokens of an OIDC provider by itself. A process keeps a token until most of its lifetime is over.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.kafka.tls import tls_context
from frazil.refusals import kafka_remedy

METHOD = "sasl.oauthbearer.method"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID, SECRET, SCOPE = (f"sasl.oauthbearer.{name}" for name in ("client.id", "client.secret", "scope"))
MSK = "aws_msk_iam"
"""The method by which Amazon MSK's signer makes tokens."""
REGION, PROFILE, ROLE, SESSION = "aws.region", "aws.profile", "aws.role.arn", "aws.role.session.name"
PACKAGE = "gssapi"
"""Kerberos for tasks."""
KEYTAB, PRINCIPAL, SERVICE = (f"sasl.kerberos.{name}" for name in ("keytab", "principal", "service.name"))
_SIGNER = "aws_msk_iam_sasl_signer"
_OF_A_TOKEN = (METHOD, ENDPOINT, CLIENT_ID, SECRET, SCOPE, "https.ca.pem", REGION, PROFILE, ROLE, SESSION)
_KEPT = 0.8
"""The part of a token's lifetime for which it is used."""
_MOST_BYTES = 1024 * 1024
_HOST_IN_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_CLOCK = SystemClock()
#: By the settings that a token follows from: the token, when it expires, and when to get another one.
_kept: dict[tuple[str | None, ...], tuple[str, float, float]] = {}


class TokenError(Exception):
    """Whoever gives tokens refuses this client, in its own words."""


def token(settings: Mapping[str, str], timeout_s: float) -> tuple[str, float]:
    """Returns a token, and when it expires, in milliseconds since 1970. settings: those of `task_properties`.

    Raises: TokenError; UnavailableError where nobody answers; SpecError where the signer is not installed.
    """
    key = tuple(settings.get(name) for name in _OF_A_TOKEN)
    token_text, expires_ms, until_ms = _kept.get(key, ("", 0.0, 0.0))
    now_ms = _CLOCK.now_ms()
    if now_ms >= until_ms:
        token_text, expires_ms = (
            _signed_token(settings) if settings.get(METHOD) == MSK else _asked_token(settings, timeout_s)
        )
        _kept[key] = token_text, expires_ms, now_ms + _KEPT * (expires_ms - now_ms)
    return token_text, expires_ms


def forget_token(settings: Mapping[str, str]) -> None:
    """Gets another token the next time: a broker has refused this one."""
    _kept.pop(tuple(settings.get(name) for name in _OF_A_TOKEN), None)


# ---- OIDC


class _NoRedirects(HTTPRedirectHandler):
    """The client's secret is for nobody else."""

    def redirect_request(self, *_: Any) -> None:
        """Leaves the answer as it is, which is then an error."""


def _asked_token(settings: Mapping[str, str], timeout_s: float) -> tuple[str, float]:
    """Returns a token for the client's credentials, and when it expires, in milliseconds since 1970."""
    url = settings[ENDPOINT]
    login = base64.b64encode(f"{settings[CLIENT_ID]}:{settings[SECRET]}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": settings[SCOPE]} if settings.get(SCOPE) else {})}
    request = Request(
        url,
        urlencode(form, quote_via=quote).encode(),
        {
            "Authorization": f"Basic {login}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    context = tls_context({"ssl.ca.pem": settings.get("https.ca.pem", "")})
    try:
        with build_opener(HTTPSHandler(context=context), _NoRedirects).open(request, timeout=timeout_s) as answer:
            return _token_of(answer.read(_MOST_BYTES))
    except HTTPError as error:
        with error:
            words = f"the token endpoint answers {error.code}{_reason(error)}"
        if error.code >= 500 or error.code == 429:
            raise UnavailableError(words, where=url) from None
        raise TokenError(words) from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise TokenError(f"the token endpoint's certificate verify failed: {reason.verify_message}") from None
        raise UnavailableError(f"the token endpoint gives no token: {reason}", where=url) from None


def _token_of(body: bytes) -> tuple[str, float]:
    """Raises: ValueError for an answer without a token or without its lifetime."""
    answer = json.loads(body)
    if not isinstance(answer, dict) or not isinstance(token_text := answer.get("access_token"), str):
        raise ValueError("its answer has no access_token")
    seconds = answer.get("expires_in")
    if seconds is not None:
        return token_text, _CLOCK.now_ms() + 1000 * float(seconds)
    claims = token_text.split(".")[1] if token_text.count(".") == 2 else ""
    expires_s = json.loads(base64.urlsafe_b64decode(claims + "==") or b"{}").get("exp")
    if not isinstance(expires_s, int | float):
        raise ValueError("its answer does not say when the token expires")
    return token_text, 1000.0 * expires_s


def _reason(error: HTTPError) -> str:
    try:
        answer = json.loads(error.read(_MOST_BYTES))
        return "".join(f" {answer[name]}" for name in ("error", "error_description") if answer.get(name))
    except (OSError, ValueError, AttributeError, TypeError):
        return ""


# ---- Amazon MSK


def region_of(servers: str) -> str:
    """Returns the region of an MSK cluster; empty where neither its hosts nor the environment name it."""
    match = _HOST_IN_REGION.search(servers)
    return match[1] if match else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


def require_signer() -> None:
    """Raises: SpecError where Amazon MSK's signer is not installed."""
    if find_spec(_SIGNER) is None:
        raise SpecError(
            "a login at Amazon MSK by IAM needs the package aws-msk-iam-sasl-signer-python, which is not installed",
            remedy="install `frazil[msk]` with pip from where Frazil was installed, here and where tasks run",
            where="sasl.mechanism",
        )


def _signed_token(settings: Mapping[str, str]) -> tuple[str, float]:
    """Returns a token that is signed with this machine's AWS credentials, and when it expires, in milliseconds since 1970.

    Raises: TokenError; SpecError where the signer is not installed.
    """
    require_signer()
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415  (an extra)

    region, session = settings[REGION], settings.get(SESSION)
    try:
        if role := settings.get(ROLE):
            signed = Signer.generate_auth_token_from_role_arn(region, role, *([session] if session else []))
        elif profile := settings.get(PROFILE):
            signed = Signer.generate_auth_token_from_profile(region, profile)
        else:
            signed = Signer.generate_auth_token(region)
    except Exception as error:  # noqa: BLE001  (whatever its own libraries raise, such as an AttributeError without credentials)
        raise TokenError(f"AWS gives no credentials for Amazon MSK: {error}") from None
    text, expires_ms = signed
    return text, float(expires_ms)


def native_tokens(settings: Mapping[str, str]) -> Callable[[str], tuple[str, float]]:
    """Returns librdkafka's `oauth_cb`: a token, and when it expires, in seconds since 1970.

    Raises: UnavailableError where there is no token now: a client would wait for one, and report no reason.
    """

    def new_token(_: str = "") -> tuple[str, float]:
        text, expires_ms = token(settings, 0)
        return text, expires_ms / 1000

    try:
        new_token()
    except TokenError as error:
        raise UnavailableError(str(error), remedy=kafka_remedy(str(error)), where="sasl.mechanism") from None
    return new_token


# ---- Kerberos


def require_kerberos() -> None:
    """Raises: SpecError where the package for Kerberos is not installed."""
    if find_spec(PACKAGE) is None:
        raise SpecError(
            "tasks log in by GSSAPI (Kerberos) with the Python package gssapi, which is not installed",
            remedy="install gssapi here and where tasks run, or name another mechanism in sasl.mechanism",
            where="sasl.mechanism",
        )
