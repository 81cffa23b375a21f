"""The key of a table whose records are private: it encrypts them wherever they are kept whole, and derives other secrets.

It is shown by nothing: neither by `repr`, nor by an error, nor in a plan.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from frazil.errors import SpecError

_MAGIC = b"\x00frazil-sealed-1"
"""What encrypted bytes begin with: no text, JSON or wire format does."""
_ID_BYTES, _NONCE_BYTES, _BLOCK = 4, 12, 64


class RecordKey(bytes):
    """The secret, a value that can be sent to tasks."""

    def __repr__(self) -> str:
        return "RecordKey(***)"

    __str__ = __repr__

    @cached_property
    def id(self) -> str:
        """The name of the key, 8 hexadecimal digits, for everyone to read: from it nobody finds the key."""
        return self.derive("id")[:_ID_BYTES].hex()

    def derive(self, purpose: str) -> bytes:
        """Returns 32 bytes for one purpose (RFC 5869, HKDF-SHA-256)."""
        return HKDF(SHA256(), 32, salt=None, info=f"frazil protect {purpose}".encode()).derive(bytes(self))

    def hmac(self, purpose: str, label: str, values: Iterable[bytes]) -> list[bytes]:
        """Returns HMAC-SHA-256 (RFC 2104) of each value behind `label` and a zero byte.

        The states of both hashes are copied for each value: half the time of `hmac.new`.
        """
        block = self.derive(purpose).ljust(_BLOCK, b"\x00")
        inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        inner.update(label.encode() + b"\x00")
        inner_copy = inner.copy
        outer_copy = hashlib.sha256(bytes(byte ^ 0x5C for byte in block)).copy
        digests = []
        for value in values:
            first, second = inner_copy(), outer_copy()
            first.update(value)
            second.update(first.digest())
            digests.append(second.digest())
        return digests

    def seal(self, plain: bytes, place: str) -> bytes:
        """Returns bytes encrypted and authenticated with AES-256-GCM. place: what they are; only there they open."""
        nonce = os.urandom(_NONCE_BYTES)
        head = _MAGIC + bytes.fromhex(self.id)
        return head + nonce + _cipher(self).encrypt(nonce, plain, head + place.encode())

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """Returns the plain bytes of what `seal` returned.

        Raises: SpecError where they were encrypted with another key, or for another place, or were changed.
        """
        end = len(_MAGIC) + _ID_BYTES
        head, nonce, body = sealed[:end], sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        try:
            return _cipher(self).decrypt(nonce, body, head + place.encode())
        except (InvalidTag, ValueError):
            pass  # Nothing of the cause belongs in the message.
        by = key_id_of(sealed)
        if by != self.id:
            message = f"the bytes are encrypted with the key {by}, and `protect_key` is the key {self.id}"
            raise SpecError(message, remedy="replay with the old `protect_key`", where=place)
        raise SpecError("the encrypted bytes were changed", remedy="drop this dead letter", where=place)


def unsealed(value: bytes, place: str, key: RecordKey | None) -> bytes:
    """Returns the plain bytes of a dead letter, which may be from a time when the table had no key. key: the table's.

    Raises: SpecError where they are encrypted with another key.
    """
    by = key_id_of(value)
    if by is None:
        return value
    if key is None:
        message = f"the dead letters are encrypted with the key {by}, and the table has no `protect_key`"
        raise SpecError(message, remedy="write that `protect_key` until they are replayed", where=place)
    return key.unseal(value, place)


def key_id_of(value: bytes) -> str | None:
    """Returns the id of the key that bytes are encrypted with; None where they are not encrypted."""
    return value[len(_MAGIC) : len(_MAGIC) + _ID_BYTES].hex() if value.startswith(_MAGIC) else None


def unquoted(error: Exception) -> RuntimeError:
    """Returns the error to raise in place of one that may quote a private record."""
    return RuntimeError(f"{type(error).__name__}, not quoted because a table protects fields")


@lru_cache(maxsize=8)
def _cipher(key: RecordKey) -> AESGCM:
    return AESGCM(key.derive("records"))
