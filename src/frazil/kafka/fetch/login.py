"""SASL: who this client is, said once at the start of a connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.errors import for_code
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

_HANDSHAKE, _AUTHENTICATE = SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY
_UNSUPPORTED_MECHANISM = 33
_ROUNDS = 8
"""More than any mechanism takes."""


class LoginError(Exception):
    """The broker refuses the login, in its own words."""


def log_in(
    ask: Callable[[Any], Any], versions: Mapping[int, tuple[int, int]], settings: Mapping[str, str], host: str
) -> float:
    """Logs in, and returns after how many seconds the broker wants another login (KIP-368); 0 for never. ask: sends a
    request and returns the response. host: the broker's.

    Raises: LoginError.
    """
    name = settings["sasl.mechanism"]
    if versions.get(_HANDSHAKE, (0, 0))[1] < 1 or _AUTHENTICATE not in versions:
        raise LoginError(f"unsupported SASL mechanism {name}: the broker is older than Kafka 1.0, or takes no login")
    answer = ask(SaslHandshakeRequest(mechanism=name, version=1))
    if answer.error_code:
        offered = f"; the broker's supported mechanisms: {', '.join(answer.mechanisms or ['none'])}"
        is_unknown = answer.error_code == _UNSUPPORTED_MECHANISM
        raise LoginError(f"unsupported SASL mechanism {name}{offered}" if is_unknown else _words(answer))
    mechanism = _mechanism(name, settings, host)
    version = min(2, versions[_AUTHENTICATE][1])
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


def _mechanism(name: str, settings: Mapping[str, str], host: str) -> SaslMechanism:  # noqa: ARG001
    user, password = (settings.get(f"sasl.{one}", "") for one in ("username", "password"))
    if name == "PLAIN":
        return SaslMechanismPlain(sasl_plain_username=user, sasl_plain_password=password)
    if name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        escaped = user.replace("=", "=3D").replace(",", "=2C")  # RFC 5802; the package sends it as it gets it.
        return SaslMechanismScram(sasl_plain_username=escaped, sasl_plain_password=password, sasl_mechanism=name)
    raise LoginError(f"unsupported SASL mechanism {name}")
