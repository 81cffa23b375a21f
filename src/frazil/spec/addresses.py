"""Addresses that a process listens on."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

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
