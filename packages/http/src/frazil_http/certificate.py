"""The certificate of the HTTP service, which may be renewed while the process runs.

It is loaded again once its files have changed, before the next connection. One that clients refuse for its dates is
served, and logged: it is renewed in place.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from frazil.clock import SystemClock
from frazil.spec.connections import HttpTlsSpec

log = structlog.get_logger("frazil")

_Load: TypeAlias = Callable[[], ssl.SSLContext]
RENEW = "renew the files of `http.tls`, or set this machine's clock"
"""What to do about a certificate that clients refuse for its dates, or soon will."""
_LAST_MS = 14 * 24 * 3600 * 1000
_LAST_SHARE = 10


@dataclass(frozen=True)
class Validity:
    """When a certificate is valid, in milliseconds since 1970."""

    from_ms: int
    until_ms: int

    def refusal(self, now_ms: float) -> str | None:
        """Returns why clients refuse the certificate now."""
        if now_ms < self.from_ms:
            return f"the certificate is not valid before {_moment(self.from_ms)}"
        return f"the certificate has expired at {_moment(self.until_ms)}" if now_ms > self.until_ms else None

    def warning(self, now_ms: float) -> str | None:
        """Returns that it is about to expire: in its last two weeks, or, where it is a short one, its last tenth."""
        last_ms = min(_LAST_MS, (self.until_ms - self.from_ms) // _LAST_SHARE)
        if self.refusal(now_ms) is None and now_ms > self.until_ms - last_ms:
            return f"the certificate expires at {_moment(self.until_ms)}"
        return None


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="minutes")


def validity(tls: HttpTlsSpec) -> Validity | None:
    """Returns when the certificate is valid; None for one that only OpenSSL can read."""
    from cryptography import x509  # noqa: PLC0415  (most pipelines have none)

    try:
        certificate = x509.load_pem_x509_certificate(
            Path(tls.certificate).read_bytes()
        )  # The first is the server's own.
    except (OSError, ValueError):
        return None
    ends = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return Validity(*(int(end.timestamp() * 1000) for end in ends))


def check_certificate(tls: HttpTlsSpec) -> None:
    """Loads the certificate and its key.

    Raises: OSError, with the file that is meant where one is, when a server cannot use them.
    """
    for path in (tls.certificate, tls.key):
        with Path(path).open("rb"):
            pass  # OpenSSL does not name a file that it cannot read.

    def refuse() -> str:  # Without a callback OpenSSL asks for the password on the terminal, and waits.
        raise OSError(errno.EACCES, "the key has a password", tls.key)

    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, refuse)


def renewing(tls: HttpTlsSpec) -> Callable[[Any, _Load], ssl.SSLContext]:
    """Returns what makes the TLS context of a server, given the server's settings and what loads the files of `tls`."""

    def make(_settings: Any, load: _Load) -> ssl.SSLContext:
        first = newest = load()
        tried = _stamps(tls)
        dates = _Dates(tls)

        # Called for each connection, whether or not it names a host.
        def use_newest(connection: ssl.SSLSocket | ssl.SSLObject, _host: str, _context: ssl.SSLContext) -> None:
            nonlocal newest, tried, dates
            stamps = _stamps(tls)
            if stamps != tried:
                tried = stamps
                try:
                    check_certificate(tls)
                    newest, dates = load(), _Dates(tls)
                    log.info("http_certificate_renewed", file=tls.certificate)
                except OSError as error:  # An SSLError is one, such as for a key that is yet to be replaced.
                    log.warning("http_certificate_kept", file=tls.certificate, reason=error.strerror or str(error))
            dates.log_change()
            connection.context = newest

        first.sni_callback = use_newest
        return first

    return make


class _Dates:
    """The dates of the certificate in use, logged when it begins to be refused, or to be about to expire."""

    def __init__(self, tls: HttpTlsSpec) -> None:
        self._file = tls.certificate
        self._validity = validity(tls)
        self._logged: str | None = None
        self.log_change()

    def log_change(self) -> None:
        if self._validity is None:
            return
        now_ms = SystemClock().now_ms()
        refusal = self._validity.refusal(now_ms)
        reason = refusal or self._validity.warning(now_ms)
        if reason == self._logged:
            return
        self._logged = reason
        if refusal is not None:
            log.warning("http_certificate_invalid", file=self._file, reason=reason, remedy=RENEW)
        elif reason is not None:
            log.warning("http_certificate_expiring", file=self._file, reason=reason, remedy=RENEW)


def _stamps(tls: HttpTlsSpec) -> list[tuple[int, int] | None]:
    """Returns what changes with a file, of the certificate and of its key; None for one that is missing."""
    stamps: list[tuple[int, int] | None] = []
    for path in (tls.certificate, tls.key):
        try:
            status = Path(path).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_ino, status.st_mtime_ns))
    return stamps
