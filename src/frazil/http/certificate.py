"""The certificate of the HTTP service, which may be renewed while the process runs.

It is loaded again once its files have changed, before the next connection.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from frazil.spec.connections import HttpTlsSpec

log = structlog.get_logger("frazil")

_Load: TypeAlias = Callable[[], ssl.SSLContext]


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

        # Called for each connection, whether or not it names a host.
        def use_newest(connection: ssl.SSLSocket | ssl.SSLObject, _host: str, _context: ssl.SSLContext) -> None:
            nonlocal newest, tried
            stamps = _stamps(tls)
            if stamps != tried:
                tried = stamps
                try:
                    check_certificate(tls)
                    newest = load()
                    log.info("http_certificate_renewed", file=tls.certificate)
                except OSError as error:  # An SSLError is one, such as for a key that is yet to be replaced.
                    log.warning("http_certificate_kept", file=tls.certificate, reason=error.strerror or str(error))
            connection.context = newest

        first.sni_callback = use_newest
        return first

    return make


def _stamps(tls: HttpTlsSpec) -> list[tuple[int, int] | None]:
    """Returns what changes with a file, of the certificate and of its key; None for one that is missing."""
    found: list[tuple[int, int] | None] = []
    for path in (tls.certificate, tls.key):
        try:
            status = Path(path).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns))
    return found
