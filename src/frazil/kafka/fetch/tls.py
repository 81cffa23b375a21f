"""TLS of a connection, from librdkafka's settings. Certificates and keys are texts in PEM: tasks need no files."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

VERIFICATION = "enable.ssl.certificate.verification"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
CIPHERS = "ssl.cipher.suites"
_SETTINGS = (
    "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.key.password", CIPHERS, HOST_CHECK, VERIFICATION,
)  # fmt: skip


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Returns what connections with these settings have in common.

    Raises: ssl.SSLError, ValueError for a certificate, a key or ciphers that OpenSSL does not take.
    """
    return _context(tuple(settings.get(name, "") for name in _SETTINGS))


@lru_cache(maxsize=8)
def _context(wanted: tuple[str, ...]) -> ssl.SSLContext:
    authorities, chain, key, password, ciphers, host_check, verification = wanted
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = host_check != "none" and verification != "false"
    if verification == "false":
        context.verify_mode = ssl.CERT_NONE
    elif authorities:
        context.load_verify_locations(cadata=authorities)
    else:
        context.load_default_certs()
    if ciphers:
        context.set_ciphers(ciphers)
    if chain:
        with private_file(f"{chain}\n{key}\n".encode()) as path:
            context.load_cert_chain(path, password=password)  # Never None: OpenSSL would ask for it at the terminal.
    return context


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file that nobody else may read, while the block lasts: libraries take keys from nothing else."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("frazil-key"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="frazil-key-") as file:
            file.write(content)
            file.flush()
            yield file.name
