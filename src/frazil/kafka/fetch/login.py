"""SASL: who this client is, proved once at the start of a connection."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kafka.errors import for_code
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from frazil.kafka.credentials import (
    KEYTAB,
    PACKAGE,
    PRINCIPAL,
    SERVICE,
    TokenError,
    forget_token,
    require_kerberos,
    token,
)
from frazil.kafka.tls import private_file

_HANDSHAKE, _AUTHENTICATE = SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY
_UNSUPPORTED_MECHANISM = 33
_ROUNDS = 8
"""More than any mechanism takes."""


class LoginError(Exception):
    """The broker refuses the login, in its own words."""


def log_in(
    ask: Callable[[Any], Any],
    versions: Mapping[int, tuple[int, int]],
    settings: Mapping[str, str],
    host: str,
    timeout_s: float,
) -> float:
    """Logs in, and returns after how many seconds the broker wants another login (KIP-368); 0 for never. ask: sends a
    request and returns the response. host: the broker's. timeout_s: for whoever gives a token.

    Raises: LoginError; UnavailableError where nobody gives a token; SpecError for a package that is not installed.
    """
    name = settings["sasl.mechanism"]
    if versions.get(_HANDSHAKE, (0, 0))[1] < 1 or _AUTHENTICATE not in versions:
        raise LoginError(f"unsupported SASL mechanism {name}: the broker is older than Kafka 1.0, or takes no login")
    answer = ask(SaslHandshakeRequest(mechanism=name, version=1))
    if answer.error_code:
        offered = f"; the broker's supported mechanisms: {', '.join(answer.mechanisms or ['none'])}"
        is_unknown = answer.error_code == _UNSUPPORTED_MECHANISM
        raise LoginError(f"unsupported SASL mechanism {name}{offered}" if is_unknown else _words(answer))
    version = min(2, versions[_AUTHENTICATE][1])
    with _mechanism(name, settings, host, timeout_s) as mechanism:
        return _exchanged(ask, mechanism, version)


def _exchanged(ask: Callable[[Any], Any], mechanism: SaslMechanism, version: int) -> float:
    """Returns the seconds of the session, once both sides have proved who they are."""
    lifetime_ms = 0
    for _ in range(_ROUNDS):
        answer = ask(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes(), version=version))
        if answer.error_code:
            raise LoginError(_words(answer))
        lifetime_ms = answer.session_lifetime_ms if version > 0 else 0
        try:
            mechanism.receive(bytes(answer.auth_bytes))
        except (ValueError, KeyError, IndexError) as error:
            raise LoginError(f"SASL authentication error: the broker does not prove itself: {error}") from None
        if mechanism.is_done():
            break
    if not (mechanism.is_done() and mechanism.is_authenticated()):
        raise LoginError("SASL authentication error: the broker does not end the login")
    return lifetime_ms / 1000


def _words(answer: Any) -> str:
    message = getattr(answer, "error_message", None)
    return f"SASL authentication error: {message or for_code(answer.error_code).__name__}"


@contextmanager
def _mechanism(name: str, settings: Mapping[str, str], host: str, timeout_s: float) -> Iterator[SaslMechanism]:
    user, password = (settings.get(f"sasl.{setting}", "") for setting in ("username", "password"))
    if name == "PLAIN":
        yield SaslMechanismPlain(sasl_plain_username=user, sasl_plain_password=password)
    elif name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        escaped = user.replace("=", "=3D").replace(",", "=2C")  # RFC 5802; the package sends it as it gets it.
        yield SaslMechanismScram(sasl_plain_username=escaped, sasl_plain_password=password, sasl_mechanism=name)
    elif name == "OAUTHBEARER":
        try:
            yield SaslMechanismOAuth(sasl_oauth_token_provider=_Tokens(settings, timeout_s))
        except TokenError as error:
            raise LoginError(str(error)) from None
        except LoginError:
            forget_token(settings)
            raise
    else:
        try:
            with ticket(settings, host) as mechanism:
                yield mechanism
        except TicketError as error:
            raise LoginError(str(error)) from None


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """What the mechanism asks for."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        super().__init__()
        self._settings, self._timeout_s = settings, timeout_s

    def token(self) -> str:
        return token(self._settings, self._timeout_s)[0]

    def extensions(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in self._settings.get("sasl.oauthbearer.extensions", "").split(","))
        return {name.strip(): value for name, _, value in pairs if name.strip()}


class TicketError(Exception):
    """Kerberos refuses a ticket, in its own words."""


@contextmanager
def ticket(settings: Mapping[str, str], host: str) -> Iterator[SaslMechanismGSSAPI]:
    """The mechanism, which has a ticket for the service on the host. settings: see `task_properties`; the keytab is its
    content, as base64.

    Raises: SpecError; TicketError.
    """
    require_kerberos()
    gssapi: Any = import_module(PACKAGE)
    try:
        if KEYTAB not in settings:
            yield _Kerberos(gssapi, settings, host, None)
            return
        with private_file(base64.b64decode(settings[KEYTAB])) as path:
            name = gssapi.Name(settings[PRINCIPAL], gssapi.NameType.kerberos_principal)
            # Tickets are kept in memory: nobody else finds them.
            store = {"client_keytab": f"FILE:{path}", "ccache": "MEMORY:frazil"}
            yield _Kerberos(gssapi, settings, host, gssapi.Credentials(name=name, usage="initiate", store=store))
    except gssapi.exceptions.GSSError as error:
        raise TicketError(f"Kerberos authentication failed: {error}") from None


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """The package's, with credentials other than those of this user."""

    def __init__(self, gssapi: Any, settings: Mapping[str, str], host: str, credentials: Any) -> None:
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{settings[SERVICE]}@{host}"
        service = gssapi.Name(self.auth_id, gssapi.NameType.hostbased_service)
        self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
        self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
        self._next_token = self._client_ctx.step(None)
