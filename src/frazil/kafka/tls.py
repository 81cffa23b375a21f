"""TLS of Kafka's clients: certificates and keys as their files have them now, and what connections of tasks make of them.

Tasks get texts in PEM and need no files.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from frazil.errors import SpecError

NATIVE_CA = ("ssl.ca.location", "ssl.ca.pem")
NATIVE_KEYS = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(r"-----BEGIN ((?:[A-Z]+ )*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_CHECK_KEY = "check ssl.key.location (or ssl.key.pem) and ssl.key.password"
_CHECK_STORE = "check ssl.keystore.location and ssl.keystore.password"
_USE_PEM = "give it certificates in PEM, as `openssl x509` writes them"


def authorities(native: Mapping[str, str], name: str) -> dict[str, str]:
    """Returns the certificates of authorities in a setting, its file or the files of its folder; nothing for those of the
    machine. name: without `.pem` and `.location`.
    """
    text, location = native.get(f"{name}.pem"), native.get(f"{name}.location", "probe")
    if text is None and location == "probe":
        return {}
    certificates = _CERTIFICATE.findall(_texts(location) if text is None else text)
    if not certificates:
        setting = f"{name}.location" if text is None else f"{name}.pem"
        raise SpecError(f"kafka `{setting}` has no certificate in PEM", remedy=_USE_PEM, where=setting)
    return {f"{name}.pem": "\n".join(certificates)}


def _texts(location: str) -> str:
    """Returns the text of a file, or of the files of a folder."""
    path = Path(location)
    return "\n".join(_read(file) for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if not file.is_dir())


def key_and_chain(native: Mapping[str, str]) -> dict[str, str]:
    """Returns the certificate of this client and its key, which is decrypted."""
    if native.keys().isdisjoint(NATIVE_KEYS):
        return _from_pkcs12(native) if "ssl.keystore.location" in native else {}
    chain, key = (_pem(native, name) for name in ("ssl.certificate", "ssl.key"))
    if chain is None or key is None:
        raise SpecError(
            "kafka has one of a client certificate and its key",
            remedy="write both ssl.certificate.location and ssl.key.location; they may name one file",
            where=next(name for name in NATIVE_KEYS if name in native),
        )
    chain = "\n".join(_CERTIFICATE.findall(chain))
    match = _KEY.search(key)  # Beside the certificate where one file has both.
    if match and match[1] == "PRIVATE KEY":
        return {"ssl.certificate.pem": chain, "ssl.key.pem": match[0]}
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  (most pipelines have no such key)
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415

    password = native.get("ssl.key.password")
    try:
        loaded = forms.load_pem_private_key(
            (match[0] if match else key).encode(), password.encode() if password else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SpecError(f"kafka's client key cannot be read: {error}", remedy=_CHECK_KEY, where="kafka") from None
    return {"ssl.certificate.pem": chain, "ssl.key.pem": _plain(loaded)}


def _from_pkcs12(native: Mapping[str, str]) -> dict[str, str]:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    path, password = native["ssl.keystore.location"], native.get("ssl.keystore.password")
    try:
        key_store = load_pkcs12(content(path), password.encode() if password else None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SpecError(
            f"kafka's key store cannot be read: {error}", remedy=_CHECK_STORE, where="ssl.keystore.location"
        ) from None
    if key_store.key is None or key_store.cert is None:
        raise SpecError(
            "kafka's key store has no key with a certificate", remedy=_CHECK_STORE, where="ssl.keystore.location"
        )
    chain = (
        certificate.certificate.public_bytes(forms.Encoding.PEM).decode()
        for certificate in (key_store.cert, *key_store.additional_certs)
    )
    return {"ssl.certificate.pem": "".join(chain), "ssl.key.pem": _plain(key_store.key)}


def _plain(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415

    text: str = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()).decode()
    return text


def _pem(properties: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in properties:
        return properties[f"{name}.pem"]
    return _read(Path(properties[f"{name}.location"])) if f"{name}.location" in properties else None


def _read(path: Path) -> str:
    return content(path).decode(errors="replace")


def content(path: str | Path) -> bytes:
    """Raises: SpecError for a file that cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"a Kafka certificate or key cannot be read: {error.strerror}", where=str(path)) from None


def version_of(path: Path) -> object:
    """Returns what another content of a file changes; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


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
