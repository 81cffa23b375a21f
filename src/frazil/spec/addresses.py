"""Addresses that a process listens on, and of HTTP services."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from frazil.errors import SpecError

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host and a port."""

    #: A name or an IP address.
    host: str
    #: 1 to 65535.
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Returns the address that `text` spells.

    Raises: SpecError for another text.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise SpecError(f"`{text}` is no address to listen on", remedy="write host and port, such as `127.0.0.1:8787`")
    return Address(match["v6"] or match["host"], int(match["port"]))


def parse_url(text: str, label: str, instead: str) -> str:
    """Returns the address of an HTTP service that `text` spells, without a slash at the end. label: the key that has it.
    instead: what to do where it holds credentials.

    Raises: SpecError for another text.
    """
    remedy = "write only scheme, host, port and path, such as https://registry:8081"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise SpecError(f"`{label}` is not an HTTP address", remedy=remedy) from None
    if "@" in parts.netloc:
        raise SpecError(f"`{label}` holds credentials, and addresses are shown in logs", remedy=instead)
    if not re.match("https?://", text) or not parts.hostname or port == 0 or re.search(r"\s", text):
        raise SpecError(f"`{label}` is not an HTTP address", remedy="begin it with http:// or https://")
    if parts.query or parts.fragment:
        raise SpecError(f"`{label}` has a part after ? or #", remedy=remedy)
    return text.rstrip("/")
