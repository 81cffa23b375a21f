"""An authority, and certificates of its own making, for TLS on the loopback."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_FROM, _TO = datetime.datetime(2020, 1, 1), datetime.datetime(2100, 1, 1)  # noqa: DTZ001


@dataclass(frozen=True)
class Files:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for the loopback. password: what opens their keys."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key, is_authority=True)))

    def make(self, name: str, password: str = "") -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        files = Files(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.certificate.write_bytes(_pem(self._sign(subject, key, is_authority=False)))
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return files

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            self._name, subject, key.public_key(), x509.random_serial_number(), _FROM, _TO
        )
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return builder.add_extension(loopback, critical=False).sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
